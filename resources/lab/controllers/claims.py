"""ResourceClaims of pods: made from templates, and freed when no pod reserves them any more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from resources.lab.api.storage import Event, Name
from resources.lab.controllers.engine import Cluster
from resources.lab.controllers.index import CLAIMS, PODS, TEMPLATES, Obj, finished, name_of, terminating

POD_CLAIM = "resource.kubernetes.io/pod-claim-name"


class Claims:
    """Makes the claims that a pod's templates ask for, owned by the pod, and names them in its status."""

    def __init__(self, cluster: Cluster) -> None:
        self._c = cluster

    def everything(self) -> Iterable[Name]:
        return [name for name, pod in self._c.index.pods.items() if pod["spec"].get("resourceClaims")]

    def concerns(self, event: Event) -> Iterator[Name]:
        if event.key == PODS and event.obj["spec"].get("resourceClaims"):
            yield event.name
        elif event.key == TEMPLATES and event.type == "ADDED":
            yield from (name for name in self.everything() if name[0] == event.name[0])

    def sync(self, name: Name) -> None:
        pod = self._c.index.pods.get(name)
        if pod is None or terminating(pod) or finished(pod):
            return
        known = {s["name"]: s for s in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
        for entry in pod["spec"]["resourceClaims"]:
            template = entry.get("resourceClaimTemplateName")
            if not template or entry["name"] in known:
                continue
            found = self._c.store.find("resourceclaimtemplates.resource.k8s.io", template, name[0])
            if found is None:
                self._c.event(pod, "FailedResourceClaimCreation", f'resourceclaimtemplate "{template}" not found')
                return
            claim = self._c.store.create("resourceclaims.resource.k8s.io", _claim(pod, entry["name"], found))
            known[entry["name"]] = {"name": entry["name"], "resourceClaimName": claim["metadata"]["name"]}
        statuses = list(known.values())
        if statuses:
            self._c.status("pods", pod, {**(pod.get("status") or {}), "resourceClaimStatuses": statuses})


def _claim(pod: Obj, entry: str, template: Obj) -> Obj:
    inner = template["spec"]
    metadata = inner.get("metadata") or {}
    namespace, name = name_of(pod)
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": f"{name[:200]}-{entry}-",
            "namespace": namespace,
            "labels": metadata.get("labels") or {},
            "annotations": {**(metadata.get("annotations") or {}), POD_CLAIM: entry},
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": name,
                    "uid": pod["metadata"]["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": inner["spec"],
    }


class Reservations:
    """Takes gone and finished pods out of `reservedFor`, and the allocation away with the last of them."""

    def __init__(self, cluster: Cluster) -> None:
        self._c = cluster

    def everything(self) -> Iterable[Name]:
        return self._c.store.storage.names(CLAIMS)

    def concerns(self, event: Event) -> Iterator[Name]:
        if event.key != PODS or not event.obj["spec"].get("resourceClaims"):
            return
        if event.type == "DELETED" or finished(event.obj):
            yield from (name for name in self.everything() if name[0] == event.name[0])

    def sync(self, name: Name) -> None:
        entry = self._c.store.storage.get(CLAIMS, name)
        if entry is None:
            return
        status = entry.obj.get("status") or {}
        reserved = status.get("reservedFor") or []
        kept = [r for r in reserved if r.get("resource") != "pods" or self._runs(name[0], r)]
        if len(kept) == len(reserved):
            return
        rest = {k: v for k, v in status.items() if k not in {"reservedFor", "allocation"}}
        if kept:
            rest |= {"allocation": status["allocation"], "reservedFor": kept}
        self._c.status("resourceclaims.resource.k8s.io", entry.obj, rest)

    def _runs(self, namespace: str, reference: Obj) -> bool:
        pod = self._c.index.pods.get((namespace, reference["name"]))
        return pod is not None and pod["metadata"]["uid"] == reference.get("uid") and not finished(pod)


def claims_of(pod: Obj) -> list[tuple[str, str]] | None:
    """The pod's claims as (entry, claim name), in order; None while one isn't made yet."""
    statuses = {
        s["name"]: s.get("resourceClaimName") for s in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    found = []
    for entry in pod["spec"].get("resourceClaims") or ():
        name = entry.get("resourceClaimName") or statuses.get(entry["name"])
        if not name:
            return None
        found.append((entry["name"], name))
    return found
