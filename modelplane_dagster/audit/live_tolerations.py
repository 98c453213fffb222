"""The toleration audit of a running cluster (R21), from the templates of DaemonSets, Deployments and the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from modelplane_dagster.audit.disagreement import Difference
from modelplane_dagster.audit.expect import Expectation, expectation
from modelplane_dagster.audit.judged import Group
from modelplane_dagster.audit.live import LiveWorkload
from modelplane_dagster.audit.ownership import Ownership
from modelplane_dagster.audit.tolerations import allows, keyless, listed, opening, spell
from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.findings import Finding, finding


def toleration_findings(
    view: ClusterView, whose: Ownership, groups: tuple[Group, ...], disagreements: Iterable[Difference]
) -> Iterator[Finding]:
    """Of ours, faults; of others, information. An orphan's workloads are told as orphans alone."""
    explained = {d.name: d.nodes for d in disagreements}
    ours: list[tuple[str, LiveWorkload, Expectation | None]] = [
        (m.instance.component.key, m.live, expectation(view, m.instance.component, m.instance.workload))
        for m in whose.matched
        if m.live
    ]
    ours += [(u.component.key, u.live, None) for u in whose.undeclared if u.live.kind != "DaemonSet"]
    for key, live, expected in ours:
        subject = f"component/{view.name}/{key}"
        everything = keyless(live.placement)
        if everything:
            yield finding(
                "ToleratesEverything",
                subject,
                f"{live.kind} {live.name} tolerates every taint: {spell(everything[0])} names no key.",
            )
        known = explained.get(live.name, frozenset())
        for toleration, pools in _too_broad(live, expected, groups, known).items():
            yield finding(
                "TolerationTooBroad",
                subject,
                f"{live.kind} {live.name} tolerates {toleration}, which lets it onto {listed(pools)}, where it serves "
                "nothing.",
            )
    for live in whose.foreign:
        if keyless(live.placement):
            yield finding(
                "ForeignTolerates",
                live.subject,
                f"{live.kind} {live.name} in {live.namespace} tolerates every taint, so its pods may run on any pool.",
            )


def _too_broad(
    live: LiveWorkload, expected: Expectation | None, groups: tuple[Group, ...], explained: frozenset[str]
) -> dict[str, list[str]]:
    opened: dict[str, list[str]] = {}
    daemon = live.kind == "DaemonSet"
    for group in groups:
        pool = group.node.pool
        if not pool or (expected is not None and expected.needs(pool)) or group.node.name in explained:
            continue
        if not allows(live.placement, group.node, daemon=daemon, host_network=live.host_network):
            continue
        for toleration in opening(live.placement, group.node):
            pools = opened.setdefault(spell(toleration), [])
            if pool not in pools:
                pools.append(pool)
    return opened
