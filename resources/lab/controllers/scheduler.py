"""The scheduler: binds pods to nodes by kube-scheduler's filters, and allocates the devices that they claim.

Judged: node selector, required node affinity, taints, cpu, memory and number of pods, host ports, resource claims.
Not modelled: pod affinity and anti-affinity, topology spread, volumes, preemption, preferences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from modelplane_dagster.errors import ModelplaneError
from modelplane_dagster.kube.allocator import Allocation, Unallocatable, allocate
from modelplane_dagster.kube.claims import Claim, DeviceClass, Usage
from modelplane_dagster.kube.node_pools import Published
from modelplane_dagster.kube.objects import NodeFacts, PodPlacement, Term
from modelplane_dagster.kube.quantity import parse_quantity
from modelplane_dagster.kube.scheduling import matches_selector, standing_taints, term_holds, untolerated
from modelplane_dagster.kube.slices import Slice
from resources.lab.api.storage import Event, Name
from resources.lab.api.store import now
from resources.lab.controllers.claims import claims_of
from resources.lab.controllers.engine import Cluster
from resources.lab.controllers.index import (
    CLAIMS,
    CLASSES,
    NODES,
    PODS,
    SLICES,
    Obj,
    condition,
    finished,
    name_of,
    node_of,
    owner_uid,
    terminating,
    with_conditions,
)


@dataclass(frozen=True, slots=True)
class _Needs:
    """What a pod takes of a node. `ports` are host ports with their protocol."""

    cpu: Decimal
    memory: Decimal
    ports: frozenset[tuple[int, str]]


class Scheduler:
    def __init__(self, cluster: Cluster) -> None:
        self._c = cluster
        self._needs: dict[str, _Needs] = {}
        self._slices: dict[Name, tuple[str, Slice | None]] = {}

    def everything(self) -> Iterable[Name]:
        return self._c.index.unbound()

    def concerns(self, event: Event) -> Iterator[Name]:
        """A change that may make room brings up every pod that waits."""
        if event.key == PODS:
            if event.type != "DELETED" and not node_of(event.obj):
                yield event.name
            if event.type == "DELETED" or finished(event.obj):
                self._needs.pop(event.obj["metadata"]["uid"], None)
                yield from self._c.index.unbound()
        elif event.key == NODES and _matters(event):
            yield from self._c.index.unbound()
        elif event.key in {SLICES, CLASSES, CLAIMS}:
            yield from (n for n in self._c.index.unbound() if self._c.index.pods[n]["spec"].get("resourceClaims"))

    def sync(self, name: Name) -> None:
        pod = self._c.index.pods.get(name)
        if pod is None or node_of(pod) or terminating(pod) or finished(pod) or pod["spec"].get("schedulingGates"):
            return
        claims = self._claims(pod)
        if isinstance(claims, str):
            self._unschedulable(pod, claims)
            return
        why: Counter[str] = Counter()
        fitting = [
            node
            for node in self._c.index.nodes.values()
            if not (reason := self._why_not(pod, node)) or why.update([reason])
        ]
        placed = self._with_devices(claims, sorted(fitting, key=lambda node: self._rank(pod, node)), why)
        if placed is None:
            self._unschedulable(pod, _sentence(len(self._c.index.nodes), why))
            return
        node, allocations = placed
        self._reserve(pod, claims, allocations)
        self._bind(pod, node)

    # Nodes

    def _why_not(self, pod: Obj, node: NodeFacts) -> str:
        """The scheduler's own words for the first filter that the node fails; empty where it passes."""
        placement = PodPlacement.parse(pod["spec"])
        if node.terminating:
            return "node(s) were being deleted"
        if not matches_selector(placement, node):
            return "node(s) didn't match Pod's node affinity/selector"
        left = untolerated(placement.tolerations, standing_taints(node))
        if left:
            return f"node(s) had untolerated taint {{{left[0].key}: {left[0].value}}}"
        return self._short_of(pod, node)

    def _short_of(self, pod: Obj, node: NodeFacts) -> str:
        wanted = self._needs_of(pod)
        present = [p for p in self._c.index.pods_on(node.name) if not finished(p)]
        held = [self._needs_of(p) for p in present]
        if any(wanted.ports & other.ports for other in held):
            return "node(s) didn't have free ports for the requested pod ports"
        if len(present) >= int(parse_quantity(node.allocatable.get("pods", "110"))):
            return "Too many pods"
        for what, need, used in (
            ("cpu", wanted.cpu, sum(h.cpu for h in held)),
            ("memory", wanted.memory, sum(h.memory for h in held)),
        ):
            if need and need + used > parse_quantity(node.allocatable.get(what, "0")):
                return f"Insufficient {what}"
        return ""

    def _needs_of(self, pod: Obj) -> _Needs:
        uid = pod["metadata"]["uid"]
        known = self._needs.get(uid)
        if known is None:
            known = self._needs[uid] = _needs(pod["spec"])
        return known

    def _rank(self, pod: Obj, node: NodeFacts) -> tuple[int, int, str]:
        """Fewest pods of the same owner first, then fewest pods."""
        present = self._c.index.pods_on(node.name)
        owner = owner_uid(pod)
        return sum(owner_uid(p) == owner for p in present if owner), len(present), node.name

    # Devices

    def _claims(self, pod: Obj) -> list[Obj] | str:
        """The pod's claims, or why it must wait for them."""
        names = claims_of(pod)
        if names is None:
            return "waiting for the pod's resource claims to be created"
        found = []
        for _, name in names:
            claim = self._c.store.find("resourceclaims.resource.k8s.io", name, pod["metadata"]["namespace"])
            if claim is None or terminating(claim):
                return f'resourceclaim "{name}" not found'
            found.append(claim)
        return found

    def _with_devices(
        self, claims: list[Obj], nodes: list[NodeFacts], why: Counter[str]
    ) -> tuple[NodeFacts, tuple[Allocation, ...]] | None:
        """The first node that reaches the allocated claims and holds devices for the others."""
        reachable = []
        for node in nodes:
            if all(_reaches(claim, node) for claim in claims):
                reachable.append(node)
            else:
                why["node(s) can't reach the allocated resource claims"] += 1
        if not reachable:
            return None
        open_claims = [claim for claim in claims if not _allocation(claim)]
        if not open_claims:
            return reachable[0], ()
        wanted, published, classes, usage = self._device_state(open_claims)
        best: tuple[NodeFacts, tuple[Allocation, ...]] | None = None
        for node in reachable:
            found = allocate(wanted, node, published=published, classes=classes, usage=usage)
            if not isinstance(found, Unallocatable):
                best = best or (node, found)
            elif found.aborted:
                # The scheduler filters every node, and an error on one of them ends the attempt.
                why.clear()
                why[found.reason] = len(self._c.index.nodes)
                return None
            else:
                why[found.reason] += 1
        return best

    def _device_state(self, open_claims: list[Obj]) -> tuple[list[Claim], Published, list[DeviceClass], Usage]:
        store = self._c.store
        classes = [DeviceClass.parse(c) for c in store.list("deviceclasses.resource.k8s.io")]
        usage = Usage.of(store.list("resourceclaims.resource.k8s.io"))
        return [Claim.parse(c) for c in open_claims], Published(self._published()), classes, usage

    def _published(self) -> list[Slice]:
        """Every slice that can be read; parsed once a version."""
        found: dict[Name, tuple[str, Slice | None]] = {}
        for body in self._c.store.list("resourceslices.resource.k8s.io"):
            name, version = name_of(body), body["metadata"]["resourceVersion"]
            known = self._slices.get(name)
            found[name] = known if known is not None and known[0] == version else (version, _parsed(body))
        self._slices = found
        return [one for _, one in found.values() if one is not None]

    # Writing

    def _reserve(self, pod: Obj, claims: list[Obj], allocations: tuple[Allocation, ...]) -> None:
        mine = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        made = {allocation.claim: allocation.as_dict() for allocation in allocations}
        for claim in claims:
            status = dict(claim.get("status") or {})
            if claim["metadata"]["name"] in made and not _allocation(claim):
                status["allocation"] = made[claim["metadata"]["name"]]
            reserved = status.get("reservedFor") or []
            if mine not in reserved:
                status["reservedFor"] = [*reserved, mine]
            self._c.status("resourceclaims.resource.k8s.io", claim, status)

    def _bind(self, pod: Obj, node: NodeFacts) -> None:
        namespace, name = name_of(pod)
        current = self._c.index.pods[(namespace, name)]
        bound = self._c.store.update("pods", {**current, "spec": {**current["spec"], "nodeName": node.name}})
        status = with_conditions(bound.get("status") or {}, [condition("PodScheduled", holds=True, when=now())])
        self._c.status("pods", bound, status)

    def _unschedulable(self, pod: Obj, message: str) -> None:
        waits = condition("PodScheduled", holds=False, when=now(), reason="Unschedulable", message=message)
        self._c.status("pods", pod, with_conditions(pod.get("status") or {}, [waits]))
        self._c.event(pod, "FailedScheduling", message)


