"""Deployments, ReplicaSets and StatefulSets: so many pods, and the counts that tools wait for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from resources.lab.api.errors import ApiError
from resources.lab.api.storage import Event, Name
from resources.lab.api.store import now
from resources.lab.controllers.engine import Cluster
from resources.lab.controllers.index import (
    DEPLOYMENTS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Obj,
    condition,
    digest,
    finished,
    name_of,
    owner_of,
    pod_from,
    ready,
    terminating,
    with_conditions,
)

HASH = "pod-template-hash"
REVISION = "controller-revision-hash"
POD_NAME = "statefulset.kubernetes.io/pod-name"
POD_INDEX = "apps.kubernetes.io/pod-index"
DEPLOYMENT_REVISION = "deployment.kubernetes.io/revision"


def _owner_name(event: Event, kind: str) -> Iterator[Name]:
    owner = owner_of(event.obj)
    if owner is not None and owner["kind"] == kind:
        yield event.name[0], owner["name"]


class Deployments:
    """A ReplicaSet for each template. The new one is scaled up at once, the old ones down when it is available."""

    def __init__(self, cluster: Cluster) -> None:
        self._c = cluster

    def everything(self) -> Iterable[Name]:
        return self._c.store.storage.names(DEPLOYMENTS)

    def concerns(self, event: Event) -> Iterator[Name]:
        if event.key == DEPLOYMENTS:
            yield event.name
        elif event.key == REPLICA_SETS:
            yield from _owner_name(event, "Deployment")

    def sync(self, name: Name) -> None:
        entry = self._c.store.storage.get(DEPLOYMENTS, name)
        if entry is None or terminating(entry.obj):
            return
        deployment = entry.obj
        revision = digest(deployment["spec"]["template"])
        owned = [r for r in self._c.index.owned_replica_sets(deployment["metadata"]["uid"]) if not terminating(r)]
        new = next((r for r in owned if r["metadata"]["labels"].get(HASH) == revision), None)
        old = [r for r in owned if r is not new]
        wanted = int(deployment["spec"].get("replicas", 1))
        recreate = (deployment["spec"].get("strategy") or {}).get("type") == "Recreate"
        if recreate and any(_count(r, "replicas") for r in old):
            self._scale(old, 0)
        elif new is None:
            new = self._c.store.create("replicasets.apps", _replica_set(deployment, revision, len(owned) + 1))
        else:
            self._scale([new], wanted)
            if _count(new, "availableReplicas") >= wanted:
                self._scale(old, 0)
        self._c.status("deployments.apps", deployment, _deployment_status(deployment, new, owned))

    def _scale(self, replica_sets: list[Obj], replicas: int) -> None:
        for one in replica_sets:
            if one["spec"].get("replicas") != replicas:
                namespace, name = name_of(one)
                body = {"spec": {"replicas": replicas}}
                self._c.store.patch("replicasets.apps", name, body, namespace=namespace)


def _replica_set(deployment: Obj, revision: str, number: int) -> Obj:
    template, metadata = deployment["spec"]["template"], deployment["metadata"]
    labels = {**(template.get("metadata", {}).get("labels") or {}), HASH: revision}
    selector = deployment["spec"]["selector"]
    reference = pod_from(deployment, template, labels={})["metadata"]["ownerReferences"]
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{metadata['name'][:240]}-{revision}",
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": {DEPLOYMENT_REVISION: str(number)},
            "ownerReferences": reference,
        },
        "spec": {
            "replicas": deployment["spec"].get("replicas", 1),
            "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), HASH: revision}},
            "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}},
        },
    }


def _count(obj: Obj, name: str) -> int:
    return int((obj.get("status") or {}).get(name, 0))


def _deployment_status(deployment: Obj, new: Obj | None, owned: list[Obj]) -> Obj:
    wanted = int(deployment["spec"].get("replicas", 1))
    everything = owned if new is None or new in owned else [*owned, new]
    total = sum(_count(r, "replicas") for r in everything)
    available = sum(_count(r, "availableReplicas") for r in everything)
    updated = _count(new, "replicas") if new is not None else 0
    counts = {
        "replicas": total,
        "updatedReplicas": updated,
        "readyReplicas": sum(_count(r, "readyReplicas") for r in everything),
        "availableReplicas": available,
        "unavailableReplicas": max(0, wanted - available),
    }
    done = updated >= wanted and available >= wanted and total == wanted
    progress = ("NewReplicaSetAvailable", "ReplicaSet has successfully progressed.")
    when, enough = now(), available >= wanted
    conditions = [
        condition(
            "Available",
            holds=enough,
            when=when,
            reason="MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            message=f"Deployment {'has' if enough else 'does not have'} minimum availability.",
        ),
        condition(
            "Progressing",
            holds=True,
            when=when,
            reason=progress[0] if done else "ReplicaSetUpdated",
            message=progress[1],
        ),
    ]
    old = {k: v for k, v in (deployment.get("status") or {}).items() if k == "conditions"}
    status = with_conditions(old, conditions)
    status["observedGeneration"] = deployment["metadata"].get("generation", 1)
    return status | {name: count for name, count in counts.items() if count}


class ReplicaSets:
    def __init__(self, cluster: Cluster) -> None:
        self._c = cluster

    def everything(self) -> Iterable[Name]:
        return self._c.store.storage.names(REPLICA_SETS)

    def concerns(self, event: Event) -> Iterator[Name]:
        if event.key == REPLICA_SETS:
            yield event.name
        elif event.key == PODS:
            yield from _owner_name(event, "ReplicaSet")

    def sync(self, name: Name) -> None:
        entry = self._c.store.storage.get(REPLICA_SETS, name)
        if entry is None or terminating(entry.obj):
            return
        replica_set = entry.obj
        pods = [
            p
            for p in self._c.index.owned_pods(replica_set["metadata"]["uid"])
            if not terminating(p) and not finished(p)
        ]
        wanted = int(replica_set["spec"].get("replicas", 1))
        refusal = None
        for _ in range(wanted - len(pods)):
            try:
                pods.append(
                    self._c.store.create("pods", pod_from(replica_set, replica_set["spec"]["template"], labels={}))
                )
            except ApiError as error:
                refusal = error
                break
        for pod in sorted(pods, key=ready)[: max(0, len(pods) - wanted)]:
            self._c.store.delete("pods", name_of(pod)[1], namespace=name[0])
            pods.remove(pod)
        is_ready = sum(map(ready, pods))
        counts = {"readyReplicas": is_ready, "availableReplicas": is_ready, "fullyLabeledReplicas": len(pods)}
        status: dict[str, Any] = {
            "replicas": len(pods),
            "observedGeneration": replica_set["metadata"].get("generation", 1),
        }
        self._c.status("replicasets.apps", replica_set, status | {k: v for k, v in counts.items() if v})
        if refusal is not None:
            self._c.event(replica_set, "FailedCreate", f"Error creating: {refusal.message}")
            raise refusal


class StatefulSets:
    """Pods by number: each waits for those before it to be ready, unless the policy is Parallel."""

    def __init__(self, cluster: Cluster) -> None:
        self._c = cluster

    def everything(self) -> Iterable[Name]:
        return self._c.store.storage.names(STATEFUL_SETS)

    def concerns(self, event: Event) -> Iterator[Name]:
        if event.key == STATEFUL_SETS:
            yield event.name
        elif event.key == PODS:
            yield from _owner_name(event, "StatefulSet")

    def sync(self, name: Name) -> None:
        entry = self._c.store.storage.get(STATEFUL_SETS, name)
        if entry is None or terminating(entry.obj):
            return
        owner = entry.obj
        revision = f"{name[1]}-{digest(owner['spec']['template'])}"
        wanted = int(owner["spec"].get("replicas", 1))
        start = int((owner["spec"].get("ordinals") or {}).get("start", 0))
        numbers = range(start, start + wanted)
        pods = {p["metadata"]["name"]: p for p in self._c.index.owned_pods(owner["metadata"]["uid"])}
        expected = [f"{name[1]}-{number}" for number in numbers]
        self._fill(owner, expected, pods, revision)
        for extra in sorted(set(pods) - set(expected)):
            self._delete(pods[extra])
        self._roll(owner, [pods[e] for e in expected if e in pods], revision)
        self._c.status(
            "statefulsets.apps", owner, _stateful_status(owner, [pods[e] for e in expected if e in pods], revision)
        )

    def _fill(self, owner: Obj, expected: list[str], pods: dict[str, Obj], revision: str) -> None:
        ordered = owner["spec"].get("podManagementPolicy", "OrderedReady") == "OrderedReady"
        for pod_name in expected:
            pod = pods.get(pod_name)
            if pod is None:
                labels = {REVISION: revision, POD_NAME: pod_name, POD_INDEX: pod_name.rpartition("-")[2]}
                body = pod_from(owner, owner["spec"]["template"], labels=labels, name=pod_name)
                body["spec"] |= {"hostname": pod_name, "subdomain": owner["spec"].get("serviceName", "")}
                pod = pods[pod_name] = self._c.store.create("pods", body)
            elif finished(pod):
                self._delete(pod)
            if ordered and (terminating(pod) or not ready(pod)):
                return

    def _roll(self, owner: Obj, pods: list[Obj], revision: str) -> None:
        """From the highest number down, one at a time; pods that never became ready don't hold it up."""
        if (owner["spec"].get("updateStrategy") or {}).get("type", "RollingUpdate") != "RollingUpdate":
            return
        outdated = [p for p in pods if p["metadata"]["labels"].get(REVISION) != revision and not terminating(p)]
        current = [p for p in pods if p not in outdated]
        if outdated and all(ready(p) for p in current):
            self._delete(outdated[-1])

    def _delete(self, pod: Obj) -> None:
        if not terminating(pod):
            namespace, name = name_of(pod)
            self._c.store.delete("pods", name, namespace=namespace)


def _stateful_status(owner: Obj, pods: list[Obj], revision: str) -> Obj:
    updated = [p for p in pods if p["metadata"]["labels"].get(REVISION) == revision]
    is_ready = sum(map(ready, pods))
    done = len(updated) == int(owner["spec"].get("replicas", 1))
    before = (owner.get("status") or {}).get("currentRevision") or revision
    counts = {
        "readyReplicas": is_ready,
        "availableReplicas": is_ready,
        "updatedReplicas": len(updated),
        "currentReplicas": len(updated) if done or before == revision else len(pods) - len(updated),
    }
    status: dict[str, Any] = {
        "replicas": len(pods),
        "observedGeneration": owner["metadata"].get("generation", 1),
        "currentRevision": revision if done else before,
        "updateRevision": revision,
        "collisionCount": 0,
    }
    # kstatus reads availableReplicas even at zero.
    return status | {k: v for k, v in counts.items() if v or k == "availableReplicas"}
