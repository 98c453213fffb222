"""Deployments: placed by the plan, applied where their devices are ready, retired only as an update says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from modelplane_dagster.audit.cpu_room import charges
from modelplane_dagster.errors import RefusedError, UnreadableError
from modelplane_dagster.findings import finding
from modelplane_dagster.judgement import judge_live
from modelplane_dagster.known import Known
from modelplane_dagster.placement import Placement, ReplicaPlacement
from modelplane_dagster.placement.workloads import (
    DEPLOYMENT_LABEL,
    DIGEST_ANNOTATION,
    NAMESPACE_LABEL,
    REPLICA_LABEL,
    ReplicaObjects,
    endpoint,
    replica_variants,
    short_name,
)
from resources.obstacles import refused_pods, webhook_finding
from resources.steps.result import State, StepResult, pending, recorded, upstream

if TYPE_CHECKING:
    from modelplane_dagster.manifests.deployments import ModelDeployment
    from modelplane_dagster.plan import FleetPlan
    from resources.kubernetes import ClusterClient
    from resources.session import Session

_KINDS = {"Deployment": "apps/v1", "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1"}
_KEPT = 60.0  # seconds for which a reading is good enough to say why something waits
_RETIRED_KINDS = (
    ("apps/v1", "Deployment"),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
    ("v1", "Service"),
    ("resource.k8s.io/v1", "ResourceClaimTemplate"),
)


def ensure_deployment(session: Session, namespace: str, name: str) -> StepResult:
    """Applies every placed replica whose pools' devices are ready; the others wait, and hold nobody up."""
    return recorded(f"deployment/{namespace}/{name}", lambda: _ensure(session, namespace, name))


def _ensure(session: Session, namespace: str, name: str) -> StepResult:
    subject = f"deployment/{namespace}/{name}"
    plan = session.fleet_plan()
    placement = next(p for p in plan.placements if (p.namespace, p.name) == (namespace, name))
    deployment = session.fleet.deployments[(namespace, name)]
    waits = _drain(session, placement)
    changed = bool(set(placement.drains) - {w.notes["cluster"] for w in waits})
    if not placement.replicas:
        why = placement.findings[0].message if placement.findings else "no cluster takes it"
        state: State = "failed" if placement.verdict == "refused" or waits else "pending"
        findings = (*placement.findings, *(f for w in waits for f in w.findings))
        return StepResult(subject, state, waits[0].sentence if waits else why, findings, changed)
    rows: list[dict[str, Any]] = []
    count: Counter[str] = Counter()
    for replica in placement.replicas:
        ordinal = count[replica.cluster]
        count[replica.cluster] += 1
        result, row = _replica(session, deployment, replica, (namespace, name, ordinal))
        rows.append(row)
        changed = changed or result.changed
        if result.state != "ready":
            waits.append(result)
    if not waits:
        changed = _retire(session, plan, deployment, placement, count) or changed
    findings = (*placement.findings, *(f for w in waits for f in w.findings))
    tables = {"Replicas": tuple(rows)}
    notes = {"verdict": placement.verdict, "endpoint": rows[0]["endpoint"]}
    if waits:
        state = "failed" if any(w.state == "failed" for w in waits) else "pending"
        return StepResult(subject, state, waits[0].sentence, findings, changed, tables, notes)
    if placement.verdict != "placed":
        return pending(subject, placement.findings[0].message, findings=findings, changed=changed, tables=tables)
    text = f"{len(rows)} replicas serve" if len(rows) > 1 else "1 replica serves"
    return StepResult(subject, "ready", text, findings, changed, tables, notes)


def _drain(session: Session, placement: Placement) -> list[StepResult]:
    """Takes the deployment's replicas off the clusters whose taints drain them, before and whether or not others stand.
    What couldn't be drained, with `cluster` in its notes: one that can't be reached doesn't hold up the others."""
    key = (placement.namespace, placement.name)
    results = {
        c: recorded(f"deployment/{'/'.join(key)}", partial(_drain_one, session, c, key)) for c in placement.drains
    }
    return [replace(r, notes={"cluster": c}) for c, r in results.items() if r.state != "ready"]


def _drain_one(session: Session, cluster: str, key: tuple[str, str]) -> StepResult:
    subject = f"deployment/{'/'.join(key)}"
    try:
        admission, _ = session.admit(cluster)
    except RefusedError as error:
        return StepResult(subject, "failed", error.message, error.findings)
    session.write(admission)
    retire_replica(session.client(cluster), *key, None)
    session.note_replica(cluster, key, there=False)
    return StepResult(subject, "ready", f"drained from {cluster}", changed=True)


def _replica(
    session: Session,
    deployment: ModelDeployment,
    replica: ReplicaPlacement,
    key: tuple[str, str, int],
) -> tuple[StepResult, dict[str, Any]]:
    namespace, name, ordinal = key
    subject = f"deployment/{namespace}/{name}"
    row = _row(replica, key)
    try:
        admission, _ = session.admit(replica.cluster)
    except RefusedError as error:
        return StepResult(subject, "failed", error.message, error.findings), row
    waits = session.until(lambda: _devices_wait(session, replica))
    if waits:
        return upstream(subject, waits), row
    cluster = session.plan(replica.cluster, session.recent(replica.cluster))
    if cluster.view is None:
        raise UnreadableError(f"The manifests of cluster {replica.cluster} are unknown.")
    charged = charges(cluster.view, session.recent(replica.cluster).live)
    may = replica_variants((namespace, name), deployment, replica, cluster.view, ordinal=ordinal, charges=charged)
    client = session.client(replica.cluster)
    changed = False
    objects = next((o for o in may if _stands(client, o)), None)
    if objects is None:
        objects = may[0]
        session.write(admission)
        session.note_replica(replica.cluster, (namespace, name), there=True)
        if client.get("v1", "Namespace", namespace) is None:
            client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        for body in objects.objects:
            client.apply(body)
        changed = True
    ready, wanted = _counts(client, objects)
    row |= {"ready": ready, "pods": wanted}
    if ready < wanted:
        why = f"{ready} of {wanted} engine pods of {name} are ready on {replica.cluster}"
        if waits := _waits(session, replica.cluster, key):
            why = f"{why}; one waits: {waits}"
        elif refused := refused_pods(client, namespace):
            why = f"{why}; {refused}"
        told = (finding("NotServing", subject, why), *webhook_finding(replica.cluster, why))
        return pending(subject, why, findings=told, changed=changed), row
    return StepResult(subject, "ready", f"serves on {replica.cluster}", changed=changed), row


