"""One process of a control plane: started with its output in a file, ended with a grace, never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from resources.mortal import mortal

_LAST_LINES = 3


@dataclass(slots=True)
class Child:
    """`folder` takes `NAME.log` and `NAME.pid`. On Linux the process ends with the thread
    that started it, so that a killed test run or daemon leaves no control plane behind."""

    name: str
    command: Sequence[str]
    folder: Path
    _process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Starts it, after one of an earlier life that still runs here has been ended."""
        self._end_leftover()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                mortal(self.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        self._pidfile.write_text(f"{self._process.pid}\n")

    def failed(self) -> str:
        """Why it isn't running, from its last lines; empty while it runs."""
        if self._process is None:
            return f"{self.name} was not started"
        code = self._process.poll()
        if code is None:
            return ""
        lines = self.log.read_text(errors="replace").strip().splitlines()[-_LAST_LINES:]
        return f"{self.name} ended with {code}: {' / '.join(lines)}"

    def stop(self, *, grace: float = 3.0) -> None:
        """Asks, waits `grace` seconds, then kills."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None and grace:
            process.terminate()
            try:
                process.wait(grace)
            except subprocess.TimeoutExpired:
                # The API server waits for every open watch.
                process.kill()
        elif process.poll() is None:
            process.kill()
        process.wait()
        self._pidfile.unlink(missing_ok=True)

    def kill(self) -> None:
        """As a crash: no grace."""
        self.stop(grace=0)

    @property
    def _pidfile(self) -> Path:
        return self.folder / f"{self.name}.pid"

    def _end_leftover(self) -> None:
        """Only a process whose command line names this folder is taken for ours: process numbers are used again."""
        try:
            pid = int(self._pidfile.read_text())
            told = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return
        if str(self.folder).encode() not in told:
            return
        os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + 5
        while Path(f"/proc/{pid}/cmdline").exists() and time.monotonic() < end:
            time.sleep(0.02)
