"""Which node can use what of each driver, from the newest complete pools of slices; looked up node by node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from modelplane_dagster.kube.objects import NodeFacts
from modelplane_dagster.kube.slices import DevicePool, PublishedDevice, Slice, device_reach, newest_pools, slice_reach

LiveSlice = Slice
"""A ResourceSlice as the rest of a reading names it."""


@dataclass(frozen=True, slots=True)
class Published:
    """What one node can use of one driver: `devices` of usable pools, `faults` of the others. `reached` is False
    where no slice of the newest generation reaches the node at all."""

    reached: bool = False
    devices: tuple[PublishedDevice, ...] = ()
    faults: tuple[str, ...] = ()


NOTHING_PUBLISHED = Published()


class Ledger:
    """What each node can use, by driver; built once a reading, in time linear in slices."""

    def __init__(self, slices: Iterable[Slice]) -> None:
        self._local: dict[tuple[str, str], list[tuple[DevicePool, Slice]]] = defaultdict(list)
        self._wide: dict[str, list[tuple[DevicePool, Slice]]] = defaultdict(list)
        self._seen: dict[tuple[str, str], Published] = {}
        for pool in newest_pools(slices):
            for item in pool.slices:
                if item.reach.node_name and not item.per_device:
                    self._local[pool.driver, item.reach.node_name].append((pool, item))
                else:
                    self._wide[pool.driver].append((pool, item))

    def at(self, driver: str, node: NodeFacts) -> Published:
        """Remembered: each node is asked about several times."""
        key = (driver, node.name)
        if key not in self._seen:
            self._seen[key] = self._at(driver, node)
        return self._seen[key]

    def _at(self, driver: str, node: NodeFacts) -> Published:
        local = self._local.get((driver, node.name))
        wide = self._wide.get(driver)
        if not local and not wide:
            return NOTHING_PUBLISHED
        devices: list[PublishedDevice] = []
        faults: list[str] = []
        reached = False
        for pool, item in (*(local or ()), *(wide or ())):
            if not slice_reach(item, node):
                continue
            reached = True
            if not pool.usable:
                faults.append(f"pool {pool.name}, generation {pool.generation}: {_fault(pool)}")
            elif item.per_device:
                devices.extend(d for d in item.devices if device_reach(item, d, node))
            else:
                devices.extend(item.devices)
        return Published(reached, tuple(devices), tuple(dict.fromkeys(faults)))

    @property
    def drivers(self) -> frozenset[str]:
        return frozenset({driver for driver, _ in self._local} | set(self._wide))


def _fault(pool: DevicePool) -> str:
    if pool.duplicates:
        return f"two of its devices are named {pool.duplicates[0]}"
    return f"it holds {len(pool.slices)} of {pool.expected_slices} slices"
