"""What the controllers look up again and again: pods by owner and node, nodes as the scheduler reads them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from modelplane_dagster.kube.objects import NodeFacts, Taint
from resources.lab.api.storage import Event, Name
from resources.lab.api.store import Store

Obj = dict[str, Any]
PODS = ("", "pods")
NODES = ("", "nodes")
DAEMON_SETS = ("apps", "daemonsets")
DEPLOYMENTS = ("apps", "deployments")
REPLICA_SETS = ("apps", "replicasets")
STATEFUL_SETS = ("apps", "statefulsets")
JOBS = ("batch", "jobs")
CLAIMS = ("resource.k8s.io", "resourceclaims")
TEMPLATES = ("resource.k8s.io", "resourceclaimtemplates")
SLICES = ("resource.k8s.io", "resourceslices")
CLASSES = ("resource.k8s.io", "deviceclasses")


class Index:
    """Kept up to date by `seen`, which the engine calls with every event before any controller."""

    def __init__(self, store: Store) -> None:
        self._by_owner: dict[str, set[Name]] = {}
        self._by_node: dict[str, set[Name]] = {}
        self._by_replica_owner: dict[str, set[Name]] = {}
        self.pods: dict[Name, Obj] = {}
        self.replica_sets: dict[Name, Obj] = {}
        self.nodes: dict[str, NodeFacts] = {}
        self.node_objects: dict[str, Obj] = {}
        for key in (NODES, PODS, REPLICA_SETS):
            for name, entry in store.storage.entries(key):
                self._put(key, name, entry.obj)

    def seen(self, event: Event) -> None:
        if event.before is not None:
            self._drop(event.key, event.name, event.before.obj)
        if event.type != "DELETED":
            self._put(event.key, event.name, event.obj)

    def _put(self, key: tuple[str, str], name: Name, obj: Obj) -> None:
        if key == PODS:
            self.pods[name] = obj
            self._by_owner.setdefault(owner_uid(obj), set()).add(name)
            self._by_node.setdefault(node_of(obj), set()).add(name)
        elif key == NODES:
            self.nodes[name[1]] = node_facts(obj)
            self.node_objects[name[1]] = obj
        elif key == REPLICA_SETS:
            self.replica_sets[name] = obj
            self._by_replica_owner.setdefault(owner_uid(obj), set()).add(name)

    def _drop(self, key: tuple[str, str], name: Name, before: Obj) -> None:
        if key == PODS:
            self.pods.pop(name, None)
            self._by_owner.get(owner_uid(before), set()).discard(name)
            self._by_node.get(node_of(before), set()).discard(name)
        elif key == NODES:
            self.nodes.pop(name[1], None)
            self.node_objects.pop(name[1], None)
        elif key == REPLICA_SETS:
            self.replica_sets.pop(name, None)
            self._by_replica_owner.get(owner_uid(before), set()).discard(name)

    def owned_pods(self, uid: str) -> list[Obj]:
        return [self.pods[name] for name in sorted(self._by_owner.get(uid, ()))]

    def owned_replica_sets(self, uid: str) -> list[Obj]:
        return [self.replica_sets[name] for name in sorted(self._by_replica_owner.get(uid, ()))]

    def pods_on(self, node: str) -> list[Obj]:
        """Those bound to the node, finished ones included."""
        return [self.pods[name] for name in sorted(self._by_node.get(node, ()))]

    def unbound(self) -> list[Name]:
        """Pods without a node, oldest first."""
        names = self._by_node.get("", ())
        return sorted(names, key=lambda name: (self.pods[name]["metadata"]["creationTimestamp"], name))


def name_of(obj: Obj) -> Name:
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def owner_of(obj: Obj) -> Obj | None:
    """The controlling owner's reference."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return reference
    return None


def owner_uid(obj: Obj) -> str:
    owner = owner_of(obj)
    return owner["uid"] if owner else ""


def node_of(pod: Obj) -> str:
    return str(pod["spec"].get("nodeName") or "")


def terminating(obj: Obj) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def finished(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def ready(pod: Obj) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def node_facts(node: Obj) -> NodeFacts:
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    return NodeFacts(
        name=metadata["name"],
        labels=metadata.get("labels") or {},
        taints=tuple(Taint.parse(taint) for taint in spec.get("taints") or ()),
        unschedulable=bool(spec.get("unschedulable")),
        ready=any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ()),
        terminating=terminating(node),
        allocatable=status.get("allocatable") or {},
    )


def digest(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Ten characters that differ where the value differs."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()[:10]


def pod_from(owner: Obj, template: Obj, *, labels: Mapping[str, str], name: str = "") -> Obj:
    """A pod of the owner's template; the name is generated where none is given. Its spec is shared with the template."""
    metadata = template.get("metadata") or {}
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    named = {"name": name} if name else {"generateName": f"{owner['metadata']['name'][:240]}-"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **named,
            "namespace": owner["metadata"]["namespace"],
            "labels": {**(metadata.get("labels") or {}), **labels},
            **({"annotations": metadata["annotations"]} if metadata.get("annotations") else {}),
            "ownerReferences": [reference],
        },
        "spec": dict(template["spec"]),
    }


def condition(kind: str, *, holds: bool, when: str, reason: str = "", message: str = "") -> Obj:
    found = {"type": kind, "status": "True" if holds else "False", "lastTransitionTime": when}
    return found | {k: v for k, v in (("reason", reason), ("message", message)) if v}


def with_conditions(status: Obj, conditions: Iterable[Obj]) -> Obj:
    """The status with each condition set; one that holds as before keeps its time."""
    kept = {c["type"]: c for c in status.get("conditions") or ()}
    for new in conditions:
        old = kept.get(new["type"])
        if old is not None and old["status"] == new["status"]:
            new = {**new, "lastTransitionTime": old["lastTransitionTime"]}  # noqa: PLW2901 - the same condition, its time kept
        kept[new["type"]] = new
    return {**status, "conditions": list(kept.values())}
