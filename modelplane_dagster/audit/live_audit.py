"""The audit of a running cluster: where our workloads may run and do run, and whether the plan says the same.

Selectors and tolerations are read from the owner's template, since the DaemonSet controller rewrites both in its
pods; from the pods comes only the node where each landed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from modelplane_dagster.audit.cpu_claims import cpu_claim_findings
from modelplane_dagster.audit.device_classes import device_class_findings
from modelplane_dagster.audit.disagreement import Difference, differences
from modelplane_dagster.audit.expect import SYSTEM, Expectation, expectation
from modelplane_dagster.audit.judged import (
    GRACE,
    Group,
    Told,
    groups,
    judged_nodes,
    nodes_by_pool,
    pool_finding,
    read_failures,
    standing,
)
from modelplane_dagster.audit.leftovers import leftovers
from modelplane_dagster.audit.live import LiveCluster, LivePod, LiveWorkload
from modelplane_dagster.audit.live_tolerations import toleration_findings
from modelplane_dagster.audit.ownership import Matched, Ownership, ownership
from modelplane_dagster.audit.plan_audit import PlacementRow
from modelplane_dagster.audit.second_drivers import known_placements, second_drivers
from modelplane_dagster.audit.tolerations import allows, kept_pool, listed
from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.components.types import JoinedComponent
from modelplane_dagster.findings import Finding, finding, ordered
from modelplane_dagster.known import Known, Unknown
from modelplane_dagster.kube.objects import NodeFacts
from modelplane_dagster.kube.scheduling import by_name, why_not

Landed = dict[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class LiveAudit:
    """Rows as the plan's, of what is there, judged by the templates; without nodes or workloads to read there are
    none, and the findings say so."""

    rows: tuple[PlacementRow, ...] = ()
    told: tuple[Told, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        return ordered(t.finding for t in self.told)

    def of_pool(self, pool: str) -> tuple[Finding, ...]:
        """What speaks of one pool, a component's findings included; `system` are the nodes of no pool."""
        return ordered(t.finding for t in self.told if pool in t.places)


@dataclass(frozen=True, slots=True)
class _Scene:
    """What the parts of the audit share. `landed` is None where the pods couldn't be read."""

    view: ClusterView
    groups: tuple[Group, ...]
    whose: Ownership
    landed: Landed | None
    orphan_pools: frozenset[str] = field(default_factory=frozenset)


def audit_live(
    view: ClusterView,
    joined: Iterable[JoinedComponent],
    live: LiveCluster,
    *,
    grace: float = GRACE,
    orphan_pools: frozenset[str] = frozenset(),
    lagging: frozenset[str] = frozenset(),
) -> LiveAudit:
    """The rows and findings of a cluster. `joined` holds every component of the lists, those left out included: by them
    an orphan's component is known. `grace` is in seconds; `orphan_pools` are pools that no manifest holds any more:
    what runs there is theirs, not astray. `lagging` are the keys of components whose live release isn't the planned
    one yet: chart and declaration aren't compared for them, reach is."""
    parts = tuple(joined)
    every_pool = frozenset(p.name for p in view.pools)
    failed = tuple(Told(f, every_pool) for f in read_failures(view, live, ("nodes", "workloads", "pods")))
    if isinstance(live.nodes, Unknown) or isinstance(live.workloads, Unknown):
        return LiveAudit((), failed)
    whose = ownership(parts, live.workloads.value)
    nodes = judged_nodes(live.nodes.value, now=live.taken_at, grace=grace)
    scene = _Scene(
        view,
        _groups(nodes, whose),
        whose,
        _landed(live.pods.value, live.workloads.value) if isinstance(live.pods, Known) else None,
        orphan_pools,
    )
    disagreements = differences(view, whose, scene.groups, lagging=lagging)
    found = (
        *failed,
        *_pools(view, live, grace),
        *(d.told for d in disagreements),
        *_reach(scene, disagreements),
        *leftovers(view, whose, scene.groups, disagreements=disagreements),
        *toleration_findings(view, whose, scene.groups, disagreements=disagreements, orphan_pools=orphan_pools),
        *second_drivers(view, whose, scene.groups),
        *device_class_findings(view, parts, whose, live, grace=grace),
        *cpu_claim_findings(view, live),
    )
    return LiveAudit(_rows(scene), found)


def _groups(nodes: tuple[NodeFacts, ...], whose: Ownership) -> tuple[Group, ...]:
    placements = [m.instance.placement for m in whose.matched]
    placements += [m.live.placement for m in whose.matched if m.live]
    placements += [u.live.placement for u in whose.undeclared]
    placements += known_placements(whose)
    if any(by_name(p) for p in placements):
        return tuple(Group(n, (n.name,)) for n in nodes)
    reaches = [m.instance.workload.reach for m in whose.matched]
    return groups(nodes, placements, [label for r in reaches if r for label in r.labels])


def _landed(pods: Iterable[LivePod], workloads: Iterable[LiveWorkload]) -> Landed:
    """The nodes where pods of each DaemonSet stand, by its uid."""
    found: dict[str, set[str]] = {w.uid: set() for w in workloads if w.kind == "DaemonSet" and w.uid}
    for pod in pods:
        nodes = found.get(pod.owner)
        if nodes is not None and pod.node and not pod.terminating and not pod.over:
            nodes.add(pod.node)
    return {uid: frozenset(nodes) for uid, nodes in found.items()}


