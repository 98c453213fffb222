"""The lease between two hosts' names on one real cluster: never two writers, through kills, a server that dies, and clocks
that are off by ten seconds either way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from resources.host import _stat as state
from tests.e2e.site import ROOT, Ran
from tests.kubernetes.faults.between import Asked, Cut, door
from tests.kubernetes.faults.ground import DEPLOYMENT, Ground, kept, until

pytestmark = pytest.mark.kubernetes
Start = Callable[..., subprocess.Popen[str]]
SHORT = 6.0  # seconds that a Lease stands here: less than the hosts' clocks differ, more than a pass waits for another


@pytest.fixture
def start() -> Iterator[Start]:
    """A process on a host of that name."""
    started: list[subprocess.Popen[str]] = []

    def run(host: str, skew: float, *arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.kubernetes.faults.elsewhere", host, str(skew), *arguments]
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def lease(made: Ground) -> dict[str, Any]:
    with made.client() as api:
        found = api.get("coordination.k8s.io/v1", "Lease", "modelplane-dagster", namespace="kube-system") or {}
        return dict(found.get("spec") or {})


def turns(journal: Path) -> list[tuple[str, float, float]]:
    """Who wrote, from when to when, in the order of the lines' own times."""
    rows = [line.split() for line in journal.read_text().splitlines() if not line.startswith("#")]
    found: list[tuple[str, float, float]] = []
    for at, host, pid, turn in sorted(rows):
        who = f"{host}/{pid}/{turn}"
        if found and found[-1][0] == who:
            found[-1] = (who, found[-1][1], float(at))
        else:
            found.append((who, float(at), float(at)))
    return found


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_two_hosts_take_turns_and_never_write_at_once(made: Ground, start: Start, tmp_path: Path) -> None:
    config, journal = tmp_path / "kubeconfig", tmp_path / "journal"
    config.write_text(json.dumps(made.kubeconfig("user")))
    journal.touch()

    def writer(host: str, skew: float) -> subprocess.Popen[str]:
        return start(host, skew, "writes", str(SHORT), str(config), str(tmp_path / host), str(journal))

    def last() -> str:
        found = turns(journal)
        return found[-1][0] if found else ""

    def wrote(host: str) -> bool:
        return last().startswith(f"{host}/")

    with kept(made):
        east, west = writer("east", 10.0), writer("west", -10.0)
        until(lambda: {t[0].split("/")[0] for t in turns(journal)} == {"east", "west"}, "both have written")
        until(lambda: wrote("east"), "east writes")
        kill(east)
        killed_east = turns(journal)[-1][0]
        until(lambda: wrote("west"), "west takes over")
        kill(west)
        west = writer("west", -10.0)
        until(lambda: wrote("west"), "west again")
        east = writer("east", 10.0)
        until(lambda: wrote("east"), "east again")
        old = made.kill("kube-apiserver")
        made.revived("kube-apiserver", old)
        marks = len(turns(journal))
        until(lambda: len(turns(journal)) > marks + 3, "they go on")
        kill(east)
        kill(west)
    found = turns(journal)
    names = [who for who, _, _ in found]
    # A turn that another one interrupts would stand here twice.
    assert sorted(set(names)) == sorted(names), found
    if found[names.index(killed_east) + 1][0].startswith("west/") and names[-1] != killed_east:
        ended, began = found[names.index(killed_east)][2], found[names.index(killed_east) + 1][1]
        assert began - ended >= SHORT * 2 / 3, found


def test_a_reconcile_takes_over_from_a_host_that_died(made: Ground, start: Start, tmp_path: Path) -> None:
    """Only after the Lease stood for its length as the second host itself has seen, however far off the first one's clock is;
    until then the holder is named. A second reconcile on the dead holder's own host waits for nothing."""
    config = tmp_path / "kubeconfig"
    config.write_text(json.dumps(made.kubeconfig("user")))

    def dies(skew: float) -> str:
        process = start(
            "east", skew, "writes", str(SHORT), str(config), str(tmp_path / "home-east"), str(tmp_path / "journal")
        )
        who = f"east/{process.pid}/"
        until(lambda: str(lease(made).get("holderIdentity", "")).startswith(who), "the lease of east")
        kill(process)
        return str(lease(made)["holderIdentity"])

    def reconcile(host: str, skew: float, port: int) -> tuple[Ran, float]:
        made.live.write("small.yaml", DEPLOYMENT.replace("--port=8000", f"--port={port}"))
        home = {
            "MODELPLANE_HOME": str(tmp_path / f"home-{host}{port}"),
            "DAGSTER_HOME": str(tmp_path / f"dagster-{host}{port}"),
        }
        begun = time.monotonic()
        arguments = ("reconcile", str(made.live.folder), "--timeout", "120s", "--format", "json")
        process = start(host, skew, "runs", str(SHORT), *arguments, env={**made.live.env, **home})
        out, err = process.communicate(timeout=180)
        return Ran(process.returncode, out, err).clean(), time.monotonic() - begun

    with kept(made):
        holder = dies(-10.0)
        ran, took = reconcile("west", 10.0, 8001)
        assert (ran.status, ran.json["verdict"]) == (0, "converged"), ran
        assert ran.json["failures"] == [
            f"Another writer works on cluster metal: {holder}. It is taken over once it hasn't renewed its lease for 6 s."
        ]
        assert took > SHORT
        dies(10.0)
        ran, _ = reconcile("east", -10.0, 8002)
        assert (ran.status, ran.json["verdict"], ran.json["failures"]) == (0, "converged", []), ran
        made.live.write("small.yaml", DEPLOYMENT)


