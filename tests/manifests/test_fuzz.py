"""No input raises: manifests with bytes and parts changed at random always give a fleet."""

from __future__ import annotations

import json

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modelplane_dagster.findings import Severity
from modelplane_dagster.manifests.fleet import build_fleet
from tests.manifests.texts import CLASS, CLUSTER, DEPLOYMENT, EXISTING

TEXTS = [CLASS, CLUSTER, EXISTING, DEPLOYMENT, f"{CLASS}---\n{CLUSTER}---\n{DEPLOYMENT}"]
QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])

SPLICES = st.one_of(
    st.binary(max_size=6),
    st.sampled_from([b"&a ", b"*a", b"<<: *a", b"---\n", b"...\n", b"{", b"[", b"]", b"'", b"\t", b"!!x ", b"? ", b"|\n", b"%", b"\xc3"]),
)  # fmt: skip
JUNK = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda part: st.one_of(st.lists(part, max_size=3), st.dictionaries(st.text(max_size=8), part, max_size=3)),
    max_leaves=6,
)


@QUICK
@given(st.sampled_from(TEXTS), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 8), SPLICES), min_size=1, max_size=6))
def test_changed_bytes_never_raise(text, cuts):
    data = text.encode()
    for where, length, splice in cuts:
        at = int(where * len(data))
        data = data[:at] + splice + data[at + length :]
    check(data)


def paths(value, here=()):
    yield here
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from paths(part, (*here, key))


@QUICK
@given(st.sampled_from(TEXTS[:4]), st.data())
def test_changed_parts_never_raise(text, data):
    value = {"": yaml.safe_load(text)}
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([p for p in paths(value) if p]))
        parent = value
        for part in path[:-1]:
            parent = parent[part]
        move = data.draw(st.sampled_from(["replace", "drop", "rename"]))
        if move == "replace":
            parent[path[-1]] = data.draw(JUNK)
        elif len(path) > 1:
            old = parent.pop(path[-1])
            if move == "rename" and isinstance(parent, dict):
                parent[data.draw(st.text(max_size=8))] = old
    check(json.dumps(value[""]).encode())


def check(data: bytes) -> None:
    fleet = build_fleet([("f.yaml", data)])
    for found in fleet.findings:
        assert found.place is not None
        assert found.place.line >= 1
        assert found.place.column >= 1
        assert found.place.line <= data.count(b"\n") + data.count(b"\r") + 2
        assert found.fix
    for reasons in fleet.broken.values():
        assert any(f.severity is Severity.ERROR for f in reasons)
        assert set(reasons) <= set(fleet.findings)
    assert fleet.digest == build_fleet([("g.yaml", data)]).digest
