"""A cluster's hardware agents in a thread: they look when nodes or pods change, and rest while nothing does."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from modelplane_dagster.components.types import Component
from modelplane_dagster.errors import ConflictError, KubernetesError, UnreadableError
from resources.kubernetes import Calls, ClusterClient
from resources.lab.agents.faults import AgentFaults
from resources.lab.agents.hardware import DesiredNode
from resources.lab.agents.nodes import sync_nodes, with_faults
from resources.lab.agents.passes import Agents, Outcome

_log = logging.getLogger(__name__)
Desired = Callable[[], Iterable[DesiredNode] | None]


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds. `least` between two looks; `settle` for how long agents go on looking after a change; `idle` between looks
    while nothing changes; `withdraw` until a gone driver's slices go; `watch` until a watch is begun anew."""

    least: float = 0.25
    settle: float = 1.0
    idle: float = 30.0
    withdraw: float = 1.0
    watch: int = 300


class ClusterAgent:
    """`client` is the agents' own; `desired` gives the nodes that should stand, None where nobody says (nodes are then
    left alone). Nothing but the cluster's API is used. `finds_hardware`: the agents tell pods that wait for hardware when
    their node has it, which the embedded kubelets see for themselves."""

    def __init__(
        self,
        client: ClusterClient,
        *,
        desired: Desired,
        components: Mapping[str, Component],
        faults: AgentFaults | None = None,
        pace: Pace | None = None,
        finds_hardware: bool = False,
    ) -> None:
        self._client = client
        self._desired = desired
        self._pace = pace or Pace()
        self._faults = faults or AgentFaults()
        self._agents = Agents(
            client, components, self._faults, time.monotonic, self._pace.withdraw, finds_hardware=finds_hardware
        )
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._watched: set[tuple[str, str]] = set()

    @property
    def calls(self) -> Calls:
        return self._client.calls

    def start(self) -> None:
        self._thread("agents", self._run)
        self._follow(frozenset({("v1", "Node"), ("v1", "Pod")}))

    def _follow(self, kinds: frozenset[tuple[str, str]]) -> None:
        """Watches the kinds that aren't watched yet. One stays watched when its operator goes: it may come back."""
        for api_version, kind in sorted(kinds - self._watched):
            self._watched.add((api_version, kind))
            self._thread(f"watch-{kind}", partial(self._watch, api_version, kind))

    def stop(self) -> None:
        """Ends the threads; one that waits for the API ends when that answers or its time is up."""
        self._stopped.set()
        self._wake.set()

    def _thread(self, name: str, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name=f"{self._client.name}-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def look(self) -> Outcome:
        """One pass over everything that the cluster holds."""
        nodes = {n["metadata"]["name"]: n for n in self._client.list("v1", "Node")}
        desired = self._desired()
        changed = False
        if desired is not None:
            changed = sync_nodes(self._client, with_faults(self._client.name, desired, self._faults), nodes)
        outcome = self._agents.run(nodes, self._client.list("v1", "Pod"))
        return replace(outcome, changed=outcome.changed or changed)

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
            outcome = self._try()
            self._follow(outcome.kinds)
            # Only now: a look that failed is made again.
            seen = wanted
            now = time.monotonic()
            last_change = now if outcome.changed or outcome.soon else last_change
            due = now + (pace.least if now - last_change < pace.settle else pace.idle)
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

    def _try(self) -> Outcome:
        try:
            return self.look()
        except (UnreadableError, KubernetesError, ConflictError) as error:
            # A refusal lasts until somebody mends it, so it is told; a lost connection passes.
            told = _log.debug if isinstance(error, UnreadableError) else _log.warning
            told("%s: %s", self._client.name, error.message)
            self._stopped.wait(0.5)
            return Outcome(changed=True, soon=True)

    def _watch(self, api_version: str, kind: str) -> None:
        """Wakes the agents at every change. A watch that breaks begins anew from the present state."""
        while not self._stopped.is_set():
            try:
                for _ in self._client.watch(api_version, kind, seconds=self._pace.watch):
                    self._wake.set()
                    if self._stopped.is_set():
                        return
            except (UnreadableError, KubernetesError) as error:
                _log.debug("%s: %s", self._client.name, error.message)
                self._stopped.wait(1.0)
            self._wake.set()
