"""What the real scheduler and controllers decide. One cluster of nodes stands in the control plane at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from tests.kubernetes.placement.world import (
    ADMIN_NAMESPACE,
    CASE,
    CLUSTER,
    NAMESPACE,
    Body,
    Case,
    Decision,
    World,
    collection,
    given,
)
from tests.kubernetes.wire import Answer, Wire

_WORKERS = 4
_DECIDED = 60.0  # seconds for one cluster's workloads; they take one or two on an idle machine
_RESOURCE = "/apis/resource.k8s.io/v1"
_LISTS = {
    "pods": "/api/v1/pods",
    "daemons": "/apis/apps/v1/daemonsets",
    "deployments": "/apis/apps/v1/deployments",
    "claims": f"{_RESOURCE}/resourceclaims",
}
NAMESPACES: tuple[Body, ...] = (
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
    {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": ADMIN_NAMESPACE, "labels": {"resource.kubernetes.io/admin-access": "true"}},
    },
)


class Real:
    """A control plane without kubelets: nodes say that they are ready, and what is bound is decided."""

    def __init__(self, kubeconfig: Mapping[str, Any]) -> None:
        self._wires = [Wire(kubeconfig) for _ in range(_WORKERS)]
        self._pool = ThreadPoolExecutor(_WORKERS)
        for namespace in NAMESPACES:
            self._wires[0].post(collection(namespace), namespace)

    def close(self) -> None:
        self._pool.shutdown()
        for wire in self._wires:
            wire.close()

    def decide(
        self, world: World, *, agrees: Callable[[Case, Decision], bool] = lambda _case, _decision: True
    ) -> dict[str, Decision]:
        """By case. A pod that the scheduler tried before it saw the last slice is tried again, so a decision that `agrees`
        doesn't like is looked at again for a while."""
        refused: dict[str, str] = {}
        self._create([(None, node) for node in world.nodes], refused)
        assert not refused, refused
        self._create([(c, s) for c in world.cases for s in c.support], refused)
        self._until(lambda: self._nodes_ready(world), "the nodes aren't ready")
        self._create([(c, c.body) for c in world.cases if c.name not in refused], refused)
        try:
            return self._decisions(world, refused, agrees)
        finally:
            self._clear(world)

    def _create(self, items: Iterable[tuple[Case | None, Body]], refused: dict[str, str]) -> None:
        parts: list[list[tuple[Case | None, Body]]] = [[] for _ in range(_WORKERS)]
        for at, item in enumerate(items):
            parts[at % _WORKERS].append(item)

        def send(wire: Wire, part: list[tuple[Case | None, Body]]) -> None:
            for case, body in part:
                answer = wire.post(collection(body), body)
                if answer.status == 201 and body["kind"] == "ResourceClaim" and "status" in body:
                    made = answer.body | {"status": body["status"]}
                    answer = wire.put(f"{collection(body)}/{body['metadata']['name']}/status", made)
                if answer.status >= 300:
                    refused.setdefault(case.name if case else body["metadata"]["name"], _told(answer))

        list(self._pool.map(send, self._wires, parts))

    def _list(self, what: str, world: World) -> list[Body]:
        found: list[Body] = self._wires[0].get(_LISTS[what], labelSelector=f"{CLUSTER}={world.name}").ok()["items"]
        return found

    def _nodes_ready(self, world: World) -> bool:
        """The admission taints every new node as not ready; the node lifecycle controller takes it back, and cordons."""
        nodes = self._wires[0].get("/api/v1/nodes", labelSelector=f"{CLUSTER}={world.name}").ok()["items"]
        return len(nodes) == len(world.nodes) and all(_settled(node) for node in nodes)

    def _decisions(
        self, world: World, refused: Mapping[str, str], agrees: Callable[[Case, Decision], bool]
    ) -> dict[str, Decision]:
        found: dict[str, Decision] = {}

        def looked() -> bool:
            found.clear()
            found.update(self._look(world, refused))
            return len(found) == len(world.cases)

        self._until(looked, lambda: f"undecided: {self._undecided(world, found)}")
        by_name = {c.name: c for c in world.cases}
        with suppress(TimeoutError):
            self._until(
                lambda: looked() and all(agrees(by_name[name], one) for name, one in found.items()), "", seconds=12
            )
        looked()
        return found

    def _undecided(self, world: World, found: Mapping[str, Decision]) -> list[Body]:
        """What the API says of the workloads that nothing was decided of."""
        left = {c.name for c in world.cases} - set(found)
        objects = [*self._list("pods", world), *self._list("daemons", world), *self._list("deployments", world)]
        events = self._wires[0].get("/api/v1/events").ok()["items"]
        return [
            *({"name": name} for name in sorted(left)),
            *(o for o in objects if o["metadata"]["labels"][CASE] in left),
            *(
                {"about": e["involvedObject"]["name"], "reason": e["reason"], "message": e.get("message")}
                for e in events
                if e["involvedObject"]["name"] in left
            ),
        ]

    def _look(self, world: World, refused: Mapping[str, str]) -> dict[str, Decision]:
        """The cases that are decided by now."""
        pods: dict[str, list[Body]] = {}
        for pod in self._list("pods", world):
            pods.setdefault(pod["metadata"]["labels"][CASE], []).append(pod)
        daemons = {d["metadata"]["name"]: d for d in self._list("daemons", world)}
        claims = {c["metadata"]["name"]: c for c in self._list("claims", world)}
        found = {}
        for case in world.cases:
            mine = pods.get(case.name, [])
            nodes = frozenset(p["spec"]["nodeName"] for p in mine if p["spec"].get("nodeName"))
            if case.name in refused:
                found[case.name] = Decision(refused=refused[case.name])
            elif case.kind == "DaemonSet":
                status = daemons[case.name].get("status") or {}
                wanted = status.get("desiredNumberScheduled")
                if status.get("observedGeneration") and wanted == len(mine) == len(nodes):
                    found[case.name] = Decision(nodes)
            elif len(mine) == case.body["spec"].get("replicas", 1) and all(_is_decided(p) for p in mine):
                devices = {name: given(claims[name]) for name in case.claims if given(claims[name])}
                found[case.name] = Decision(nodes, devices)
        return found

    def _until(self, done: Callable[[], bool], why: str | Callable[[], str], *, seconds: float = _DECIDED) -> None:
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                raise TimeoutError(why if isinstance(why, str) else why())
            time.sleep(0.2)

    def _clear(self, world: World) -> None:
        wire, query = self._wires[0], {"labelSelector": f"{CLUSTER}={world.name}"}
        for namespace in (NAMESPACE, ADMIN_NAMESPACE):
            for kind in ("daemonsets", "deployments"):
                wire.delete(f"/apis/apps/v1/namespaces/{namespace}/{kind}", propagationPolicy="Background", **query)
            wire.delete(f"/apis/apps/v1/namespaces/{namespace}/replicasets", propagationPolicy="Background", **query)
            wire.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds="0", **query)
            wire.delete(f"{_RESOURCE}/namespaces/{namespace}/resourceclaims", **query)
        for path in (f"{_RESOURCE}/resourceslices", f"{_RESOURCE}/deviceclasses", "/api/v1/nodes"):
            wire.delete(path, **query)


def _told(answer: Answer) -> str:
    return str(answer.body.get("message", answer.status))


def _settled(node: Body) -> bool:
    keys = {t["key"] for t in node["spec"].get("taints") or ()}
    cordoned = bool(node["spec"].get("unschedulable"))
    return "node.kubernetes.io/not-ready" not in keys and ("node.kubernetes.io/unschedulable" in keys) is cordoned


def _is_decided(pod: Body) -> bool:
    conditions = {c["type"]: c for c in (pod.get("status") or {}).get("conditions") or ()}
    scheduled = conditions.get("PodScheduled")
    return scheduled is not None and (scheduled["status"] == "True" or bool(scheduled.get("reason")))
