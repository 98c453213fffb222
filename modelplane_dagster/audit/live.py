"""What the audits read of a cluster, as frozen facts, each with `parse` from the JSON of the Kubernetes API.

A part that couldn't be read is `Unknown`, and no audit concludes anything from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any

from modelplane_dagster.audit.slices import Ledger, LiveSlice
from modelplane_dagster.known import Known, Maybe, Unknown
from modelplane_dagster.kube.objects import EMPTY, NodeFacts, PodPlacement, Taint
from modelplane_dagster.kube.quantity import QuantityError, parse_quantity
from modelplane_dagster.placement.workloads import DEPLOYMENT_LABEL, NAMESPACE_LABEL, REPLICA_LABEL

RELEASE_NAME = "meta.helm.sh/release-name"
MIRROR = "kubernetes.io/config.mirror"
POD_SECURITY = "pod-security.kubernetes.io/enforce"
EMPTY_TAKEN: Mapping[tuple[str, str, str, str], str] = MappingProxyType({})
NOT_READ = Unknown("it wasn't read")


@dataclass(frozen=True, slots=True)
class Owner:
    """An owner reference."""

    kind: str
    name: str
    uid: str

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Owner:
        return cls(str(raw["kind"]), str(raw["name"]), str(raw["uid"]))


@dataclass(frozen=True, slots=True)
class LiveNode:
    """`facts` is what placement reads; `capacity` what the hardware has, in quantities as written."""

    facts: NodeFacts
    capacity: Mapping[str, str] = field(default_factory=lambda: EMPTY)

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> LiveNode:
        meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
        ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())
        facts = NodeFacts(
            name=str(meta["name"]),
            labels=_texts(meta.get("labels")),
            taints=tuple(Taint.parse(t) for t in spec.get("taints") or ()),
            unschedulable=bool(spec.get("unschedulable")),
            ready=ready,
            terminating=bool(meta.get("deletionTimestamp")),
            created=_seconds(meta.get("creationTimestamp")),
            allocatable=_texts(status.get("allocatable")),
        )
        return cls(facts, _texts(status.get("capacity")))


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveWorkload:
    """A DaemonSet, Deployment, StatefulSet or Job. `placement` is its template's; `cpu` is the CPUs that one pod
    requests; `release` is the Helm release that made it, empty for none; `desired` and `ready` count pods."""

    kind: str
    namespace: str
    name: str
    uid: str
    placement: PodPlacement
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    annotations: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    owners: tuple[Owner, ...] = ()
    host_network: bool = False
    host_ports: tuple[int, ...] = ()
    priority_class: str = ""
    cpu: float = 0.0
    desired: int = 0
    ready: int = 0

    @property
    def release(self) -> str:
        return self.annotations.get(RELEASE_NAME, "")

    @property
    def subject(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> LiveWorkload:
        """From one object; `kind` must be set in it (items of a list from the API lack it)."""
        meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
        pod = (spec.get("template") or {}).get("spec") or {}
        daemon = raw["kind"] == "DaemonSet"
        host_network = bool(pod.get("hostNetwork"))
        desired = status.get("desiredNumberScheduled") if daemon else spec.get("replicas", 1)
        ready = status.get("numberReady") if daemon else status.get("readyReplicas")
        return cls(
            kind=str(raw["kind"]),
            namespace=str(meta.get("namespace") or ""),
            name=str(meta["name"]),
            uid=str(meta.get("uid") or ""),
            placement=PodPlacement.parse(pod),
            labels=_texts(meta.get("labels")),
            annotations=_texts(meta.get("annotations")),
            owners=tuple(Owner.parse(o) for o in meta.get("ownerReferences") or ()),
            host_network=host_network,
            host_ports=_host_ports(pod, host_network=host_network),
            priority_class=str(pod.get("priorityClassName") or ""),
            cpu=cpu_requests(pod),
            desired=int(desired or 0),
            ready=int(ready or 0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePod:
    """`node` is empty before it is scheduled; `owner` is the uid of what made it and `owner_kind` its kind, both
    empty for a bare pod; `mirror` marks a static pod of the kubelet; `cpu` is the CPUs it requests. `replica` is the
    deployment's replica that it belongs to (namespace, name, ordinal), None for pods that are no engine's; `waits` is the
    scheduler's sentence on why no node takes it, empty where it has one."""

    namespace: str
    name: str
    node: str = ""
    phase: str = "Running"
    ready: bool = True
    terminating: bool = False
    owner: str = ""
    owner_kind: str = ""
    claims: tuple[str, ...] = ()
    cpu: float = 0.0
    mirror: bool = False
    replica: tuple[str, str, str] | None = None
    waits: str = ""

    @property
    def over(self) -> bool:
        """It ended, so it occupies nothing."""
        return self.phase in ("Succeeded", "Failed")

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> LivePod:
        meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
        owner: Mapping[str, Any] = next((o for o in meta.get("ownerReferences") or () if o.get("controller")), {})
        claims = tuple(
            str(c.get("resourceClaimName") or c["name"])
            for c in status.get("resourceClaimStatuses") or spec.get("resourceClaims") or ()
        )
        return cls(
            namespace=str(meta.get("namespace") or ""),
            name=str(meta["name"]),
            node=str(spec.get("nodeName") or ""),
            phase=str(status.get("phase") or "Pending"),
            ready=any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ()),
            terminating=bool(meta.get("deletionTimestamp")),
            owner=str(owner.get("uid") or ""),
            owner_kind=str(owner.get("kind") or ""),
            claims=claims,
            cpu=cpu_requests(spec),
            mirror=MIRROR in (meta.get("annotations") or {}),
            replica=_replica(meta.get("labels") or {}),
            waits=next(
                (
                    str(c.get("message") or c.get("reason") or "")
                    for c in status.get("conditions") or ()
                    if c.get("type") == "PodScheduled" and c.get("status") == "False"
                ),
                "",
            ),
        )


