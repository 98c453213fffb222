"""A process beside this one that ends what writes without asking us, when nobody says in time that the lease still stands.

This process may be stopped (a signal, a debugger, a frozen container) while its helm runs on: then nothing renews the lease,
and nothing here could end helm either. The process beside it stands in a session of its own, so that what stops a terminal's
whole group leaves it at work.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress

# Lines: `+PID` and `-PID` for what began and ended, `=SECONDS` until when the lease stands, by the clock that counts a
# machine's sleep too. It looks again and again because no timeout counts that sleep. The watched are children of the process
# that tells of them and go by their numbers until it has seen their end; with that process, the pipe and this one end.
_WATCH = """
import os, select, time
clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
watched, until, rest = set(), float("inf"), b""
while True:
    if select.select([0], [], [], 0.2 if watched else None)[0]:
        told = os.read(0, 65536)
        if not told:
            break
        *lines, rest = (rest + told).split(b"\\n")
        for line in lines:
            if line[:1] == b"=":
                until = float(line[1:])
            elif line[:1] == b"+":
                watched.add(int(line[1:]))
            else:
                watched.discard(int(line[1:]))
    if watched and time.clock_gettime(clock) > until:
        for pid in watched:
            try:
                os.kill(pid, 9)
            except OSError:
                pass
        watched.clear()
"""


class DeadMan:
    """Nothing runs until something is watched. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._until = float("inf")

    def stands(self, until: float) -> None:
        """The lease stands until then, by the clock of `Host`."""
        with self._lock:
            self._until = until
            self._tell(f"={until!r}")

    def watch(self, pid: int) -> None:
        """A child of this process, which is killed where the lease stands no longer."""
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-ISc", _WATCH], stdin=subprocess.PIPE, start_new_session=True
                )
                self._tell(f"={self._until!r}")
            self._tell(f"+{pid}")

    def forget(self, pid: int) -> None:
        """It has ended."""
        with self._lock:
            self._tell(f"-{pid}")

    def close(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            with suppress(OSError):
                process.communicate()

    def _tell(self, line: str) -> None:
        if self._process is None or self._process.stdin is None:
            return
        with suppress(OSError):
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
