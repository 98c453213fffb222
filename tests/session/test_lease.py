"""One writer a cluster: the locked file between processes of a host, and the Lease between hosts."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from modelplane_dagster.errors import ClusterBusyError
from resources import lease as leases
from resources.lease import ClusterLease, dead_here, extend, holder_identity, take
from tests.session.world import FakeApi

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = "another-host/4711/99"
Spawn = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Spawn]:
    """Another process that runs `code` with `folder` set, and has printed a line."""
    started: list[subprocess.Popen[str]] = []

    def run(code: str) -> subprocess.Popen[str]:
        head = (
            "import os, subprocess, sys, time\nfrom pathlib import Path\n"
            f"from resources.lease import take\nfolder = Path({str(tmp_path)!r})\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", head + textwrap.dedent(code)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline()
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()


def hold(folder: Path, *, wait: float = 0.0, told: list[str] | None = None) -> ClusterLease:
    return take("east", folder, digest="sha256:1", wait=wait, announce=(told if told is not None else []).append)


HOLDS = """
held = take("east", folder, digest="sha256:0", wait=0, announce=print)
print("holds", flush=True)
time.sleep(60)
"""


def test_a_second_process_waits_then_stops_and_names_the_holder(tmp_path: Path, spawn: Spawn) -> None:
    other = spawn(HOLDS)
    told: list[str] = []
    start = time.monotonic()
    with pytest.raises(ClusterBusyError) as busy:
        hold(tmp_path, wait=0.5, told=told)
    assert 0.5 <= time.monotonic() - start < 5
    holder = f"{socket.gethostname()}/{other.pid}/"
    assert re.fullmatch(
        rf"Another writer works on cluster east: {re.escape(holder)}\d+ \(a process on this host\)\.",
        busy.value.message,
    )
    assert [re.sub(r"/\d+;", "/N;", t) for t in told] == [f"cluster east is held by {holder}N; waiting up to 0 s"]


def test_other_clusters_are_not_held(tmp_path: Path, spawn: Spawn) -> None:
    spawn(HOLDS)
    take("west", tmp_path, digest="", wait=0, announce=print).release()


def test_a_killed_process_is_taken_over_at_once(tmp_path: Path, spawn: Spawn) -> None:
    other = spawn(HOLDS)
    other.send_signal(signal.SIGKILL)
    other.wait()
    hold(tmp_path).release()


CHILD = """
held = take("east", folder, digest="sha256:0", wait=0, announce=print)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], pass_fds=(held.file.fd,), stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
{end}
"""


@pytest.mark.parametrize("end", ["time.sleep(60)", "held.release(); print('let go', flush=True); time.sleep(60)"])
def test_a_child_that_outlives_its_parent_still_holds(tmp_path: Path, spawn: Spawn, end: str) -> None:
    """A helm that was handed the descriptor goes on writing when its parent is killed, or has let go."""
    code = CHILD.format(end=end).replace("print(child.pid, flush=True)", "(folder / 'child').write_text(str(child.pid)); print('up', flush=True)")  # fmt: skip
    parent = spawn(code)
    if "let go" in end:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "let go\n"
    child = int((tmp_path / "child").read_text())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    try:
        with pytest.raises(ClusterBusyError, match=f"/{parent.pid}/"):
            hold(tmp_path)
    finally:
        os.kill(child, signal.SIGKILL)
    hold(tmp_path, wait=5).release()


def test_letting_go_frees_it_for_the_next(tmp_path: Path) -> None:
    for _ in range(2):
        hold(tmp_path).release()


def test_a_process_that_waits_gets_it_when_it_is_free(tmp_path: Path) -> None:
    first = hold(tmp_path)
    threading.Timer(0.3, first.release).start()
    hold(tmp_path, wait=5).release()


# The cluster's own Lease


@pytest.fixture
def held(tmp_path: Path) -> Iterator[ClusterLease]:
    lease = hold(tmp_path)
    yield lease
    lease.release()


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def standing(holder: str, *, renewed: Any, lasts: int | None = 30) -> FakeApi:
    api = FakeApi()
    api.create(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "modelplane-dagster", "namespace": "kube-system"},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": lasts, "renewTime": renewed},
        }
    )
    return api


def grab(lease: ClusterLease, api: FakeApi, *, wait: float = 0.0) -> None:
    extend(lease, api, wait=wait, announce=lambda _: None)  # type: ignore[arg-type]  # the three calls that it uses


def test_the_first_writer_makes_it(held: ClusterLease) -> None:
    api = FakeApi()
    grab(held, api)
    body = api.lease()
    assert body["metadata"]["annotations"] == {"modelplane.ai/plan-digest": "sha256:1"}
    assert body["spec"] == {
        "holderIdentity": holder_identity(),
        "leaseDurationSeconds": 30,
        "renewTime": body["spec"]["renewTime"],
        "acquireTime": body["spec"]["acquireTime"],
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", body["spec"]["renewTime"])


def test_taking_it_twice_is_taking_it_once(held: ClusterLease) -> None:
    api = FakeApi()
    grab(held, api)
    grab(held, api)
    assert len(api.writes) == 1


DEAD = f"{socket.gethostname()}/999999999/1"


@pytest.mark.parametrize(
    ("holder", "renewed", "free"),
    [
        (ELSEWHERE, 0, False),
        # It stands for thirty seconds, and another host's clock may be ten behind ours.
        (ELSEWHERE, 29, False),
        (ELSEWHERE, 38, False),
        (ELSEWHERE, 42, True),
        # A clock ahead of ours.
        (ELSEWHERE, -9, False),
        (ELSEWHERE, None, True),
        (ELSEWHERE, "soon", True),
        (ELSEWHERE, "naive", False),
        ("", None, True),
        # A dead process of this host is known to be dead; one that lives isn't, whatever its name.
        (DEAD, 0, True),
        (f"{socket.gethostname()}/{os.getppid()}/{leases._started(os.getppid())}", 0, False),
        (f"{socket.gethostname()}/{os.getppid()}/1", 0, True),
        ("nonsense", 0, False),
    ],
)
def test_who_may_take_it_over(held: ClusterLease, holder: str, renewed: Any, free: bool) -> None:
    if isinstance(renewed, int):
        renewed = ago(renewed)
    elif renewed == "naive":
        renewed = ago(0).removesuffix("Z")
    api = standing(holder, renewed=renewed)
    if free:
        grab(held, api)
        assert api.lease()["spec"]["holderIdentity"] == holder_identity()
        return
    with pytest.raises(ClusterBusyError) as busy:
        grab(held, api)
    assert busy.value.message == f"Another writer works on cluster east: {holder}."
    assert api.lease()["spec"]["holderIdentity"] == holder


def test_a_lease_of_another_length_stands_as_long_as_it_says(held: ClusterLease) -> None:
    with pytest.raises(ClusterBusyError):
        grab(held, standing(ELSEWHERE, renewed=ago(60), lasts=120))
    grab(held, standing(ELSEWHERE, renewed=ago(60), lasts=None))


def test_a_waiting_writer_gets_it_when_the_other_lets_go(held: ClusterLease) -> None:
    api = standing(ELSEWHERE, renewed=ago(0))

    def let_go() -> None:
        body = api.get("", "Lease", "modelplane-dagster", namespace="kube-system")
        assert body is not None
        body["spec"]["holderIdentity"] = ""
        api.replace(body)

    threading.Timer(0.3, let_go).start()
    grab(held, api, wait=5)
    assert api.lease()["spec"]["holderIdentity"] == holder_identity()


class Raced(FakeApi):
    """Another writer is faster between our look and our write."""

    def __init__(self) -> None:
        super().__init__()
        self.raced = False

    def _race(self) -> None:
        if not self.raced:
            self.raced = True
            other = standing(ELSEWHERE, renewed=ago(0)).lease()
            other["metadata"]["resourceVersion"] = "99"
            self.objects["Lease", "kube-system", "modelplane-dagster"] = other

    def create(self, body: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        self._race()
        return super().create(body, dry_run=dry_run)

    def replace(self, body: dict[str, Any]) -> dict[str, Any]:
        self._race()
        return super().replace(body)


@pytest.mark.parametrize("there", [False, True])
def test_of_two_that_write_at_once_one_stops_and_names_the_other(held: ClusterLease, there: bool) -> None:
    api = Raced()
    if there:
        api.objects.update(standing("", renewed=None).objects)
    with pytest.raises(ClusterBusyError, match=re.escape(f"{ELSEWHERE}.")):
        grab(held, api, wait=1)
    assert api.lease()["spec"]["holderIdentity"] == ELSEWHERE


def test_it_is_renewed_while_the_run_works(held: ClusterLease, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "DURATION", 0.3)
    api = FakeApi()
    grab(held, api)
    first = api.lease()["spec"]
    time.sleep(0.5)
    held.check()
    assert api.lease()["spec"]["renewTime"] > first["renewTime"]
    assert api.lease()["spec"]["acquireTime"] == first["acquireTime"]


def test_a_lease_that_another_took_stops_the_next_write(held: ClusterLease, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "DURATION", 0.3)
    api = FakeApi()
    grab(held, api)
    api.objects["Lease", "kube-system", "modelplane-dagster"] = {
        **standing(ELSEWHERE, renewed=ago(0)).lease(),
        "metadata": {"name": "modelplane-dagster", "namespace": "kube-system", "resourceVersion": "99"},
    }
    time.sleep(0.4)
    with pytest.raises(ClusterBusyError, match=re.escape(ELSEWHERE)):
        held.check()
    held.release()
    assert api.lease()["spec"]["holderIdentity"] == ELSEWHERE


def test_a_lease_that_couldnt_be_renewed_in_time_stops_the_next_write(
    held: ClusterLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be another's by now, and our last look is too old to tell; once renewed it is ours again."""
    monkeypatch.setattr(leases, "DURATION", 0.3)
    api = FakeApi()
    grab(held, api)
    held.check()
    api.down = True
    time.sleep(0.6)
    with pytest.raises(ClusterBusyError, match="couldn't be renewed"):
        held.check()
    api.down = False
    time.sleep(0.3)
    held.check()


def test_letting_go_leaves_it_without_a_holder(tmp_path: Path) -> None:
    lease, api = hold(tmp_path), FakeApi()
    grab(lease, api)
    lease.release()
    assert (api.lease()["spec"]["holderIdentity"], api.lease()["spec"]["renewTime"]) == ("", None)
    lease = hold(tmp_path)
    grab(lease, api)
    lease.release()


def test_letting_go_of_an_api_that_is_gone_is_no_fault(tmp_path: Path) -> None:
    lease, api = hold(tmp_path), FakeApi()
    grab(lease, api)
    api.down = True
    lease.release()
    hold(tmp_path).release()


@pytest.mark.parametrize(
    ("holder", "dead"),
    [
        (holder_identity(), False),
        (DEAD, True),
        (f"{socket.gethostname()}/{os.getpid()}/1", True),
        ("another-host/999999999/1", False),
        (f"{socket.gethostname()}/nobody/1", False),
        ("", False),
    ],
)
def test_who_is_known_to_be_dead(holder: str, dead: bool) -> None:
    assert dead_here(holder) is dead
