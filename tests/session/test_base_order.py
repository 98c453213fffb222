"""Untagged components run as soon as they can, and never before what they depend on."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from modelplane_dagster.errors import RefusedError
from resources.steps.base_order import PARALLEL, in_order
from resources.steps.result import StepResult

# d waits for b alone; c and e are the slow branch.
NEEDS = {"a": (), "b": (), "c": ("a",), "d": ("b", "elsewhere"), "e": ("c", "d")}


def components(needs):
    return [SimpleNamespace(key=k, component=SimpleNamespace(depends_on=d)) for k, d in needs.items()]


def ready(joined):
    return StepResult(joined.key, "ready", "it stands")


def test_none_runs_before_what_it_depends_on():
    ended: list[str] = []
    early: list[str] = []

    def ensure(joined):
        early.extend(d for d in joined.component.depends_on if d in NEEDS and d not in ended)
        ended.append(joined.key)
        return ready(joined)

    assert (list(in_order("east", components(NEEDS), ensure)), early, sorted(ended)) == (
        list("abcde"),
        [],
        list("abcde"),
    )


def test_one_waits_for_its_own_dependences_alone():
    begun = threading.Event()

    def ensure(joined):
        if joined.key == "a":
            # Ends only after d has begun: with one level after another this would never be.
            assert begun.wait(10.0)
        if joined.key == "d":
            begun.set()
        return ready(joined)

    assert {r.state for r in in_order("east", components(NEEDS), ensure).values()} == {"ready"}


def test_several_run_at_a_time_and_no_more():
    together = threading.Barrier(PARALLEL)
    lock, now, most = threading.Lock(), [0], [0]

    def ensure(joined):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        together.wait(10.0)
        with lock:
            now[0] -= 1
        return ready(joined)

    in_order("east", components(dict.fromkeys((str(n) for n in range(2 * PARALLEL)), ())), ensure)
    assert most == [PARALLEL]


def test_what_depends_on_a_failed_one_is_left_alone():
    asked: list[str] = []

    def ensure(joined):
        asked.append(joined.key)
        return StepResult(joined.key, "failed", "no") if joined.key == "a" else ready(joined)

    done = in_order("east", components(NEEDS), ensure)
    assert sorted(asked) == ["a", "b", "d"]
    assert {k: (r.state, r.sentence) for k, r in done.items()} == {
        "a": ("failed", "no"),
        "b": ("ready", "it stands"),
        "c": ("pending", "waits for a; nothing was changed"),
        "d": ("ready", "it stands"),
        "e": ("pending", "waits for c; nothing was changed"),
    }


def test_a_refusal_ends_it():
    asked: list[str] = []

    def ensure(joined):
        asked.append(joined.key)
        raise RefusedError("The gate refuses it.")

    with pytest.raises(RefusedError):
        in_order("east", components(NEEDS), ensure)
    assert set(asked) <= {"a", "b"}
