"""Watches: from nothing, from a version, over, too old, selected."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from tests.kubernetes.api.bodies import config_map, core
from tests.kubernetes.wire import Wire


class Watch:
    """Events as they come, read in a thread; `take` waits for so many."""

    def __init__(self, api: Wire, path: str, **query: str) -> None:
        self.events: list[tuple[str, Any]] = []
        self.status = 0
        self.ended = threading.Event()
        self._grown = threading.Condition()
        self._connection = api.connect()
        wanted = {"watch": "1", "timeoutSeconds": "20", **query}
        self._connection.connect()
        self._socket = self._connection.sock
        self._connection.request("GET", f"{api.base}{path}?{urlencode(wanted)}", headers=api.headers())
        self._answer = self._connection.getresponse()
        self.status = self._answer.status
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for line in self._answer:
                event = json.loads(line)
                with self._grown:
                    self.events.append((event["type"], event["object"]))
                    self._grown.notify_all()
        except (OSError, ValueError, AttributeError):
            pass
        self.ended.set()

    def take(self, number: int) -> list[tuple[str, str]]:
        """The first so many, as type and name."""
        with self._grown:
            assert self._grown.wait_for(lambda: len(self.events) >= number, 10), self.events
        return [(kind, o["metadata"].get("name", "")) for kind, o in self.events[:number]]

    def close(self) -> None:
        # A plain close waits for the reading thread, which waits for the server.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def test_from_nothing_the_state_comes_first(api: Wire, ns: str) -> None:
    api.post(core(ns), config_map("a", {"w": "1"})).ok()
    watch = Watch(api, core(ns), labelSelector="w=1")
    assert watch.take(1) == [("ADDED", "a")]
    api.patch(core(ns, name="a"), {"data": {"x": "1"}}).ok()
    api.delete(core(ns, name="a")).ok()
    assert watch.take(3) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert watch.events[0][1]["kind"] == "ConfigMap"
    watch.close()


def test_from_a_version_only_what_came_after(api: Wire, ns: str) -> None:
    api.post(core(ns), config_map("a", {"w": "1"})).ok()
    version = api.get(core(ns)).ok()["metadata"]["resourceVersion"]
    api.post(core(ns), config_map("b", {"w": "1"})).ok()
    watch = Watch(api, core(ns), labelSelector="w=1", resourceVersion=version)
    assert watch.take(1) == [("ADDED", "b")]
    api.post(core(ns), config_map("c", {"w": "1"})).ok()
    assert watch.take(2) == [("ADDED", "b"), ("ADDED", "c")]
    watch.close()


def test_a_watch_goes_on_from_an_events_version(api: Wire, ns: str) -> None:
    first = Watch(api, core(ns), labelSelector="w=1")
    api.post(core(ns), config_map("a", {"w": "1"})).ok()
    first.take(1)
    version = first.events[0][1]["metadata"]["resourceVersion"]
    first.close()
    api.patch(core(ns, name="a"), {"data": {"x": "1"}}).ok()
    again = Watch(api, core(ns), labelSelector="w=1", resourceVersion=version)
    assert again.take(1) == [("MODIFIED", "a")]
    again.close()


def test_what_leaves_the_selector_is_deleted_to_the_watch(api: Wire, ns: str) -> None:
    watch = Watch(api, core(ns), labelSelector="w=1")
    api.post(core(ns), config_map("a", {"w": "1"})).ok()
    watch.take(1)
    api.patch(core(ns, name="a"), {"metadata": {"labels": {"w": "2"}}}).ok()
    assert watch.take(2) == [("ADDED", "a"), ("DELETED", "a")]
    api.patch(core(ns, name="a"), {"metadata": {"labels": {"w": "1"}}}).ok()
    assert watch.take(3)[2] == ("ADDED", "a")
    watch.close()


def test_one_object_by_its_name(api: Wire, ns: str) -> None:
    watch = Watch(api, core(ns), fieldSelector="metadata.name=b")
    for name in "ab":
        api.post(core(ns), config_map(name)).ok()
    assert watch.take(1) == [("ADDED", "b")]
    watch.close()


def test_the_initial_state_ends_with_a_bookmark(api: Wire, ns: str) -> None:
    api.post(core(ns), config_map("a", {"w": "1"})).ok()
    watch = Watch(
        api,
        core(ns),
        labelSelector="w=1",
        sendInitialEvents="true",
        allowWatchBookmarks="true",
        resourceVersionMatch="NotOlderThan",
    )
    assert watch.take(2) == [("ADDED", "a"), ("BOOKMARK", "")]
    bookmark = watch.events[1][1]["metadata"]
    assert bookmark["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert bookmark["resourceVersion"]
    watch.close()


def test_a_watch_ends_in_time(api: Wire, ns: str) -> None:
    watch = Watch(api, core(ns), timeoutSeconds="1")
    assert watch.ended.wait(8)
    watch.close()
