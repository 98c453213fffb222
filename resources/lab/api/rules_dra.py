"""Validation of claims, claim templates and resource slices."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from modelplane_dagster.kube.cel import SelectorSyntaxError, compile_selector
from resources.lab.api.errors import Cause

Obj = Mapping[str, Any]

_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
REQUESTS_LIMIT = 32
DEVICES_LIMIT = 128
_REACHES = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")


def _required(field: str, why: str = "") -> Cause:
    return Cause("FieldValueRequired", f"Required value: {why}" if why else "Required value", field)


def _invalid(field: str, value: object, why: str) -> Cause:
    shown = f'"{value}"' if isinstance(value, str) else str(value)
    return Cause("FieldValueInvalid", f"Invalid value: {shown}: {why}", field)


def _named(items: list[Obj], at: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, item in enumerate(items):
        name = item.get("name", "")
        field = f"{at}[{index}].name"
        if not name:
            yield _required(field)
        elif not _LABEL.match(name):
            yield _invalid(
                field, name, "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'"
            )
        if name in seen:
            yield Cause("FieldValueDuplicate", f'Duplicate value: "{name}"', f"{at}[{index}]")
        seen.add(name)


def claim_spec(spec: Obj, at: str) -> Iterator[Cause]:
    """Of a claim's spec, or of a template's."""
    devices = spec.get("devices") or {}
    requests = devices.get("requests") or []
    if len(requests) > REQUESTS_LIMIT:
        yield Cause(
            "FieldValueTooMany",
            f"Too many: {len(requests)}: must have at most {REQUESTS_LIMIT} items",
            f"{at}.devices.requests",
        )
    yield from _named(requests, f"{at}.devices.requests")
    for index, request in enumerate(requests):
        field = f"{at}.devices.requests[{index}]"
        exact, first = request.get("exactly"), request.get("firstAvailable")
        if bool(exact) == bool(first):
            why = "exactly one of `exactly` or `firstAvailable` is required"
            yield _required(field, why) if not exact else _invalid(field, "", why)
        if exact:
            yield from _exact(exact, f"{field}.exactly")
        yield from _named(first or [], f"{field}.firstAvailable")
        for sub, option in enumerate(first or ()):
            yield from _exact(option, f"{field}.firstAvailable[{sub}]")
    names = {request.get("name") for request in requests}
    for index, constraint in enumerate(devices.get("constraints") or ()):
        field = f"{at}.devices.constraints[{index}]"
        if not constraint.get("matchAttribute") and not constraint.get("distinctAttribute"):
            yield _required(f"{field}.matchAttribute")
        for place, name in enumerate(constraint.get("requests") or ()):
            if name.partition("/")[0] not in names:
                yield _invalid(f"{field}.requests[{place}]", name, "must be the name of a request in the claim")


def _exact(exact: Obj, at: str) -> Iterator[Cause]:
    if not exact.get("deviceClassName"):
        yield _required(f"{at}.deviceClassName")
    mode = exact.get("allocationMode")
    if mode == "ExactCount" and exact.get("count", 0) < 1:
        yield _invalid(f"{at}.count", exact.get("count", 0), "must be greater than zero")
    elif mode == "All" and exact.get("count"):
        yield _invalid(f"{at}.count", exact["count"], 'must not be specified when allocationMode is "All"')
    elif mode not in {"ExactCount", "All"}:
        message = f'Unsupported value: "{mode}": supported values: "All", "ExactCount"'
        yield Cause("FieldValueNotSupported", message, f"{at}.allocationMode")
    yield from selectors(exact.get("selectors") or (), f"{at}.selectors")


def selectors(listed: Iterable[Obj], at: str) -> Iterator[Cause]:
    """Of a request or a class: each must compile to a bool."""
    for index, selector in enumerate(listed):
        expression, field = (selector.get("cel") or {}).get("expression"), f"{at}[{index}].cel.expression"
        if not expression:
            yield _required(field)
            continue
        try:
            compile_selector(expression)
        except SelectorSyntaxError as error:
            yield _invalid(field, expression, f"compilation failed: {error.message}")


def slice_spec(spec: Obj, old: Obj | None) -> Iterator[Cause]:
    """Of a ResourceSlice's spec; driver, pool and node are fixed once it exists."""
    if not spec.get("driver"):
        yield _required("spec.driver")
    pool = spec.get("pool") or {}
    if not pool.get("name"):
        yield _required("spec.pool.name")
    if pool.get("resourceSliceCount", 0) < 1:
        yield _invalid("spec.pool.resourceSliceCount", pool.get("resourceSliceCount", 0), "must be greater than zero")
    reaches = [name for name in _REACHES if spec.get(name)]
    words = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
    if not reaches:
        yield _required("spec", words)
    elif len(reaches) > 1:
        yield _invalid("spec", "{" + ", ".join(reaches) + "}", words)
    if len((spec.get("nodeSelector") or {}).get("nodeSelectorTerms") or (1,)) != 1:
        yield _invalid("spec.nodeSelector.nodeSelectorTerms", "", "must have exactly one node selector term")
    devices = spec.get("devices") or []
    if devices and spec.get("sharedCounters"):
        yield _invalid("spec", "{devices, sharedCounters}", "exactly one of `sharedCounters`, `devices` is required")
    if len(devices) > DEVICES_LIMIT:
        yield Cause(
            "FieldValueTooMany", f"Too many: {len(devices)}: must have at most {DEVICES_LIMIT} items", "spec.devices"
        )
    yield from _named(devices, "spec.devices")
    if old is not None:
        before = old.get("spec", {})
        for name, now, then in (
            ("spec.driver", spec.get("driver"), before.get("driver")),
            ("spec.nodeName", spec.get("nodeName"), before.get("nodeName")),
            ("spec.pool.name", pool.get("name"), (before.get("pool") or {}).get("name")),
        ):
            if now != then:
                yield _invalid(name, now or "", "field is immutable")
