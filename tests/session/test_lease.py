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
from resources.host import Host, place
from resources.host import _stat as stat
from resources.lease import ClusterLease, extend, take
from tests.session.world import FakeApi

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = "another-host/4711/99/0a0b0c0d"
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
        rf"Another writer works on cluster east: {re.escape(holder)}\d+/[0-9a-f]{{8}} \(a process on this host\)\.",
        busy.value.message,
    )
    assert [re.sub(r"/\d+/[0-9a-f]{8};", "/N;", t) for t in told] == [
        f"cluster east is held by {holder}N; waiting up to 0 s"
    ]


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


def hurried(patch: pytest.MonkeyPatch) -> None:
    """A Lease that stands for a moment."""
    patch.setattr(leases, "DURATION", 0.3)
    patch.setattr(leases, "HOLD", 0.25)


def started(pid: int) -> str:
    return stat(pid)[1]


def grab(lease: ClusterLease, api: FakeApi, *, wait: float = 0.0) -> None:
    extend(lease, api, wait=wait, announce=lambda _: None)  # type: ignore[arg-type]  # the three calls that it uses


def test_the_first_writer_makes_it(held: ClusterLease) -> None:
    api = FakeApi()
    grab(held, api)
    body = api.lease()
    assert body["metadata"]["annotations"] == {"modelplane.ai/plan-digest": "sha256:1"}
    assert body["spec"] == {
        "holderIdentity": held.holder,
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


HERE = socket.gethostname()
DEAD = f"{HERE}/999999999/1/{place()}"


@pytest.mark.parametrize(
    ("holder", "free"),
    [
        ("", True),
        (ELSEWHERE, False),
        # A dead process of this host is known to be dead; one that lives isn't, whatever its name.
        (DEAD, True),
        (f"{HERE}/{os.getppid()}/{started(os.getppid())}/{place()}", False),
        (f"{HERE}/{os.getppid()}/1/{place()}", True),
        # Another machine, or a container on this one, of the same name: its process numbers mean nothing here.
        (f"{HERE}/999999999/1/0f0f0f0f", False),
        (f"{HERE}/999999999/1", False),
        ("nonsense", False),
    ],
)
@pytest.mark.parametrize("renewed", [0, 3600, -10, None, "soon"])
def test_who_may_take_it_over_at_once(held: ClusterLease, holder: str, free: bool, renewed: Any) -> None:
    """Whatever time of day the holder wrote: its clock isn't ours."""
    api = standing(holder, renewed=ago(renewed) if isinstance(renewed, int) else renewed)
    if free:
        grab(held, api)
        assert api.lease()["spec"]["holderIdentity"] == held.holder
        return
    with pytest.raises(ClusterBusyError) as busy:
        grab(held, api)
    assert busy.value.message == (
        f"Another writer works on cluster east: {holder}. It is taken over once it hasn't renewed its lease for 30 s."
    )
    assert api.lease()["spec"]["holderIdentity"] == holder


class Clock:
    """A host whose clock stands where it is put, and whose time of day is off by `skew` seconds."""

    def __init__(self, name: str = "this-host", *, skew: float = 0.0) -> None:
        self.seconds = 1000.0
        self.host = Host(name, lambda: self.seconds, lambda: datetime.now(UTC) + timedelta(seconds=skew))


@pytest.fixture
def clock() -> Clock:
    return Clock()


def ours(folder: Path, clock: Clock) -> ClusterLease:
    return take("east", folder, digest="sha256:1", wait=0, announce=lambda _: None, host=clock.host)


def taken(folder: Path, clock: Clock, api: FakeApi) -> bool:
    """One run's attempt, which lets go of nothing but its file."""
    lease = ours(folder, clock)
    try:
        grab(lease, api)
    except ClusterBusyError:
        return False
    finally:
        lease.lost = "the test ends here"
        lease.release()
    return True


@pytest.mark.parametrize(("lasts", "expires"), [(30, 30), (120, 120), (None, 30)])
@pytest.mark.parametrize("renewed", [0, 10, -10, 3600])
def test_it_is_free_when_we_have_seen_it_unrenewed_for_its_length(
    tmp_path: Path, clock: Clock, renewed: int, lasts: int | None, expires: int
) -> None:
    """Over several runs, each of which looks once; the holder's time of day is right, ahead, behind, or hours old."""
    api = standing(ELSEWHERE, renewed=ago(renewed), lasts=lasts)
    for looks in (0, expires - 1, 0.9):
        clock.seconds += looks
        assert not taken(tmp_path, clock, api)
    clock.seconds += 0.2
    assert taken(tmp_path, clock, api)


def test_every_renewal_begins_the_count_anew(tmp_path: Path, clock: Clock) -> None:
    api = standing(ELSEWHERE, renewed=ago(0))
    for _ in range(4):
        assert not taken(tmp_path, clock, api)
        clock.seconds += 29
        assert not taken(tmp_path, clock, api)
        # Its clock may have been set back meanwhile, so that the time that it writes is the same as before.
        api.replace(api.lease())
        clock.seconds += 2
    assert not taken(tmp_path, clock, api)


def test_what_another_boot_saw_counts_from_this_one(tmp_path: Path, clock: Clock) -> None:
    api = standing(ELSEWHERE, renewed=ago(0))
    assert not taken(tmp_path, clock, api)
    clock.seconds = 5.0
    assert not taken(tmp_path, clock, api)
    clock.seconds = 34.9
    assert not taken(tmp_path, clock, api)
    clock.seconds = 35.1
    assert taken(tmp_path, clock, api)


@pytest.mark.parametrize("kept", ["", "no JSON", "[]", '{"version": 7}'])
def test_a_broken_note_of_what_was_seen_counts_as_none(tmp_path: Path, clock: Clock, kept: str) -> None:
    api = standing(ELSEWHERE, renewed=ago(0))
    (tmp_path / "east.seen").write_text(kept)
    assert not taken(tmp_path, clock, api)
    clock.seconds += 31
    assert taken(tmp_path, clock, api)


def test_two_hosts_with_skewed_clocks_never_both_write(tmp_path: Path) -> None:
    """The holder reaches the cluster no more: it stops writing before the other begins, whichever clock is ahead."""
    for skew in (-10.0, 0.0, 10.0):
        one, two, api = Clock("one"), Clock("two", skew=skew), FakeApi()
        first = ours(tmp_path / f"one{skew}", one)
        grab(first, api)
        first.stop.set()
        first.client = FakeApi()  # type: ignore[assignment]  # as in `grab`
        first.client.down = True  # type: ignore[attr-defined]
        writers = []
        for second in range(1, 36):
            one.seconds = two.seconds = 1000.0 + second
            try:
                first.check()
                writes = "one"
            except ClusterBusyError:
                writes = ""
            other = "two" if taken(tmp_path / f"two{skew}", two, api) else ""
            writers.append(writes + other)
            if other:
                break
        assert writers == ["one"] * 20 + [""] * 11 + ["two"], writers
        first.lost = "the test ends here"
        first.release()


@pytest.mark.parametrize(
    ("holder", "told"),
    [
        (ELSEWHERE, f"Another writer took cluster east over: {ELSEWHERE}."),
        ("", "Another writer took cluster east over: it has let go again."),
        (None, "Another writer took cluster east over: its Lease is gone."),
    ],
)
def test_a_process_that_was_stopped_asks_whose_it_is_before_it_writes(
    tmp_path: Path, clock: Clock, holder: str | None, told: str
) -> None:
    """Helm is ended before the cluster is asked, which may take long."""
    api, ended = FakeApi(), []
    lease = ours(tmp_path, clock)
    grab(lease, api)
    lease.stop.set()
    lease.lapse = lambda: ended.append(api.writes[-1])
    clock.seconds += 60
    if holder is None:
        del api.objects["Lease", "kube-system", "modelplane-dagster"]
    else:
        body = api.lease()
        body["spec"]["holderIdentity"] = holder
        api.replace(body)
    before = len(api.writes)
    with pytest.raises(ClusterBusyError) as lost:
        lease.check()
    assert [(f.code, f.subject, f.message) for f in lost.value.findings] == [("LeaseLost", "cluster/east", told)]
    assert len(ended) == 1
    lease.release()
    assert len(api.writes) == before


def test_a_process_that_was_stopped_goes_on_where_nobody_took_over(tmp_path: Path, clock: Clock) -> None:
    """But for helm, which was ended when nobody could tell yet."""
    api, ended = FakeApi(), []
    lease = ours(tmp_path, clock)
    grab(lease, api)
    lease.stop.set()
    lease.lapse = lambda: ended.append("helm")
    clock.seconds += 60
    lease.check()
    lease.check()
    assert ended == ["helm"]
    assert lease.renewed == clock.seconds
    lease.release()


def test_a_waiting_writer_gets_it_when_the_other_lets_go(held: ClusterLease) -> None:
    api = standing(ELSEWHERE, renewed=ago(0))

    def let_go() -> None:
        body = api.get("", "Lease", "modelplane-dagster", namespace="kube-system")
        assert body is not None
        body["spec"]["holderIdentity"] = ""
        api.replace(body)

    threading.Timer(0.3, let_go).start()
    grab(held, api, wait=5)
    assert api.lease()["spec"]["holderIdentity"] == held.holder


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
    hurried(monkeypatch)
    api = FakeApi()
    grab(held, api)
    first = api.lease()["spec"]
    time.sleep(0.5)
    held.check()
    assert api.lease()["spec"]["renewTime"] > first["renewTime"]
    assert api.lease()["spec"]["acquireTime"] == first["acquireTime"]


def test_a_lease_that_another_took_stops_the_next_write(held: ClusterLease, monkeypatch: pytest.MonkeyPatch) -> None:
    hurried(monkeypatch)
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
    hurried(monkeypatch)
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


def test_a_lease_that_lapses_ends_what_writes_without_asking(
    held: ClusterLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    api, ended = FakeApi(), threading.Event()
    held.lapse = ended.set
    grab(held, api)
    assert not ended.wait(0.15)
    api.down = True
    assert ended.wait(5)


def me(**changed: str) -> str:
    parts = {"name": HERE, "pid": str(os.getpid()), "started": started(os.getpid()), "place": place(), **changed}
    return "/".join(parts.values())


@pytest.mark.parametrize(
    ("holder", "dead"),
    # Named by number: a process's own number and start differ from one run to the next.
    ids=range(8),
    argvalues=[
        (me(), False),
        (DEAD, True),
        (me(started="1"), True),
        (me(name="another-host", pid="999999999"), False),
        (me(place="00000000", pid="999999999"), False),
        (me(place="-", pid="999999999"), False),
        (me(pid="nobody"), False),
        ("", False),
    ],
)
def test_who_is_known_to_be_dead(holder: str, dead: bool) -> None:
    assert Host().knows_dead(holder) is dead
    assert Host().identity() == me()


def test_a_zombie_is_dead() -> None:
    """Its parent never asked how it ended: it stays in the table of processes, and writes nothing any more."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    holder = me(pid=str(child.pid), started=started(child.pid))
    assert not Host().knows_dead(holder)
    child.kill()
    end = time.monotonic() + 10
    while stat(child.pid)[0] != "Z":
        assert time.monotonic() < end
        time.sleep(0.01)
    assert Host().knows_dead(holder)
    child.wait()
    assert Host().knows_dead(holder)


def test_where_processes_cant_be_told_apart_nobody_is_known_to_be_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    from resources import host

    monkeypatch.setattr(host, "place", lambda: "-")
    assert not Host().knows_dead(me(place="-", pid="999999999"))
