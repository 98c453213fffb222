"""What a lab node is made of: CPUs, memory and devices as their drivers would publish them.

The cards' figures are what the vendors' drivers report, not the nominal sizes. Nothing here knows a manifest: a class
that declares more than the hardware has is found out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from modelplane_dagster.drivers import AMD, NETWORK, NVIDIA
from modelplane_dagster.kube.objects import EMPTY, Taint
from resources.lab.plays import HARDWARE

Json = Mapping[str, Any]
NONE: Json = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class DeviceGroup:
    """`count` like devices of one driver; attributes and capacity in the form of a ResourceSlice."""

    driver: str
    count: int
    attributes: Json = field(default_factory=lambda: NONE)
    capacity: Json = field(default_factory=lambda: NONE)


@dataclass(frozen=True, slots=True)
class Hardware:
    cpus: int
    memory_mib: int
    numa_nodes: int = 1
    devices: tuple[DeviceGroup, ...] = ()

    def of(self, driver: str) -> tuple[DeviceGroup, ...]:
        return tuple(group for group in self.devices if group.driver == driver and group.count)

    def text(self) -> str:
        """As the node's annotation holds it."""
        groups = [
            {"driver": g.driver, "count": g.count, "attributes": dict(g.attributes), "capacity": dict(g.capacity)}
            for g in self.devices
        ]
        record = {"cpus": self.cpus, "memoryMiB": self.memory_mib, "numaNodes": self.numa_nodes, "devices": groups}
        return json.dumps(record, sort_keys=True)


def parse_hardware(text: str) -> Hardware | None:
    """From the annotation; None where it isn't one."""
    try:
        raw = json.loads(text)
        groups = tuple(
            DeviceGroup(g["driver"], int(g.get("count", 1)), g.get("attributes") or {}, g.get("capacity") or {})
            for g in raw.get("devices") or ()
        )
        return Hardware(int(raw["cpus"]), int(raw["memoryMiB"]), int(raw.get("numaNodes", 1)), groups)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def hardware_of(node: Mapping[str, Any]) -> Hardware | None:
    """What the Node object carries on record; None for a node that isn't the lab's."""
    return parse_hardware((node["metadata"].get("annotations") or {}).get(HARDWARE, ""))


@dataclass(frozen=True, slots=True)
class DesiredNode:
    """A node that should stand, as its cloud or its seed says."""

    name: str
    hardware: Hardware
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    taints: tuple[Taint, ...] = ()
    provider_id: str = ""


def _nvidia(product: str, architecture: str, compute: str, memory_mib: int) -> DeviceGroup:
    attributes = {
        "type": {"string": "gpu"},
        "productName": {"string": product},
        "architecture": {"string": architecture},
        "brand": {"string": "Nvidia"},
        "cudaComputeCapability": {"version": f"{compute}.0"},
    }
    return DeviceGroup(NVIDIA, 1, attributes, {"memory": {"value": f"{memory_mib}Mi"}})


def _amd(product: str, memory_mib: int, units: int) -> DeviceGroup:
    attributes = {"type": {"string": "amdgpu"}, "productName": {"string": product}}
    capacity = {"memory": {"value": f"{memory_mib}Mi"}, "computeUnits": {"value": str(units)}}
    return DeviceGroup(AMD, 1, attributes, capacity)


CARDS: Mapping[str, DeviceGroup] = {
    "t4": _nvidia("Tesla T4", "Turing", "7.5", 15360),
    "a10": _nvidia("NVIDIA A10", "Ampere", "8.6", 24564),
    "a10g": _nvidia("NVIDIA A10G", "Ampere", "8.6", 23028),
    "a16": _nvidia("NVIDIA A16", "Ampere", "8.6", 15356),
    "a40": _nvidia("NVIDIA A40", "Ampere", "8.6", 46068),
    "a100-40gb": _nvidia("NVIDIA A100-SXM4-40GB", "Ampere", "8.0", 40960),
    "a100-80gb": _nvidia("NVIDIA A100-SXM4-80GB", "Ampere", "8.0", 81920),
    "l4": _nvidia("NVIDIA L4", "Ada Lovelace", "8.9", 23034),
    "l40s": _nvidia("NVIDIA L40S", "Ada Lovelace", "8.9", 46068),
    "h100": _nvidia("NVIDIA H100 80GB HBM3", "Hopper", "9.0", 81559),
    "h200": _nvidia("NVIDIA H200", "Hopper", "9.0", 143771),
    "b200": _nvidia("NVIDIA B200", "Blackwell", "10.0", 183359),
    "mi300x": _amd("AMD_Instinct_MI300X_OAM", 196592, 304),
    "mi325x": _amd("AMD_Instinct_MI325_OAM", 262128, 304),
    "mi355x": _amd("AMD_Instinct_MI355X_OAM", 294896, 256),
}

# A piece of a machine's or card's name, and the card; the first that is found counts.
_NAMES = (
    (r"mi355", "mi355x"),
    (r"mi325", "mi325x"),
    (r"mi300", "mi300x"),
    (r"b200", "b200"),
    (r"h200|^p5en?\.", "h200"),
    (r"h100|^p5\.", "h100"),
    (r"g4g\.40|a100.*40|tesla-a100|^p4d\.|a2-highgpu", "a100-40gb"),
    (r"a100|^p4de\.|g4g\.kube|a2-ultragpu", "a100-80gb"),
    (r"l40s|^g6e\.", "l40s"),
    (r"(^|[^a-z0-9])l4([^0-9]|$)|^g6\.|^g2-", "l4"),
    (r"a16([^0-9]|$)", "a16"),
    (r"a40([^0-9]|$)", "a40"),
    (r"a10g|^g5\.", "a10g"),
    (r"a10([^0-9]|$)", "a10"),
    (r"(^|[^a-z0-9])t4([^0-9]|$)", "t4"),
)
_AMD_CARD = "mi300x"
_NVIDIA_CARD = "l4"

# Elastic fabric adapters of the machines that have several.
_EFA = {
    "p4d.24xlarge": 4,
    "p4de.24xlarge": 4,
    "p5.4xlarge": 1,
    "p5.48xlarge": 32,
    "p5e.48xlarge": 32,
    "p5en.48xlarge": 16,
}
_EFA_DEVICE = {"dra.net/rdma": {"bool": True}, "dra.net/type": {"string": "efa"}}


def card(name: str) -> DeviceGroup | None:
    """The card that a machine type or accelerator name means; None where it means none that is known."""
    found = next((known for pattern, known in _NAMES if re.search(pattern, name.lower())), None)
    return CARDS[found] if found else None


def with_cards(
    machine: str, *, vcpus: int, memory_mib: int, gpus: int = 0, vendor: str = "", gpu_type: str = ""
) -> Hardware:
    """A cloud's machine. Where the card's name says nothing, the vendor's commonest stands in."""
    groups: list[DeviceGroup] = []
    if gpus:
        default = _AMD_CARD if vendor.lower() == "amd" else _NVIDIA_CARD
        found = card(machine) or card(gpu_type) or CARDS[default]
        groups.append(DeviceGroup(found.driver, gpus, found.attributes, found.capacity))
    if machine in _EFA:
        groups.append(DeviceGroup(NETWORK, _EFA[machine], _EFA_DEVICE))
    return Hardware(vcpus, memory_mib, 2 if vcpus >= 64 else 1, tuple(groups))
