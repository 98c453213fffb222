"""The toleration audit of a running cluster (R21), from the templates of DaemonSets, Deployments and the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from modelplane_dagster.audit.disagreement import Difference
from modelplane_dagster.audit.expect import Expectation, expectation
from modelplane_dagster.audit.judged import Group, Told
from modelplane_dagster.audit.live import LiveWorkload
from modelplane_dagster.audit.ownership import Ownership
from modelplane_dagster.audit.tolerations import allows, kept_pool, keyless, listed, opening, spell
from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.findings import finding
from modelplane_dagster.kube.objects import PodPlacement


def toleration_findings(
    view: ClusterView,
    whose: Ownership,
    groups: tuple[Group, ...],
    *,
    disagreements: Iterable[Difference],
    orphan_pools: frozenset[str],
) -> Iterator[Told]:
    """Of ours, faults; of others, information. An orphan's workloads are told as orphans alone."""
    explained = {id(d.workload): d.nodes for d in disagreements}
    for key, live, expected, planned in _ours(view, whose):
        subject = f"component/{view.name}/{key}"
        everything = keyless(live.placement)
        if everything:
            found = finding(
                "ToleratesEverything",
                subject,
                f"{live.kind} {live.name} tolerates every taint: {spell(everything[0])} names no key.",
            )
            yield Told(found, frozenset(g.node.pool for g in groups if g.node.pool and _may(live, g)))
        known = explained.get(id(expected.workload), frozenset()) if expected else frozenset()
        open_groups = [
            g for g in groups if g.node.name not in known and not kept_pool(view, g.node.pool, planned, orphan_pools)
        ]
        for toleration, pools in _too_broad(live, expected, open_groups).items():
            found = finding(
                "TolerationTooBroad",
                subject,
                f"{live.kind} {live.name} tolerates {toleration}, which lets it onto {listed(pools)}, where it serves "
                "nothing.",
            )
            yield Told(found, frozenset(pools))
    for live in whose.foreign:
        if keyless(live.placement):
            message = (
                f"{live.kind} {live.name} in {live.namespace} tolerates every taint, so its pods may run on any pool."
            )
            yield Told(finding("ForeignTolerates", live.subject, message))


def _ours(
    view: ClusterView, whose: Ownership
) -> Iterator[tuple[str, LiveWorkload, Expectation | None, tuple[PodPlacement, ...]]]:
    """Component key, what runs, what is expected of it, and its placement by the plan where it has one."""
    for match in whose.matched:
        if match.live:
            i = match.instance
            yield i.component.key, match.live, expectation(view, i.component, i.workload), (i.placement,)
    for item in whose.undeclared:
        if item.live.kind != "DaemonSet":
            yield item.component.key, item.live, None, ()


def _may(live: LiveWorkload, group: Group) -> bool:
    return allows(live.placement, group.node, daemon=live.kind == "DaemonSet", host_network=live.host_network)


def _too_broad(live: LiveWorkload, expected: Expectation | None, groups: Iterable[Group]) -> dict[str, list[str]]:
    opened: dict[str, list[str]] = {}
    for group in groups:
        pool = group.node.pool
        if not pool or (expected is not None and expected.needs(pool)):
            continue
        if not _may(live, group):
            continue
        for toleration in opening(live.placement, group.node):
            pools = opened.setdefault(spell(toleration), [])
            if pool not in pools:
                pools.append(pool)
    return opened
