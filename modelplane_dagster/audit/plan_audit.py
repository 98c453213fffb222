"""The audit of a plan: where each declared workload may run on the planned nodes, before anything is installed.

Selectors and tolerations come from the values (or the custom resources) that the plan would apply, nodes from the
pools; what must be served comes from the tags.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from modelplane_dagster.audit.conflicts import conflicts
from modelplane_dagster.audit.cpu_room import planned_room
from modelplane_dagster.audit.expect import Expectation, expectation, place_name
from modelplane_dagster.audit.instances import Instance, has_resource, instances, no_room
from modelplane_dagster.audit.planned_nodes import planned_nodes
from modelplane_dagster.audit.planned_reach import Reached, grouped, reached
from modelplane_dagster.audit.tolerations import keyless, listed, opening, spell
from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.components.types import JoinedComponent
from modelplane_dagster.findings import Finding, finding, ordered
from modelplane_dagster.kube.objects import NodeFacts
from modelplane_dagster.kube.scheduling import why_not


@dataclass(frozen=True, slots=True, order=True)
class PlacementRow:
    """Where one workload may run: pools in the manifest's order, then "system" for the nodes of no pool."""

    component: str
    kind: str
    name: str
    reaches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanAudit:
    """Rows in the order of the components; findings ordered as every channel shows them."""

    rows: tuple[PlacementRow, ...] = ()
    findings: tuple[Finding, ...] = ()


def audit_plan(view: ClusterView, joined: Iterable[JoinedComponent]) -> PlanAudit:
    """The rows and findings of a plan. Reads nothing but its arguments; the same input gives the same result."""
    parts = tuple(joined)
    planned = instances(parts)
    nodes = planned_nodes(view, parts, planned)
    there = reached(view, planned, nodes)
    rows = tuple(
        PlacementRow(r.instance.component.key, r.instance.workload.kind, r.instance.name, r.places()) for r in there
    )
    found = [
        *_reach_findings(view, there, nodes),
        *_without_resource(view, parts),
        *_toleration_findings(view, there),
        *_room_findings(view, there, nodes),
        *conflicts(view, parts, there),
        *planned_room(view, parts, there, nodes),
    ]
    return PlanAudit(rows, ordered(found))


def _reach_findings(view: ClusterView, there: Iterable[Reached], nodes: tuple[NodeFacts, ...]) -> Iterator[Finding]:
    for expected, members in grouped(there):
        for node in nodes:
            on = [m.instance for m in members if m.on(node)]
            if expected.must(node) and not on:
                yield _missed(view, expected, [m.instance for m in members], node)
            elif on and not expected.may(node):
                yield _strayed(view, expected, on[0], node)


def _without_resource(view: ClusterView, joined: Iterable[JoinedComponent]) -> Iterator[Finding]:
    """Without a custom resource an operator makes no daemon at all; told of the driver's own daemon alone."""
    for part in joined:
        for workload in part.component.workloads if part.install else ():
            if not workload.publishes or has_resource(part, workload):
                continue
            expected = expectation(view, part.component, workload)
            if expected is None:
                continue
            kind = workload.resource.kind if workload.resource else ""
            for pool in sorted(expected.pools):
                yield finding(
                    "StackMissesPool",
                    f"pool/{view.name}/{pool}",
                    f"{part.key}: {workload.kind} {workload.name} must run on every node of pool {pool} and would run "
                    f"on none: the plan holds no {kind} to make it from.",
                )


def _missed(view: ClusterView, expected: Expectation, members: list[Instance], node: NodeFacts) -> Finding:
    what = f"{expected.component}: {members[0].workload.kind} {listed([i.name for i in members])}"
    # Of several instances the one that comes nearest says most: the one kept off by a taint alone.
    reasons = [why_not(i.placement, node, daemon=i.daemon, host_network=i.workload.host_network) or "" for i in members]
    reason = next((r for r in reasons if "taint" in r), reasons[0])
    return finding(
        "StackMissesPool",
        _place_subject(view, node),
        f"{what} must run on every node of {_place(node)} and would run on none: {reason}.",
    )


def _strayed(view: ClusterView, expected: Expectation, instance: Instance, node: NodeFacts) -> Finding:
    serves = listed(sorted(expected.pools))
    return finding(
        "StackStrays",
        _place_subject(view, node),
        f"{expected.component}: {instance.workload.kind} {instance.name} serves {serves} alone and would run on "
        f"{_place(node)} too.",
    )


def _place(node: NodeFacts) -> str:
    return f"pool {node.pool}" if node.pool else "the system pool"


def _place_subject(view: ClusterView, node: NodeFacts) -> str:
    return f"pool/{view.name}/{place_name(node)}"


def _toleration_findings(view: ClusterView, there: Iterable[Reached]) -> Iterator[Finding]:
    for one in there:
        instance = one.instance
        subject = f"component/{view.name}/{instance.component.key}"
        what = f"{instance.workload.kind} {instance.name}"
        everything = keyless(instance.placement)
        if everything:
            yield finding(
                "ToleratesEverything", subject, f"{what} tolerates every taint: {spell(everything[0])} names no key."
            )
        for toleration, pools in _too_broad(one).items():
            yield finding(
                "TolerationTooBroad",
                subject,
                f"{what} tolerates {toleration}, which lets it onto {listed(pools)}, where it serves nothing.",
            )


def _too_broad(one: Reached) -> dict[str, list[str]]:
    """By toleration, the pools that it opens to a workload that doesn't serve them."""
    opened: dict[str, list[str]] = {}
    for node in one.nodes:
        if not node.pool or (one.expected is not None and one.expected.needs(node.pool)):
            continue
        for toleration in opening(one.instance.placement, node):
            pools = opened.setdefault(spell(toleration), [])
            if node.pool not in pools:
                pools.append(node.pool)
    return opened


def _room_findings(view: ClusterView, there: Iterable[Reached], nodes: tuple[NodeFacts, ...]) -> Iterator[Finding]:
    """Controllers and hooks need one node. On Existing the plan doesn't know the nodes of no pool, so says nothing."""
    if view.source == "Existing":
        return
    for one in there:
        instance = one.instance
        if one.nodes or one.expected is not None or instance.daemon:
            continue
        reasons = [why_not(instance.placement, n) or "" for n in nodes if not n.pool]
        yield no_room(view, instance, f"finds no node of the plan where it may run: on the system pool {reasons[0]}")
