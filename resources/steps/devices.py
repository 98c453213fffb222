"""The devices of a pool: published on every node, reached by their stack and by no other. Reads only."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from modelplane_dagster.audit.health import PoolHealth, audit_health
from modelplane_dagster.audit.live_audit import LiveAudit, audit_live
from modelplane_dagster.errors import UnreadableError
from modelplane_dagster.findings import Finding, has_errors, ordered
from modelplane_dagster.known import Known
from resources.steps.result import Row, StepResult, pending, recorded

if TYPE_CHECKING:
    from modelplane_dagster.cluster_plan import ClusterPlan
    from modelplane_dagster.observed import ObservedCluster
    from resources.session import Session


def observe_devices(session: Session, name: str, pool: str) -> StepResult:
    """Ready when every node of the pool publishes what its class declares and every stack reaches just its own pools."""
    return recorded(f"pool/{name}/{pool}", lambda: _observe(session, name, pool))


def _observe(session: Session, name: str, pool: str) -> StepResult:
    subject = f"pool/{name}/{pool}"
    observed = session.recent(name)
    plan = session.plan(name, observed)
    if plan.view is None or observed.live is None:
        raise UnreadableError("; ".join(observed.unread()) or f"The manifests of cluster {name} are unknown.")
    health, audit = judge(plan, observed, grace=session.settings.grace)
    own = health[pool]
    of_pool = tuple(f for f in audit.findings if concerns(f, name, pool))
    findings = ordered([*own.findings, *of_pool])
    rows: tuple[Row, ...] = tuple({"node": d.node, "driver": d.driver, "devices": d.devices} for d in own.devices)
    tables = {"Devices": rows}
    totals = Counter[str]()
    for device in own.devices:
        totals[device.driver] += device.devices
    notes = {"state": own.state, "nodes": own.nodes, "judged": own.judged, "servedBy": _served(plan, pool)}
    told = ", ".join(f"{n} devices of {d}" for d, n in sorted(totals.items())) or "nothing"
    if own.state == "idle":
        return StepResult(subject, "ready", "idle at zero nodes", findings, tables=tables, notes=notes)
    if own.state == "pending":
        why = next((f.message for f in own.findings), "no node can be judged yet")
        return pending(subject, why, findings=findings, tables=tables, notes=notes)
    if own.state != "ready" or has_errors(findings):
        why = next((f.message for f in findings if f.severity == "error"), f"the pool is {own.state}")
        return StepResult(subject, "failed", why, findings, tables=tables, notes=notes)
    return StepResult(subject, "ready", f"{own.judged} nodes publish {told}", findings, tables=tables, notes=notes)


def _served(plan: ClusterPlan, pool: str) -> str:
    return ", ".join(c.key for c in plan.serving(pool)) or "-"


def judge(plan: ClusterPlan, observed: ObservedCluster, *, grace: float) -> tuple[dict[str, PoolHealth], LiveAudit]:
    """The health of every pool and the audits of the cluster. Raises UnreadableError where nothing could be read."""
    if plan.view is None or observed.live is None:
        raise UnreadableError("; ".join(observed.unread()) or f"Cluster {plan.name} can't be judged.")
    health = audit_health(plan.view, plan.installed, observed.live, grace=grace)
    audit = audit_live(plan.view, plan.installed, observed.live, grace=grace, orphan_pools=orphan_pools(plan, observed))
    return {h.pool: h for h in health}, audit


def orphan_pools(plan: ClusterPlan, observed: ObservedCluster) -> frozenset[str]:
    """Pools that stand on the cloud or on record and that the manifest no longer holds."""
    wanted = {p.name for p in plan.view.pools} if plan.view else set()
    there = set(observed.pools.value) if isinstance(observed.pools, Known) else set()
    recorded_pools = set(observed.record.pools) if observed.record else set()
    return frozenset((there | recorded_pools) - wanted)


def concerns(found: Finding, name: str, pool: str) -> bool:
    """The finding is about this pool: by its subject, or by naming it; a component's by the pools that it speaks of."""
    if found.subject == f"pool/{name}/{pool}":
        return True
    return found.subject.startswith("component/") and f" {pool}" in found.message.replace(",", " ").replace(".", " ")
