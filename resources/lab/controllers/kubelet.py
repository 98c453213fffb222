"""Stands in for the kubelets: pods of a node start, run, finish and stop after a short while; containers don't exist."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from modelplane_dagster.kube.objects import Toleration
from modelplane_dagster.kube.scheduling import untolerated
from resources.lab.api.errors import ApiError
from resources.lab.api.storage import Event, Name
from resources.lab.api.store import Delete, now
from resources.lab.controllers.engine import Cluster
from resources.lab.controllers.index import (
    NODES,
    PODS,
    Obj,
    condition,
    digest,
    finished,
    name_of,
    node_of,
    owner_of,
    terminating,
    with_conditions,
)
from resources.lab.plays import HARDWARE, NEEDS

_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


class Kubelets:
    def __init__(self, cluster: Cluster) -> None:
        self._c = cluster
        self._timed: set[tuple[str, str]] = set()

    def everything(self) -> Iterable[Name]:
        return [name for name, pod in self._c.index.pods.items() if node_of(pod)]

    def concerns(self, event: Event) -> Iterator[Name]:
        if event.key == PODS and event.type != "DELETED" and node_of(event.obj):
            yield event.name
        elif event.key == NODES and (event.before is None or event.type == "DELETED" or _changed(event)):
            yield from (name_of(pod) for pod in self._c.index.pods_on(event.name[1]))

    def sync(self, name: Name) -> None:
        pod = self._c.index.pods.get(name)
        if pod is None or not node_of(pod):
            return
        node = self._c.index.node_objects.get(node_of(pod))
        timing = self._c.timing
        if node is None:
            self._remove(pod)
        elif terminating(pod):
            self._later(pod, "stop", timing.stop)
        elif finished(pod):
            return
        elif self._evicted(pod):
            self._c.store.delete("pods", name[1], namespace=name[0])
        elif (pod.get("status") or {}).get("phase") != "Running":
            self._start_or_wait(pod, node)
        elif _ends(pod):
            self._later(pod, "finish", timing.finish)

    def _start_or_wait(self, pod: Obj, node: Obj) -> None:
        needed = (pod["metadata"].get("annotations") or {}).get(NEEDS, "")
        if needed and not has_hardware(node, needed):
            self._c.status("pods", pod, _waiting(pod, f"the node has no hardware of {needed}"))
        else:
            self._later(pod, "start", self._c.timing.start)

    def _evicted(self, pod: Obj) -> bool:
        """By a taint of effect NoExecute, at once: tolerationSeconds are taken for ever."""
        node = self._c.index.nodes[node_of(pod)]
        if not any(taint.effect == "NoExecute" for taint in node.taints):
            return False
        tolerations = tuple(Toleration.parse(t) for t in pod["spec"].get("tolerations") or ())
        return bool(untolerated(tolerations, node.taints, ("NoExecute",)))

    def _later(self, pod: Obj, step: str, delay: float) -> None:
        uid, name = pod["metadata"]["uid"], name_of(pod)
        if (uid, step) in self._timed:
            return
        self._timed.add((uid, step))

        def due() -> None:
            self._timed.discard((uid, step))
            current = self._c.index.pods.get(name)
            if current is not None and current["metadata"]["uid"] == uid:
                self._take(current, step)

        self._c.at(delay, due)

    def _take(self, pod: Obj, step: str) -> None:
        if step == "stop":
            self._remove(pod)
        elif not terminating(pod) and not finished(pod):
            self._c.status("pods", pod, _running(pod) if step == "start" else _succeeded(pod))

    def _remove(self, pod: Obj) -> None:
        namespace, name = name_of(pod)
        try:
            self._c.store.delete("pods", name, namespace=namespace, how=Delete(grace=0, uid=pod["metadata"]["uid"]))
        except ApiError as error:
            if error.status != 404:
                raise


def _changed(event: Event) -> bool:
    old, new = (event.before or event.entry).obj, event.obj
    if old.get("spec") != new.get("spec"):
        return True
    return (old["metadata"].get("annotations") or {}).get(HARDWARE) != (new["metadata"].get("annotations") or {}).get(
        HARDWARE
    )


def has_hardware(node: Obj, driver: str) -> bool:
    """Whether the node's hardware record holds a device of the driver."""
    text = (node["metadata"].get("annotations") or {}).get(HARDWARE, "")
    try:
        record = json.loads(text) if text else {}
    except ValueError:
        return False
    return any(device.get("driver") == driver for device in record.get("devices") or ())


def _ends(pod: Obj) -> bool:
    owner = owner_of(pod)
    return owner is not None and owner["kind"] == "Job"


def _address(pod: Obj) -> str:
    number = int(digest(pod["metadata"]["uid"]), 16)
    return f"10.{64 + number % 64}.{(number >> 8) % 256}.{1 + (number >> 16) % 254}"


def _containers(pod: Obj, state: Obj, *, is_ready: bool) -> list[Obj]:
    return [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "imageID": f"lab://{container.get('image', '')}",
            "containerID": f"lab://{pod['metadata']['uid']}/{container['name']}",
            "ready": is_ready,
            "started": is_ready,
            "restartCount": 0,
            "state": state,
        }
        for container in pod["spec"].get("containers") or ()
    ]


def _running(pod: Obj) -> Obj:
    when = now()
    address = _address(pod)
    status: dict[str, Any] = {
        **(pod.get("status") or {}),
        "phase": "Running",
        "startTime": when,
        "hostIP": "10.0.0.1",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "containerStatuses": _containers(pod, {"running": {"startedAt": when}}, is_ready=True),
    }
    status.pop("initContainerStatuses", None)
    return with_conditions(status, [condition(kind, holds=True, when=when) for kind in _CONDITIONS])


def _succeeded(pod: Obj) -> Obj:
    when = now()
    done = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": when, "finishedAt": when}}
    status = {
        **(pod.get("status") or {}),
        "phase": "Succeeded",
        "containerStatuses": _containers(pod, done, is_ready=False),
    }
    ended = [condition(k, holds=False, when=when, reason="PodCompleted") for k in ("Ready", "ContainersReady")]
    return with_conditions(status, ended)


def _waiting(pod: Obj, why: str) -> Obj:
    """In its init container, which looks for the hardware and never gives up."""
    when = now()
    status = {
        **(pod.get("status") or {}),
        "phase": "Pending",
        "initContainerStatuses": [
            {
                "name": "wait-for-hardware",
                "image": "lab",
                "imageID": "",
                "ready": False,
                "restartCount": 0,
                "state": {"running": {"startedAt": pod["metadata"]["creationTimestamp"]}},
            }
        ],
        "containerStatuses": _containers(pod, {"waiting": {"reason": "PodInitializing"}}, is_ready=False),
    }
    reason = {"reason": "ContainersNotInitialized", "message": why}
    return with_conditions(status, [condition(kind, holds=False, when=when, **reason) for kind in _CONDITIONS[1:]])
