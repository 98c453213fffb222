"""Helm loses its connection at chosen requests: what the server stored as done isn't done again, what it didn't store is."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field

import pytest
import yaml

from tests.kubernetes.faults.between import Asked, Cut, door
from tests.kubernetes.faults.ground import Ground, Revision, converges, histories

pytestmark = pytest.mark.kubernetes
# What each release's helms lose, in order: the request (of its record by the state that it stores, or its first object),
# and whether the server got it.
CUTS: dict[str, tuple[tuple[str, Cut], ...]] = {
    "mp-trust-manager": (("deployed", "after"),),
    "mp-ai-gateway-helm": (("pending-upgrade", "after"),),
    # The first's success is never stored though the revision before it is called superseded by then; the second fails.
    "mp-lws": (("deployed", "before"), ("object", "before")),
    "mp-dra-driver-cpu": (("superseded", "before"), ("deployed", "after")),
}
SPACES = {"lws-system": "mp-lws"}
RECORD = re.compile(rb"sh\.helm\.release\.v1\.(mp-[a-z-]+)\.v(\d+)")
STATES = re.compile(rb"pending-upgrade|superseded|deployed|failed")
MORE = {"resources": {"limits": {"memory": "300Mi"}}}
VALUES = {"trust-manager": MORE, "ai-gateway": {"controller": MORE}, "lws": MORE, "dra-driver-cpu": MORE}


@dataclass
class Cutter:
    """The rule of a door; `last` is each release's newest revision before, `left` what still waits for its request."""

    last: dict[str, int]
    left: dict[str, list[tuple[str, Cut]]] = field(default_factory=lambda: {k: list(v) for k, v in CUTS.items()})
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, asked: Asked) -> Cut:
        what, release = self.told(asked)
        with self.lock:
            cuts = self.left.get(release, [])
            return cuts.pop(0)[1] if cuts and cuts[0][0] == what else ""

    def told(self, asked: Asked) -> tuple[str, str]:
        """What is written, and of which release; empty for what no cut is about."""
        if not asked.helm or asked.method == "GET":
            return "", ""
        record = RECORD.search(asked.path.encode() if asked.method == "PUT" else asked.body)
        if record is None:
            space = re.search(r"/namespaces/([^/]+)/", asked.path)
            return "object", SPACES.get(space.group(1), "") if space else ""
        release, state = record.group(1).decode(), STATES.search(asked.body)
        told = state.group().decode() if state else ""
        # A helm that fails writes once more what the revision before it is.
        return "" if told == "deployed" and int(record.group(2)) <= self.last.get(release, 0) else told, release


def test_what_helm_didnt_hear_of_isnt_done_twice(made: Ground) -> None:
    """Four releases get other values, over connections that break, and their own again."""
    overlay = made.live.folder.parent / "cut-off.yaml"
    overlay.write_text(yaml.safe_dump({key: {"values": values} for key, values in VALUES.items()}))
    before = made.stands()
    with made.client() as api, door(made.kubeconfig("user")) as way:
        stood = histories(api)
        way.rule = cutter = Cutter({name: rows[-1].number for name, rows in stood.items()})
        made.give(way.kubeconfig())
        try:
            ran = made.live.with_env(MODELPLANE_COMPONENTS=str(overlay)).reconcile("90s").clean()
        finally:
            made.give(made.kubeconfig("user"))
        assert (ran.status, ran.json["verdict"]) == (0, "converged"), ran
        assert cutter.left == {name: [] for name in CUTS}
        found = histories(api)
    assert {name: new(stood[name], rows) for name, rows in found.items() if rows != stood[name]} == {
        "mp-trust-manager": [("deployed", True)],
        "mp-ai-gateway-helm": [("deployed", True)],
        "mp-lws": [("superseded", False), ("deployed", True)],
        "mp-dra-driver-cpu": [("deployed", True)],
    }
    # Nothing is told of as failed that the server stored as done.
    assert [
        line for line in ran.err.splitlines() if "failed" in line and ("trust-manager" in line or "driver-cpu" in line)
    ] == []
    converges(made)
    assert {ref: made.stands().uids.get(ref) for ref in before.uids} == dict(before.uids)


def new(before: list[Revision], after: list[Revision]) -> list[tuple[str, bool]]:
    """State, and whether it was complete, of the revisions that came since."""
    last = before[-1].number
    return [(r.status, r.complete) for r in after if r.number > last]