def _pools(view: ClusterView, live: LiveCluster, grace: float) -> Iterator[Told]:
    by_pool = nodes_by_pool(live.nodes.value if isinstance(live.nodes, Known) else ())
    for pool in view.pools:
        members = by_pool.get(pool.name, [])
        said = pool_finding(view, pool, standing(pool, members, now=live.taken_at, grace=grace), len(members))
        if said:
            yield Told(said, frozenset({pool.name}))


def _rows(scene: _Scene) -> tuple[PlacementRow, ...]:
    order = [*(p.name for p in scene.view.pools), SYSTEM]
    rows = []
    for match in scene.whose.matched:
        if match.live is None:
            continue
        reached = {g.place for g in scene.groups if _template_reaches(match.live, g.node)}
        places = [p for p in order if p in reached] + sorted(reached - set(order))
        rows.append(PlacementRow(match.instance.component.key, match.live.kind, match.live.name, tuple(places)))
    return tuple(rows)


def _template_reaches(live: LiveWorkload, node: NodeFacts) -> bool:
    return allows(live.placement, node, daemon=live.kind == "DaemonSet", host_network=live.host_network)


def _reach(scene: _Scene, disagreements: tuple[Difference, ...]) -> Iterator[Told]:
    by_workload: dict[int, list[Matched]] = defaultdict(list)
    for match in scene.whose.matched:
        by_workload[id(match.instance.workload)].append(match)
    for matches in by_workload.values():
        instance = matches[0].instance
        expected = expectation(scene.view, instance.component, instance.workload)
        if expected is None or not instance.daemon:
            continue
        explained = frozenset(name for d in disagreements if d.workload is instance.workload for name in d.nodes)
        yield from _reach_of(scene, expected, tuple(matches), explained)


def _reach_of(
    scene: _Scene, expected: Expectation, matches: tuple[Matched, ...], explained: frozenset[str]
) -> Iterator[Told]:
    """One finding a pool, whatever the number of nodes."""
    there = [m.live for m in matches if m.live]
    missed: dict[tuple[str, str], list[str]] = defaultdict(list)
    strayed: dict[str, list[str]] = defaultdict(list)
    standing_there = _standing(scene.landed or {}, there)
    for group in scene.groups:
        open_names = [n for n in group.names if n not in explained] if explained else group.names
        if not open_names:
            continue
        selecting = [w for w in there if _template_reaches(w, group.node)]
        if expected.must(group.node):
            if not selecting:
                missed[group.place, _why_missed(matches, group.node)].extend(open_names)
            elif scene.landed is not None:
                absent = [n for n in open_names if n not in standing_there]
                if absent:
                    missed[group.place, "its template selects it, and no pod of it is there"].extend(absent)
        elif not expected.may(group.node) and not kept_pool(
            scene.view, group.node.pool, [m.instance.placement for m in matches], scene.orphan_pools
        ):
            on = open_names if selecting else [n for n in open_names if n in standing_there]
            strayed[group.place].extend(on)
    yield from _missed(scene.view, expected, matches, missed)
    yield from _strayed(scene.view, expected, matches, strayed)


def _standing(landed: Landed, there: list[LiveWorkload]) -> frozenset[str]:
    """The nodes where pods of any of these stand."""
    sets = [landed.get(w.uid, frozenset()) for w in there]
    return sets[0] if len(sets) == 1 else frozenset().union(*sets)


def _why_missed(matches: tuple[Matched, ...], node: NodeFacts) -> str:
    """The reason of the instance that comes nearest: one that a taint alone keeps off says more than its neighbours,
    whose selectors name other pools."""
    reasons = [
        why_not(m.live.placement, node, daemon=True, host_network=m.live.host_network) or ""
        if m.live
        else f"the cluster has no {m.instance.workload.kind} {m.instance.name}"
        for m in matches
    ]
    return next((r for r in reasons if "taint" in r), reasons[0])


def _missed(
    view: ClusterView,
    expected: Expectation,
    matches: tuple[Matched, ...],
    missed: dict[tuple[str, str], list[str]],
) -> Iterator[Told]:
    what = _what(expected, matches)
    there = [m.live for m in matches if m.live]
    counts = f" (desired {sum(w.desired for w in there)}, ready {sum(w.ready for w in there)})" if there else ""
    for (place, reason), names in sorted(missed.items()):
        found = finding(
            "StackMissesPool",
            f"pool/{view.name}/{place}",
            f"{what}{counts} must run on every node of {_place(place)} and doesn't on {listed(sorted(names))}: "
            f"{reason}.",
        )
        yield Told(found, frozenset({place}))


def _strayed(
    view: ClusterView, expected: Expectation, matches: tuple[Matched, ...], strayed: dict[str, list[str]]
) -> Iterator[Told]:
    for place, names in sorted(strayed.items()):
        if names:
            found = finding(
                "StackStrays",
                f"pool/{view.name}/{place}",
                f"{_what(expected, matches)} serves {listed(sorted(expected.pools))} alone and runs on "
                f"{listed(sorted(names))} of {_place(place)}.",
            )
            yield Told(found, frozenset({place}))


def _what(expected: Expectation, matches: tuple[Matched, ...]) -> str:
    names = listed([m.instance.name for m in matches])
    return f"{expected.component}: {matches[0].instance.workload.kind} {names}"


def _place(place: str) -> str:
    return "the nodes of no pool" if place == SYSTEM else f"pool {place}"
