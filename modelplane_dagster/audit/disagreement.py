"""Where the plan and the cluster disagree (R22): the declared placement and the live template, judged on the same nodes.

Judging both on the live nodes tells a changed chart or declaration from a node that lacks a label: in the second case
both say the same, and what is wrong is told by the reach audit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from modelplane_dagster.audit.judged import Group, Told
from modelplane_dagster.audit.live import LiveWorkload
from modelplane_dagster.audit.ownership import Matched, Ownership
from modelplane_dagster.audit.tolerations import allows, listed
from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.components.types import DeclaredWorkload
from modelplane_dagster.findings import Finding, finding
from modelplane_dagster.kube.objects import PodPlacement
from modelplane_dagster.kube.scheduling import untolerated, why_not


@dataclass(frozen=True, slots=True)
class Difference:
    """One disagreement on one workload. `nodes` are those on which it explains whatever the reach audit would find;
    `instead` is the uid of the undeclared workload that stands in the declared one's place, empty for none."""

    workload: DeclaredWorkload
    told: Told
    nodes: frozenset[str]
    instead: str = ""


def differences(
    view: ClusterView, whose: Ownership, groups: tuple[Group, ...], *, lagging: frozenset[str] = frozenset()
) -> tuple[Difference, ...]:
    """At most one a workload. Nothing is concluded from hook Jobs, which come and go, nor from the components
    `lagging`, whose release isn't the planned one yet."""
    return tuple(_differences(view, whose, groups, lagging))


def _differences(
    view: ClusterView, whose: Ownership, groups: tuple[Group, ...], lagging: frozenset[str]
) -> Iterator[Difference]:
    for match in whose.matched:
        if match.instance.workload.kind == "Job" or match.instance.component.key in lagging:
            continue
        live = match.live
        found = _moved(view, match, live, groups) if live else _gone(view, match, whose, groups)
        if found:
            yield found


def _moved(view: ClusterView, match: Matched, live: LiveWorkload, groups: tuple[Group, ...]) -> Difference | None:
    planned, daemon = match.instance.placement, match.instance.daemon
    if planned == live.placement and match.instance.workload.host_network == live.host_network:
        return None
    lost: list[Group] = []
    gained: list[Group] = []
    for group in groups:
        expected = allows(planned, group.node, daemon=daemon, host_network=match.instance.workload.host_network)
        seen = allows(live.placement, group.node, daemon=daemon, host_network=live.host_network)
        if expected != seen:
            (lost if expected else gained).append(group)
    if not lost and not gained:
        return _tolerates_otherwise(view, match, live, groups)
    says = []
    if lost:
        reason = why_not(live.placement, lost[0].node, daemon=daemon, host_network=live.host_network)
        says.append(f"expected on {_places(lost)}, and not seen there: {reason}")
    if gained:
        reason = why_not(planned, gained[0].node, daemon=daemon, host_network=match.instance.workload.host_network)
        says.append(f"not expected on {_places(gained)}, and seen there, though by the plan {reason}")
    parts = _parts(planned, live.placement)
    return Difference(
        match.instance.workload,
        Told(_said(view, match, live, "; ".join(says), parts), frozenset(g.place for g in (*lost, *gained))),
        frozenset(name for g in (*lost, *gained) for name in g.names),
    )


def _said(view: ClusterView, match: Matched, live: LiveWorkload, says: str, parts: list[str]) -> Finding:
    key = match.instance.component.key
    return finding(
        "PlanDisagrees",
        f"component/{view.name}/{key}",
        f"{key}: {live.kind} {live.name} is {says}.",
        fix=f"Correct the {listed(parts)} in the chart of {key} or in its declaration, so that both say the same.",
    )


def _tolerates_otherwise(
    view: ClusterView, match: Matched, live: LiveWorkload, groups: tuple[Group, ...]
) -> Difference | None:
    """Other pools' taints tolerated, or its own no longer, where for now the selectors alone decide: it comes to light
    with the next node or the next change of a label."""
    keys = {t.key for p in view.pools for t in p.taints}
    opened: list[Group] = []
    shut: list[Group] = []
    for group in groups:
        taints = tuple(t for t in group.node.taints if t.key in keys)
        expected, seen = (not untolerated(p.tolerations, taints) for p in (match.instance.placement, live.placement))
        if expected != seen:
            (shut if expected else opened).append(group)
    if not opened and not shut:
        return None
    says = []
    if opened:
        says.append(
            f"not expected to tolerate the taints of {_places(opened)}, and seen to: its selectors alone keep it off"
        )
    if shut:
        says.append(f"expected to tolerate the taints of {_places(shut)}, and seen not to")
    places = frozenset(g.place for g in (*opened, *shut))
    # What the pods reach is the same by both, so it explains nothing that the reach audit would find.
    return Difference(
        match.instance.workload, Told(_said(view, match, live, "; ".join(says), ["tolerations"]), places), frozenset()
    )


def _gone(view: ClusterView, match: Matched, whose: Ownership, groups: tuple[Group, ...]) -> Difference | None:
    """A chart's workload that isn't there although its release is. Of an operator's the operator may be late, which
    the reach audit tells."""
    instance = match.instance
    component = instance.component
    if instance.workload.origin == "operator" or not component.release or component.release not in whose.releases:
        return None
    others = [u.live for u in whose.undeclared if u.component is component and u.live.kind == instance.workload.kind]
    instead = others[0] if len(others) == 1 else None
    host_network = instance.workload.host_network
    should = [
        g for g in groups if allows(instance.placement, g.node, daemon=instance.daemon, host_network=host_network)
    ]
    seen = (
        f"the release runs {instead.kind} {instead.name} instead" if instead else "the release runs none of that name"
    )
    found = finding(
        "PlanDisagrees",
        f"component/{view.name}/{component.key}",
        f"{component.key}: {instance.workload.kind} {instance.name} is expected on {_places(should)}, and {seen}.",
        fix=f"Correct the name in the chart of {component.key} or in its declaration, so that both say the same.",
    )
    return Difference(
        instance.workload,
        Told(found, frozenset(g.place for g in should)),
        frozenset(name for g in groups for name in g.names),
        instead.uid if instead else "",
    )


def _places(found: list[Group]) -> str:
    places = list(dict.fromkeys(g.place for g in found))
    return ("pools " if len(places) > 1 else "pool ") + listed(places) if places else "no node"


def _parts(planned: PodPlacement, live: PodPlacement) -> list[str]:
    parts = []
    if planned.node_selector != live.node_selector:
        parts.append("nodeSelector")
    if planned.affinity != live.affinity:
        parts.append("node affinity")
    if planned.tolerations != live.tolerations:
        parts.append("tolerations")
    if planned.node_name != live.node_name:
        parts.append("nodeName")
    return parts or ["host network"]
