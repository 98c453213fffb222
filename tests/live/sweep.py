"""Looks for secrets in everything that a run left: each file's bytes, what is packed in SQLite, and what was printed."""

from __future__ import annotations

import base64
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

PART = 16
"""Letters of a secret that count as having told it."""


def needles(secret: str) -> set[bytes]:
    """The secret's lines, their halves, and what base64 makes of each at any of its three alignments."""
    found: set[bytes] = set()
    for line in (part.strip() for part in secret.splitlines()):
        if len(line) < PART or line.startswith("-----"):
            continue
        middle = len(line) // 2
        for part in (line, line[:PART], line[-PART:], line[middle - PART // 2 : middle + PART // 2]):
            raw = part.encode()
            found.add(raw)
            for shift in range(3):
                # Only the letters that the part alone decides.
                packed = base64.b64encode(b"\0" * shift + raw)[4 if shift else 0 :].rstrip(b"=")
                found |= {packed[:-2], base64.urlsafe_b64encode(base64.b64decode(packed[: len(packed) // 4 * 4]))[:-2]}
    return found


def contents(roots: Iterable[Path]) -> Iterator[tuple[str, bytes]]:
    """Every file under the roots, and every value of the SQLite files among them, unpacked."""
    for root in roots:
        for path in sorted(p for p in root.rglob("*") if p.is_file()):
            data = path.read_bytes()
            yield str(path), data
            if data.startswith(b"SQLite format 3"):
                yield from _values(path)


def _values(path: Path) -> Iterator[tuple[str, bytes]]:
    connection = sqlite3.connect(path)
    try:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                for value in row:
                    raw = value if isinstance(value, bytes) else str(value).encode()
                    yield f"{path}:{table}", raw
                    if isinstance(value, bytes):
                        yield f"{path}:{table} unpacked", _unpacked(value)
    finally:
        connection.close()


def _unpacked(value: bytes) -> bytes:
    try:
        return zlib.decompress(value)
    except zlib.error:
        return b""


def told(secrets: Mapping[str, str], places: Iterable[tuple[str, bytes]]) -> set[tuple[str, str]]:
    """(which secret, where) for each that is there; empty when none is."""
    looked_for = {name: needles(secret) for name, secret in secrets.items()}
    return {
        (name, where)
        for where, data in places
        for name, parts in looked_for.items()
        if any(part in data for part in parts)
    }
