"""ResourceSlices as facts, and which node publishes what: the newest generation of each pool of slices.

Rules read in Kubernetes' allocator: a pool is (driver, pool name); only its highest generation counts; it is complete
when it holds `resourceSliceCount` slices, and invalid when a device name repeats.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from modelplane_dagster.kube.objects import EMPTY, NodeFacts, PodPlacement, Term
from modelplane_dagster.kube.scheduling import matches_selector

AttributeValue = str | bool | int
NO_ATTRIBUTES: Mapping[str, AttributeValue] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Reaching:
    """Which nodes a slice, or one device of it, can be used from. Nothing set reaches no node."""

    node_name: str = ""
    all_nodes: bool = False
    terms: tuple[Term, ...] | None = None

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Reaching:
        selector = raw.get("nodeSelector")
        terms = None
        if selector is not None:
            terms = tuple(Term.parse(t) for t in selector.get("nodeSelectorTerms") or ())
        return cls(str(raw.get("nodeName") or ""), bool(raw.get("allNodes")), terms)

    def reaches(self, node: NodeFacts) -> bool:
        if self.all_nodes or (self.node_name and self.node_name == node.name):
            return True
        return self.terms is not None and matches_selector(PodPlacement(affinity=self.terms), node)


@dataclass(frozen=True, slots=True)
class SliceDevice:
    """`reach` is set only where the slice leaves it to each device; `charged` where the scheduler charges a claim of
    it to the node's allocatable resources."""

    name: str
    attributes: Mapping[str, AttributeValue] = field(default_factory=lambda: NO_ATTRIBUTES)
    capacity: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    reach: Reaching | None = None
    charged: bool = False

    @classmethod
    def parse(cls, raw: Mapping[str, Any], *, own_reach: bool) -> SliceDevice:
        attributes = {
            str(name): next(iter(value.values()))
            for name, value in (raw.get("attributes") or {}).items()
            if len(value) == 1
        }
        capacity = {str(k): str(v.get("value")) for k, v in (raw.get("capacity") or {}).items()}
        return cls(
            str(raw["name"]),
            MappingProxyType(attributes),
            MappingProxyType(capacity),
            Reaching.parse(raw) if own_reach else None,
            bool(raw.get("nodeAllocatableResources") or raw.get("nodeAllocatableResourceMappings")),
        )

    def attribute(self, driver: str, name: str) -> AttributeValue | None:
        """By its bare name in the driver's domain, written either way; None where the device hasn't got it."""
        return self.attributes.get(f"{driver}/{name}", self.attributes.get(name))

    def amount(self, driver: str, name: str) -> str | None:
        """As `attribute`, for a capacity, as written."""
        return self.capacity.get(f"{driver}/{name}", self.capacity.get(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSlice:
    """One ResourceSlice. `reach` is None where each device says its own."""

    name: str
    driver: str
    pool: str
    generation: int = 1
    count: int = 1
    reach: Reaching | None = None
    devices: tuple[SliceDevice, ...] = ()

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> LiveSlice:
        spec = raw["spec"]
        pool = spec["pool"]
        each = bool(spec.get("perDeviceNodeSelection"))
        return cls(
            name=str(raw["metadata"]["name"]),
            driver=str(spec["driver"]),
            pool=str(pool["name"]),
            generation=int(pool.get("generation", 0)),
            count=int(pool.get("resourceSliceCount", 1)),
            reach=None if each else Reaching.parse(spec),
            devices=tuple(SliceDevice.parse(d, own_reach=each) for d in spec.get("devices") or ()),
        )


@dataclass(frozen=True, slots=True)
class SlicePool:
    """The newest generation of one pool. `fault` says why its devices don't count, empty where they do."""

    driver: str
    name: str
    generation: int
    slices: tuple[LiveSlice, ...]
    fault: str = ""


def newest_pools(slices: Iterable[LiveSlice]) -> tuple[SlicePool, ...]:
    """The pools of these slices, by driver and name."""
    grouped: dict[tuple[str, str], list[LiveSlice]] = defaultdict(list)
    for item in slices:
        grouped[item.driver, item.pool].append(item)
    pools = []
    for (driver, name), members in sorted(grouped.items()):
        newest = max(s.generation for s in members)
        kept = tuple(s for s in members if s.generation == newest)
        pools.append(SlicePool(driver, name, newest, kept, _fault(kept)))
    return tuple(pools)


def _fault(slices: tuple[LiveSlice, ...]) -> str:
    want = max(s.count for s in slices)
    if len(slices) != want:
        return f"it holds {len(slices)} of {want} slices"
    names = [d.name for s in slices for d in s.devices]
    return "two of its devices have one name" if len(set(names)) != len(names) else ""


@dataclass(frozen=True, slots=True)
class Published:
    """What one node can use of one driver: `devices` of complete pools, `faults` of the others. `reached` is False
    where no slice of the newest generation reaches the node at all."""

    reached: bool = False
    devices: tuple[SliceDevice, ...] = ()
    faults: tuple[str, ...] = ()


NOTHING_PUBLISHED = Published()


class Ledger:
    """What each node can use, by driver; built once a reading, in time linear in slices."""

    def __init__(self, slices: Iterable[LiveSlice]) -> None:
        self._local: dict[tuple[str, str], list[tuple[SlicePool, LiveSlice]]] = defaultdict(list)
        self._wide: dict[str, list[tuple[SlicePool, LiveSlice]]] = defaultdict(list)
        for pool in newest_pools(slices):
            for item in pool.slices:
                if item.reach is not None and item.reach.node_name:
                    self._local[pool.driver, item.reach.node_name].append((pool, item))
                else:
                    self._wide[pool.driver].append((pool, item))

    def at(self, driver: str, node: NodeFacts) -> Published:
        local = self._local.get((driver, node.name))
        wide = self._wide.get(driver)
        if not local and not wide:
            return NOTHING_PUBLISHED
        devices: list[SliceDevice] = []
        faults: list[str] = []
        reached = False
        for pool, item in (*(local or ()), *(wide or ())):
            usable = _usable(item, node)
            if usable is None:
                continue
            reached = True
            if pool.fault:
                faults.append(f"pool {pool.name}, generation {pool.generation}: {pool.fault}")
            else:
                devices.extend(usable)
        return Published(reached, tuple(devices), tuple(dict.fromkeys(faults)))

    @property
    def drivers(self) -> frozenset[str]:
        return frozenset({driver for driver, _ in self._local} | set(self._wide))


def _usable(item: LiveSlice, node: NodeFacts) -> tuple[SliceDevice, ...] | None:
    """The devices that the node can use; None where the slice doesn't reach it."""
    if item.reach is not None:
        return item.devices if item.reach.reaches(node) else None
    own = tuple(d for d in item.devices if d.reach is not None and d.reach.reaches(node))
    return own or None
