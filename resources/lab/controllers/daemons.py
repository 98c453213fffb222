"""The DaemonSet controller: one pod on every node that the template may run on, and its counts in the status."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from modelplane_dagster.kube.objects import NodeFacts, PodPlacement
from modelplane_dagster.kube.scheduling import (
    DAEMON_TOLERATIONS,
    HOST_NETWORK_TOLERATION,
    daemon_should_run,
    daemon_tolerations,
    matches_selector,
    untolerated,
)
from resources.lab.api.errors import ApiError
from resources.lab.api.storage import Event, Name
from resources.lab.controllers.engine import Cluster
from resources.lab.controllers.index import (
    DAEMON_SETS,
    NODES,
    PODS,
    Obj,
    digest,
    finished,
    name_of,
    node_of,
    owner_of,
    pod_from,
    ready,
    terminating,
)

HASH = "controller-revision-hash"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass
class _Nodes:
    """What a pass found of one DaemonSet: nodes that want a pod, and the live pods by node."""

    wanted: list[str] = field(default_factory=list)
    pods: dict[str, list[Obj]] = field(default_factory=dict)
    misplaced: int = 0


class Daemons:
    def __init__(self, cluster: Cluster) -> None:
        self._c = cluster

    def everything(self) -> Iterable[Name]:
        return self._c.store.storage.names(DAEMON_SETS)

    def concerns(self, event: Event) -> Iterator[Name]:
        if event.key == DAEMON_SETS:
            yield event.name
        elif event.key == NODES and _matters(event):
            yield from self.everything()
        elif event.key == PODS:
            owner = owner_of(event.obj)
            if owner is not None and owner["kind"] == "DaemonSet":
                yield event.name[0], owner["name"]

    def sync(self, name: Name) -> None:
        entry = self._c.store.storage.get(DAEMON_SETS, name)
        if entry is None or terminating(entry.obj):
            return
        daemon = entry.obj
        revision = digest(daemon["spec"]["template"])
        found = self._look(daemon)
        refusal = self._create(daemon, revision, found)
        self._replace_outdated(daemon, revision, found)
        self._c.status("daemonsets.apps", daemon, _status(daemon, revision, found))
        if refusal is not None:
            self._c.event(daemon, "FailedCreate", f"Error creating: {refusal.message}")
            raise refusal

    def _look(self, daemon: Obj) -> _Nodes:
        """Deletes pods that may not stay, and sorts the rest by node."""
        spec = daemon["spec"]["template"]["spec"]
        placement, host = PodPlacement.parse(spec), bool(spec.get("hostNetwork"))
        found = _Nodes()
        for node in self._c.index.nodes.values():
            if not node.terminating and daemon_should_run(placement, node, host_network=host):
                found.wanted.append(node.name)
        wanted = set(found.wanted)
        for pod in self._c.index.owned_pods(daemon["metadata"]["uid"]):
            if terminating(pod):
                continue
            at = _intended(pod)
            under = self._c.index.nodes.get(at)
            stays = under is not None and (at in wanted or _stays(placement, under, host))
            if finished(pod) or found.pods.get(at) or not stays:
                self._delete(pod)
                continue
            found.misplaced += at not in wanted
            found.pods.setdefault(at, []).append(pod)
        return found

    def _create(self, daemon: Obj, revision: str, found: _Nodes) -> ApiError | None:
        """A refusal of the API ends the round: it would refuse the other pods as well."""
        for node in found.wanted:
            if found.pods.get(node) or self._ending(daemon, node):
                continue
            try:
                pod = self._c.store.create("pods", _pod(daemon, revision, node))
            except ApiError as error:
                return error
            found.pods[node] = [pod]
        return None

    def _ending(self, daemon: Obj, node: str) -> bool:
        owned = self._c.index.owned_pods(daemon["metadata"]["uid"])
        return any(terminating(pod) and _intended(pod) == node for pod in owned)

    def _replace_outdated(self, daemon: Obj, revision: str, found: _Nodes) -> None:
        strategy = daemon["spec"].get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return
        live = [pod for pods in found.pods.values() for pod in pods]
        allowed = _amount((strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1), len(found.wanted))
        allowed -= sum(1 for node in found.wanted if not any(ready(pod) for pod in found.pods.get(node, ())))
        for pod in live:
            if pod["metadata"]["labels"].get(HASH) == revision:
                continue
            if ready(pod) and allowed <= 0:
                continue
            allowed -= ready(pod)
            self._delete(pod)

    def _delete(self, pod: Obj) -> None:
        namespace, name = name_of(pod)
        self._c.store.delete("pods", name, namespace=namespace)


def _matters(event: Event) -> bool:
    """Whether a node's change can move a daemon: heartbeats and conditions can't."""
    if event.before is None or event.type == "DELETED":
        return True
    old, new = event.before.obj, event.obj
    if old.get("spec") != new.get("spec") or terminating(new) != terminating(old):
        return True
    return old["metadata"].get("labels") != new["metadata"].get("labels")


def _stays(placement: PodPlacement, node: NodeFacts, host: bool) -> bool:  # noqa: FBT001 - the pod's hostNetwork
    """A pod that runs stays where only a NoSchedule taint came up since."""
    tolerations = daemon_tolerations(placement.tolerations, host_network=host)
    return matches_selector(placement, node) and not untolerated(tolerations, node.taints, ("NoExecute",))


def _pod(daemon: Obj, revision: str, node: str) -> Obj:
    """Bound to its node by affinity, as the real controller does: the scheduler still judges resources and ports."""
    pod = pod_from(daemon, daemon["spec"]["template"], labels={HASH: revision, "pod-template-generation": "1"})
    spec = pod["spec"]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = dict(spec.get("affinity") or {})
    affinity["nodeAffinity"] = {**(affinity.get("nodeAffinity") or {}), _REQUIRED: {"nodeSelectorTerms": [term]}}
    added = [*DAEMON_TOLERATIONS, *([HOST_NETWORK_TOLERATION] if spec.get("hostNetwork") else [])]
    own = list(spec.get("tolerations") or ())
    spec["affinity"] = affinity
    spec["tolerations"] = [*own, *(t.as_dict() for t in added if t.as_dict() not in own)]
    return pod


def _intended(pod: Obj) -> str:
    """The node it is bound to, or made for."""
    if node_of(pod):
        return node_of(pod)
    required = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    for term in required.get("nodeSelectorTerms") or ():
        for requirement in term.get("matchFields") or ():
            return str(requirement["values"][0])
    return ""


def _amount(value: int | str, total: int) -> int:
    if isinstance(value, str) and value.endswith("%"):
        return max(1, total * int(value[:-1]) // 100)
    return int(value)


def _status(daemon: Obj, revision: str, found: _Nodes) -> Obj:
    on_wanted = [found.pods.get(node, []) for node in found.wanted]
    is_ready = sum(any(ready(pod) for pod in pods) for pods in on_wanted)
    updated = sum(any(p["metadata"]["labels"].get(HASH) == revision for p in pods) for pods in on_wanted)
    status: dict[str, Any] = {
        "currentNumberScheduled": sum(bool(pods) for pods in on_wanted),
        "desiredNumberScheduled": len(found.wanted),
        "numberMisscheduled": found.misplaced,
        "numberReady": is_ready,
        "observedGeneration": daemon["metadata"].get("generation", 1),
    }
    more = {
        "updatedNumberScheduled": updated,
        "numberAvailable": is_ready,
        "numberUnavailable": len(found.wanted) - is_ready,
    }
    return status | {name: count for name, count in more.items() if count}
