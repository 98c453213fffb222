"""When to ask a cluster again: at once while it makes progress, with growing pauses where it makes none."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

FIRST = 30.0
LONGEST = 1800.0
# Marks kept of one cluster: a pool that fails, is cleared and fails again shows the same few marks in turn.
MARKS = 24


@dataclass(slots=True)
class Asked:
    """`at` is when it was last asked, in seconds since the epoch; `pause` how long it waited for that, in seconds;
    `marks` are digests of all that it looked like when it was asked since it last stood as planned."""

    at: float = 0.0
    pause: float = 0.0
    marks: list[str] = field(default_factory=list)


class Pauses:
    """The sensor's cursor. A mark that wasn't seen before is progress and is asked at once; one that was waits 30 s, then
    twice as long each time, up to half an hour."""

    def __init__(self, cursor: str | None) -> None:
        raw: dict[str, dict[str, Any]] = json.loads(cursor) if cursor else {}
        self._asked = {name: Asked(**entry) for name, entry in raw.items()}

    def due(self, name: str, mark: object, *, observed: float, now: float) -> bool:
        """Whether to ask now; what was observed before it was last asked says nothing new."""
        asked = self._asked.get(name)
        if asked is None:
            return True
        if observed <= asked.at:
            return False
        return _digest(mark) not in asked.marks or now - asked.at >= _next(asked.pause)

    def note(self, name: str, mark: object, *, now: float) -> None:
        """It is asked now."""
        asked = self._asked.setdefault(name, Asked())
        told = _digest(mark)
        if told in asked.marks:
            asked.pause = _next(asked.pause)
        else:
            asked.pause = 0.0
            asked.marks = [*asked.marks, told][-MARKS:]
        asked.at = now

    def settle(self, name: str) -> None:
        """It stands as planned: what comes next starts without a pause."""
        self._asked.pop(name, None)

    def keep(self, names: Iterable[str]) -> None:
        """Forgets what no manifest names any more."""
        known = set(names)
        self._asked = {name: asked for name, asked in self._asked.items() if name in known}

    def cursor(self) -> str:
        return json.dumps({name: asdict(asked) for name, asked in self._asked.items()}, sort_keys=True)


def _next(pause: float) -> float:
    return min(max(pause * 2, FIRST), LONGEST)


def _digest(mark: object) -> str:
    return hashlib.sha256(json.dumps(mark, sort_keys=True, default=str).encode()).hexdigest()[:12]
