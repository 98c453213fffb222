"""What a DRA driver publishes on a node: pure functions from hardware and settings to ResourceSlices."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from modelplane_dagster.drivers import CPU
from resources.lab.agents.hardware import Hardware

Json = dict[str, Any]
PUBLISHED = "lab.modelplane.ai/published"
PER_SLICE = 128
MODE, RESERVED = "driverConfig.cpuDeviceMode", "driverConfig.reservedCPUs"


def devices_of(driver: str, hardware: Hardware, settings: Mapping[str, Any]) -> list[Json]:
    """The driver's devices on that hardware; empty where it has none, and then nothing is published."""
    if driver == CPU:
        reserved = cpu_set(str(settings.get(RESERVED) or ""))
        individual = settings.get(MODE) == "individual"
        return list(_single_cpus(hardware, reserved) if individual else _cpu_groups(hardware, reserved))
    devices: list[Json] = []
    for group in hardware.of(driver):
        for _ in range(group.count):
            number = len(devices)
            device: Json = {"name": f"gpu-{number}" if driver.startswith("gpu.") else f"device-{number}"}
            if group.attributes:
                device["attributes"] = {**group.attributes, "index": {"int": number}}
            if group.capacity:
                device["capacity"] = dict(group.capacity)
            devices.append(device)
    return devices


def cpu_set(text: str) -> frozenset[int]:
    """A CPU list as Linux writes it, such as 0-1,8."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        low, _, high = part.strip().partition("-")
        found.update(range(int(low), int(high or low) + 1))
    return frozenset(found)


def _numa_of(hardware: Hardware, cpu: int) -> int:
    return cpu * hardware.numa_nodes // max(hardware.cpus, 1)


def _cpu_groups(hardware: Hardware, reserved: frozenset[int]) -> Iterator[Json]:
    for numa in range(hardware.numa_nodes):
        free = sum(_numa_of(hardware, cpu) == numa and cpu not in reserved for cpu in range(hardware.cpus))
        if free:
            yield {
                "name": f"cpudevnuma{numa:03}",
                "allowMultipleAllocations": True,
                "attributes": {
                    "dra.cpu/numCPUs": {"int": free},
                    "dra.cpu/socketID": {"int": numa},
                    "dra.cpu/smtEnabled": {"bool": True},
                    "dra.cpu/numaNodeID": {"int": numa},
                    "resource.kubernetes.io/numaNode": {"int": numa},
                },
                "capacity": {"dra.cpu/cpu": {"value": str(free)}},
            }


def _single_cpus(hardware: Hardware, reserved: frozenset[int]) -> Iterator[Json]:
    for cpu in range(hardware.cpus):
        if cpu not in reserved:
            numa = _numa_of(hardware, cpu)
            attributes = {
                "dra.cpu/cpuID": {"int": cpu},
                "dra.cpu/socketID": {"int": numa},
                "dra.cpu/numaNodeID": {"int": numa},
            }
            yield {"name": f"cpudev{cpu:03}", "attributes": attributes}


def slices_of(node: Mapping[str, Any], driver: str, devices: list[Json], generation: int) -> list[Json]:
    """The node's slices of one pool generation, marked with what they were made from."""
    name = node["metadata"]["name"]
    parts = [devices[i : i + PER_SLICE] for i in range(0, len(devices), PER_SLICE)]
    mark = fingerprint(devices)
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"], "controller": True}
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {
                "name": f"{name[:180]}-{driver}-{number}",
                "annotations": {PUBLISHED: mark},
                "ownerReferences": [owner],
            },
            "spec": {
                "driver": driver,
                "nodeName": name,
                "pool": {"name": name, "generation": generation, "resourceSliceCount": len(parts)},
                "devices": part,
            },
        }
        for number, part in enumerate(parts)
    ]


def fingerprint(devices: list[Json]) -> str:
    """Differs where the devices differ. Kept beside what is published, for a server may drop fields of it."""
    return hashlib.sha256(json.dumps(devices, sort_keys=True).encode()).hexdigest()[:16]
