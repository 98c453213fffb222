"""Trouble that hardware and its agents can be told to make, kept in a file so that it outlives the daemon."""

from __future__ import annotations

import json
import threading
from enum import StrEnum
from pathlib import Path


class AgentFault(StrEnum):
    """`node-without-label`: the pool's first node joins without any label of ours. `driver-never-publishes`: the DRA
    drivers of the pool's nodes run and publish nothing. Both are for `pool/C/P` and last until cleared."""

    NODE_WITHOUT_LABEL = "node-without-label"
    DRIVER_NEVER_PUBLISHES = "driver-never-publishes"


class AgentFaults:
    """Thread-safe. `revision` grows with every change."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._set: set[tuple[str, AgentFault]] = set()
        self.revision = 0
        if path is not None and path.exists():
            self._set = {(subject, AgentFault(kind)) for subject, kind in json.loads(path.read_text())}

    def set_fault(self, subject: str, kind: AgentFault) -> None:
        self._change(self._set | {(subject, kind)})

    def clear_fault(self, subject: str, kind: AgentFault) -> None:
        """One that isn't set is no error."""
        self._change(self._set - {(subject, kind)})

    def has(self, subject: str, kind: AgentFault) -> bool:
        return (subject, kind) in self._set

    def all(self) -> list[tuple[str, AgentFault]]:
        return sorted(self._set)

    def _change(self, new: set[tuple[str, AgentFault]]) -> None:
        with self._lock:
            self._set = new
            self.revision += 1
            if self._path is not None:
                fresh = self._path.with_suffix(".new")
                fresh.write_text(json.dumps(sorted(new)))
                fresh.replace(self._path)
