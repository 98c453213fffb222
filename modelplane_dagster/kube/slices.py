"""ResourceSlices (resource.k8s.io/v1): what drivers publish, which pools are current, and which nodes they reach."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from modelplane_dagster.kube.cel import AttributeValue, DeviceFacts
from modelplane_dagster.kube.objects import NodeFacts, Taint, Term
from modelplane_dagster.kube.scheduling import term_holds
from modelplane_dagster.kube.versions import SemverValue

DeviceId = tuple[str, str, str]
"""Driver, pool and device name: what an allocation names."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The nodes that a slice or one device says it is for; all three unset reach no node."""

    node_name: str = ""
    node_selector: tuple[Term, ...] | None = None
    all_nodes: bool = False

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Reach:
        selector = raw.get("nodeSelector")
        terms = None if selector is None else tuple(Term.parse(t) for t in selector.get("nodeSelectorTerms") or ())
        return cls(str(raw.get("nodeName") or ""), terms, raw.get("allNodes") is True)

    def holds(self, node: NodeFacts) -> bool:
        if self.node_name:
            return self.node_name == node.name
        if self.all_nodes:
            return True
        return any(term_holds(term, node) for term in self.node_selector or ())


@dataclass(frozen=True, slots=True)
class CapacityPolicy:
    """A capacity's `requestPolicy`: quantities as written; empty where it says nothing."""

    default: str = ""
    values: tuple[str, ...] = ()
    least: str = ""
    most: str = ""
    step: str = ""

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> CapacityPolicy:
        span = raw.get("validRange") or {}
        return cls(
            str(raw.get("default") or ""),
            tuple(str(v) for v in raw.get("validValues") or ()),
            str(span.get("min") or ""),
            str(span.get("max") or ""),
            str(span.get("step") or ""),
        )


@dataclass(frozen=True, slots=True)
class PublishedDevice:
    """One device of a slice. `reach` is its own, and None outside slices with `perDeviceNodeSelection`."""

    facts: DeviceFacts
    taints: tuple[Taint, ...] = ()
    policies: Mapping[str, CapacityPolicy] = field(default_factory=dict)
    reach: Reach | None = None
    consumes: tuple[tuple[str, str, str], ...] = ()
    """Shared counters that it takes: counter set, counter, quantity."""
    charged: bool = False
    """Whether the scheduler charges a claim of it to the CPUs that the node can allocate, so that pods don't mirror it."""

    @property
    def name(self) -> str:
        return self.facts.name

    @classmethod
    def parse(cls, raw: Mapping[str, Any], driver: str, *, per_device: bool = False) -> PublishedDevice:
        """Raises KeyError for a device without a name and SemverError for a version that isn't one."""
        capacity = raw.get("capacity") or {}
        return cls(
            DeviceFacts(
                driver,
                _attributes(raw.get("attributes") or {}),
                {str(k): str(v["value"]) for k, v in capacity.items()},
                str(raw["name"]),
                raw.get("allowMultipleAllocations") is True,
            ),
            tuple(Taint.parse(t) for t in raw.get("taints") or ()),
            {
                str(k): CapacityPolicy.parse(v["requestPolicy"])
                for k, v in capacity.items()
                if v.get("requestPolicy") is not None
            },
            Reach.parse(raw) if per_device else None,
            tuple(
                (str(used["counterSet"]), str(counter), str(amount["value"]))
                for used in raw.get("consumesCounters") or ()
                for counter, amount in (used.get("counters") or {}).items()
            ),
            # The first name is Kubernetes 1.37's, the second 1.36's; both map resources of the node.
            any(
                "cpu" in (raw.get(name) or {})
                for name in ("nodeAllocatableResources", "nodeAllocatableResourceMappings")
            ),
        )


