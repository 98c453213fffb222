"""A document's value: mappings, lists and scalars as Kubernetes reads them, and everything wrong with the YAML.

The C parser's events are built into values in one loop without recursion, so no input can exhaust the stack.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from sys import intern
from typing import Any

from yaml import YAMLError
from yaml._yaml import CParser
from yaml.error import MarkedYAMLError
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)
from yaml.reader import ReaderError

from modelplane_dagster.findings import Finding, finding
from modelplane_dagster.manifests import scalars
from modelplane_dagster.manifests.source import Document
from modelplane_dagster.manifests.words import shown

Value = Any
"""A YAML value: mappings with text keys, lists, texts, numbers, true and false, None."""

_Event = Any
"""An event of the C parser. Its stubs allow events without marks, which it never makes."""

MAX_DEPTH = 100
MAX_NODES = 400_000
"""Keys and values of a document, with what its aliases stand for. Values take up to a hundred times their text."""

MAX_ALIASED = 10_000
"""How many nodes all aliases of a document may stand for; 64 characters of a text count as one."""

_TAG = "tag:yaml.org,2002:"
# Keys and short values repeat all over a fleet, and are held once.
_SHORT = 32
_NO_KEY = object()
_MERGE = object()


class _StopError(Exception):
    """Nothing after this place can be read."""

    def __init__(self, code: str, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.code, self.message, self.line, self.column = code, message, line, column


@dataclass(slots=True)
class _Frame:
    """A collection being read. `key` is the key waiting for its value; `merged` what `<<` brings."""

    value: Value
    is_map: bool
    anchor: str | None
    weight_before: int
    key: Value = _NO_KEY
    merged: list[dict[str, Value]] = field(default_factory=list)


def read(document: Document) -> tuple[Value, tuple[Finding, ...]]:
    """The document's value and what is wrong with it as YAML; the value is None where it can't be read at all.

    With findings such as duplicate keys there is a value too: the first of the two stands in it.
    """
    build = _Build(document)
    try:
        return build.run(), tuple(build.problems)
    except _StopError as stop:
        if stop.code == "InvalidYaml" and document.text.lstrip("- \n\t").startswith("{"):
            known, value = _as_json(document.text)
            if known:
                return value, ()
        build.report(stop.code, stop.message, stop.line, stop.column)
        return None, tuple(build.problems)


def _as_json(text: str) -> tuple[bool, Value]:
    """JSON that YAML 1.1 can't read, such as surrogate pairs. False where it isn't clean JSON either."""

    def once(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("duplicate key")
        return dict(pairs)

    def refuse(name: str) -> Value:
        raise ValueError(name)

    try:
        value = json.loads(text.removeprefix("---"), object_pairs_hook=once, parse_constant=refuse)
        # A lone surrogate is legal in JSON and can't be written anywhere.
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return False, None
    return True, value


class _Build:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Finding] = []
        self._anchors: dict[str, tuple[Value, int]] = {}
        self._weight = 0
        self._aliased = 0

    def report(self, code: str, message: str, line: int, column: int) -> None:
        place = self.document.at(line, column)
        self.problems.append(finding(code, self.document.subject, message, place=place))

    def run(self) -> Value:
        parser = CParser(self.document.text)
        try:
            return self._document(parser)
        except ReaderError as error:
            before = self.document.text.encode()[: error.position].decode(errors="ignore")
            line = before.count("\n")
            raise _StopError(
                "InvalidYaml", f"character #x{error.character:04x} isn't allowed in YAML", line,
                len(before) - (before.rfind("\n") + 1),
            ) from error  # fmt: skip
        except MarkedYAMLError as error:
            # A key without its colon is only noticed on the next line; what has to be corrected is the key.
            key_first = error.context == "while scanning a simple key"
            mark = (error.context_mark if key_first else error.problem_mark) or error.context_mark
            message = " ".join(part for part in (error.context, error.problem) if part)
            line, column = (mark.line, mark.column) if mark else (0, 0)
            code = "NestedTooDeep" if "nesting depth" in message else "InvalidYaml"
            raise _StopError(code, message or "the document isn't YAML", line, column) from error
        except YAMLError as error:
            raise _StopError("InvalidYaml", "the document isn't YAML", 0, 0) from error
        finally:
            parser.dispose()

    def _document(self, parser: CParser) -> Value:
        next_event = parser.get_event
        next_event()
        if next_event().__class__ is StreamEndEvent:
            return None
        value = self._value(next_event)
        end: _Event = next_event()
        if end.__class__ is DocumentEndEvent:
            end = next_event()
        if end.__class__ is not StreamEndEvent:
            mark = end.start_mark
            raise _StopError("InvalidYaml", "expected one document between markers", mark.line, mark.column)
        return value

    def _value(self, next_event: Callable[[], _Event]) -> Value:
        stack: list[_Frame] = []
        while True:
            event = next_event()
            kind = event.__class__
            if kind is ScalarEvent:
                value = self._scalar(event, stack)
            elif kind is MappingStartEvent or kind is SequenceStartEvent:
                self._open(event, stack)
                continue
            elif kind is MappingEndEvent or kind is SequenceEndEvent:
                value = self._close(stack)
            else:
                value = self._alias(event)
            if not stack:
                return value
            frame = stack[-1]
            if frame.is_map:
                self._add_to_mapping(event, frame, value)
            else:
                frame.value.append(value)

    def _scalar(self, event: _Event, stack: list[_Frame]) -> Value:
        self._weight += 1
        if self._weight > MAX_NODES:
            mark = event.start_mark
            message = f"a document has at most {MAX_NODES} keys and values"
            raise _StopError("ManifestTooLarge", message, mark.line, mark.column)
        text = event.value if len(event.value) > _SHORT else intern(event.value)
        if event.implicit[0] and event.tag is None:
            value = self._plain(event, stack) if not text or text[0] in scalars.HINTS else text
        else:
            value = text if event.tag is None or event.tag == "!" else self._tagged(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, 1 + (len(text) >> 6))
        return value

    def _add_to_mapping(self, event: _Event, frame: _Frame, value: Value) -> None:
        if frame.key is _NO_KEY:
            frame.key = value if value.__class__ is str else self._key(event, value)
            if frame.key in frame.value:
                mark = event.start_mark
                self.report("DuplicateKey", f"the key {shown(frame.key)} is given twice", mark.line, mark.column)
            return
        if frame.key is _MERGE:
            self._merge(event, frame, value)
        elif frame.key not in frame.value:
            frame.value[frame.key] = value
        frame.key = _NO_KEY

    def _open(self, event: _Event, stack: list[_Frame]) -> None:
        mark = event.start_mark
        if len(stack) >= MAX_DEPTH:
            raise _StopError("NestedTooDeep", f"expected at most {MAX_DEPTH} levels of nesting", mark.line, mark.column)
        if stack and stack[-1].is_map and stack[-1].key is _NO_KEY:
            raise _StopError("InvalidYaml", "a key is a text, and not a mapping or list", mark.line, mark.column)
        is_map = event.__class__ is MappingStartEvent
        if event.tag is not None and event.tag != _TAG + ("map" if is_map else "seq"):
            self.report("InvalidYaml", f"the tag {shown(event.tag)} isn't known", mark.line, mark.column)
        stack.append(_Frame({} if is_map else [], is_map, event.anchor, self._weight))
        self._weight += 1

    def _close(self, stack: list[_Frame]) -> Value:
        frame = stack.pop()
        for source in frame.merged:
            for name, value in source.items():
                frame.value.setdefault(name, value)
        if frame.anchor is not None:
            self._anchors[frame.anchor] = (frame.value, self._weight - frame.weight_before)
        return frame.value

    def _alias(self, event: _Event) -> Value:
        mark = event.start_mark
        if not isinstance(event, AliasEvent) or event.anchor not in self._anchors:
            raise _StopError("InvalidYaml", "an alias names no anchor that is complete here", mark.line, mark.column)
        value, weight = self._anchors[event.anchor]
        self._weight += weight
        self._aliased += weight
        if self._aliased > MAX_ALIASED:
            message = f"the aliases stand for more than {MAX_ALIASED} nodes"
            raise _StopError("TooManyAliases", message, mark.line, mark.column)
        return value

    def _plain(self, event: _Event, stack: list[_Frame]) -> Value:
        text = event.value
        if text == "<<" and stack and stack[-1].is_map and stack[-1].key is _NO_KEY:
            return _MERGE
        return self._finite(event, scalars.plain(text))

    def _finite(self, event: _Event, value: scalars.Scalar) -> scalars.Scalar:
        if isinstance(value, float) and not math.isfinite(value):
            mark = event.start_mark
            message = f"expected a finite number, and got {shown(event.value)}"
            self.report("InvalidValue", message, mark.line, mark.column)
            return 0
        return value

    def _tagged(self, event: _Event) -> scalars.Scalar:
        """A scalar with a tag of its own: `!!str` is a text; of the others, what it says must be what it is."""
        kind = event.tag.removeprefix(_TAG)
        if kind == "str":
            return event.value
        value = scalars.plain(event.value)
        types: dict[str, type | tuple[type, ...]] = {
            "int": int,
            "float": (int, float),
            "bool": bool,
            "null": type(None),
            "timestamp": str,
        }
        expected = types.get(kind)
        mark = event.start_mark
        if expected is None:
            self.report("InvalidYaml", f"the tag {shown(event.tag)} isn't known", mark.line, mark.column)
            return event.value
        if not isinstance(value, expected) or (isinstance(value, bool) and kind != "bool"):
            self.report("InvalidYaml", f"{shown(event.value)} isn't of its tag's type {kind}", mark.line, mark.column)
            return event.value
        return self._finite(event, value)

    def _key(self, event: _Event, value: Value) -> Value:
        if value is _MERGE:
            return value
        if isinstance(event, AliasEvent | ScalarEvent) and not isinstance(value, dict | list):
            name = scalars.key(value, str(getattr(event, "value", value)))
            if name is not None:
                return name
        mark = event.start_mark
        raise _StopError("InvalidYaml", "a key is a text, and not null, a mapping or a list", mark.line, mark.column)

    def _merge(self, event: _Event, frame: _Frame, value: Value) -> None:
        sources = value if isinstance(value, list) else [value]
        if all(isinstance(source, dict) for source in sources):
            frame.merged.extend(sources)
        else:
            mark = event.start_mark
            self.report("InvalidYaml", "'<<' takes a mapping or a list of mappings", mark.line, mark.column)
