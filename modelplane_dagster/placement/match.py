"""Which pools satisfy a member's device requests, and the claim that its pods then make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from modelplane_dagster.cluster import CpuMode, PoolView
from modelplane_dagster.cpu import CAPACITY_KEY, cpu_device, devices_for
from modelplane_dagster.drivers import CPU
from modelplane_dagster.kube.cel import DeviceFacts, compile_selector
from modelplane_dagster.kube.versions import SemverValue

if TYPE_CHECKING:
    from modelplane_dagster.manifests.classes import Device
    from modelplane_dagster.manifests.deployments import DeviceRequest


@dataclass(frozen=True, slots=True)
class Match:
    """A pool that satisfies a member: which of the class's devices serves each request, in the requests' order."""

    devices: tuple[Device, ...]


@lru_cache(maxsize=4096)
def _facts(driver: str, attributes: tuple[tuple[str, Any], ...], capacity: tuple[tuple[str, str], ...]) -> DeviceFacts:
    return DeviceFacts(driver, dict(attributes), dict(capacity))


def device_facts(device: Device) -> DeviceFacts:
    """A class's device as selectors see it."""
    attributes: list[tuple[str, Any]] = []
    for name, value in device.attributes.items():
        attributes.append((name, SemverValue.parse(value.version) if value.version is not None else value.value))
    capacity = tuple((name, str(amount.value)) for name, amount in device.capacity.items())
    return _facts(device.driver, tuple(attributes), capacity)


def satisfies(request: DeviceRequest, device: Device) -> bool:
    """The device is enough and meets every selector. Raises SelectorEvaluationError where one errs on the device."""
    facts = device_facts(device)
    # Selectors first: one that errs aborts the allocation whatever the count.
    admits = all(compile_selector(s.cel).matches(facts) for s in request.selectors if s.cel is not None)
    return admits and device.count >= request.count


def match_pool(
    requests: tuple[DeviceRequest, ...], pool: PoolView, admits: Mapping[tuple[str, str], bool]
) -> Match | None:
    """The first assignment of the class's devices to the requests that leaves no device over-asked; None for none.

    `admits` holds, by request and device name, what `satisfies` said.
    """
    chosen = _assign(requests, pool.devices, admits, {})
    return Match(chosen) if chosen is not None else None


def _assign(
    requests: tuple[DeviceRequest, ...],
    devices: tuple[Device, ...],
    admits: Mapping[tuple[str, str], bool],
    used: dict[str, int],
) -> tuple[Device, ...] | None:
    if not requests:
        return ()
    first, *rest = requests
    for device in devices:
        taken = used.get(device.name, 0)
        if taken + first.count > device.count or not admits[(first.name, device.name)]:
            continue
        below = _assign(tuple(rest), devices, admits, {**used, device.name: taken + first.count})
        if below is not None:
            return (device, *below)
    return None


def claim_requests(
    requests: tuple[DeviceRequest, ...], match: Match, pool: PoolView, mode: CpuMode | None
) -> tuple[tuple[dict[str, Any], ...], int, int]:
    """The claim's requests as resource.k8s.io/v1 writes them, the CPUs that they take, and how many devices in all.

    Synthetic devices are matched for placement only and claim nothing. An individual CPU device has neither capacity nor
    group attributes, and a selector on them aborts the allocation, so its request carries none.
    """
    bodies: list[dict[str, Any]] = []
    cpus = total = 0
    for request, device in zip(requests, match.devices, strict=True):
        if device.claim != "DRA":
            continue
        exactly: dict[str, Any] = {"deviceClassName": device.device_class_name, "allocationMode": "ExactCount"}
        selectors = [{"cel": {"expression": s.cel}} for s in request.selectors if s.cel is not None]
        cpu = cpu_device(pool.devices) if device.driver == CPU else None
        if cpu is not None:
            cpus += request.count * cpu.cpus
            exactly["count"] = devices_for(mode or "grouped", groups=request.count, cpus=cpu.cpus)
            if mode == "individual":
                selectors = []
            else:
                exactly["capacity"] = {"requests": {CAPACITY_KEY: str(cpu.cpus)}}
        else:
            exactly["count"] = request.count
        if selectors:
            exactly["selectors"] = selectors
        total += exactly["count"]
        bodies.append({"name": request.name, "exactly": exactly})
    return tuple(bodies), cpus, total