def _attributes(raw: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Kinds of value that this module doesn't know, such as the gated lists, are left out."""
    known: dict[str, AttributeValue] = {}
    for name, value in raw.items():
        if "version" in value:
            known[str(name)] = SemverValue.parse(str(value["version"]))
            continue
        for kind in ("string", "int", "bool"):
            if kind in value:
                known[str(name)] = value[kind]
    return known


@dataclass(frozen=True, slots=True)
class Slice:
    """One ResourceSlice. `pool_slices` is how many slices of this generation make the pool complete."""

    name: str
    driver: str
    pool: str
    generation: int
    pool_slices: int
    reach: Reach
    per_device: bool = False
    devices: tuple[PublishedDevice, ...] = ()
    counters: tuple[tuple[str, str, str], ...] = ()
    """Shared counters that its devices take from: counter set, counter, quantity."""

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Slice:
        """From the object as JSON. Raises KeyError where a required field is missing."""
        spec = body["spec"]
        driver, pool, per_device = str(spec["driver"]), spec["pool"], spec.get("perDeviceNodeSelection") is True
        return cls(
            str(body["metadata"]["name"]),
            driver,
            str(pool["name"]),
            int(pool.get("generation") or 0),
            int(pool.get("resourceSliceCount") or 1),
            Reach.parse(spec),
            per_device,
            tuple(PublishedDevice.parse(d, driver, per_device=per_device) for d in spec.get("devices") or ()),
            tuple(
                (str(shared["name"]), str(counter), str(amount["value"]))
                for shared in spec.get("sharedCounters") or ()
                for counter, amount in (shared.get("counters") or {}).items()
            ),
        )


def device_reach(of: Slice, device: PublishedDevice, node: NodeFacts) -> bool:
    """Whether this device of the slice is for the node."""
    return (device.reach or of.reach).holds(node)


def slice_reach(of: Slice, node: NodeFacts) -> bool:
    """Whether the slice, or at least one of its devices where each has its own reach, is for the node."""
    if of.per_device:
        return any(device_reach(of, device, node) for device in of.devices)
    return of.reach.holds(node)


def _reached(of: Slice, node: NodeFacts) -> tuple[PublishedDevice, ...]:
    if of.per_device:
        return tuple(device for device in of.devices if device_reach(of, device, node))
    return of.devices if of.reach.holds(node) else ()


@dataclass(frozen=True, slots=True)
class DevicePool:
    """A driver's pool at its newest generation; older generations are left out as the scheduler leaves them out."""

    driver: str
    name: str
    generation: int
    slices: tuple[Slice, ...]
    expected_slices: int
    duplicates: tuple[str, ...] = ()
    """Device names that stand in it more than once: the whole pool is then invalid."""

    @property
    def complete(self) -> bool:
        return len(self.slices) == self.expected_slices

    @property
    def usable(self) -> bool:
        """Whether a request for a count of devices looks at it; one for all devices fails on a pool that isn't usable."""
        return self.complete and not self.duplicates

    def reached(self, node: NodeFacts) -> tuple[tuple[Slice, PublishedDevice], ...]:
        """The devices that are for this node, in slice order."""
        return tuple((s, d) for s in self.slices for d in _reached(s, node))


def newest_pools(slices: Iterable[Slice]) -> tuple[DevicePool, ...]:
    """Each driver's pools at their newest generation, sorted by driver and pool name, slices by name."""
    found: dict[tuple[str, str], list[Slice]] = {}
    for one in slices:
        pool = found.setdefault((one.driver, one.pool), [])
        if pool and one.generation > pool[0].generation:
            pool.clear()
        if not pool or one.generation == pool[0].generation:
            pool.append(one)
    return tuple(_pool(found[key]) for key in sorted(found))


def _pool(slices: list[Slice]) -> DevicePool:
    first = slices[0]
    seen: set[str] = set()
    twice: set[str] = set()
    for one in slices:
        for device in one.devices:
            (twice if device.name in seen else seen).add(device.name)
    ordered = tuple(sorted(slices, key=lambda s: s.name))
    return DevicePool(first.driver, first.pool, first.generation, ordered, first.pool_slices, tuple(sorted(twice)))
