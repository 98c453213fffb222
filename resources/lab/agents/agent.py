"""A cluster's hardware agents in a thread: they look when nodes or pods change, and rest while nothing does."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from modelplane_dagster.components.types import Component
from modelplane_dagster.errors import ConflictError, KubernetesError, UnreadableError
from resources.kubernetes import Calls, ClusterClient
from resources.lab.agents.faults import AgentFaults
from resources.lab.agents.hardware import DesiredNode
from resources.lab.agents.nodes import sync_nodes, with_faults
from resources.lab.agents.passes import Agents

_log = logging.getLogger(__name__)
Desired = Callable[[], Iterable[DesiredNode] | None]


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds. `least` between two looks; `settle` for how long agents go on looking after a change; `soon` between looks
    while an operator runs, whose resources nobody watches; `idle` otherwise; `withdraw` until a gone driver's slices go."""

    least: float = 0.25
    settle: float = 2.0
    soon: float = 3.0
    idle: float = 15.0
    withdraw: float = 1.0
    watch: int = 300


class ClusterAgent:
    """`client` is the agents' own; `desired` gives the nodes that should stand, None where nobody says (nodes are then
    left alone). Nothing but the cluster's API is used."""

    def __init__(
        self,
        client: ClusterClient,
        *,
        desired: Desired,
        components: Mapping[str, Component],
        faults: AgentFaults | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._client = client
        self._desired = desired
        self._pace = pace or Pace()
        self._faults = faults or AgentFaults()
        self._agents = Agents(client, components, self._faults, time.monotonic, self._pace.withdraw)
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def calls(self) -> Calls:
        return self._client.calls

    def start(self) -> None:
        self._thread("agents", self._run)
        for kind in ("Node", "Pod"):
            self._thread(f"watch-{kind}", partial(self._watch, kind))

    def stop(self) -> None:
        """Ends the threads; one that waits for the API ends when that answers or its time is up."""
        self._stopped.set()
        self._wake.set()

    def _thread(self, name: str, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name=f"{self._client.name}-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def look(self) -> tuple[bool, bool]:
        """One pass: whether something was written, and whether to look again soon."""
        nodes = {n["metadata"]["name"]: n for n in self._client.list("v1", "Node")}
        desired = self._desired()
        changed = False
        if desired is not None:
            changed = sync_nodes(self._client, with_faults(self._client.name, desired, self._faults), nodes)
        written, soon = self._agents.run(nodes, self._client.list("v1", "Pod"))
        return changed or written, soon

    def _run(self) -> None:
        pace, last_change, seen = self._pace, time.monotonic(), None
        due = 0.0
        while not self._stopped.is_set():
            self._wake.wait(pace.least)
            now, wanted = time.monotonic(), self._wanted()
            if not self._wake.is_set() and now < due and wanted == seen:
                continue
            if self._wake.is_set() or wanted != seen:
                last_change = now
            self._wake.clear()
            changed, soon = self._try()
            # Only now: a look that failed is made again.
            seen = wanted
            now = time.monotonic()
            last_change = now if changed else last_change
            active = now - last_change < pace.settle
            due = now + (pace.least if active else pace.soon if soon else pace.idle)
            self._stopped.wait(pace.least)

    def _wanted(self) -> tuple[int, frozenset[object]] | None:
        """Differs where the desired nodes or the faults differ. Hardware is told by identity: a node's doesn't change."""
        desired = self._desired()
        if desired is None:
            return None
        marks = frozenset(
            (n.name, n.provider_id, tuple(sorted(n.labels.items())), n.taints, n.hardware.text()) for n in desired
        )
        return self._faults.revision, marks

    def _try(self) -> tuple[bool, bool]:
        try:
            return self.look()
        except (UnreadableError, KubernetesError, ConflictError) as error:
            _log.debug("%s: %s", self._client.name, error.message)
            self._stopped.wait(0.5)
            return True, True

    def _watch(self, kind: str) -> None:
        """Wakes the agents at every change. A watch that breaks begins anew from the present state."""
        while not self._stopped.is_set():
            try:
                for _ in self._client.watch("v1", kind, seconds=self._pace.watch):
                    self._wake.set()
                    if self._stopped.is_set():
                        return
            except (UnreadableError, KubernetesError) as error:
                _log.debug("%s: %s", self._client.name, error.message)
                self._stopped.wait(1.0)
            self._wake.set()
