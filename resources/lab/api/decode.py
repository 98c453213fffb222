"""Reading a request's object against its type: wrong types are refused, unknown fields dropped or refused."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from resources.lab.api.errors import ApiError, Cause, bad_request, invalid
from resources.lab.api.quantity import canonical
from resources.lab.api.schema import Json, Type
from resources.lab.api.table import Resource

_GO_NAMES = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}
_JSON_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


@dataclass(slots=True)
class _Reading:
    """What was found on the way."""

    resource: Resource
    unknown: list[str] = field(default_factory=list)
    wrong: list[Cause] = field(default_factory=list)


def decode(obj: dict[str, Any], resource: Resource, field_validation: str) -> dict[str, Any]:
    """The object as the typed API reads it; changed in place.

    Unknown fields go, with 400 under `fieldValidation=Strict`. A wrong type is 400 for built-in types, 422 for custom
    resources. Nulls of declared fields go, quantities become canonical, a CRD's defaults are filled in.
    """
    reading = _Reading(resource)
    _walk_map(obj, resource.type, "", reading)
    if reading.unknown and field_validation == "Strict":
        words = ", ".join(f'unknown field "{path}"' for path in reading.unknown)
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            f"strict decoding error: {words}"
        )
    if reading.wrong:
        _refuse(obj, resource, reading.wrong)
    return obj


def _refuse(obj: dict[str, Any], resource: Resource, wrong: list[Cause]) -> None:
    if resource.custom:
        raise invalid(resource.kind, resource.group, obj["metadata"].get("name", ""), tuple(wrong))
    raise bad_request(
        f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {wrong[0].message}'
    )


def _walk(value: Json, kind: Type, path: str, reading: _Reading) -> Json:
    if kind.shape == "map" and isinstance(value, dict):
        _walk_map(value, kind, path, reading)
        return value
    if kind.shape == "list" and isinstance(value, list):
        for at, item in enumerate(value):
            value[at] = _walk(item, kind.item, f"{path}[{at}]", reading)
        if reading.resource.custom:
            _bounds(value, kind, path, reading)
        return value
    if kind.shape == "any":
        return value
    return _leaf(value, kind, path, reading)


def _walk_map(value: dict[str, Any], kind: Type, path: str, reading: _Reading) -> None:
    custom, fields, is_open = reading.resource.custom, kind.fields, kind.is_open
    for key in list(value):
        child = fields.get(key)
        at = f"{path}.{key}" if path else key
        if child is None and not is_open:
            reading.unknown.append(at)
            del value[key]
            continue
        child = child or kind.extra
        item = value[key]
        if item is None:
            # A null is an absent field, apart from free-form content and what a CRD declares nullable.
            if child.shape != "any" and not child.raw.get("nullable"):
                del value[key]
            continue
        value[key] = _walk(item, child, at, reading)
    if custom:
        _custom_map(value, kind, path, reading)


def _custom_map(value: dict[str, Any], kind: Type, path: str, reading: _Reading) -> None:
    for key, child in kind.fields.items():
        if key not in value and "default" in child.raw:
            value[key] = _walk(_copy(child.raw["default"]), child, f"{path}.{key}" if path else key, reading)
    for key in kind.raw.get("required", ()):
        if key not in value and path + key not in {"apiVersion", "kind", "metadata"}:
            at = f"{path}.{key}" if path else key
            reading.wrong.append(Cause("FieldValueRequired", "Required value", at))


def _copy(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _leaf(value: Json, kind: Type, path: str, reading: _Reading) -> Json:
    if kind.scalar == "quantity":
        text = value if isinstance(value, str) else str(value)
        form = canonical(text)
        if form is None:
            pattern = r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
            reading.wrong.append(
                Cause("FieldValueInvalid", f"quantities must match the regular expression '{pattern}'", path)
            )
        return form or value
    if not _fits(value, kind):
        reading.wrong.append(_mismatch(value, kind, path, reading.resource))
    elif reading.resource.custom:
        _bounds(value, kind, path, reading)
    return value


def _fits(value: Json, kind: Type) -> bool:
    if kind.shape == "scalar":
        match kind.scalar:
            case "string":
                return isinstance(value, str)
            case "boolean":
                return isinstance(value, bool)
            case "integer":
                return isinstance(value, int | float) and not isinstance(value, bool) and value == int(value)
            case "number":
                return isinstance(value, int | float) and not isinstance(value, bool)
        return isinstance(value, str | int) and not isinstance(value, bool)
    return False


def _mismatch(value: Json, kind: Type, path: str, resource: Resource) -> Cause:
    wanted = kind.scalar or {"map": "object", "list": "array"}.get(kind.shape, "string")
    if resource.custom:
        have = _JSON_NAMES.get(type(value), "null")
        message = f'Invalid value: "{have}": {path} in body must be of type {wanted}: "{have}"'
        return Cause("FieldValueTypeInvalid", message, path)
    have = _GO_NAMES.get(type(value), "null")
    plain = re.sub(r"\[\d+\]", "", path)
    go = {"integer": "int32", "boolean": "bool", "object": "struct", "array": "slice"}.get(wanted, wanted)
    message = (
        f"json: cannot unmarshal {have} into Go struct field {resource.kind}.{plain} of type {go}: expected {wanted}"
    )
    return Cause("FieldValueTypeInvalid", message, path)


def _bounds(value: Json, kind: Type, path: str, reading: _Reading) -> None:
    raw = kind.raw
    if "enum" in raw and value not in raw["enum"]:
        listed = ", ".join(f'"{v}"' if isinstance(v, str) else str(v) for v in raw["enum"])
        message = f'Unsupported value: "{value}": supported values: {listed}'
        reading.wrong.append(Cause("FieldValueNotSupported", message, path))
    problems = []
    if isinstance(value, str):
        if "pattern" in raw and re.search(raw["pattern"], value) is None:
            problems.append(f"should match '{raw['pattern']}'")
        problems += _length(len(value), raw, "Length", "chars long")
    elif isinstance(value, list):
        problems += _length(len(value), raw, "Items", "items")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if "minimum" in raw and value < raw["minimum"]:
            problems.append(f"should be greater than or equal to {raw['minimum']}")
        if "maximum" in raw and value > raw["maximum"]:
            problems.append(f"should be less than or equal to {raw['maximum']}")
    shown = f'"{value}"' if isinstance(value, str) else str(value)
    reading.wrong.extend(
        Cause("FieldValueInvalid", f"Invalid value: {shown}: {path} in body {problem}", path) for problem in problems
    )


def _length(size: int, raw: Json, what: str, words: str) -> list[str]:
    out = []
    if f"min{what}" in raw and size < raw[f"min{what}"]:
        out.append(f"should be at least {raw[f'min{what}']} {words}")
    if f"max{what}" in raw and size > raw[f"max{what}"]:
        out.append(f"should have at most {raw[f'max{what}']} {words}")
    return out


def untyped_patch(config: dict[str, Any], resource: Resource) -> None:
    """Refuses an apply configuration with fields or types that the schema doesn't know, as the field manager does: 500.

    The real API answers InternalError here, not BadRequest, because the configuration never reaches the decoder.
    """
    problem = _first_problem(config, resource.type, "")
    if problem:
        meta = config["metadata"]
        where = f"{meta.get('namespace', '')}/{meta.get('name', '')}"
        what = f"{resource.api_version}, Kind={resource.kind}"
        raise ApiError(500, f"failed to create typed patch object ({where}; {what}): {problem}")


def _first_problem(value: Json, kind: Type, path: str) -> str:
    if value is None or kind.shape == "any" or kind.scalar == "quantity":
        return ""
    if kind.shape == "map" and isinstance(value, dict):
        for key, item in value.items():
            child = kind.fields.get(key)
            if child is None and not kind.is_open:
                return f"{path}.{key}: field not declared in schema"
            if found := _first_problem(item, child or kind.extra, f"{path}.{key}"):
                return found
        return ""
    if kind.shape == "list" and isinstance(value, list):
        return next((p for at, v in enumerate(value) if (p := _first_problem(v, kind.item, f"{path}[{at}]"))), "")
    if kind.shape == "scalar" and _fits(value, kind):
        return ""
    wanted = kind.scalar or {"map": "map", "list": "list"}.get(kind.shape, "string")
    return f"{path}: expected {wanted}, got &value.valueUnstructured{{Value:{value!r}}}"
