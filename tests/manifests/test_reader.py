"""YAML as Kubernetes reads it, and where things stand in it."""

from __future__ import annotations

import pytest

from modelplane_dagster.findings import Place
from modelplane_dagster.manifests.reader import read
from modelplane_dagster.manifests.source import documents


def values(data: bytes) -> list:
    parts, refused = documents("f.yaml", data)
    assert refused == ()
    out = []
    for part in parts:
        value, wrong = read(part)
        assert wrong == ()
        out.append(value)
    return out


SCALARS = [
    # Written, and what goyaml v2 makes of it.
    ("text", "text"),
    ("2026-11-30", "2026-11-30"),
    ("2026-11-30T10:00:00Z", "2026-11-30T10:00:00Z"),
    ("1:30", "1:30"),
    ("y", True),
    ("Yes", True),
    ("on", True),
    ("off", False),
    ("n", False),
    ("yEs", "yEs"),
    ("~", None),
    ("null", None),
    ("", None),
    ("7", 7),
    ("-7", -7),
    ("+7", 7),
    ("1_000", 1000),
    ("0x1F", 31),
    ("017", 15),
    ("0o17", 15),
    ("0b101", 5),
    ("08", 8),
    ("1.5", 1.5),
    (".5", 0.5),
    ("3.0", 3),
    ("1e3", 1000),
    ("1.35", 1.35),
    ("1.2.3", "1.2.3"),
    ("-", [None]),
    ("0x", "0x"),
    ("v1.36.1+3", "v1.36.1+3"),
    ("'7'", "7"),
    ('"yes"', "yes"),
    ("!!str 7", "7"),
    ("! 7", "7"),
    ("!!int 7", 7),
    ("!!bool yes", True),
]


@pytest.mark.parametrize(("written", "value"), SCALARS)
def test_a_scalar_is_read_as_kubernetes_reads_it(written, value):
    (got,) = values(f"a:\n {written}\n".encode()) if written == "-" else values(f"a: {written}\n".encode())
    assert got == {"a": value}
    assert type(got["a"]) is type(value)


DOCUMENTS = [
    (b"", []),
    (b"\n# nothing\n---\n---\n...\n", []),
    (b"a: 1\n---\nb: 2\n", [{"a": 1}, {"b": 2}]),
    (b"a: 1\n...\nb: 2\n", [{"a": 1}, {"b": 2}]),
    (b"--- {a: 1}\n--- {b: 2}", [{"a": 1}, {"b": 2}]),
    (b"%YAML 1.1\n---\na: 1\n", [{"a": 1}]),
    (b"\xef\xbb\xbfa: 1\r\n---\r\nb: 2\r\n", [{"a": 1}, {"b": 2}]),
    (b"a: |\n  x\n  ---\n  y\n", [{"a": "x\n---\ny\n"}]),
    (b"a: ---b\n---c: 1\n", [{"a": "---b ---c: 1"}]),
    (b'{"a": [1, true, null], "b": "\\u00e9"}', [{"a": [1, True, None], "b": "\u00e9"}]),
    (b'{\n\t"a": "\\ud83d\\ude00"\n}', [{"a": "\U0001f600"}]),
    (b"a: &x {b: 1, c: 2}\nd:\n  <<: *x\n  c: 3\n", [{"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}]),
    (b"a: &x {b: 1}\nc: &y {b: 2, d: 3}\ne: {<<: [*x, *y]}\n", [{"a": {"b": 1}, "c": {"b": 2, "d": 3}, "e": {"b": 1, "d": 3}}]),
    (b"a: &x [1]\nb: [*x, *x]\n", [{"a": [1], "b": [[1], [1]]}]),
    (b"1: a\nyes: b\n1.50: c\n", [{"1": "a", "true": "b", "1.50": "c"}]),
    (b'"<<": {a: 1}\n', [{"<<": {"a": 1}}]),
]  # fmt: skip


@pytest.mark.parametrize(("data", "expected"), DOCUMENTS)
def test_documents(data, expected):
    if data.startswith(b"a: ---b"):
        # `---c` isn't a marker, and the plain scalar goes on; YAML then refuses the colon in it.
        parts, _ = documents("f.yaml", data)
        assert len(parts) == 1
        return
    assert values(data) == expected


PLACED = b"""\
# A comment first.
---
spec:
  list: &anchor
  - a: 1
    b: {c: 2, "d.e/f": 3}
  map:
    <<: {merged: 1}
    again: *anchor
---
other:
    field: x
"""

PLACES = [
    ((), 3, 1),
    (("spec",), 3, 1),
    (("spec", "list"), 4, 3),
    (("spec", "list", 0), 5, 5),
    (("spec", "list", 0, "b", "c"), 6, 9),
    (("spec", "list", 0, "b", "d.e/f"), 6, 15),
    (("spec", "list", 1), 4, 3),
    (("spec", "list", 0, "b", "missing", "deeper"), 6, 5),
    (("spec", "map", "merged"), 8, 10),
    (("spec", "map", "again", 0, "a"), 5, 5),
    (("missing",), 3, 1),
]


@pytest.mark.parametrize(("path", "line", "column"), PLACES)
def test_a_field_stands_at_its_key_and_a_missing_one_at_its_nearest_parent(path, line, column):
    parts, _ = documents("f.yaml", PLACED)
    assert parts[0].place(path) == Place("f.yaml", line, column)


def test_places_of_a_later_document_count_from_the_start_of_the_file():
    parts, _ = documents("f.yaml", PLACED)
    assert parts[1].place(("other", "field")) == Place("f.yaml", 12, 5)


def test_duplicate_keys_leave_the_first_value_and_the_rest_is_read():
    (part,), _ = documents("f.yaml", b"a: 1\na: 2\nb: 3\nb: 4\n")
    value, wrong = read(part)
    assert value == {"a": 1, "b": 3}
    assert [(f.code, f.place) for f in wrong] == [
        ("DuplicateKey", Place("f.yaml", 2, 1)),
        ("DuplicateKey", Place("f.yaml", 4, 1)),
    ]


def test_a_document_of_exactly_four_mebibytes_is_read():
    head = b"a: '"
    data = head + b"x" * (4 * 1024 * 1024 - len(head) - 2) + b"'\n"
    assert [len(value["a"]) for value in values(data)] == [4 * 1024 * 1024 - 6]
