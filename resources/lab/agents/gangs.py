"""LeaderWorkerSets: a StatefulSet of leaders, and for each leader one of its workers."""

from __future__ import annotations

from typing import Any

from resources.kubernetes import ClusterClient

Json = dict[str, Any]
GANG = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
_GROUP = "leaderworkerset.sigs.k8s.io/"
NAME, GROUP_INDEX, WORKER_INDEX = _GROUP + "name", _GROUP + "group-index", _GROUP + "worker-index"


def make_gangs(client: ClusterClient, gangs: list[Json]) -> bool:
    """The StatefulSets of each gang, scaled as it says, and the gang's status from them."""
    changed = False
    for gang in gangs:
        metadata = gang["metadata"]
        label = f"{NAME}={metadata['name']}"
        found = client.list("apps/v1", "StatefulSet", namespace=metadata["namespace"], labels=label)
        live = {s["metadata"]["name"]: s for s in found}
        wanted = {s["metadata"]["name"]: s for s in _sets(gang)}
        for name, body in wanted.items():
            if name not in live or _differs(live[name], body):
                client.apply(body, force=True)
                changed = True
        for name in live.keys() - wanted.keys():
            client.delete("apps/v1", "StatefulSet", name, namespace=metadata["namespace"])
            changed = True
        changed |= _number(client, metadata["namespace"], label)
        changed |= _report(client, gang, live)
    return changed


def _number(client: ClusterClient, namespace: str, label: str) -> bool:
    """Each pod's group and rank as labels, which the real operator's webhook sets when the pod is made."""
    changed = False
    for pod in client.list("v1", "Pod", namespace=namespace, labels=label):
        labels = pod["metadata"]["labels"]
        index = labels.get("apps.kubernetes.io/pod-index", "0")
        missing = next((key for key in (GROUP_INDEX, WORKER_INDEX) if key not in labels), "")
        if missing:
            target = ("v1", "Pod", namespace, pod["metadata"]["name"])
            client.patch(target, {"metadata": {"labels": {missing: index}}})
            changed = True
    return changed


def _differs(live: Json, body: Json) -> bool:
    """By number of pods and the gang's generation, which grows with every change of its templates."""
    marks = (live["metadata"].get("annotations") or {}).get(_GROUP + "generation")
    return (
        live["spec"]["replicas"] != body["spec"]["replicas"]
        or marks != body["metadata"]["annotations"][_GROUP + "generation"]
    )


def _sets(gang: Json) -> list[Json]:
    spec, name = gang["spec"], gang["metadata"]["name"]
    template = spec["leaderWorkerTemplate"]
    size, replicas = int(template.get("size", 1)), int(spec.get("replicas", 1))
    leader = template.get("leaderTemplate") or template["workerTemplate"]
    leaders = _stateful(gang, name, leader, {WORKER_INDEX: "0"}, replicas, 0)
    workers = [
        _stateful(gang, f"{name}-{n}", template["workerTemplate"], {GROUP_INDEX: str(n)}, size - 1, 1)
        for n in range(replicas)
        if size > 1
    ]
    return [leaders, *workers]


def _stateful(gang: Json, name: str, template: Json, more: dict[str, str], replicas: int, start: int) -> Json:
    metadata = gang["metadata"]
    own = {NAME: metadata["name"], **more}
    pod = {**template, "metadata": {**(template.get("metadata") or {})}}
    pod["metadata"]["labels"] = {**(pod["metadata"].get("labels") or {}), **own}
    owner = {
        "apiVersion": GANG[0],
        "kind": GANG[1],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": own,
            "annotations": {_GROUP + "generation": str(metadata.get("generation", 1))},
            "ownerReferences": [owner],
        },
        "spec": {
            "replicas": replicas,
            "ordinals": {"start": start},
            "podManagementPolicy": "Parallel",
            "serviceName": metadata["name"],
            "selector": {"matchLabels": own},
            "template": pod,
        },
    }


def _report(client: ClusterClient, gang: Json, live: dict[str, Json]) -> bool:
    """A group is ready when its leader and all its workers are."""
    metadata = gang["metadata"]
    leaders = live.get(metadata["name"], {})
    groups = int(gang["spec"].get("replicas", 1))
    whole = (
        sum(_all_ready(live[name]) for n in range(groups) if (name := f"{metadata['name']}-{n}") in live)
        if int(gang["spec"]["leaderWorkerTemplate"].get("size", 1)) > 1
        else groups
    )
    is_ready = min(int((leaders.get("status") or {}).get("readyReplicas", 0)), whole)
    available = {"type": "Available", "status": "True" if is_ready == groups else "False", "reason": "AllGroupsReady"}
    status = {
        "replicas": int((leaders.get("status") or {}).get("replicas", 0)),
        "readyReplicas": is_ready,
        "updatedReplicas": is_ready,
        "conditions": [{**available, "message": "", "lastTransitionTime": metadata["creationTimestamp"]}],
    }
    if gang.get("status") == status:
        return False
    client.patch((*GANG, metadata["namespace"], metadata["name"]), {"status": status}, status=True)
    return True


def _all_ready(one: Json) -> bool:
    return int((one.get("status") or {}).get("readyReplicas", 0)) >= int(one["spec"]["replicas"])