@dataclass(frozen=True, slots=True)
class LiveClaim:
    """A ResourceClaim. `devices` holds (driver, slice pool, device) of its allocation; empty while unallocated. `taken` is
    what it takes of them, by device and capacity, in quantities as written: only of devices that several claims share."""

    namespace: str
    name: str
    devices: tuple[tuple[str, str, str], ...] = ()
    taken: Mapping[tuple[str, str, str, str], str] = field(default_factory=lambda: EMPTY_TAKEN)

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> LiveClaim:
        meta, status = raw["metadata"], raw.get("status") or {}
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
        return cls(
            str(meta.get("namespace") or ""),
            str(meta["name"]),
            tuple((str(r["driver"]), str(r["pool"]), str(r["device"])) for r in results),
            {
                (str(r["driver"]), str(r["pool"]), str(r["device"]), str(capacity)): str(amount)
                for r in results
                for capacity, amount in (r.get("consumedCapacity") or {}).items()
            },
        )


@dataclass(frozen=True, slots=True)
class LiveDeviceClass:
    """`release` is the Helm release that owns it, empty for none. `selectors` are its CEL expressions, of which a device
    must fulfil every one; empty where the class takes any device."""

    name: str
    release: str = ""
    selectors: tuple[str, ...] = ()

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> LiveDeviceClass:
        meta, spec = raw["metadata"], raw.get("spec") or {}
        return cls(
            str(meta["name"]),
            str((meta.get("annotations") or {}).get(RELEASE_NAME) or ""),
            tuple(str(s["cel"]["expression"]) for s in spec.get("selectors") or () if s.get("cel")),
        )


@dataclass(frozen=True, slots=True)
class LiveQuota:
    """A ResourceQuota; `priority_classes` are those that its scope selector names with In, empty where it has none."""

    namespace: str
    name: str
    priority_classes: tuple[str, ...] = ()

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> LiveQuota:
        meta = raw["metadata"]
        selector = (raw.get("spec") or {}).get("scopeSelector") or {}
        classes = (
            value
            for e in selector.get("matchExpressions") or ()
            if e.get("scopeName") == "PriorityClass" and e.get("operator") == "In"
            for value in e.get("values") or ()
        )
        return cls(str(meta.get("namespace") or ""), str(meta["name"]), tuple(sorted(classes)))


