"""Remembering what follows from an object that never changes: component lists and declared workloads are made once and
serve every cluster, and a fleet has a thousand of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def remembered(size: int) -> Callable[[Callable[[T], R]], Callable[[T], R]]:
    """Runs a function of one unchanging object once for it, for up to `size` objects; then it forgets them all.

    An object is known by its identity, and kept alive so that no other can take its place. Nothing is hashed and no code
    of the object runs: these calls are most of what a plan does.
    """

    def decorate(function: Callable[[T], R]) -> Callable[[T], R]:
        known: dict[int, tuple[T, R]] = {}

        @wraps(function)
        def call(it: T) -> R:
            found = known.get(id(it))
            if found is not None:
                return found[1]
            result = function(it)
            if len(known) >= size:
                known.clear()
            known[id(it)] = (it, result)
            return result

        return call

    return decorate
