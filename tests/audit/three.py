"""A cluster of three pools, one node of each kind beside one of no pool, with everything on it that it should have."""

from __future__ import annotations

from tests.audit.worlds import AMD, CPU, NV, node, published, stack, view, workloads_of

CLUSTER = view(NV, AMD, CPU)
NODES = (node("nv-1", NV), node("amd-1", AMD), node("cpu-1", CPU), node("sys-1"))
SLICES = tuple(published(NODES, CLUSTER.pools))
PARTS = stack(CLUSTER)
WORKLOADS = workloads_of(PARTS)
