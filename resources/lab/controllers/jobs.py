"""The Job controller: pods until as many succeeded as asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from resources.lab.api.storage import Event, Name
from resources.lab.api.store import now
from resources.lab.controllers.engine import Cluster
from resources.lab.controllers.index import JOBS, PODS, Obj, condition, finished, owner_of, pod_from, ready, terminating

_UID = "batch.kubernetes.io/controller-uid"
_NAME = "batch.kubernetes.io/job-name"


class Jobs:
    def __init__(self, cluster: Cluster) -> None:
        self._c = cluster

    def everything(self) -> Iterable[Name]:
        return self._c.store.storage.names(JOBS)

    def concerns(self, event: Event) -> Iterator[Name]:
        if event.key == JOBS:
            yield event.name
        elif event.key == PODS:
            owner = owner_of(event.obj)
            if owner is not None and owner["kind"] == "Job":
                yield event.name[0], owner["name"]

    def sync(self, name: Name) -> None:
        entry = self._c.store.storage.get(JOBS, name)
        if entry is None or terminating(entry.obj) or _ended(entry.obj):
            return
        job = entry.obj
        pods = self._c.index.owned_pods(job["metadata"]["uid"])
        succeeded = sum((p.get("status") or {}).get("phase") == "Succeeded" for p in pods)
        active = [p for p in pods if not finished(p) and not terminating(p)]
        wanted = int(job["spec"].get("completions") or 1)
        parallel = min(int(job["spec"].get("parallelism", 1)), wanted - succeeded)
        labels = {
            _UID: job["metadata"]["uid"],
            _NAME: name[1],
            "controller-uid": job["metadata"]["uid"],
            "job-name": name[1],
        }
        for _ in range(0 if job["spec"].get("suspend") else parallel - len(active)):
            active.append(self._c.store.create("pods", pod_from(job, job["spec"]["template"], labels=labels)))
        self._c.status("jobs.batch", job, _status(job, active, succeeded, wanted))


def _ended(job: Obj) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(c["type"] in {"Complete", "Failed"} and c["status"] == "True" for c in conditions)


def _status(job: Obj, active: list[Obj], succeeded: int, wanted: int) -> Obj:
    when = now()
    old = job.get("status") or {}
    status: dict[str, Any] = {
        "startTime": old.get("startTime") or when,
        "uncountedTerminatedPods": {},
        "terminating": 0,
    }
    counts = {"active": len(active), "succeeded": succeeded, "ready": sum(map(ready, active))}
    status |= {name: count for name, count in counts.items() if count}
    if succeeded >= wanted:
        reached = {"reason": "CompletionsReached", "message": "Reached expected number of succeeded pods"}
        conditions = [condition(kind, holds=True, when=when, **reached) for kind in ("SuccessCriteriaMet", "Complete")]
        status |= {"completionTime": when, "conditions": [c | {"lastProbeTime": when} for c in conditions]}
    return status
