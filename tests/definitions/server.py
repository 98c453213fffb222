"""`dagster dev` as a process of its own, stopped by the ids of the processes that it started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from resources.lab.client import stop

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Server:
    address: str
    home: Path
    log: Path


@contextmanager
def dagster_dev(home: Path, environment: Mapping[str, str], *, timeout: float = 120.0) -> Iterator[Server]:
    """Ready when its webserver answers. `home` holds the lab, the Dagster instance and the log; the lab is stopped too."""
    home.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    address = f"http://127.0.0.1:{port}"
    (home / "dagster").mkdir(exist_ok=True)
    (home / "dagster" / "dagster.yaml").write_text("telemetry: {enabled: false}\nnux: {enabled: false}\n")
    log = home / "dagster-dev.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [
                Path(sys.executable).with_name("dagster"),
                *("dev", "-w", ROOT / "workspace.yaml", "-h", "127.0.0.1", "-p", str(port)),
            ],
            cwd="/",
            env={
                **os.environ,
                "MODELPLANE_HOME": str(home),
                "DAGSTER_HOME": str(home / "dagster"),
                "MODELPLANE_WEBSERVER": address,
                **environment,
            },
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _wait(process, address, log, timeout)
            yield Server(address, home, log)
        finally:
            _stop(process)
            stop(home / "lab")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait(process: subprocess.Popen[bytes], address: str, log: Path, timeout: float) -> None:
    end = time.monotonic() + timeout
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx.get(f"{address}/server_info", timeout=5).is_success:
                return
        except httpx.HTTPError:
            time.sleep(0.5)
    msg = f"dagster dev isn't ready after {timeout:.0f} s:\n{log.read_text(errors='replace')[-4000:]}"
    raise AssertionError(msg)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """SIGINT as a person would, and after a while SIGKILL to what is left of its own session, each by its id."""
    ours = _session(process.pid)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            ours |= _session(process.pid)
            process.kill()
            process.wait(10)
    for pid in ours & _session(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _session(leader: int) -> set[int]:
    """The processes of the session that the process leads."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # Everything after the command's closing parenthesis: state, parent, group, session.
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader:
            found.add(int(stat.parent.name))
    return found
