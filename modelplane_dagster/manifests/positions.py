"""Where the fields of a document stand, found by reading its events again.

Only findings ask for places, so nothing is kept for documents that have none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from yaml import YAMLError
from yaml._yaml import CParser
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from modelplane_dagster.manifests import scalars

_Event = Any
"""An event of the C parser. Its stubs allow events without marks, which it never makes."""


class _Node(NamedTuple):
    """`line` and `column` count from 0; `parts` is None for a scalar."""

    line: int
    column: int
    parts: dict[str | int, _Node] | None = None


def find(text: str, path: tuple[str | int, ...]) -> tuple[int, int] | None:
    """Line and column, from 0, of the field or of its nearest existing parent; None where the text has no position."""
    node = _tree(text)
    if node is None:
        return None
    for part in path:
        below = node.parts.get(part) if node.parts else None
        if below is None:
            break
        node = below
    return node.line, node.column


_SMALL = 64 * 1024


def _tree(text: str) -> _Node | None:
    """Many small documents are remembered, and one large one: the nodes take up to forty times the text."""
    return _small(text) if len(text) <= _SMALL else _large(text)


@lru_cache(maxsize=256)
def _small(text: str) -> _Node | None:
    return _parse(text)


@lru_cache(maxsize=1)
def _large(text: str) -> _Node | None:
    return _parse(text)


def _parse(text: str) -> _Node | None:
    try:
        return _Reader(CParser(text).get_event).document()
    except YAMLError:
        return None


class _Reader:
    """Recursion is safe: what is nested deeper than the reader's limit has been refused before anyone asks."""

    def __init__(self, read: Callable[[], _Event]) -> None:
        self._read = read
        self._anchors: dict[str, _Node] = {}

    def document(self) -> _Node | None:
        while not isinstance(event := self._read(), DocumentStartEvent):
            if isinstance(event, StreamEndEvent):
                return None
        return self._node(self._read())

    def _node(self, event: _Event) -> _Node:
        mark, anchor = event.start_mark, getattr(event, "anchor", None)
        if isinstance(event, AliasEvent):
            known = self._anchors.get(anchor) if anchor else None
            return _Node(mark.line, mark.column, known.parts if known else None)
        parts: dict[str | int, _Node] | None = None
        if isinstance(event, MappingStartEvent):
            parts = self._mapping()
        elif isinstance(event, SequenceStartEvent):
            parts = self._sequence()
        node = _Node(mark.line, mark.column, parts)
        if anchor is not None:
            self._anchors[anchor] = node
        return node

    def _sequence(self) -> dict[str | int, _Node]:
        parts: dict[str | int, _Node] = {}
        while not isinstance(event := self._read(), SequenceEndEvent):
            parts[len(parts)] = self._node(event)
        return parts

    def _mapping(self) -> dict[str | int, _Node]:
        parts: dict[str | int, _Node] = {}
        merged: list[_Node] = []
        while not isinstance(event := self._read(), MappingEndEvent):
            key = self._node(event)
            value = self._node(self._read())
            if not isinstance(event, ScalarEvent):
                continue
            plain = event.implicit[0] and event.tag is None
            if plain and event.value == "<<":
                merged.append(value)
                continue
            name = scalars.key(scalars.plain(event.value) if plain else event.value, event.value)
            if name is not None:
                parts.setdefault(name, _Node(key.line, key.column, value.parts))
        for source in merged:
            for brought, node in self._sources(source):
                parts.setdefault(brought, node)
        return parts

    def _sources(self, source: _Node) -> list[tuple[str | int, _Node]]:
        """The fields that a merge brings: of one mapping, or of a list of them."""
        rows = list((source.parts or {}).items())
        if rows and all(isinstance(name, int) for name, _ in rows):
            return [row for _, node in rows for row in (node.parts or {}).items()]
        return rows
