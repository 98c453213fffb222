"""One cluster on a real control plane, installed once while its API server and the product are killed; every test leaves it
converged."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.site import Ran
from tests.kubernetes.faults.ground import CLUSTER, DEPLOYMENT, Ground, Revision, Standing, ground, histories, until


@dataclass(frozen=True, slots=True)
class Installed:
    """How the cluster came to stand: `killed` is what the first reconcile left when it was killed with a helm at work,
    `orphans` the helms that outlived it, `ran` how the second ended, whose API server was killed again and again, and
    `histories` what its releases then had behind them."""

    ground: Ground
    killed: Standing
    orphans: tuple[int, ...]
    ran: Ran
    servers: tuple[int, ...]
    histories: Mapping[str, list[Revision]]


@pytest.fixture(scope="package")
def installed(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    assert assets
    with ground(tmp_path_factory.mktemp("faults")) as made:
        made.live.write("metal.yaml", CLUSTER)
        made.live.write("small.yaml", DEPLOYMENT)
        process = made.live.start("reconcile", str(made.live.folder), "--timeout", "200s")
        until(lambda: at_work(made, process) or process.poll() is not None, "a helm at work", within=150)
        helms = children(process.pid, "helm")
        process.send_signal(signal.SIGKILL)
        process.communicate()
        orphans = tuple(pid for pid in helms if not gone(pid))
        killed = made.stands()
        process = made.live.start("reconcile", str(made.live.folder), "--timeout", "400s", "--format", "json")
        servers = []
        for deployed in (2, 6):
            until(lambda n=deployed: done(made.stands()) >= n or process.poll() is not None, "releases", within=200)
            servers.append(made.kill("kube-apiserver"))
            made.revived("kube-apiserver", servers[-1])
        out, err = process.communicate(timeout=400)
        with made.client() as api:
            found = histories(api)
        yield Installed(made, killed, orphans, Ran(process.returncode, out, err), tuple(servers), found)


def at_work(made: Ground, process: subprocess.Popen[str]) -> bool:
    """A helm is held still in the middle of its work; one that had just ended, or not begun, goes on."""
    helms = children(process.pid, "helm")
    for pid in helms:
        send(pid, signal.SIGSTOP)
    if helms and pending(made.stands()):
        return True
    for pid in helms:
        send(pid, signal.SIGCONT)
    return False


def send(pid: int, what: signal.Signals) -> None:
    """Nothing where the process is gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, what)


def pending(standing: Standing) -> list[str]:
    return [name for name, states in standing.releases.items() if states[-1].startswith("pending-")]


def done(standing: Standing) -> int:
    return sum(states[-1] == "deployed" for states in standing.releases.values())


def children(parent: int, name: str) -> list[int]:
    told = subprocess.run(
        ["ps", "-o", "pid=,comm=", "--ppid", str(parent)], capture_output=True, text=True, check=False
    )
    return [int(line.split()[0]) for line in told.stdout.splitlines() if line.split()[1] == name]


def gone(pid: int) -> bool:
    """Within a moment: the kernel ends it, but the two are separate deaths."""
    end = time.monotonic() + 2
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def made(installed: Installed) -> Ground:
    """The converged cluster."""
    assert installed.ran.status == 0, installed.ran
    return installed.ground
