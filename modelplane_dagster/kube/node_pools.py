"""The pools of devices that one node reaches, as kube-scheduler's allocator gathers them (Kubernetes 1.36).

A node sees the newest generation among the slices that are for it; whether one is missing or a newer one is on its way
is then looked up among all slices of the pool. A pool that is incomplete or invalid is kept, because a request for all
devices fails on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from modelplane_dagster.errors import ModelplaneError
from modelplane_dagster.kube.objects import NodeFacts
from modelplane_dagster.kube.scheduling import is_valid
from modelplane_dagster.kube.slices import PublishedDevice, Reach, Slice

Counter = tuple[str, str]
"""Counter set and counter, within one pool."""


class MalformedSelectorError(ModelplaneError):
    """A slice selects nodes by a term that can't be read. It ends the allocation of every claim, whatever its driver."""


@dataclass(frozen=True, slots=True)
class NodePool:
    """One driver's pool as a node sees it. `slices` are those for the node, in the order of their names, and `others`
    the rest of the generation where the node doesn't see all of it; both are empty in a pool that isn't `usable`."""

    driver: str
    name: str
    state: Literal["usable", "incomplete", "invalid"] = "usable"
    why: str = ""
    slices: tuple[Slice, ...] = ()
    others: tuple[Slice, ...] = ()
    counters: tuple[tuple[Counter, str], ...] = ()
    """What the pool's devices share, each with its quantity."""

    @property
    def usable(self) -> bool:
        return self.state == "usable"


class Published:
    """The slices of a cluster, to be asked node by node."""

    def __init__(self, slices: Iterable[Slice]) -> None:
        self._by_node: dict[str, list[Slice]] = {}
        self._shared: list[Slice] = []
        self._by_pool: dict[tuple[str, str], list[Slice]] = {}
        for one in slices:
            own = one.reach.node_name and not one.counters
            (self._by_node.setdefault(one.reach.node_name, []) if own else self._shared).append(one)
            self._by_pool.setdefault((one.driver, one.pool), []).append(one)

    def pools(self, node: NodeFacts) -> tuple[NodePool, ...]:
        """Sorted by driver and pool. Raises MalformedSelectorError."""
        found: dict[tuple[str, str], list[Slice]] = {}
        for one in (*self._by_node.get(node.name, ()), *self._shared):
            if not _relevant(one, node):
                continue
            pool = found.setdefault((one.driver, one.pool), [])
            if pool and one.generation > pool[0].generation:
                pool.clear()
            if not pool or one.generation == pool[0].generation:
                pool.append(one)
        made = (self._pool(found[key]) for key in sorted(found))
        return tuple(pool for pool in made if pool is not None)

    def _pool(self, seen: list[Slice]) -> NodePool | None:
        """None for a generation that a newer one, which isn't for this node, has replaced."""
        first = seen[0]
        if len(seen) == first.pool_slices:
            return _checked(seen, seen)
        everywhere = self._by_pool[first.driver, first.pool]
        if any(one.generation > first.generation for one in everywhere):
            return None
        whole = [one for one in everywhere if one.generation == first.generation]
        if len(whole) != first.pool_slices:
            return NodePool(first.driver, first.pool, "incomplete", "is being updated")
        return _checked(seen, whole)


def reaches(reach: Reach, node: NodeFacts) -> bool:
    """Raises MalformedSelectorError."""
    if not reach.node_name and not reach.all_nodes:
        for term in reach.node_selector or ():
            if not is_valid(term):
                raise MalformedSelectorError("a slice's node selector can't be read")
    return reach.holds(node)


def _relevant(one: Slice, node: NodeFacts) -> bool:
    """Slices of counters always are: the pool can't be used without them."""
    if one.counters:
        return True
    if one.per_device:
        return any(device.reach is not None and reaches(device.reach, node) for device in one.devices)
    return reaches(one.reach, node)


def _checked(seen: list[Slice], whole: list[Slice]) -> NodePool:
    first = seen[0]
    mine = tuple(sorted((one for one in seen if not one.counters), key=lambda s: s.name))
    counted = [one for one in seen if one.counters]
    if twice := _twice(device.name for one in mine for device in one.devices):
        return NodePool(first.driver, first.pool, "invalid", f"is invalid: it names the device {twice} twice")
    sets = [name for one in counted for name in dict.fromkeys(counter_set for counter_set, _, _ in one.counters)]
    if twice := _twice(sets):
        return NodePool(first.driver, first.pool, "invalid", f"is invalid: it has the counter set {twice} twice")
    counters = {(counter_set, counter): amount for one in counted for counter_set, counter, amount in one.counters}
    others = tuple(one for one in whole if one not in seen)
    for device in (device for one in (*seen, *others) for device in one.devices):
        if missing := _missing(device, counters):
            return NodePool(first.driver, first.pool, "invalid", f"is invalid: it has no counter {missing}")
    return NodePool(first.driver, first.pool, slices=mine, others=others, counters=tuple(counters.items()))


def _twice(names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""


def _missing(device: PublishedDevice, counters: dict[Counter, str]) -> str:
    return next((f"{s}/{c}" for s, c, _ in device.consumes if (s, c) not in counters), "")


def devices_of(pool: NodePool) -> Iterator[tuple[Slice, PublishedDevice]]:
    """In the order in which the allocator tries them; those of other nodes included, where each device has its own."""
    for one in pool.slices:
        for device in one.devices:
            yield one, device
