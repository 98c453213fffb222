"""The objects of one cluster in memory, their history for watches, and the journal on disk."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson

Obj = dict[str, Any]
Key = tuple[str, str]  # group, plural
Name = tuple[str, str]  # namespace ("" for cluster-scoped), name
EventType = Literal["ADDED", "MODIFIED", "DELETED"]

HISTORY = 2_000  # changes a watch can go back; each keeps one object in memory
COMPACT_FROM = 4 << 20


class Entry:
    """One stored object and, once somebody asked, its JSON."""

    __slots__ = ("_raw", "obj")

    def __init__(self, obj: Obj) -> None:
        self.obj = obj
        self._raw: bytes | None = None

    @property
    def raw(self) -> bytes:
        if self._raw is None:
            self._raw = orjson.dumps(self.obj)
        return self._raw


@dataclass(frozen=True, slots=True)
class Event:
    """One committed change. `before` is None for ADDED; objects are shared, don't change them."""

    version: int
    type: EventType
    key: Key
    name: Name
    entry: Entry
    before: Entry | None = None

    @property
    def obj(self) -> Obj:
        return self.entry.obj


Listener = Callable[[Event], None]


class Journal:
    """An append-only file of JSON lines, one a change, written through to the kernel with each one.

    A killed process loses nothing that was answered; a machine that loses power may lose the last moments (no fsync).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self.size = 0
        self.compacted = 0

    def read(self) -> Iterator[Obj]:
        """Every whole line; a torn last one is cut off."""
        if not self._path.exists():
            return
        good = 0
        with self._path.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                yield orjson.loads(line)
                good += len(line)
        if good != self._path.stat().st_size:
            os.truncate(self._path, good)
        self.size = good

    def append(self, line: bytes) -> None:
        if self._fd < 0:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(self._fd, line)
        self.size += len(line)

    def replace(self, lines: Iterator[bytes]) -> None:
        """Swaps the file for the given lines in one step."""
        fresh = self._path.with_suffix(".new")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as out:
            out.writelines(lines)
        self.close()
        fresh.replace(self._path)
        self.size = self.compacted = self._path.stat().st_size

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Storage:
    """Objects by resource and name. One writer: the event loop's thread."""

    def __init__(self, journal: Path | None = None) -> None:
        self._kinds: dict[Key, dict[Name, Entry]] = {}
        self._sorted: dict[Key, list[Name]] = {}
        self._listeners: list[Listener] = []
        self.version = 1
        self.history: deque[Event] = deque(maxlen=HISTORY)
        self._journal = Journal(journal) if journal is not None else None
        if self._journal is not None:
            self._load(self._journal)
        # Watches can't go back beyond what this process has seen.
        self.oldest = self.version

    def _load(self, journal: Journal) -> None:
        for line in journal.read():
            self.version = max(self.version, line["rv"])
            if "at" not in line:
                continue
            group, plural, namespace, name = line["at"]
            kind = self._kinds.setdefault((group, plural), {})
            if "obj" in line:
                kind[namespace, name] = Entry(line["obj"])
            else:
                kind.pop((namespace, name), None)
        self._compact(journal)

    def _compact(self, journal: Journal) -> None:
        journal.replace(self._lines())

    def _lines(self) -> Iterator[bytes]:
        """The present state. The version comes first: an empty store has one too, and it mustn't start over."""
        yield b'{"rv":%d}\n' % self.version
        for key, kind in self._kinds.items():
            for name, entry in kind.items():
                yield _line(self.version, key, name, entry)

    def get(self, key: Key, name: Name) -> Entry | None:
        return self._kinds.get(key, {}).get(name)

    def names(self, key: Key) -> list[Name]:
        """Sorted by namespace and name, as etcd lists."""
        found = self._sorted.get(key)
        if found is None:
            found = self._sorted[key] = sorted(self._kinds.get(key, {}))
        return found

    def entries(self, key: Key, namespace: str = "") -> Iterator[tuple[Name, Entry]]:
        kind = self._kinds.get(key, {})
        for name in self.names(key):
            if not namespace or name[0] == namespace:
                yield name, kind[name]

    def count(self, key: Key) -> int:
        return len(self._kinds.get(key, {}))

    def first(self, key: Key) -> Name:
        """The name that was stored first; KeyError where there is none."""
        for name in self._kinds.get(key, {}):
            return name
        raise KeyError(key)

    def resources(self) -> list[Key]:
        return list(self._kinds)

    def put(self, key: Key, name: Name, obj: Obj) -> Entry:
        """Stores the object under the next resource version and tells listeners."""
        kind = self._kinds.setdefault(key, {})
        before = kind.get(name)
        self.version += 1
        entry = Entry({**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}})
        kind[name] = entry
        if before is None:
            self._sorted.pop(key, None)
        self._commit(Event(self.version, "MODIFIED" if before else "ADDED", key, name, entry, before))
        return entry

    def remove(self, key: Key, name: Name) -> Entry | None:
        kind = self._kinds.get(key, {})
        before = kind.pop(name, None)
        if before is None:
            return None
        self._sorted.pop(key, None)
        self.version += 1
        last = {**before.obj, "metadata": {**before.obj["metadata"], "resourceVersion": str(self.version)}}
        self._commit(Event(self.version, "DELETED", key, name, Entry(last), before))
        return before

    def _commit(self, event: Event) -> None:
        journal = self._journal
        if journal is not None:
            gone = event.type == "DELETED"
            journal.append(_line(event.version, event.key, event.name, None if gone else event.entry))
            if journal.size > max(COMPACT_FROM, 4 * journal.compacted):
                self._compact(journal)
        if len(self.history) == HISTORY:
            self.oldest = self.history[0].version
        self.history.append(event)
        for listener in tuple(self._listeners):
            listener(event)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Calls `listener` with each change from now on, in order, on this thread; the result ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()


def _line(version: int, key: Key, name: Name, entry: Entry | None) -> bytes:
    head = b'{"rv":%d,"at":%b' % (version, orjson.dumps([*key, *name]))
    return head + (b"}\n" if entry is None else b',"obj":' + entry.raw + b"}\n")
