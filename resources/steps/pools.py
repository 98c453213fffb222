"""Node pools: asked for on the cloud with the very request that the plan shows, or read on an Existing cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modelplane_dagster.actions import pool_drift
from modelplane_dagster.cluster import PoolView
from modelplane_dagster.drivers import POOL_LABEL
from modelplane_dagster.errors import CloudError, UnreadableError
from modelplane_dagster.findings import Finding, finding
from modelplane_dagster.sources import SOURCES
from resources.observe import observed_pools
from resources.steps.result import Row, StepResult, described, pending, recorded, upstream

if TYPE_CHECKING:
    from modelplane_dagster.cluster_plan import ClusterPlan
    from modelplane_dagster.gate import Admission
    from modelplane_dagster.kube.objects import NodeFacts
    from modelplane_dagster.observed import ObservedPool
    from resources.session import Session


def ensure_pool(session: Session, name: str, pool_name: str) -> StepResult:
    """Raises RefusedError when the gate refuses the cluster."""
    admission, plan = session.admit(name)
    subject = f"pool/{name}/{pool_name}"
    if plan.view is None:
        raise UnreadableError(f"The manifests of cluster {name} are unknown.")
    pool = plan.view.pool(pool_name)
    if plan.source == "Existing":
        return recorded(subject, lambda: _existing(session, plan, pool))
    return recorded(subject, lambda: _provisioned(session, plan, pool, admission))


def _provisioned(session: Session, plan: ClusterPlan, pool: PoolView, admission: Admission) -> StepResult:
    subject = f"pool/{plan.name}/{pool.name}"
    waits = session.until(lambda: _control_plane_waits(session, plan.name))
    if waits:
        return upstream(subject, waits)
    view = plan.view
    if view is None:
        raise UnreadableError(f"The manifests of cluster {plan.name} are unknown.")
    module = SOURCES[view.source]
    seen = _seen(session, plan, pool)
    if seen is not None and seen.state in ("ready", "updating") and not pool_drift(pool, seen):
        return _nodes(session, plan, pool, seen, admission, changed=False)
    session.write(admission)
    request = module.pool_request(view, pool)
    trouble: StepResult | None = None
    changed = False
    try:
        progress = session.cloud(plan.name).ensure_pool(session.ref(plan.name), module.pool_name(pool), request)
    except CloudError as error:
        # A pool that stands in part keeps its nodes in order; one that never came has none to look at.
        if seen is None or not seen.joined:
            raise
        trouble = described(subject, error)
    else:
        changed = progress.changed
        if progress.state == "pending":
            return pending(subject, progress.waits_for or "the pool is being made", changed=changed)
        seen = _seen(session, plan, pool)
    if seen is None:
        return pending(subject, "the cloud doesn't list the pool yet", changed=changed)
    result = _nodes(session, plan, pool, seen, admission, changed=changed)
    return result if trouble is None else _troubled(result, trouble)


def _troubled(result: StepResult, trouble: StepResult) -> StepResult:
    """The nodes that stand, with what the cloud says is wrong."""
    sentence = f"{result.sentence}; {trouble.sentence}"
    return replace(result, state=trouble.state, sentence=sentence, findings=(*result.findings, *trouble.findings))


def _control_plane_waits(session: Session, name: str) -> str:
    seen = session.cloud_cluster(name)
    if seen is None:
        return f"the control plane of {name}, which isn't there"
    return "" if seen.state in ("ready", "updating") else f"the control plane of {name}, which is {seen.state}"


def _seen(session: Session, plan: ClusterPlan, pool: PoolView) -> ObservedPool | None:
    cluster = session.cloud_cluster(plan.name)
    return observed_pools(cluster).get(pool.name) if cluster is not None else None


def _nodes(
    session: Session,
    plan: ClusterPlan,
    pool: PoolView,
    seen: ObservedPool,
    admission: Admission,
    *,
    changed: bool,
) -> StepResult:
    """The pool on the cloud and its nodes in the API: labels and taints on both."""
    subject = f"pool/{plan.name}/{pool.name}"
    client = session.client(plan.name)
    nodes = [_facts(raw) for raw in client.list("v1", "Node", labels=f"{POOL_LABEL}={pool.name}")]
    if _repair(session, plan, pool, nodes, admission):
        changed = True
        nodes = [_facts(raw) for raw in client.list("v1", "Node", labels=f"{POOL_LABEL}={pool.name}")]
    tables: dict[str, tuple[Row, ...]] = {"Nodes": _rows(nodes), "Labels": _pairs(pool)}
    findings = _drift(pool, seen, subject)
    notes = {"class": pool.class_name, "role": pool.role.value, "state": seen.state, "nodes": len(nodes)}
    wanted = seen.count
    if wanted == 0:
        idle = finding("PoolIdle", subject, f"Pool {pool.name} stands at zero nodes.")
        return StepResult(subject, "ready", "idle at zero nodes", (*findings, idle), changed, tables, notes)
    ready = sum(n.ready for n in nodes)
    if ready < wanted:
        why = f"{ready} of {wanted} nodes are ready"
        told = f"{why}: {seen.message}" if seen.message else why
        return pending(subject, told, findings=findings, changed=changed, tables=tables, notes=notes)
    return StepResult(subject, "ready", f"{ready} nodes ready", findings, changed, tables, notes)


def _facts(raw: dict[str, object]) -> NodeFacts:
    # Imported here, since audits' records are only needed where nodes are read.
    from modelplane_dagster.audit.live import LiveNode  # noqa: PLC0415 - as above

    return LiveNode.parse(raw).facts


def _repair(session: Session, plan: ClusterPlan, pool: PoolView, nodes: list[NodeFacts], admission: Admission) -> bool:
    """On clouds whose existing nodes keep their labels and taints, brings our own provisioned nodes to the pool's: adds
    what is missing and takes nothing away. True when it wrote."""
    if SOURCES[plan.source].record.nodes_follow_labels:
        return False
    wrote = False
    for node in nodes:
        missing = {k: v for k, v in pool.labels.items() if node.labels.get(k) != v}
        there = {(t.key, t.effect) for t in node.taints}
        lacking = [t for t in pool.taints if (t.key, t.effect) not in there]
        if not missing and not lacking:
            continue
        body: dict[str, object] = {"metadata": {"labels": missing}}
        if lacking:
            body["spec"] = {"taints": [t.as_dict() for t in (*node.taints, *lacking)]}
        session.write(admission)
        session.client(plan.name).patch(("v1", "Node", "", node.name), body)
        wrote = True
    return wrote


def _existing(session: Session, plan: ClusterPlan, pool: PoolView) -> StepResult:
    subject = f"pool/{plan.name}/{pool.name}"
    raw = session.client(plan.name).list("v1", "Node", labels=f"{POOL_LABEL}={pool.name}")
    nodes = [_facts(r) for r in raw]
    tables: dict[str, tuple[Row, ...]] = {"Nodes": _rows(nodes), "Labels": _pairs(pool)}
    notes = {"class": pool.class_name, "role": pool.role.value, "nodes": len(nodes)}
    ready = sum(n.ready for n in nodes)
    if ready < pool.count:
        command = f"kubectl label node NODE {POOL_LABEL}={pool.name}"
        told = finding(
            "NodesMissing",
            subject,
            f"{ready} of {pool.count} nodes are ready with the label {POOL_LABEL}={pool.name}.",
            fix=f"Label the pool's nodes: {command}",
        )
        return pending(subject, told.message, findings=(told,), tables=tables, notes=notes)
    return StepResult(subject, "ready", f"{ready} nodes ready", tables=tables, notes=notes)


def _drift(pool: PoolView, seen: ObservedPool, subject: str) -> tuple[Finding, ...]:
    return tuple(
        finding("LabelDrift", subject, f"On the cloud, pool {pool.name} differs: {text}.")
        for text in pool_drift(pool, seen)
    )


def _rows(nodes: list[NodeFacts]) -> tuple[Row, ...]:
    return tuple(
        {
            "node": n.name,
            "ready": n.ready,
            "labels": ", ".join(f"{k}={v}" for k, v in sorted(n.labels.items()) if k.startswith("modelplane.ai/")),
            "taints": ", ".join(str(t) for t in n.taints) or "-",
        }
        for n in nodes
    )


def _pairs(pool: PoolView) -> tuple[Row, ...]:
    labels: list[Row] = [{"kind": "label", "expected": f"{k}={v}"} for k, v in sorted(pool.labels.items())]
    return (*labels, *({"kind": "taint", "expected": str(t)} for t in pool.taints))
