"""When a cluster is asked again."""

from __future__ import annotations

import itertools

from assets.passes import Idle
from assets.pauses import Pauses


def asked(marks: list[str], *, until: float, step: float = 10.0) -> list[float]:
    """The times at which a cluster is asked that looks like `marks` in turn, one after each time it was asked, and like the
    last one for ever."""
    cursor: str | None = None
    times: list[float] = []
    now = 0.0
    while now <= until:
        pauses = Pauses(cursor)
        mark = marks[min(len(times), len(marks) - 1)]
        if pauses.due("c", mark, observed=now, now=now):
            pauses.note("c", mark, now=now)
            times.append(now)
        cursor = pauses.cursor()
        now += step
    return times


def test_progress_is_asked_at_once() -> None:
    assert asked(["absent", "creating", "pools", "stacks"], until=30.0) == [0.0, 10.0, 20.0, 30.0]


def test_what_makes_no_progress_waits_longer_each_time_up_to_half_an_hour() -> None:
    times = asked(["failed"], until=9000.0)
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert gaps == [30.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1800.0, 1800.0, 1800.0]


def test_a_pool_that_fails_and_is_cleared_in_turn_makes_no_progress() -> None:
    times = asked(["failed", "creating"] * 20, until=900.0)
    assert times == [0.0, 10.0, 40.0, 100.0, 220.0, 460.0]


def test_progress_after_a_pause_is_asked_at_once_again() -> None:
    assert asked(["failed", "failed", "failed", "creating"], until=120.0) == [0.0, 30.0, 90.0, 100.0]


def test_an_observation_from_before_it_was_asked_says_nothing() -> None:
    pauses = Pauses(None)
    pauses.note("c", "absent", now=100.0)
    assert not pauses.due("c", "creating", observed=99.0, now=500.0)
    assert pauses.due("c", "creating", observed=101.0, now=102.0)


def test_settled_starts_anew() -> None:
    pauses = Pauses(None)
    for now in (0.0, 30.0, 90.0):
        pauses.note("c", "failed", now=now)
    pauses.settle("c")
    assert pauses.due("c", "failed", observed=91.0, now=91.0)


def test_what_no_manifest_names_is_forgotten() -> None:
    pauses = Pauses(None)
    pauses.note("gone", "x", now=1.0)
    pauses.note("here", "x", now=1.0)
    pauses.keep(["here"])
    assert pauses.cursor() == Pauses(pauses.cursor()).cursor()
    assert '"gone"' not in pauses.cursor()
    assert '"here"' in pauses.cursor()


def test_looks_that_see_the_same_come_at_growing_pauses():
    idle = Idle()
    told = [round(idle.after(("a",)), 2) for _ in range(10)]
    assert told == [0.3, 0.39, 0.51, 0.66, 0.86, 1.11, 1.45, 1.88, 2.0, 2.0]
    # Something changed: soon again.
    assert (idle.after(("b",)), round(idle.after(("b",)), 2)) == (0.3, 0.39)
