"""The nodes that a plan stands for: one a pool, and on a provisioned cluster the untainted system node.

Labels that components put on nodes are granted in a fixed point: NFD's worker must reach the pool before the label
exists that a driver's daemon selects on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from modelplane_dagster.audit.expect import SYSTEM
from modelplane_dagster.audit.instances import Instance
from modelplane_dagster.audit.planned_reach import runs
from modelplane_dagster.cluster import ClusterView, PoolView
from modelplane_dagster.components.types import Grant, JoinedComponent
from modelplane_dagster.drivers import POOL_LABEL
from modelplane_dagster.kube.objects import NodeFacts

STANDARD: Mapping[str, str] = MappingProxyType({"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"})
"""What every kubelet sets; Arm pools are out of scope."""

# The class's provisioning field that the cloud writes into the well-known label.
_INSTANCE_TYPE = ("instanceType", "machineType", "vmSize")


def planned_nodes(
    view: ClusterView, joined: Iterable[JoinedComponent], planned: tuple[Instance, ...]
) -> tuple[NodeFacts, ...]:
    """In the manifest's order, the system node last; no system node for Existing, whose other nodes aren't known."""
    grants = tuple(g for j in joined if j.install for g in j.component.grants)
    nodes = [_granted(pool, grants, planned) for pool in view.pools]
    if view.source != "Existing":
        nodes.append(NodeFacts(SYSTEM, labels=MappingProxyType({**STANDARD, "kubernetes.io/hostname": SYSTEM})))
    return tuple(nodes)


def _node(pool: PoolView) -> NodeFacts:
    labels = {**STANDARD, "kubernetes.io/hostname": pool.name, POOL_LABEL: pool.name, **pool.labels}
    machine = next((str(pool.machine[f]) for f in _INSTANCE_TYPE if pool.machine.get(f)), "")
    if machine:
        labels["node.kubernetes.io/instance-type"] = machine
    return NodeFacts(pool.name, labels=MappingProxyType(labels), taints=pool.taints)


def _granted(pool: PoolView, grants: tuple[Grant, ...], planned: tuple[Instance, ...]) -> NodeFacts:
    node = _node(pool)
    left = [g for g in grants if g.driver in pool.drivers]
    while due := [g for g in left if _due(g, node, planned)]:
        labels = dict(node.labels)
        for grant in due:
            labels.update(grant.labels)
        node = NodeFacts(node.name, labels=MappingProxyType(labels), taints=node.taints)
        left = [g for g in left if g not in due]
    return node


def _due(grant: Grant, node: NodeFacts, planned: tuple[Instance, ...]) -> bool:
    if any(node.labels.get(k) != v for k, v in grant.needs.items()):
        return False
    if not grant.by:
        return True
    return any(i.workload.name == grant.by and runs(i, node) for i in planned)
