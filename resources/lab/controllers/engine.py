"""Runs one cluster's controllers: every change of the store marks what it concerns, and a short while later all that is
marked is brought to its desired state. Nothing runs while nothing changes."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from resources.lab.api.errors import ApiError
from resources.lab.api.storage import Event, Name
from resources.lab.api.store import Obj, Store, Write, now
from resources.lab.controllers.index import Index

_log = logging.getLogger(__name__)
_SLICE = 60


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. `batch` is how long changes gather before they are acted on; `start` from binding to running, `finish`
    from running to done for a Job's pod, `stop` from a deletion to the pod's end; `retry` after a refused creation."""

    batch: float = 0.02
    start: float = 0.15
    finish: float = 0.15
    stop: float = 0.1
    retry: float = 1.0


class Controller(Protocol):
    def concerns(self, event: Event) -> Iterable[Name]:
        """What must be looked at after the change."""
        ...

    def everything(self) -> Iterable[Name]:
        """What must be looked at at the start."""
        ...

    def sync(self, name: Name) -> None:
        """Brings it one step nearer to what it should be; the changes that this makes bring it up again."""
        ...


@dataclass
class Cluster:
    """What controllers share: the store, its index, the clock and timers."""

    store: Store
    index: Index
    timing: Timing
    clock: Callable[[], float]
    at: Callable[[float, Callable[[], None]], None] = field(default=lambda _delay, _what: None)

    def status(self, resource: str, obj: Obj, status: Obj) -> None:
        """Writes the object's status where it differs; nothing where the object has changed or gone meanwhile."""
        if obj.get("status") == status:
            return
        namespace = obj["metadata"].get("namespace", "")
        try:
            self.store.update(
                resource, {**obj, "status": status}, namespace=namespace, how=Write("lab", subresource="status")
            )
        except ApiError as error:
            if error.status not in {404, 409}:
                raise

    def event(self, about: Obj, reason: str, message: str, *, kind: str = "Warning") -> None:
        """An Event about the object: one an object and reason, with the newest message and a count."""
        metadata = about["metadata"]
        namespace = metadata.get("namespace", "default")
        name = f"{metadata['name'][:200]}.{reason.lower()}.{metadata['uid'][:8]}"
        old = self.store.find("events", name, namespace)
        if old is not None and old.get("message") == message and self._fresh(old):
            return
        involved = {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": involved | ({"namespace": namespace} if metadata.get("namespace") else {}),
            "reason": reason,
            "message": message,
            "type": kind,
            "count": (old or {}).get("count", 0) + 1,
            "firstTimestamp": (old or {}).get("firstTimestamp") or now(),
            "lastTimestamp": now(),
            "source": {"component": "lab"},
        }
        try:
            self.store.update("events", body, namespace=namespace)
        except ApiError as error:
            _log.debug("event refused: %s", error.message)

    @staticmethod
    def _fresh(event: Obj) -> bool:
        return str(event.get("lastTimestamp", ""))[:16] == now()[:16]


class Engine:
    """`work` does everything that is marked or due; `start` has the running event loop call it."""

    def __init__(
        self,
        store: Store,
        make: Callable[[Cluster], Iterable[Controller]],
        *,
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cluster = Cluster(store, Index(store), timing or Timing(), clock)
        self.cluster.at = self._at
        self._controllers = list(make(self.cluster))
        self._marked: list[dict[Name, None]] = [{} for _ in self._controllers]
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = itertools.count()
        self._loop: asyncio.AbstractEventLoop | None = None
        # uvloop gives no TimerHandle, which knows its time, where there is next to no delay.
        self._handle: asyncio.Handle | None = None
        self._when = 0.0
        self._unsubscribe = store.subscribe(self._seen)
        for controller, marked in zip(self._controllers, self._marked, strict=True):
            marked.update(dict.fromkeys(controller.everything()))

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake(0)

    def stop(self) -> None:
        self._unsubscribe()
        self._loop = None
        if self._handle is not None:
            self._handle.cancel()

    def _seen(self, event: Event) -> None:
        self.cluster.index.seen(event)
        any_marked = False
        for controller, marked in zip(self._controllers, self._marked, strict=True):
            for name in controller.concerns(event):
                marked[name] = None
                any_marked = True
        if any_marked:
            self._wake(self.cluster.timing.batch)

    def _at(self, delay: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.cluster.clock() + delay, next(self._serial), what))
        self._wake(delay)

    def _wake(self, delay: float) -> None:
        """An earlier wake stands; a later one gives way."""
        if self._loop is None:
            return
        when = self._loop.time() + delay
        if self._handle is not None and not self._handle.cancelled():
            if self._when <= when:
                return
            self._handle.cancel()
        self._when = when
        self._handle = self._loop.call_at(when, self._tick)

    def _tick(self) -> None:
        self._handle = None
        more = self.work(limit=_SLICE)
        if more:
            self._wake(0)
        elif self._due:
            self._wake(max(0.0, self._due[0][0] - self.cluster.clock()))

    def work(self, *, limit: int = 100_000) -> bool:
        """At most `limit` steps of what is due and marked; True when some is left, timers that aren't due aside."""
        while limit > 0 and self._due and self._due[0][0] <= self.cluster.clock():
            heapq.heappop(self._due)[2]()
            limit -= 1
        while limit > 0 and any(self._marked):
            for controller, marked in zip(self._controllers, self._marked, strict=True):
                for name in list(marked)[:limit]:
                    del marked[name]
                    self._sync(controller, name)
                    limit -= 1
        return any(self._marked) or bool(self._due and self._due[0][0] <= self.cluster.clock())

    def next_due(self) -> float | None:
        """When the next timer is due, by the engine's clock; None where none is set."""
        return self._due[0][0] if self._due else None

    def _sync(self, controller: Controller, name: Name) -> None:
        try:
            controller.sync(name)
        except ApiError as error:
            # Refused by the API: somebody else's change, an admission rule. The object is looked at again later.
            _log.debug("%s of %s: %s", type(controller).__name__, name, error.message)
            marked = self._marked[self._controllers.index(controller)]

            def again() -> None:
                marked[name] = None

            self._at(self.cluster.timing.retry, again)
