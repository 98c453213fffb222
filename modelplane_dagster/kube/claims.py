"""ResourceClaims and DeviceClasses (resource.k8s.io/v1) as the allocator reads them, and what allocated claims use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from modelplane_dagster.kube.objects import Toleration
from modelplane_dagster.kube.quantity import parse_quantity
from modelplane_dagster.kube.slices import DeviceId

Mode = Literal["ExactCount", "All"]


@dataclass(frozen=True, slots=True)
class DeviceClass:
    name: str
    selectors: tuple[str, ...] = ()
    config: tuple[Mapping[str, Any], ...] = ()
    """Driver configuration, passed on as it is."""

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> DeviceClass:
        spec = body.get("spec") or {}
        return cls(str(body["metadata"]["name"]), _selectors(spec), tuple(spec.get("config") or ()))


@dataclass(frozen=True, slots=True)
class Wanted:
    """One way to serve a request. `name` is "request", or "request/subrequest" inside `firstAvailable`."""

    name: str
    device_class: str
    selectors: tuple[str, ...] = ()
    mode: Mode = "ExactCount"
    count: int = 1
    admin: bool = False
    tolerations: tuple[Toleration, ...] = ()
    capacity: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, raw: Mapping[str, Any], name: str) -> Wanted:
        return cls(
            name,
            str(raw["deviceClassName"]),
            _selectors(raw),
            "All" if raw.get("allocationMode") == "All" else "ExactCount",
            int(raw.get("count") or 1),
            raw.get("adminAccess") is True,
            tuple(Toleration.parse(t) for t in raw.get("tolerations") or ()),
            {str(k): str(v) for k, v in ((raw.get("capacity") or {}).get("requests") or {}).items()},
        )


@dataclass(frozen=True, slots=True)
class Constraint:
    """Devices of these requests (all of them where `requests` is empty) share, or differ in, one attribute."""

    attribute: str
    distinct: bool = False
    requests: tuple[str, ...] = ()

    def applies(self, name: str) -> bool:
        """To a request by its name; to a subrequest by its own or its request's."""
        return not self.requests or name in self.requests or name.partition("/")[0] in self.requests


@dataclass(frozen=True, slots=True)
class Claim:
    """`requests` holds, for each request, its alternatives in order of preference; a plain request has one."""

    name: str
    namespace: str = ""
    uid: str = ""
    requests: tuple[tuple[Wanted, ...], ...] = ()
    constraints: tuple[Constraint, ...] = ()
    config: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Claim:
        """From a ResourceClaim as JSON. Raises KeyError where a required field is missing."""
        meta, devices = body["metadata"], (body.get("spec") or {}).get("devices") or {}
        return cls(
            str(meta["name"]),
            str(meta.get("namespace") or ""),
            str(meta.get("uid") or ""),
            tuple(_alternatives(r) for r in devices.get("requests") or ()),
            tuple(_constraint(c) for c in devices.get("constraints") or ()),
            tuple(devices.get("config") or ()),
        )


def _alternatives(raw: Mapping[str, Any]) -> tuple[Wanted, ...]:
    name = str(raw["name"])
    if raw.get("firstAvailable"):
        return tuple(Wanted.parse(sub, f"{name}/{sub['name']}") for sub in raw["firstAvailable"])
    return (Wanted.parse(raw["exactly"], name),)


def _constraint(raw: Mapping[str, Any]) -> Constraint:
    requests = tuple(str(r) for r in raw.get("requests") or ())
    distinct = raw.get("distinctAttribute")
    return Constraint(str(distinct or raw["matchAttribute"]), distinct is not None, requests)


def _selectors(raw: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(s["cel"]["expression"]) for s in raw.get("selectors") or () if s.get("cel"))


@dataclass(frozen=True, slots=True)
class Usage:
    """What allocated claims hold: whole devices, and amounts of devices that several claims share."""

    whole: frozenset[DeviceId] = frozenset()
    shared: Mapping[DeviceId, Mapping[str, Decimal]] = field(default_factory=dict)

    @classmethod
    def of(cls, claims: Iterable[Mapping[str, Any]]) -> Usage:
        """From ResourceClaims as JSON, by their `status.allocation`; results with admin access use nothing."""
        whole: set[DeviceId] = set()
        shared: dict[DeviceId, dict[str, Decimal]] = {}
        for body in claims:
            allocation = (body.get("status") or {}).get("allocation") or {}
            for result in (allocation.get("devices") or {}).get("results") or ():
                if result.get("adminAccess") is True:
                    continue
                key = (str(result["driver"]), str(result["pool"]), str(result["device"]))
                if not result.get("shareID"):
                    whole.add(key)
                    continue
                held = shared.setdefault(key, {})
                for name, amount in (result.get("consumedCapacity") or {}).items():
                    held[name] = held.get(name, Decimal(0)) + parse_quantity(amount)
        return cls(frozenset(whole), shared)


_GATED = "capacity"


def drop_consumable_capacity(body: dict[str, Any]) -> dict[str, Any]:
    """The object as an API server stores it with the gate DRAConsumableCapacity off: the fields are gone, without a word.

    A new object for a ResourceSlice, ResourceClaim or ResourceClaimTemplate; anything else is returned as it is. A
    constraint left without an attribute (it had `distinctAttribute`) is kept empty: the server refuses it with 422.
    """
    match body.get("kind"):
        case "ResourceSlice":
            return {**body, "spec": _ungated_slice(body.get("spec") or {})}
        case "ResourceClaim":
            return {**body, "spec": _ungated_claim(body.get("spec") or {})}
        case "ResourceClaimTemplate":
            spec = body.get("spec") or {}
            return {**body, "spec": {**spec, "spec": _ungated_claim(spec.get("spec") or {})}}
    return body


def _ungated_slice(spec: dict[str, Any]) -> dict[str, Any]:
    devices = []
    for device in spec.get("devices") or ():
        kept = {k: v for k, v in device.items() if k != "allowMultipleAllocations"}
        if _GATED in kept:
            kept[_GATED] = {
                name: {k: v for k, v in amount.items() if k != "requestPolicy"} for name, amount in kept[_GATED].items()
            }
        devices.append(kept)
    return {**spec, "devices": devices} if "devices" in spec else dict(spec)


def _ungated_claim(spec: dict[str, Any]) -> dict[str, Any]:
    devices = dict(spec.get("devices") or {})
    if "requests" in devices:
        devices["requests"] = [_ungated_request(r) for r in devices["requests"]]
    if "constraints" in devices:
        devices["constraints"] = [
            {k: v for k, v in c.items() if k != "distinctAttribute"} for c in devices["constraints"]
        ]
    return {**spec, "devices": devices} if "devices" in spec else dict(spec)


def _ungated_request(request: dict[str, Any]) -> dict[str, Any]:
    kept = dict(request)
    if "exactly" in kept:
        kept["exactly"] = {k: v for k, v in kept["exactly"].items() if k != _GATED}
    if "firstAvailable" in kept:
        kept["firstAvailable"] = [{k: v for k, v in sub.items() if k != _GATED} for sub in kept["firstAvailable"]]
    return kept