def given(folder: Path, kubeconfig: dict[str, Any]) -> str:
    """A folder of secrets that holds the cluster's kubeconfig alone."""
    path = folder / "modelplane-system" / "metal-kubeconfig" / "kubeconfig"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(kubeconfig))
    return str(folder)


def below(parent: int) -> dict[int, str]:
    """The processes that it started, with their names."""
    told = subprocess.run(
        ["ps", "-o", "pid=,comm=", "--ppid", str(parent)], capture_output=True, text=True, check=False
    )
    return {int(pid): name for pid, name in (line.split() for line in told.stdout.splitlines())}


def ended(pid: int) -> bool:
    """Its parent may not have asked for it yet."""
    return state(pid)[0] in ("", "Z")


@pytest.mark.parametrize("whole", [False, True], ids=["helm goes on", "helm is stopped too"])
def test_a_writer_that_was_stopped_undoes_nothing(made: Ground, start: Start, tmp_path: Path, whole: bool) -> None:
    """With a helm at work, for longer than its Lease stands. Another host takes over and converges to newer values. A helm
    that isn't stopped is killed before that; one that is stopped with all else is killed when it goes on, before it writes.
    The run then changes nothing more and says whose the cluster is."""
    release, at_work, over = "mp-dra-driver-cpu", threading.Event(), threading.Event()
    late: list[str] = []

    def hold(asked: Asked) -> Cut:
        """Helm's first object waits at the door; what helm sends when it is let in came from a helm that lived."""
        if asked.helm and asked.method == "PATCH" and "/dra-driver-cpu/" in asked.path:
            at_work.set()
            assert over.wait(120)
            # The kernel closes what a killed process held a moment after its end is seen.
            end = time.monotonic() + 5
            while asked.alive() and time.monotonic() < end:
                time.sleep(0.02)
        if over.is_set() and asked.method != "GET" and asked.alive():
            late.append(f"{asked.method} {asked.path}")
        return "" if asked.alive() else "before"

    def reconcile(host: str, memory: str, secrets: str) -> subprocess.Popen[str]:
        overlay = tmp_path / f"{host}.yaml"
        values = {"resources": {"limits": {"memory": memory}}}
        overlay.write_text(json.dumps({"dra-driver-cpu": {"values": values}}))
        own = {"MODELPLANE_HOME": str(tmp_path / host), "DAGSTER_HOME": str(tmp_path / host / "dagster")}
        env = {**made.live.env, **own, "MODELPLANE_COMPONENTS": str(overlay), "MODELPLANE_SECRETS": secrets}
        arguments = ("reconcile", str(made.live.folder), "--timeout", "90s", "--format", "json")
        return start(host, 0.0, "runs", str(SHORT), *arguments, env=env)

    user = made.kubeconfig("user")
    with kept(made, upgraded=release), door(user) as way:
        way.rule = hold
        first = reconcile("east", "300Mi", given(tmp_path / "theirs", way.kubeconfig()))
        assert at_work.wait(60)
        children = below(first.pid)
        (helm,) = (pid for pid, name in children.items() if name == "helm")
        stopped = [first.pid, *(children if whole else ())]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        second = reconcile("west", "400Mi", made.live.env["MODELPLANE_SECRETS"])
        if not whole:
            until(lambda: ended(helm), "helm killed", within=SHORT * 2 / 3 + 2)
            assert str(lease(made)["holderIdentity"]).startswith("east/")
        out, err = second.communicate(timeout=120)
        assert (second.returncode, json.loads(out)["verdict"]) == (0, "converged"), (out, err)
        stood = made.stands()
        for pid in reversed(stopped):
            os.kill(pid, signal.SIGCONT)
        until(lambda: ended(helm), "helm killed", within=2)
        over.set()
        out, err = first.communicate(timeout=60)
        ran = Ran(first.returncode, out, err).clean()
        assert (ran.status, ran.json["verdict"]) == (4, "late"), ran
        told = {f["code"]: (f["subject"], f["message"]) for f in ran.json["findings"]}
        assert told["LeaseLost"] == (
            "cluster/metal",
            "Another writer took cluster metal over: it has let go again.",
        )
        assert late == []
        assert made.stands() == stood
