"""The driver table: the one place where a DRA driver's whole name meets what follows from it.

A driver that isn't here has no kind, no taint and no role; nothing is ever guessed from a part of its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from modelplane_dagster.kube.objects import Taint

POOL_LABEL = "modelplane.ai/pool"
GPU_LABEL = "modelplane.ai/gpu"
CPU_LABEL = "modelplane.ai/cpu"

# GKE sets this value itself on every node with a GPU; the others follow it so that one rule holds everywhere.
PRESENT = "present"


class DriverKind(StrEnum):
    GPU = "GPU"
    CPU = "CPU"
    OTHER = "Other"


@dataclass(frozen=True, slots=True)
class Driver:
    """`vendor` is empty where the driver has none; `taint` is what a pool of that driver carries, None for none."""

    name: str
    kind: DriverKind
    vendor: str = ""
    taint: Taint | None = None


NVIDIA = "gpu.nvidia.com"
AMD = "gpu.amd.com"
CPU = "dra.cpu"
NETWORK = "dra.net"

DRIVERS: dict[str, Driver] = {
    d.name: d
    for d in (
        Driver(NVIDIA, DriverKind.GPU, "nvidia", Taint("nvidia.com/gpu", PRESENT)),
        Driver(AMD, DriverKind.GPU, "amd", Taint("amd.com/gpu", PRESENT)),
        Driver(CPU, DriverKind.CPU, "", Taint(CPU_LABEL, "true")),
        Driver(NETWORK, DriverKind.OTHER),
    )
}

DRIVER_TAINT_KEYS: tuple[str, ...] = tuple(sorted(d.taint.key for d in DRIVERS.values() if d.taint))
