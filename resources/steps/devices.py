"""The devices of a pool: published on every node, reached by their stack and by no other. Reads only."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from modelplane_dagster.errors import UnreadableError
from modelplane_dagster.findings import Finding, has_errors
from modelplane_dagster.judgement import judge_live
from resources.obstacles import refused_pods, webhook_finding
from resources.steps.result import Row, StepResult, pending, recorded, upstream

if TYPE_CHECKING:
    from modelplane_dagster.cluster_plan import ClusterPlan
    from resources.session import Session


def observe_devices(session: Session, name: str, pool: str) -> StepResult:
    """Ready when every node of the pool publishes what its class declares and every stack reaches just its own pools."""
    return recorded(f"pool/{name}/{pool}", lambda: _observe(session, name, pool))


def _observe(session: Session, name: str, pool: str) -> StepResult:
    subject = f"pool/{name}/{pool}"
    observed = session.recent(name)
    plan = session.plan(name, observed)
    coming = observed.coming()
    if observed.live is None and coming:
        return upstream(subject, coming)
    if plan.view is None or observed.live is None:
        raise UnreadableError("; ".join(observed.unread()) or f"The manifests of cluster {name} are unknown.")
    judged = judge_live(plan, observed, grace=session.settings.grace)
    own, findings = judged.health[pool], judged.of_pool(pool)
    rows: tuple[Row, ...] = tuple({"node": d.node, "driver": d.driver, "devices": d.devices} for d in own.devices)
    tables = {"Devices": rows}
    totals = Counter[str]()
    for device in own.devices:
        totals[device.driver] += device.devices
    notes = {"poolState": own.state, "nodes": own.nodes, "judged": own.judged, "servedBy": _served(plan, pool)}
    if any(f.code == "DaemonMissing" for f in findings):
        findings = (*_refused(session, plan, pool), *findings)
    told = ", ".join(f"{n} devices of {d}" for d, n in sorted(totals.items())) or "nothing"
    if own.state == "idle":
        return StepResult(subject, "ready", "idle at zero nodes", findings, tables=tables, notes=notes)
    if own.state == "unknown":
        raise UnreadableError(next((f.message for f in own.findings), f"Pool {pool} of {name} couldn't be read."))
    if own.state == "pending":
        why = next((f.message for f in own.findings), "no node can be judged yet")
        return pending(subject, why, findings=findings, tables=tables, notes=notes)
    if own.state != "ready" or has_errors(findings):
        why = next((f.message for f in findings if f.severity == "error"), f"the pool is {own.state}")
        return StepResult(subject, "failed", why, findings, tables=tables, notes=notes)
    return StepResult(subject, "ready", f"{own.judged} nodes publish {told}", findings, tables=tables, notes=notes)


def _refused(session: Session, plan: ClusterPlan, pool: str) -> tuple[Finding, ...]:
    """Why the stacks' controllers make no pods, where a webhook is the reason."""
    client = session.client(plan.name)
    spaces = dict.fromkeys(c.component.namespace for c in plan.serving(pool) if c.component.namespace)
    told = [refused for space in spaces if (refused := refused_pods(client, space))]
    return tuple(f for text in told for f in webhook_finding(plan.name, f"Cluster {plan.name}: {text}"))


def _served(plan: ClusterPlan, pool: str) -> str:
    return ", ".join(c.key for c in plan.serving(pool)) or "-"
