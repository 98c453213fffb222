"""Clusters of one shape are joined and audited once: a fleet holds a thousand clusters and few shapes.

The join and the audit see a view without what no component may depend on: labels, taints of the cluster, credentials,
account. Its name is a mark that no manifest can hold; where the mark turns up in the result, or anything was found, the
cluster is worked out under its own name instead, so sharing never changes a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modelplane_dagster.audit.plan_audit import PlanAudit, audit_plan
from modelplane_dagster.canonical import canonical
from modelplane_dagster.cluster import ClusterView, PoolView
from modelplane_dagster.components.join import Join, Kept, join
from modelplane_dagster.kube.objects import EMPTY

if TYPE_CHECKING:
    from modelplane_dagster.components.types import Component

# A cluster's name is a DNS label: lower case, no underscore. Names enter labels, whose length is checked, so the mark is
# short, and a longer real name that breaks a limit is found by the check of names itself.
MARK = "_C_"
Result = tuple[Join, PlanAudit]


class Shapes:
    """Remembers results by shape. One of these serves one fleet and overlay: classes are told apart by name."""

    def __init__(self) -> None:
        self._shared: dict[object, Result | None] = {}

    def plan(self, view: ClusterView, components: tuple[Component, ...], keep: Mapping[str, Kept]) -> Result:
        """The join and the audit of its result."""
        plain = replace(view, labels=EMPTY, taints=(), credentials=("", ""), account="")
        key = (_shape(plain), tuple(sorted((k, v.pools, v.taints) for k, v in keep.items())))
        if key not in self._shared:
            self._shared[key] = _anonymous(plain, components, keep)
        shared = self._shared[key]
        return shared if shared is not None else _work_out(plain, components, keep)


def _work_out(view: ClusterView, components: tuple[Component, ...], keep: Mapping[str, Kept]) -> Result:
    joined = join(view, components, keep=keep)
    return joined, audit_plan(view, joined.components)


def _anonymous(view: ClusterView, components: tuple[Component, ...], keep: Mapping[str, Kept]) -> Result | None:
    """The result under the mark; None where it depends on the cluster's name."""
    pools = tuple(replace(p, cluster=MARK) for p in view.pools)
    joined, audit = _work_out(replace(view, name=MARK, pools=pools), components, keep)
    if joined.findings or audit.findings:
        return None
    made = [(c.values, c.manifests, c.reason) for c in joined.components]
    return None if MARK.encode() in canonical(made) else (joined, audit)


def _shape(view: ClusterView) -> tuple[Any, ...]:
    return (
        view.source,
        view.version,
        view.location,
        view.cpu_mode,
        view.external,
        tuple(_pool_shape(p) for p in view.pools),
    )


def _pool_shape(pool: PoolView) -> tuple[Any, ...]:
    """The class's name stands for its devices and its machine."""
    size = (pool.count, pool.minimum, pool.maximum)
    return (pool.name, pool.class_name, size, pool.zones, pool.fabric, pool.infiniband, pool.capacity_block)
