"""How often a run asked each cluster's API, and how often it started helm: counted where the requests leave, then added up."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resources.kubernetes import ClusterClient


@dataclass(frozen=True, slots=True)
class ClusterCalls:
    """`lists` counts each kind's lists by (kind, namespace), an empty namespace being the whole cluster; they are among the
    `reads`. `helm` is of processes, whose own requests to the API aren't among the others."""

    reads: int = 0
    writes: int = 0
    deletes: int = 0
    helm: int = 0
    lists: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def __add__(self, other: ClusterCalls) -> ClusterCalls:
        return ClusterCalls(
            self.reads + other.reads,
            self.writes + other.writes,
            self.deletes + other.deletes,
            self.helm + other.helm,
            dict(Counter(self.lists) + Counter(other.lists)),
        )

    def as_dict(self) -> dict[str, Any]:
        lists = {
            f"{kind} in {namespace}" if namespace else kind: n for (kind, namespace), n in sorted(self.lists.items())
        }
        return {
            "reads": self.reads,
            "writes": self.writes,
            "deletes": self.deletes,
            "helmProcesses": self.helm,
            "lists": lists,
        }

    def sentence(self) -> str:
        return f"{self.reads} reads, {self.writes} writes, {self.deletes} deletes, {self.helm} helm processes"


def calls_of(client: ClusterClient) -> ClusterCalls:
    made = client.calls
    return ClusterCalls(made.reads, made.writes, made.deletes, lists=client.lists)


class Tally:
    """The calls of every session of a run, by cluster. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, ClusterCalls] = {}

    def add(self, cluster: str, calls: ClusterCalls) -> None:
        with self._lock:
            self._found[cluster] = self._found.get(cluster, ClusterCalls()) + calls

    @property
    def clusters(self) -> Mapping[str, ClusterCalls]:
        """By name, those that were never asked left out."""
        with self._lock:
            return dict(sorted(self._found.items()))

    @property
    def total(self) -> ClusterCalls:
        return sum(self.clusters.values(), ClusterCalls())

    def as_dict(self) -> dict[str, Any]:
        total = self.total.as_dict()
        del total["lists"]
        return {**total, "clusters": {name: calls.as_dict() for name, calls in self.clusters.items()}}