@dataclass(frozen=True, slots=True)
class LiveNamespace:
    """`enforces` is the pod security level that it enforces, empty for the cluster's default."""

    name: str
    enforces: str = ""

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> LiveNamespace:
        meta = raw["metadata"]
        return cls(str(meta["name"]), str((meta.get("labels") or {}).get(POD_SECURITY) or ""))


@dataclass(frozen=True, kw_only=True)
class LiveCluster:
    """One reading of a cluster. `taken_at` is in seconds since the epoch; ages of nodes count from it. Without slots,
    so that what is worked out once a reading can be kept with it."""

    taken_at: float
    nodes: Maybe[tuple[LiveNode, ...]] = NOT_READ
    workloads: Maybe[tuple[LiveWorkload, ...]] = NOT_READ
    pods: Maybe[tuple[LivePod, ...]] = NOT_READ
    slices: Maybe[tuple[LiveSlice, ...]] = NOT_READ
    claims: Maybe[tuple[LiveClaim, ...]] = NOT_READ
    device_classes: Maybe[tuple[LiveDeviceClass, ...]] = NOT_READ
    quotas: Maybe[tuple[LiveQuota, ...]] = NOT_READ
    namespaces: Maybe[tuple[LiveNamespace, ...]] = NOT_READ

    @cached_property
    def ledger(self) -> Maybe[Ledger]:
        """Who publishes what on which node; unknown where the slices are."""
        return self.slices if isinstance(self.slices, Unknown) else Known(Ledger(self.slices.value))


def cpu_requests(pod: Mapping[str, Any]) -> float:
    """The CPUs that the scheduler charges a pod spec with: the pod's own request, else the containers' sum with
    restartable init containers, or the largest init container where that is more; and the overhead."""
    overhead = _cpu((pod.get("overhead") or {}).get("cpu"))
    whole = ((pod.get("resources") or {}).get("requests") or {}).get("cpu")
    if whole is not None:
        return _cpu(whole) + overhead
    running = sum(_container_cpu(c) for c in pod.get("containers") or ())
    sidecars = start = 0.0
    for container in pod.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            sidecars += _container_cpu(container)
            start = max(start, sidecars)
        else:
            start = max(start, sidecars + _container_cpu(container))
    return max(running + sidecars, start) + overhead


def cpus(quantity: str | float | None) -> float:
    """A CPU quantity in CPUs; 0 for none and for what isn't a quantity."""
    return _cpu(quantity)


def _container_cpu(container: Mapping[str, Any]) -> float:
    resources = container.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    return _cpu(requests.get("cpu", limits.get("cpu")))


def _cpu(quantity: str | float | None) -> float:
    if quantity is None or quantity == "":
        return 0.0
    try:
        return float(parse_quantity(quantity))
    except QuantityError:
        return 0.0


def _host_ports(pod: Mapping[str, Any], *, host_network: bool) -> tuple[int, ...]:
    """On the host's network every declared container port is a host port."""
    ports = (
        int(p.get("hostPort") or (p["containerPort"] if host_network else 0))
        for c in pod.get("containers") or ()
        for p in c.get("ports") or ()
    )
    return tuple(sorted({p for p in ports if p}))


def _replica(labels: Mapping[str, Any]) -> tuple[str, str, str] | None:
    if DEPLOYMENT_LABEL not in labels:
        return None
    return str(labels.get(NAMESPACE_LABEL, "")), str(labels[DEPLOYMENT_LABEL]), str(labels.get(REPLICA_LABEL, "0"))


def _seconds(timestamp: str | None) -> float:
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0


def _texts(raw: Mapping[str, Any] | None) -> Mapping[str, str]:
    return MappingProxyType({str(k): str(v) for k, v in raw.items()}) if raw else EMPTY


def parse_all(kind: str, items: Iterable[Mapping[str, Any]]) -> tuple[LiveWorkload, ...]:
    """Workloads from the items of a list, which carry no kind of their own."""
    return tuple(LiveWorkload.parse({**item, "kind": kind}) for item in items)
