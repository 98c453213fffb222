"""Reads the protobuf bodies that client-go's typed clients send. They don't fall back to JSON when refused.

Only the messages that kubectl and helm send; field numbers are those of the published `generated.proto` files.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from resources.lab.api.errors import ApiError
from resources.lab.api.schema import Json

MAGIC = b"k8s\x00"
CONTENT_TYPE = "application/vnd.kubernetes.protobuf"

# number -> (JSON name, how to read it); a leading "*" repeats. Maps are repeated entries {1: key, 2: value}.
Fields = Mapping[int, tuple[str, str]]
_REFERENCE: Fields = {
    1: ("kind", "str"),
    2: ("namespace", "str"),
    3: ("name", "str"),
    4: ("uid", "str"),
    5: ("apiVersion", "str"),
    6: ("resourceVersion", "str"),
    7: ("fieldPath", "str"),
}
_MESSAGES: Mapping[str, Fields] = {
    "ObjectMeta": {
        1: ("name", "str"),
        2: ("generateName", "str"),
        3: ("namespace", "str"),
        5: ("uid", "str"),
        6: ("resourceVersion", "str"),
        7: ("generation", "int"),
        8: ("creationTimestamp", "Time"),
        9: ("deletionTimestamp", "Time"),
        10: ("deletionGracePeriodSeconds", "int"),
        11: ("labels", "map"),
        12: ("annotations", "map"),
        13: ("ownerReferences", "*OwnerReference"),
        14: ("finalizers", "*str"),
        17: ("managedFields", "*ManagedFieldsEntry"),
    },
    "OwnerReference": {
        1: ("kind", "str"),
        3: ("name", "str"),
        4: ("uid", "str"),
        5: ("apiVersion", "str"),
        6: ("controller", "bool"),
        7: ("blockOwnerDeletion", "bool"),
    },
    "ManagedFieldsEntry": {
        1: ("manager", "str"),
        2: ("operation", "str"),
        3: ("apiVersion", "str"),
        4: ("time", "Time"),
        6: ("fieldsType", "str"),
        7: ("fieldsV1", "FieldsV1"),
        8: ("subresource", "str"),
    },
    "Secret": {1: ("metadata", "ObjectMeta"), 2: ("data", "bytesmap"), 3: ("type", "str"), 4: ("stringData", "map")}
    | {5: ("immutable", "bool")},
    "ConfigMap": {1: ("metadata", "ObjectMeta"), 2: ("data", "map"), 3: ("binaryData", "bytesmap")}
    | {4: ("immutable", "bool")},
    "NamespaceSpec": {1: ("finalizers", "*str")},
    "NamespaceStatus": {1: ("phase", "str")},
    "Namespace": {1: ("metadata", "ObjectMeta"), 2: ("spec", "NamespaceSpec"), 3: ("status", "NamespaceStatus")},
    "ObjectReference": _REFERENCE,
    "LocalObjectReference": {1: ("name", "str")},
    "ServiceAccount": {
        1: ("metadata", "ObjectMeta"),
        2: ("secrets", "*ObjectReference"),
        3: ("imagePullSecrets", "*LocalObjectReference"),
        4: ("automountServiceAccountToken", "bool"),
    },
    "Preconditions": {1: ("uid", "str"), 2: ("resourceVersion", "str")},
    "DeleteOptions": {
        1: ("gracePeriodSeconds", "int"),
        2: ("preconditions", "Preconditions"),
        3: ("orphanDependents", "bool"),
        4: ("propagationPolicy", "str"),
        5: ("dryRun", "*str"),
    },
    "Binding": {1: ("metadata", "ObjectMeta"), 2: ("target", "ObjectReference")},
    "Eviction": {1: ("metadata", "ObjectMeta"), 2: ("deleteOptions", "DeleteOptions")},
    "EventSource": {1: ("component", "str"), 2: ("host", "str")},
    "EventSeries": {1: ("count", "int"), 2: ("lastObservedTime", "MicroTime")},
    "Event": {
        1: ("metadata", "ObjectMeta"),
        2: ("involvedObject", "ObjectReference"),
        3: ("reason", "str"),
        4: ("message", "str"),
        5: ("source", "EventSource"),
        6: ("firstTimestamp", "Time"),
        7: ("lastTimestamp", "Time"),
        8: ("count", "int"),
        9: ("type", "str"),
        10: ("eventTime", "MicroTime"),
        11: ("series", "EventSeries"),
        12: ("action", "str"),
        13: ("related", "ObjectReference"),
        14: ("reportingComponent", "str"),
        15: ("reportingInstance", "str"),
    },
    "LeaseSpec": {
        1: ("holderIdentity", "str"),
        2: ("leaseDurationSeconds", "int"),
        3: ("acquireTime", "MicroTime"),
        4: ("renewTime", "MicroTime"),
        5: ("leaseTransitions", "int"),
    },
    "Lease": {1: ("metadata", "ObjectMeta"), 2: ("spec", "LeaseSpec")},
}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _wire(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            number_value, at = _varint(data, at)
            yield number, number_value
        elif wire == 2:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise IndexError("truncated")
            yield number, data[at : at + size]
            at += size
        elif wire in {1, 5}:
            at += 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")


def _entry(data: bytes) -> tuple[str, bytes]:
    parts = dict(_wire(data))
    key, value = parts.get(1, b""), parts.get(2, b"")
    return _bytes(key).decode(), _bytes(value)


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise TypeError("a number where text belongs")
    return value


def _time(data: bytes, *, micro: bool) -> str | None:
    parts = {number: value for number, value in _wire(data) if isinstance(value, int)}
    if not parts.get(1):
        return None
    stamp = datetime.fromtimestamp(parts[1], UTC)
    text = stamp.strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{parts.get(2, 0) // 1000:06d}Z" if micro else f"{text}Z"


def _value(kind: str, raw: int | bytes) -> Json:
    if kind == "int":
        number = int(raw) if isinstance(raw, int) else 0
        return number - (1 << 64) if number >= 1 << 63 else number
    if kind == "bool":
        return bool(raw)
    data = _bytes(raw)
    if kind == "str":
        return data.decode()
    if kind in {"Time", "MicroTime"}:
        return _time(data, micro=kind == "MicroTime")
    if kind == "FieldsV1":
        return None
    return _message(kind, data)


def _message(name: str, data: bytes) -> dict[str, Any]:
    fields = _MESSAGES[name]
    out: dict[str, Any] = {}
    for number, raw in _wire(data):
        if number not in fields:
            continue
        key, kind = fields[number]
        if kind in {"map", "bytesmap"}:
            entry, value = _entry(_bytes(raw))
            out.setdefault(key, {})[entry] = value.decode() if kind == "map" else base64.b64encode(value).decode()
        elif kind.startswith("*"):
            out.setdefault(key, []).append(_value(kind[1:], raw))
        else:
            value = _value(kind, raw)
            # Go sends empty strings for fields that aren't set; absent and empty mean the same there.
            if value not in (None, "", {}) or kind == "bool":
                out[key] = value
    # The owners of fields travel as bytes of JSON that no client may edit: the server keeps its own.
    out.pop("managedFields", None)
    return out


def decode(body: bytes) -> dict[str, Any]:
    """The object in a `runtime.Unknown` envelope; 415 for a kind whose fields aren't known here, 400 for broken bytes."""
    try:
        outer = dict(_wire(body[len(MAGIC) :]))
        kind_meta = dict(_wire(_bytes(outer.get(1, b""))))
        api_version = _bytes(kind_meta.get(1, b"")).decode()
        kind = _bytes(kind_meta.get(2, b"")).decode()
        if kind not in _MESSAGES:
            raise ApiError(415, f"the body of the request was a protobuf {kind}, which this server reads as JSON only")
        return {"apiVersion": api_version, "kind": kind, **_message(kind, _bytes(outer.get(2, b"")))}
    except (IndexError, ValueError, TypeError, KeyError) as error:
        raise ApiError(400, f"the object provided is unrecognized: {error}") from error
