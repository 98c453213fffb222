"""Clusters of one shape are joined and audited once: a fleet holds a thousand clusters and few shapes.

The join and the audit see a view without what they never read: labels, taints and credentials of the cluster, zones and
reservations of its pools. What a component may only pass on (the cluster's name and location, the sizes of its pools)
is a mark that no manifest can hold. Components in whose result a mark turns up are made anew for each cluster; where one
turns up anywhere else, or anything was found, the cluster is worked out by itself, so sharing never changes a result.

The names of pools are marks as well, in the same order: rules ask of them only whether two are the same, and which comes
first. They may stand in placements, rows and reasons too, where the real names take their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from modelplane_dagster.audit.expect import SYSTEM
from modelplane_dagster.audit.plan_audit import PlacementRow, PlanAudit, audit_plan
from modelplane_dagster.canonical import canonical
from modelplane_dagster.cluster import ClusterView, PoolView
from modelplane_dagster.components.checks import pool_findings
from modelplane_dagster.components.effective import placed
from modelplane_dagster.components.identity import remembered
from modelplane_dagster.components.join import Join, Kept, join, remade
from modelplane_dagster.drivers import POOL_LABEL
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
# A pool's name is a DNS label as well; a label's value, which the mark becomes, may be in capitals.
POOL_MARK = "POOL"
Result = tuple[Join, PlanAudit]


@dataclass(frozen=True, slots=True)
class _Shared:
    """`own` are the keys of the components that each cluster is given of its own, `named` of those that the names of its
    pools stand in."""

    joined: Join
    audit: PlanAudit
    own: frozenset[str]
    named: frozenset[str] = frozenset()


class Shapes:
    """Remembers results by shape. One of these serves one fleet and overlay: classes are told apart by name."""

    def __init__(self) -> None:
        self._nameless: dict[object, _Shared | None] = {}
        self._shared: dict[object, _Shared | None] = {}

    def plan(self, view: ClusterView, components: tuple[Component, ...], keep: Mapping[str, Kept]) -> Result:
        """The join and the audit of its result."""
        shape = _shape(view)
        names = tuple(p.name for p in view.pools)
        key = (
            shape,
            names,
            tuple(sorted((k, tuple(sorted(v.pools)), tuple(sorted(v.taints))) for k, v in keep.items())),
        )
        if key not in self._shared:
            # What live releases keep is by the names of pools.
            named = None if keep else self._named(shape, view, components)
            self._shared[key] = named or _anonymous(_marked(view), components, keep)
        shared = self._shared[key]
        if shared is not None and not shared.own:
            return shared.joined, shared.audit
        own = remade(shared.joined, view, shared.own, keep=keep) if shared is not None else None
        if shared is None or own is None:
            return _work_out(view, components, keep)
        return own, shared.audit

    def _named(self, shape: object, view: ClusterView, components: tuple[Component, ...]) -> _Shared | None:
        """The nameless result of the shape with the names of this cluster's pools; None where they mean more."""
        marks = _pool_marks(view)
        if not marks or any(pool_findings(view)):
            return None
        key = (shape, tuple(marks.values()))
        if key not in self._nameless:
            self._nameless[key] = _anonymous(_nameless(_marked(view), marks), components, {})
        shared = self._nameless[key]
        if shared is None:
            return None
        joined = remade(shared.joined, _marked(view), shared.named, keep={})
        return _with_names(shared, joined, {mark: name for name, mark in marks.items()}) if joined else None


def _pool_marks(view: ClusterView) -> dict[str, str]:
    """By name, in the manifest's order, a mark a pool that sorts as the names do; empty where one isn't a name like any
    other."""
    names = [p.name for p in view.pools]
    ranks = {name: f"{POOL_MARK}{rank:04d}" for rank, name in enumerate(sorted(names))}
    if SYSTEM in ranks or len(ranks) < len(names):
        return {}
    return {name: ranks[name] for name in names}


def _nameless(view: ClusterView, marks: Mapping[str, str]) -> ClusterView:
    pools = (
        replace(p, name=marks[p.name], labels={k: marks[p.name] if k == POOL_LABEL else v for k, v in p.labels.items()})
        for p in view.pools
    )
    return replace(view, pools=tuple(pools))


def _with_names(shared: _Shared, joined: Join, names: Mapping[str, str]) -> _Shared:
    parts = []
    for part in joined.components:
        reason = _told(part.reason, names)
        # A component made anew has its own names, and lacks those in the sentence that it was given.
        serves = part.serves if part.key in shared.named else tuple(names[s] for s in part.serves)
        same = reason == part.reason and serves == part.serves
        parts.append(part if same else replace(part, reason=reason, serves=serves))
    # A fleet has ten thousands of rows, and few sets of pools that they reach.
    reached = {r.reaches: tuple(names.get(p, p) for p in r.reaches) for r in shared.audit.rows}
    rows = tuple(
        r if reached[r.reaches] == r.reaches else PlacementRow(r.component, r.kind, r.name, reached[r.reaches])
        for r in shared.audit.rows
    )
    return _Shared(Join(tuple(parts), ()), PlanAudit(rows), shared.own)


def _told(text: str, names: Mapping[str, str]) -> str:
    if POOL_MARK in text:
        for mark, name in names.items():
            text = text.replace(mark, name)
    return text


def _work_out(view: ClusterView, components: tuple[Component, ...], keep: Mapping[str, Kept]) -> Result:
    joined = join(view, components, keep=keep)
    return joined, audit_plan(view, joined.components)


def _anonymous(view: ClusterView, components: tuple[Component, ...], keep: Mapping[str, Kept]) -> _Shared | None:
    """The result under the marks; None where more than values and manifests depend on what they stand for."""
    joined, audit = _work_out(view, components, keep)
    if joined.findings or audit.findings:
        return None
    told = [c.reason for c in joined.components]
    if _holds("\n".join([*told, *(f"{r.name} {' '.join(r.reaches)}" for r in audit.rows)])):
        return None
    held = {c.key: _marks_in(c) for c in joined.components if c.install}
    own = frozenset(key for key, (cluster, _) in held.items() if cluster)
    named = frozenset(key for key, (_, pools) in held.items() if pools)
    for part in joined.components:
        if part.key in own and any(
            _holds(repr((p.name, p.namespace, p.placement, p.pod_labels))) for p in placed(part)
        ):
            return None
        # Where a pool may hand its name on to an object, the objects of two may meet.
        if part.key in named and any(POOL_MARK in repr((p.name, p.namespace, p.pod_labels)) for p in placed(part)):
            return None
    return _Shared(joined, audit, own, named)


@remembered(1024)
def _marks_in(part: JoinedComponent) -> tuple[bool, bool]:
    """Whether marks of a cluster, and whether marks of pools, turn up in what is installed."""
    text = canonical((part.values, part.manifests, part.prepares)).decode()
    return _holds(text), POOL_MARK in text


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
        tuple((p.class_name, p.autoscaled, p.fabric) for p in view.pools),
    )
