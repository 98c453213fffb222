"""Watches over HTTP: what a client sees from which version on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.objects import CONFIG_MAPS, PODS, config_map, pod
from tests.lab.server import Api


class Stream:
    """An open watch; `next` waits for one event."""

    def __init__(self, api: Api, path: str, **headers: str) -> None:
        self._connection = api.connect()
        sent = {"Authorization": f"Bearer {api.token}", **headers}
        self._connection.request("GET", api.base + path, headers=sent)
        self.answer = self._connection.getresponse()

    def event(self) -> dict[str, Any]:
        return json.loads(self.answer.readline())

    def seen(self) -> tuple[str, str]:
        event = self.event()
        return event["type"], event["object"]["metadata"].get("name", "")

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


@pytest.fixture
def watch(api: Api) -> Iterator[Any]:
    opened: list[Stream] = []

    def start(path: str, **headers: str) -> Stream:
        opened.append(Stream(api, path, **headers))
        return opened[-1]

    yield start
    for stream in opened:
        stream.close()


def test_from_nothing_the_state_comes_first(api: Api, watch: Any):
    api.post(CONFIG_MAPS, config_map("a"))
    stream = watch(f"{CONFIG_MAPS}?watch=true")
    assert stream.seen() == ("ADDED", "a")
    api.post(CONFIG_MAPS, config_map("b"))
    api.patch(f"{CONFIG_MAPS}/a", {"data": {"k": "1"}})
    api.delete(f"{CONFIG_MAPS}/a")
    assert [stream.seen() for _ in range(3)] == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "a")]


def test_from_a_version_only_what_came_after(api: Api, watch: Any):
    api.post(CONFIG_MAPS, config_map("a"))
    since = api.get(CONFIG_MAPS).body["metadata"]["resourceVersion"]
    api.post(CONFIG_MAPS, config_map("b"))
    api.post(PODS, pod("p"))
    stream = watch(f"{CONFIG_MAPS}?watch=true&resourceVersion={since}")
    assert stream.seen() == ("ADDED", "b")
    api.delete(f"{CONFIG_MAPS}/b")
    gone = stream.event()
    assert gone["type"] == "DELETED"
    assert int(gone["object"]["metadata"]["resourceVersion"]) > int(since) + 2


def test_an_object_that_leaves_the_selector_is_deleted_to_the_watch(api: Api, watch: Any):
    api.post(CONFIG_MAPS, {"metadata": {"name": "a", "labels": {"l": "x"}}})
    stream = watch(f"{CONFIG_MAPS}?watch=true&labelSelector=l%3Dx")
    assert stream.seen() == ("ADDED", "a")
    api.post(CONFIG_MAPS, config_map("other"))
    api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"l": "y"}}})
    assert stream.seen() == ("DELETED", "a")
    api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"l": "x"}}})
    assert stream.seen() == ("ADDED", "a")


def test_one_object_by_field(api: Api, watch: Any):
    stream = watch(f"{CONFIG_MAPS}?watch=true&fieldSelector=metadata.name%3Db")
    api.post(CONFIG_MAPS, config_map("a"))
    api.post(CONFIG_MAPS, config_map("b"))
    assert stream.seen() == ("ADDED", "b")


def test_the_initial_state_ends_with_a_bookmark(api: Api, watch: Any):
    api.post(CONFIG_MAPS, config_map("a"))
    query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    stream = watch(f"{CONFIG_MAPS}?{query}")
    assert stream.seen() == ("ADDED", "a")
    end = stream.event()
    assert (end["type"], end["object"]["kind"]) == ("BOOKMARK", "ConfigMap")
    assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_a_watch_ends_in_time(api: Api, watch: Any):
    stream = watch(f"{CONFIG_MAPS}?watch=true&timeoutSeconds=1")
    assert stream.answer.read() == b""


def test_tables_are_watched_too(api: Api, watch: Any):
    api.post(PODS, pod("p"))
    stream = watch(f"{PODS}?watch=true", Accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    event = stream.event()
    assert (event["object"]["kind"], event["object"]["rows"][0]["cells"][:4]) == ("Table", ["p", "0/1", "Pending", "0"])
