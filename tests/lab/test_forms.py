"""Forms that come in and go out: quantities, protobuf."""

from __future__ import annotations

import pytest

from resources.lab.api.errors import ApiError
from resources.lab.api.protobuf import decode
from resources.lab.api.quantity import canonical


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("1", "1"),
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1.5", "1500m"),
        ("1500m", "1500m"),
        ("1024Mi", "1Gi"),
        ("1536Mi", "1536Mi"),
        ("1.5Gi", "1536Mi"),
        ("1000", "1k"),
        ("1024", "1024"),
        ("2000k", "2M"),
        ("0", "0"),
        ("1e3", "1e3"),
        ("-1", "-1"),
        ("0.0000000001", "1n"),
        ("1K", None),
        ("1 Gi", None),
        ("one", None),
        ("", None),
    ],
)
def test_quantities(written: str, stored: str | None):
    assert canonical(written) == stored


def _field(number: int, payload: bytes) -> bytes:
    return bytes([number << 3 | 2, len(payload)]) + payload


def _envelope(kind: bytes, message: bytes) -> bytes:
    return b"k8s\x00" + _field(1, _field(1, b"v1") + _field(2, kind)) + _field(2, message)


def test_a_secret():
    meta = _field(1, b"s") + _field(3, b"team") + _field(11, _field(1, b"l") + _field(2, b"x"))
    data = _field(1, b"key") + _field(2, b"\xff\x00")
    body = _envelope(b"Secret", _field(1, meta) + _field(2, data) + _field(3, b"Opaque"))
    assert decode(body) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "team", "labels": {"l": "x"}},
        "data": {"key": "/wA="},
        "type": "Opaque",
    }


def test_delete_options():
    message = b"\x08\x00" + _field(2, _field(1, b"uid-1")) + _field(4, b"Foreground") + _field(5, b"All")
    assert decode(_envelope(b"DeleteOptions", message)) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "uid-1"},
        "propagationPolicy": "Foreground",
        "dryRun": ["All"],
    }


@pytest.mark.parametrize(
    ("body", "status"),
    [(_envelope(b"Mystery", b""), 415), (b"k8s\x00\x12\xff", 400), (_envelope(b"Secret", b"\x0a\x7f"), 400)],
)
def test_bodies_that_are_not_understood(body: bytes, status: int):
    with pytest.raises(ApiError) as refused:
        decode(body)
    assert refused.value.status == status
