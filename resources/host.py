"""This process as writers on other hosts see it, and the clock that every wait for another writer is measured with."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

_NOWHERE = "-"


def _boot_clock() -> float:
    """Seconds since this machine's start, those that it slept included: a writer that slept must know how long."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def _wall() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Host:
    """`name` is the host's, `clock` counts seconds and never runs backwards while the machine runs, `wall` is the time of
    day as this host has it: it is shown to people and never compared with another host's."""

    name: str = field(default_factory=socket.gethostname)
    clock: Callable[[], float] = _boot_clock
    wall: Callable[[], datetime] = _wall

    def identity(self) -> str:
        """Host, process, the process's start and the place where its number counts, which together never come twice."""
        return f"{self.name}/{os.getpid()}/{_stat(os.getpid())[1]}/{place()}"

    def knows_dead(self, holder: str) -> bool:
        """The holder is a process of this host that no longer runs. False for what can't be told: another host, other
        process numbers under the same name (a container, an earlier boot), a system without /proc."""
        name, _, rest = holder.partition("/")
        pid, _, rest = rest.partition("/")
        started, _, where = rest.partition("/")
        if name != self.name or not pid.isdigit() or where != place() or where == _NOWHERE:
            return False
        state, runs_since = _stat(int(pid))
        # A zombie writes nothing any more; one whose parent never asks for it would stand for ever.
        return state in ("", "Z", "X") or runs_since != started


def place() -> str:
    """Where process numbers mean the same: this boot of this machine, this namespace of processes. `-` where that can't be
    told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except (OSError, ValueError):
        return _NOWHERE
    return hashlib.sha256(f"{boot}/{namespace}".encode()).hexdigest()[:8]


def _stat(pid: int) -> tuple[str, str]:
    """A process's state and its start in clock ticks since boot; empty and 0 where there is none."""
    try:
        # Fields 3 and 22; the name in field 2 may hold spaces.
        told = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        return told[0], told[19]
    except (OSError, IndexError):
        return "", "0"
