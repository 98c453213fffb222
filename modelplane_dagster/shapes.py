"""Clusters of one shape are joined and audited once: a fleet holds a thousand clusters and few shapes.

The join and the audit see a view without what they never read: labels, taints and credentials of the cluster, zones and
reservations of its pools. What a component may only pass on (the cluster's name and location, the sizes of its pools)
is a mark that no manifest can hold. Components in whose result a mark turns up are made anew for each cluster; where one
turns up anywhere else, or anything was found, the cluster is worked out by itself, so sharing never changes a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from modelplane_dagster.audit.plan_audit import PlanAudit, audit_plan
from modelplane_dagster.canonical import canonical
from modelplane_dagster.cluster import ClusterView, PoolView
from modelplane_dagster.components.effective import placed
from modelplane_dagster.components.identity import remembered
from modelplane_dagster.components.join import Join, Kept, join, remade
from modelplane_dagster.kube.objects import EMPTY

if TYPE_CHECKING:
    from modelplane_dagster.components.types import Component, JoinedComponent

# A cluster's name is a DNS label: lower case, no underscore. Names enter labels, whose length is checked, so the mark is
# short, and a longer real name that breaks a limit is found by the check of names itself.
MARK = "_C_"
PLACE = "_L_"
# Above what a manifest may ask for: counts have a bound, far below.
COUNT, LEAST, MOST = 977_100_001, 977_100_002, 977_100_003
_MARKS = (MARK, PLACE, str(COUNT), str(LEAST), str(MOST))
Result = tuple[Join, PlanAudit]


@dataclass(frozen=True, slots=True)
class _Shared:
    """`own` are the keys of the components that each cluster is given of its own."""

    joined: Join
    audit: PlanAudit
    own: frozenset[str]


class Shapes:
    """Remembers results by shape. One of these serves one fleet and overlay: classes are told apart by name."""

    def __init__(self) -> None:
        self._shared: dict[object, _Shared | None] = {}

    def plan(self, view: ClusterView, components: tuple[Component, ...], keep: Mapping[str, Kept]) -> Result:
        """The join and the audit of its result."""
        key = (
            _shape(view),
            tuple(sorted((k, tuple(sorted(v.pools)), tuple(sorted(v.taints))) for k, v in keep.items())),
        )
        if key not in self._shared:
            self._shared[key] = _anonymous(view, components, keep)
        shared = self._shared[key]
        if shared is not None and not shared.own:
            return shared.joined, shared.audit
        own = remade(shared.joined, view, shared.own, keep=keep) if shared is not None else None
        if shared is None or own is None:
            return _work_out(view, components, keep)
        return own, shared.audit


def _work_out(view: ClusterView, components: tuple[Component, ...], keep: Mapping[str, Kept]) -> Result:
    joined = join(view, components, keep=keep)
    return joined, audit_plan(view, joined.components)


def _anonymous(view: ClusterView, components: tuple[Component, ...], keep: Mapping[str, Kept]) -> _Shared | None:
    """The result under the marks; None where more than values and manifests depend on what they stand for."""
    joined, audit = _work_out(_marked(view), components, keep)
    if joined.findings or audit.findings:
        return None
    told = [c.reason for c in joined.components]
    if _holds("\n".join([*told, *(f"{r.name} {' '.join(r.reaches)}" for r in audit.rows)])):
        return None
    own = [c for c in joined.components if c.install and _depends(c)]
    if any(_holds(repr([(p.name, p.namespace, p.placement, p.pod_labels) for p in placed(c)])) for c in own):
        return None
    return _Shared(joined, audit, frozenset(c.key for c in own))


@remembered(1024)
def _depends(part: JoinedComponent) -> bool:
    return _holds(canonical((part.values, part.manifests, part.prepares)).decode())


def _holds(text: str) -> bool:
    return any(mark in text for mark in _MARKS)


def _marked(view: ClusterView) -> ClusterView:
    return replace(
        view,
        name=MARK,
        location=PLACE if view.location else "",
        labels=EMPTY,
        taints=(),
        credentials=("", ""),
        account="",
        pools=tuple(_marked_pool(p) for p in view.pools),
    )


def _marked_pool(pool: PoolView) -> PoolView:
    low, high = (LEAST, MOST) if pool.autoscaled else (None, None)
    plain = replace(pool, cluster=MARK, count=COUNT, minimum=low, maximum=high)
    return replace(plain, zones=(), infiniband="", capacity_block="")


def _shape(view: ClusterView) -> tuple[Any, ...]:
    return (
        view.source,
        view.version,
        bool(view.location),
        view.cpu_mode,
        view.external,
        tuple((p.name, p.class_name, p.autoscaled, p.fabric) for p in view.pools),
    )
