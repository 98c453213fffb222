"""Starting, stopping and asking the lab's daemon, from any other process."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

import orjson

from modelplane_dagster.errors import ConfigError, ModelplaneError, NotReadyError
from resources.lab.home import (
    KIND_FILE,
    LOG_FILE,
    PID_FILE,
    PORT_FILE,
    RUNS_ALREADY,
    UNUSABLE,
    read_token,
    running,
)
from resources.lab.plane.assets import find_assets
from resources.settings import LabKind

_START = 90.0  # seconds until a new daemon answers
_STOP = 10.0  # seconds until a stopping daemon is gone
_ANSWER = 10.0


class LabError(ModelplaneError):
    """The lab's daemon refuses what it was asked."""


@dataclass(frozen=True, slots=True)
class LabClient:
    """Talks to the daemon of one home. Every call raises NotReadyError where the daemon doesn't answer."""

    home: Path

    @property
    def port(self) -> int:
        try:
            return int((self.home / PORT_FILE).read_text())
        except (OSError, ValueError) as error:
            raise NotReadyError(f"the lab of {self.home} is not running: run `modelplane-dagster lab up`") from error

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Asks the control endpoint `/lab/PATH`."""
        port = self.port
        try:
            context = ssl.create_default_context(cafile=str(self.home / "tls.crt"))
        except OSError as error:
            raise NotReadyError(f"the lab of {self.home} has no certificate yet") from error
        connection = HTTPSConnection("127.0.0.1", port, timeout=_ANSWER, context=context)
        headers = {"Authorization": f"Bearer {read_token(self.home)}", "Content-Type": "application/json"}
        try:
            connection.request(method, f"/lab/{path}", orjson.dumps(body or {}) if method != "GET" else None, headers)
            answer = connection.getresponse()
            raw = answer.read()
        except (OSError, HTTPException) as error:
            raise NotReadyError(f"the lab of {self.home} does not answer on port {port}: {error}") from error
        finally:
            connection.close()
        found: dict[str, Any] = orjson.loads(raw or b"{}")
        if answer.status != 200:
            raise LabError(str(found.get("message", answer.reason)))
        return found

    def status(self) -> dict[str, Any]:
        return self.call("GET", "status")

    def add_cluster(self, name: str, version: str, **switches: bool) -> None:
        self.call("PUT", f"clusters/{name}", {"version": version, **switches})

    def remove_cluster(self, name: str) -> None:
        self.call("DELETE", f"clusters/{name}")

    def kubeconfig(self, name: str, user: str = "user") -> dict[str, Any]:
        return self.call("GET", f"clusters/{name}/kubeconfig/{user}")

    def set_fault(self, name: str, kind: str, value: float = 1) -> None:
        self.call("PUT", f"clusters/{name}/faults/{kind}", {"value": value})

    def fault(self, subject: str, kind: str, *, on: bool = True) -> None:
        """Of `cluster/C`, `pool/C/P` or `cloud/SOURCE`. Raises LabError for a kind that isn't there."""
        self.call("PUT", "faults", {"subject": subject, "kind": kind, "on": on})

    def clear_fault(self, name: str, kind: str) -> None:
        self.call("DELETE", f"clusters/{name}/faults/{kind}")


def ensure_running(home: Path, kind: LabKind = "embedded") -> LabClient:
    """A client of the home's daemon, which is started where none runs. Two callers at once get the same daemon.

    A home keeps the kind of lab it began with, for its clusters' state is of that kind: ConfigError for another, and where
    `kubernetes` finds no binaries.
    """
    home.mkdir(parents=True, exist_ok=True)
    _keep_kind(home, kind)
    client = LabClient(home)
    child: subprocess.Popen[bytes] | None = None
    if running(home) is None:
        with (home / LOG_FILE).open("ab") as log:
            # Its own session: the daemon outlives the terminal and the run that started it.
            child = subprocess.Popen(
                [sys.executable, "-m", "resources.lab.daemon", str(home)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "MODELPLANE_LAB": kind},
                cwd=Path(__file__).parents[2],
            )
    end = time.monotonic() + _START
    while time.monotonic() < end:
        try:
            if running(home):
                client.status()
                return client
        except NotReadyError:
            # Starting still; the deadline decides.
            pass
        ended = child.poll() if child is not None else None
        if ended == UNUSABLE:
            raise ConfigError(_last_line(home / LOG_FILE))
        if ended not in (None, RUNS_ALREADY):
            raise NotReadyError(f"the lab ended as it started: {_last_line(home / LOG_FILE)} (see {home / LOG_FILE})")
        time.sleep(0.03)
    raise NotReadyError(f"the lab did not start within {_START:.0f} s: see {home / LOG_FILE}")


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


def _keep_kind(home: Path, kind: LabKind) -> None:
    kept = home / KIND_FILE
    if not kept.exists() and not (home / PID_FILE).exists():
        kept.write_text(kind)
    began: str = kept.read_text() if kept.exists() else "embedded"
    if began != kind:
        raise ConfigError(
            f"The lab of {home} is of the kind {began}, not {kind}: set MODELPLANE_LAB={began}, or MODELPLANE_HOME to another "
            "folder."
        )
    if kind == "kubernetes":
        find_assets()


def stop(home: Path) -> bool:
    """Ends the home's daemon and waits until it is gone; False where none ran. Its state stays."""
    pid = running(home)
    if pid is None:
        return False
    try:
        LabClient(home).call("POST", "stop")
    except NotReadyError:
        if pid:
            os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + _STOP
    while running(home) is not None:
        if time.monotonic() > end and pid:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    return True
