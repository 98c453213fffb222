"""Watches: the changes after a resource version as JSON lines, with bookmarks and the selectors' view of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import orjson

from resources.lab.api.errors import ApiError
from resources.lab.api.selectors import Match
from resources.lab.api.storage import Entry, Event
from resources.lab.api.store import Store
from resources.lab.api.table import Resource

BOOKMARK_EVERY = 55.0
INITIAL_END = {"k8s.io/initial-events-end": "true"}


@dataclass(frozen=True, slots=True)
class Watch:
    """`since` None means from the present state; `initial` asks for the state first and a bookmark after it."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    match: Match | None = None
    since: int | None = None
    initial: bool = False
    bookmarks: bool = False
    timeout: float = 1800.0


Form = Callable[[Entry], bytes]


def _line(kind: str, body: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), body)


class Feed:
    """One watch being served. Subscribes at once, so that nothing falls between the state and the changes."""

    def __init__(self, store: Store, watch: Watch, form: Form) -> None:
        self._store, self._watch, self._form = store, watch, form
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._stop = store.storage.subscribe(self._changed)
        self._first = self._start()

    def _changed(self, event: Event) -> None:
        if event.key == self._watch.resource.key:
            self._queue.put_nowait(event)

    def close(self) -> None:
        self._stop()
        self._queue.put_nowait(None)

    def _wanted(self, name: tuple[str, str]) -> bool:
        watch = self._watch
        return (not watch.namespace or name[0] == watch.namespace) and (not watch.name or name[1] == watch.name)

    def _matches(self, entry: Entry | None) -> bool:
        return entry is not None and (self._watch.match is None or self._watch.match(entry.obj))

    def _rendered(self, event: Event) -> bytes:
        """Empty where the watch doesn't see the change; one that leaves the selector is a deletion to it."""
        if not self._wanted(event.name):
            return b""
        before = self._matches(event.before)
        if event.type == "DELETED":
            return self._show("DELETED", event.entry) if before else b""
        after = self._matches(event.entry)
        if not before and not after:
            return b""
        kind = "MODIFIED" if before and after else "ADDED" if after else "DELETED"
        return self._show(kind, event.entry)

    def _show(self, kind: str, entry: Entry) -> bytes:
        return _line(kind, self._form(self._store.at_version(self._watch.resource, entry)))

    def _bookmark(self, annotations: dict[str, str] | None = None) -> bytes:
        resource = self._watch.resource
        metadata: dict[str, Any] = {"resourceVersion": str(self._store.storage.version), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        body = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        return _line("BOOKMARK", orjson.dumps(body))

    def _start(self) -> bytes:
        watch, storage = self._watch, self._store.storage
        if watch.since is not None and watch.since < storage.oldest and watch.since != storage.version:
            gone = ApiError(410, f"too old resource version: {watch.since} ({storage.oldest})")
            return _line("ERROR", orjson.dumps(gone.body()))
        if watch.since is not None and not watch.initial:
            missed = [
                self._rendered(event)
                for event in storage.history
                if event.version > watch.since and event.key == watch.resource.key
            ]
            return b"".join(missed)
        state = [
            self._show("ADDED", entry)
            for name, entry in storage.entries(watch.resource.key, watch.namespace)
            if self._wanted(name) and self._matches(entry)
        ]
        if watch.initial:
            state.append(self._bookmark(INITIAL_END))
        return b"".join(state)

    async def lines(self) -> AsyncIterator[bytes]:
        """Chunks of whole lines until the watch's time is up or `close` is called."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._watch.timeout
        try:
            if self._first:
                yield self._first
                if self._first.startswith(b'{"type":"ERROR"'):
                    return
            while (left := end - loop.time()) > 0:
                try:
                    event = await asyncio.wait_for(self._queue.get(), min(left, BOOKMARK_EVERY))
                except TimeoutError:
                    if self._watch.bookmarks:
                        yield self._bookmark()
                    continue
                if event is None:
                    return
                if chunk := self._rendered(event):
                    yield chunk
        finally:
            self._stop()