def _matters(event: Event) -> bool:
    if event.before is None or event.type == "DELETED":
        return True
    old, new = event.before.obj, event.obj
    parts = [
        (o.get("spec"), o["metadata"].get("labels"), (o.get("status") or {}).get("allocatable")) for o in (old, new)
    ]
    return parts[0] != parts[1]


def _needs(spec: Obj) -> _Needs:
    containers = spec.get("containers") or []
    ports = frozenset(
        (int(port["hostPort"]), str(port.get("protocol", "TCP")))
        for container in containers
        for port in container.get("ports") or ()
        if port.get("hostPort")
    )
    return _Needs(_total(spec, "cpu"), _total(spec, "memory"), ports)


def _total(spec: Obj, resource: str) -> Decimal:
    """As the scheduler adds: the pod's own request where it has one, else the larger of all containers (with sidecars)
    and the largest init container."""

    def asked(holder: Obj) -> Decimal:
        requests = (holder.get("resources") or {}).get("requests") or {}
        return parse_quantity(requests[resource]) if resource in requests else Decimal(0)

    if resource in ((spec.get("resources") or {}).get("requests") or {}):
        return asked(spec)
    init = spec.get("initContainers") or []
    sidecars = sum((asked(c) for c in init if c.get("restartPolicy") == "Always"), Decimal(0))
    running = sum((asked(c) for c in spec.get("containers") or ()), Decimal(0)) + sidecars
    return max([running, *(asked(c) for c in init if c.get("restartPolicy") != "Always")])


def _allocation(claim: Obj) -> Obj:
    return (claim.get("status") or {}).get("allocation") or {}


def _reaches(claim: Obj, node: NodeFacts) -> bool:
    selector = _allocation(claim).get("nodeSelector")
    if not selector:
        return True
    return any(term_holds(Term.parse(term), node) for term in selector.get("nodeSelectorTerms") or ())


def _parsed(body: Obj) -> Slice | None:
    """None for a slice that the scheduler couldn't read either."""
    try:
        return Slice.parse(body)
    except (KeyError, ValueError, ModelplaneError):
        return None


def _sentence(nodes: int, why: Counter[str]) -> str:
    if not nodes:
        return "no nodes available to schedule pods"
    return f"0/{nodes} nodes are available: {', '.join(f'{n} {reason}' for reason, n in sorted(why.items()))}."
