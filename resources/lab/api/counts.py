"""How often each user read, wrote and deleted through a cluster's API."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

LAB_USERS = frozenset({"agent", "controller"})


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests that were let in, whatever became of them. Dry runs are no writes."""

    reads: int = 0
    writes: int = 0
    deletes: int = 0
    dry_runs: int = 0


class Meter:
    def __init__(self) -> None:
        self._seen: Counter[tuple[str, str, str]] = Counter()

    def add(self, user: str, method: str, plural: str, *, dry_run: bool, review: bool = False) -> None:
        if method in {"GET", "HEAD"} or review:
            verb = "reads"
        elif dry_run:
            verb = "dry_runs"
        else:
            verb = "deletes" if method == "DELETE" else "writes"
        self._seen[user, verb, plural] += 1

    def counts(self, *, without: frozenset[str] = LAB_USERS) -> Counts:
        """Of all users but those named: by default all that isn't the lab's own traffic."""
        sums: Counter[str] = Counter()
        for (user, verb, _), number in self._seen.items():
            if user not in without:
                sums[verb] += number
        return Counts(sums["reads"], sums["writes"], sums["deletes"], sums["dry_runs"])

    def reset(self) -> None:
        self._seen.clear()