def _waits(session: Session, cluster: str, key: tuple[str, str, int]) -> str:
    """Why a pod of the replica had no node when the run last read the cluster; empty where all had one."""
    namespace, name, ordinal = key
    live = session.recent(cluster, age=_KEPT).live
    replica = (namespace, short_name(name, limit=63), str(ordinal))
    found = live.pods.value if live is not None and isinstance(live.pods, Known) else ()
    return next((p.waits for p in found if p.replica == replica and p.waits and not p.terminating), "")


def _row(replica: ReplicaPlacement, key: tuple[str, str, int]) -> dict[str, Any]:
    namespace, name, ordinal = key
    engine = replica.engines[0].name
    pools = ", ".join(dict.fromkeys(m.pool for e in replica.engines for m in e.members))
    return {
        "cluster": replica.cluster,
        "pools": pools,
        "ready": 0,
        "pods": 0,
        "endpoint": endpoint(namespace, name, engine, ordinal),
    }


def _devices_wait(session: Session, replica: ReplicaPlacement) -> str:
    """Empty once the devices of every pool that the replica uses are published."""
    observed = session.recent(replica.cluster)
    plan = session.plan(replica.cluster, observed)
    if observed.live is None:
        return f"cluster {replica.cluster}: {'; '.join(observed.unread()) or 'it was not read'}"
    health = judge_live(plan, observed, grace=session.settings.grace).health
    for pool in dict.fromkeys(m.pool for e in replica.engines for m in e.members):
        # A pool at zero nodes wakes for the pods that ask for it.
        if health[pool].state not in ("ready", "idle"):
            return f"the devices of pool {pool} on {replica.cluster}, which are {health[pool].state}"
    return ""


def _stands(client: ClusterClient, objects: ReplicaObjects) -> bool:
    """Every object is there as it was last applied."""
    for body in objects.objects:
        metadata = body["metadata"]
        found = client.get(body["apiVersion"], body["kind"], metadata["name"], namespace=metadata["namespace"])
        told = ((found or {}).get("metadata") or {}).get("annotations") or {}
        if found is None or told.get(DIGEST_ANNOTATION) != objects.digest:
            return False
    return True


def _counts(client: ClusterClient, objects: ReplicaObjects) -> tuple[int, int]:
    ready = wanted = 0
    for kind, name in objects.workloads:
        body: Mapping[str, Any] = client.get(_KINDS[kind], kind, name, namespace=objects.namespace) or {}
        wanted += int((body.get("spec") or {}).get("replicas", 1))
        ready += int((body.get("status") or {}).get("readyReplicas") or 0)
    return ready, wanted


def _retire(
    session: Session, plan: FleetPlan, deployment: ModelDeployment, placement: Placement, placed: Counter[str]
) -> bool:
    """Takes away replicas beyond the number that the manifest asks for; those that taints drain are gone by now. A replica
    that merely isn't placed any more is left as it is, and so is one on a cluster that is refused, unknown, or named by no
    manifest."""
    admitted = {c.name for c in plan.clusters if c.gate.verdict == "pass"} - set(placement.drains)
    live = [
        (cluster, r)
        for cluster, observed in sorted((plan.observed or {}).items())
        if cluster in admitted and isinstance(observed.replicas, Known)
        for r in observed.replicas.value
        if (r.namespace, r.deployment) == (placement.namespace, placement.name)
    ]
    surplus = len(live) - deployment.spec.replicas
    wrote = False
    for cluster in dict.fromkeys(c for c, _ in live if c in admitted):
        if surplus <= 0:
            break
        there = sum(1 for c, _ in live if c == cluster)
        for ordinal in range(there - 1, placed[cluster] - 1, -1):
            if surplus <= 0:
                break
            admission, _ = session.admit(cluster)
            session.write(admission)
            retire_replica(session.client(cluster), placement.namespace, placement.name, ordinal)
            if ordinal == 0:
                session.note_replica(cluster, (placement.namespace, placement.name), there=False)
            surplus -= 1
            wrote = True
    return wrote


def retire_replica(client: ClusterClient, namespace: str, name: str, ordinal: int | None) -> None:
    """Deletes one replica's objects, or with None every replica's. Reached by fewer `replicas`, by drains and by prune."""
    selector = f"{NAMESPACE_LABEL}={namespace},{DEPLOYMENT_LABEL}={name}"
    if ordinal is not None:
        selector += f",{REPLICA_LABEL}={ordinal}"
    for api_version, kind in _RETIRED_KINDS:
        if kind == "LeaderWorkerSet" and not client.serves(api_version, kind):
            continue
        for body in client.list(api_version, kind, namespace=namespace, labels=selector):
            metadata = body["metadata"]
            client.delete(api_version, kind, metadata["name"], namespace=namespace, uid=metadata["uid"])
