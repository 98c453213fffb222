"""What happens to objects around a write: finalizers, garbage collection, namespaces that empty, CRDs that make APIs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from resources.lab.api.errors import ApiError, forbidden
from resources.lab.api.storage import Event, Name
from resources.lab.api.table import Resource
from resources.lab.api.writes import Delete

if TYPE_CHECKING:
    from resources.lab.api.store import Store

Obj = dict[str, Any]

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
CRD_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
CRDS = ("apiextensions.k8s.io", "customresourcedefinitions")
NAMESPACES = ("", "namespaces")
EVENTS = ("", "events")
_EVENTS = 1000
_DEFAULT_GRACE = 30
_KEPT_NAMESPACES = {"default", "kube-public", "kube-system"}


class Lifecycle:
    """Runs its follow-up work on the event loop, or at once where none runs (`drain`)."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._work: deque[Callable[[], None]] = deque()
        self._scheduled = False
        self._draining = False
        # owner uid -> where its dependents are
        self._dependents: dict[str, set[tuple[tuple[str, str], Name]]] = {}
        self._uids: dict[str, tuple[tuple[str, str], Name]] = {}
        for key in store.storage.resources():
            for name, entry in store.storage.entries(key):
                self._index(key, name, entry.obj)
        store.storage.subscribe(self._seen)

    def _index(self, key: tuple[str, str], name: Name, obj: Obj) -> None:
        self._uids[obj["metadata"]["uid"]] = key, name
        for owner in obj["metadata"].get("ownerReferences") or ():
            self._dependents.setdefault(owner["uid"], set()).add((key, name))

    def _seen(self, event: Event) -> None:
        metadata = event.obj["metadata"]
        if event.type != "DELETED":
            self._index(event.key, event.name, event.obj)
            owners = metadata.get("ownerReferences")
            if owners and not any(owner["uid"] in self._uids for owner in owners):
                self._later(lambda: self._collect(event.key, event.name))
            return
        self._uids.pop(metadata["uid"], None)
        for owner in metadata.get("ownerReferences") or ():
            self._dependents.get(owner["uid"], set()).discard((event.key, event.name))
            self._later(partial(self._finish_foreground, owner["uid"]))
        if self._dependents.get(metadata["uid"]):
            self._later(lambda: self._collect_dependents(metadata["uid"]))
        if metadata.get("namespace"):
            self._later(lambda: self._empty(metadata["namespace"]))
        self._later(lambda: self._finish_crd(event.key))

    def _later(self, work: Callable[[], None]) -> None:
        self._work.append(work)
        if self._scheduled or self._draining:
            return
        try:
            asyncio.get_running_loop().call_soon(self.drain)
        except RuntimeError:
            return
        self._scheduled = True

    def drain(self) -> None:
        """Does all follow-up work that waits; callers without an event loop call it themselves."""
        self._scheduled, self._draining = False, True
        try:
            while self._work:
                self._work.popleft()()
        finally:
            self._draining = False

    # Deleting

    @staticmethod
    def holds(resource: Resource, obj: Obj) -> bool:
        """Whether a terminating object must stay: finalizers, a namespace's own, a pod that a kubelet still runs."""
        if obj["metadata"].get("finalizers"):
            return True
        if resource.key == NAMESPACES:
            return bool(obj.get("spec", {}).get("finalizers"))
        return bool(obj["metadata"].get("deletionGracePeriodSeconds"))

    def delete(self, resource: Resource, obj: Obj, how: Delete) -> tuple[Obj, bool]:
        metadata = dict(obj["metadata"])
        if resource.key == NAMESPACES and metadata["name"] in _KEPT_NAMESPACES:
            raise forbidden("namespaces", "", metadata["name"], "this namespace may not be deleted")
        at = metadata.get("namespace", ""), metadata["name"]
        finalizers = [f for f in metadata.get("finalizers") or () if f not in {FOREGROUND, ORPHAN}]
        if how.policy == "Foreground" and self._dependents.get(metadata["uid"]):
            finalizers.append(FOREGROUND)
        elif how.policy == "Orphan":
            self._orphan(metadata["uid"])
        if resource.key == CRDS and CRD_FINALIZER not in finalizers and self._has_objects(obj):
            finalizers.append(CRD_FINALIZER)
        if finalizers or metadata.get("finalizers"):
            metadata["finalizers"] = finalizers
        grace = self._grace(resource, obj, how)
        first = "deletionTimestamp" not in metadata
        metadata["deletionTimestamp"] = metadata.get("deletionTimestamp") or _stamp(grace)
        metadata["deletionGracePeriodSeconds"] = grace
        if resource.generation and first:
            metadata["generation"] = metadata.get("generation", 0) + 1
        doomed = {**obj, "metadata": {k: v for k, v in metadata.items() if k != "finalizers" or v}}
        if resource.key == NAMESPACES:
            doomed["status"] = {**obj.get("status", {}), "phase": "Terminating"}
        if not self.holds(resource, doomed):
            last = self.remove(resource, at)
            return last or obj, True
        if doomed["metadata"] != obj["metadata"] or doomed.get("status") != obj.get("status"):
            doomed = self._store.storage.put(resource.key, at, doomed).obj
        self._after_mark(resource, doomed)
        return doomed, False

    @staticmethod
    def _grace(resource: Resource, obj: Obj, how: Delete) -> int:
        """Seconds for a pod that a node runs; zero for all else."""
        if resource.key != ("", "pods") or not obj["spec"].get("nodeName"):
            return 0
        if obj.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
            return 0
        if how.grace is not None:
            return max(how.grace, 0)
        return int(obj["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE))

    def _after_mark(self, resource: Resource, obj: Obj) -> None:
        uid = obj["metadata"]["uid"]
        if FOREGROUND in (obj["metadata"].get("finalizers") or ()):
            self._later(lambda: self._delete_dependents(uid))
        if resource.key == NAMESPACES:
            self._later(lambda: self._empty(obj["metadata"]["name"]))
        if resource.key == CRDS:
            self._later(lambda: self._delete_customs(obj))

    def remove(self, resource: Resource, at: Name) -> Obj | None:
        """Takes the object out for good."""
        entry = self._store.storage.remove(resource.key, at)
        if entry is not None and resource.key == CRDS:
            self._store.table.drop_crd(entry.obj)
        return None if entry is None else entry.obj

    def _quietly_delete(self, key: tuple[str, str], at: Name, policy: str = "Background") -> None:
        resource = self._store.table.by_key(key)
        if resource is None or self._store.storage.get(key, at) is None:
            return
        try:
            self._store.delete(resource, at[1], namespace=at[0], how=Delete(policy=policy))
        except ApiError:
            # Gone or changed meanwhile: the next event brings it up again.
            return

    # Garbage collection

    def _collect_dependents(self, uid: str) -> None:
        for key, at in sorted(self._dependents.pop(uid, set())):
            self._collect(key, at)

    def _collect(self, key: tuple[str, str], at: Name) -> None:
        """Deletes an object all of whose owners are gone."""
        entry = self._store.storage.get(key, at)
        if entry is None:
            return
        owners = entry.obj["metadata"].get("ownerReferences") or ()
        if owners and not any(owner["uid"] in self._uids for owner in owners):
            self._quietly_delete(key, at)

    def _delete_dependents(self, uid: str) -> None:
        for key, at in sorted(self._dependents.get(uid, set())):
            self._quietly_delete(key, at, "Foreground")
        self._finish_foreground(uid)

    def _finish_foreground(self, uid: str) -> None:
        found = self._uids.get(uid)
        if found is None or self._dependents.get(uid):
            return
        entry = self._store.storage.get(*found)
        if entry is not None and FOREGROUND in (entry.obj["metadata"].get("finalizers") or ()):
            self._drop_finalizer(*found, FOREGROUND)

    def _drop_finalizer(self, key: tuple[str, str], at: Name, finalizer: str) -> None:
        entry, resource = self._store.storage.get(key, at), self._store.table.by_key(key)
        if entry is None or resource is None:
            return
        metadata = dict(entry.obj["metadata"])
        rest = [f for f in metadata.pop("finalizers", ()) if f != finalizer]
        doomed = {**entry.obj, "metadata": {**metadata, "finalizers": rest} if rest else metadata}
        if self.holds(resource, doomed):
            self._store.storage.put(key, at, doomed)
        else:
            self.remove(resource, at)

    def _orphan(self, uid: str) -> None:
        for key, at in self._dependents.pop(uid, set()):
            entry = self._store.storage.get(key, at)
            if entry is None:
                continue
            metadata = dict(entry.obj["metadata"])
            rest = [owner for owner in metadata.pop("ownerReferences", ()) if owner["uid"] != uid]
            self._store.storage.put(
                key, at, {**entry.obj, "metadata": {**metadata, "ownerReferences": rest} if rest else metadata}
            )

    # Namespaces and CRDs

    def _empty(self, namespace: str) -> None:
        """Deletes what a terminating namespace holds, and the namespace once nothing is left."""
        entry = self._store.storage.get(NAMESPACES, ("", namespace))
        if entry is None or "deletionTimestamp" not in entry.obj["metadata"]:
            return
        left = False
        for key in self._store.storage.resources():
            for at, inner in list(self._store.storage.entries(key, namespace)):
                if "deletionTimestamp" not in inner.obj["metadata"]:
                    self._quietly_delete(key, at)
                left = left or self._store.storage.get(key, at) is not None
        resource = self._store.resource("namespaces")
        if not left:
            freed = {**entry.obj, "spec": {k: v for k, v in entry.obj.get("spec", {}).items() if k != "finalizers"}}
            if self.holds(resource, freed):
                self._store.storage.put(NAMESPACES, ("", namespace), freed)
            else:
                self.remove(resource, ("", namespace))

    def created(self, resource: Resource, obj: Obj) -> None:
        if resource.key == CRDS:
            self._establish(obj)
        elif resource.key == NAMESPACES:
            name = obj["metadata"]["name"]
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}
            if self._store.find("serviceaccounts", "default", name) is None:
                self._store.create("serviceaccounts", account)
        elif resource.key == EVENTS:
            self._forget_events()

    def _forget_events(self) -> None:
        """The real API forgets an event after an hour; this one keeps the latest thousand."""
        while self._store.storage.count(EVENTS) > _EVENTS:
            self._store.storage.remove(EVENTS, self._store.storage.first(EVENTS))

    def updated(self, resource: Resource, obj: Obj) -> None:
        if resource.key == CRDS:
            self._store.table.add_crd(obj, self._store.switches.minor)
        elif resource.key == NAMESPACES and "deletionTimestamp" in obj["metadata"]:
            self._later(lambda: self._empty(obj["metadata"]["name"]))

    def _establish(self, crd: Obj) -> None:
        """A CRD's API is there with the answer to its creation."""
        self._store.table.add_crd(crd, self._store.switches.minor)
        spec = crd["spec"]
        when = crd["metadata"]["creationTimestamp"]
        conditions = [
            _condition("NamesAccepted", "NoConflicts", "no conflicts found", when),
            _condition("Established", "InitialNamesAccepted", "the initial names have been accepted", when),
        ]
        status = {
            "acceptedNames": spec["names"],
            "conditions": conditions,
            "storedVersions": [v["name"] for v in spec["versions"] if v.get("storage")],
        }
        self._store.storage.put(CRDS, ("", crd["metadata"]["name"]), {**crd, "status": status})

    def _crd_key(self, crd: Obj) -> tuple[str, str]:
        return crd["spec"]["group"], crd["spec"]["names"]["plural"]

    def _has_objects(self, crd: Obj) -> bool:
        return bool(self._store.storage.names(self._crd_key(crd)))

    def _delete_customs(self, crd: Obj) -> None:
        key = self._crd_key(crd)
        for at in list(self._store.storage.names(key)):
            self._quietly_delete(key, at)
        self._finish_crd(key)

    def _finish_crd(self, key: tuple[str, str]) -> None:
        name = f"{key[1]}.{key[0]}"
        entry = self._store.storage.get(CRDS, ("", name))
        if entry is None or "deletionTimestamp" not in entry.obj["metadata"] or self._has_objects(entry.obj):
            return
        if CRD_FINALIZER in (entry.obj["metadata"].get("finalizers") or ()):
            self._drop_finalizer(CRDS, ("", name), CRD_FINALIZER)


def _condition(kind: str, reason: str, message: str, when: str) -> Obj:
    return {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": when}


def _stamp(grace: int) -> str:
    return (datetime.now(UTC) + timedelta(seconds=grace)).strftime("%Y-%m-%dT%H:%M:%SZ")
