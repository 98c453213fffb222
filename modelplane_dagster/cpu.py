"""How `dra.cpu` runs on a cluster, and what a claim then asks for.

Grouped: one device a group (NUMA node) from which a claim takes an amount; it needs the feature gate
DRAConsumableCapacity, on by default from Kubernetes 1.36. Individual: one device a CPU, and a claim counts them.
Sources: KEP-5075 and measurements of both gate settings on 1.36.3, 2026-11-30.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelplane_dagster.cluster import CpuMode, PoolView
from modelplane_dagster.drivers import CPU
from modelplane_dagster.kube.quantity import parse_quantity
from modelplane_dagster.kube.versions import KubernetesVersion

if TYPE_CHECKING:
    from modelplane_dagster.manifests.classes import Device

DRA_SINCE = KubernetesVersion(1, 34, text="1.34")
GROUPED_SINCE = KubernetesVersion(1, 36, text="1.36")

# resource.k8s.io/v1 AllocationResultsMaxSize: over all requests of a claim, whatever their drivers.
MAX_DEVICES_PER_CLAIM = 32

# As the slice publishes it. A bare `cpu` is taken for another domain's and never allocates.
CAPACITY_KEY = "dra.cpu/cpu"


@dataclass(frozen=True, slots=True)
class CpuDevice:
    """A class's `dra.cpu` device: `groups` NUMA nodes of `cpus` CPUs each that a claim may take."""

    name: str
    groups: int
    cpus: int


def mode_for(version: KubernetesVersion | None) -> CpuMode | None:
    """The mode that a version's defaults allow; None where the version is unknown or can do neither."""
    if version is None or version < DRA_SINCE:
        return None
    return "grouped" if version >= GROUPED_SINCE else "individual"


def cpu_device(devices: tuple[Device, ...]) -> CpuDevice | None:
    """The class's `dra.cpu` device with a whole number of CPUs; None where it claims none or gives no capacity.cpu."""
    for device in devices:
        if device.driver == CPU and device.claim == "DRA":
            stated = device.capacity.get("cpu")
            if stated is None:
                return None
            return CpuDevice(
                device.name, device.count, int(parse_quantity(stated.value).to_integral_value("ROUND_FLOOR"))
            )
    return None


def devices_for(mode: CpuMode, *, groups: int, cpus: int) -> int:
    """How many devices a claim of `groups` groups asks for."""
    return groups if mode == "grouped" else groups * cpus


def reserved_cpus(text: str) -> int:
    """How many CPUs a cpuset such as `0-1` or `0,2-3` names."""
    total = 0
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        total += int(last or first) - int(first) + 1
    return total


def oversized(pool: PoolView, mode: CpuMode | None) -> int | None:
    """The devices that the smallest claim on the pool needs where that is more than a claim holds; else None."""
    device = cpu_device(pool.devices)
    if device is None or mode != "individual" or device.cpus <= MAX_DEVICES_PER_CLAIM:
        return None
    return device.cpus
