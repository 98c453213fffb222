"""Remembering what follows from an object that never changes: component lists and declared workloads are made once and
serve every cluster, and a fleet has a thousand of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class _Same(Generic[T]):
    """An object as a key, by identity; it keeps the object alive, so that no other can take its place."""

    __slots__ = ("it",)

    def __init__(self, it: T) -> None:
        self.it = it

    def __hash__(self) -> int:
        return id(self.it)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.it is other.it


def remembered(size: int) -> Callable[[Callable[[T], R]], Callable[[T], R]]:
    """Runs a function of one unchanging object once for it, for the last `size` objects."""

    def decorate(function: Callable[[T], R]) -> Callable[[T], R]:
        @lru_cache(maxsize=size)
        def keyed(key: _Same[T]) -> R:
            return function(key.it)

        @wraps(function)
        def call(it: T) -> R:
            return keyed(_Same(it))

        return call

    return decorate
