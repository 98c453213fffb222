"""A writer that waits for one cluster keeps no other waiting, and an API that doesn't answer is no reason to write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from modelplane_dagster.errors import ModelplaneError, NotReadyError, UnreadableError
from modelplane_dagster.gate import admit_removal
from resources import lease as leases
from resources.files import load_fleet
from resources.session import Session
from resources.settings import from_environment

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def session(tmp_path: Path) -> Session:
    (tmp_path / "fleet").mkdir()
    settings = from_environment(
        {"MODELPLANE_HOME": str(tmp_path / "home"), "MODELPLANE_FLEET": str(tmp_path / "fleet")}
    )
    return Session(settings, load_fleet([tmp_path / "fleet"]), SimpleNamespace())  # type: ignore[arg-type]  # never reached


def test_waiting_for_one_cluster_keeps_no_other_waiting(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    go, waits = threading.Event(), threading.Event()

    def extend(name: str, _held: object) -> None:
        if name == "busy":
            waits.set()
            assert go.wait(10)

    monkeypatch.setattr(session, "_extend", extend)
    thread = threading.Thread(target=lambda: session.write(admit_removal("busy", "cluster/busy")))
    thread.start()
    try:
        assert waits.wait(10)
        begun = time.monotonic()
        session.write(admit_removal("free", "cluster/free"))
        session.forget("free")
        assert time.monotonic() - begun < 1
    finally:
        go.set()
        thread.join()
        session.close()


class Answers:
    """A cluster's API that fails as told."""

    def __init__(self, error: ModelplaneError) -> None:
        self.error = error

    def server_version(self) -> str:
        raise self.error


@pytest.mark.parametrize(
    ("source", "state", "error", "writes"),
    [
        # It isn't there yet: what is written goes to the cloud, and the file alone holds.
        ("Civo", "creating", NotReadyError("no API"), True),
        ("Civo", "creating", UnreadableError("no answer"), True),
        ("Civo", None, UnreadableError("no answer"), True),
        # It is there, and may answer another writer.
        ("Civo", "ready", UnreadableError("no answer"), False),
        ("Civo", "updating", UnreadableError("no answer"), False),
        ("Existing", None, UnreadableError("no answer"), False),
    ],
)
def test_who_writes_must_be_known_where_there_is_an_api(
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    state: str | None,
    error: ModelplaneError,
    writes: bool,
) -> None:
    monkeypatch.setattr(session, "keeper", lambda _name: Answers(error))
    monkeypatch.setattr(session, "ref", lambda _name: SimpleNamespace(source=source))
    monkeypatch.setattr(session, "cloud_cluster", lambda _name: SimpleNamespace(state=state) if state else None)
    admission = admit_removal("one", "cluster/one")
    try:
        if writes:
            session.write(admission)
            return
        with pytest.raises(UnreadableError, match="no answer"):
            session.write(admission)
        # Prune of a cluster whose API will never answer again.
        session.write(admission, gone=True)
    finally:
        session.close()


def test_a_lease_that_lapses_ends_the_clusters_helm(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    stand_in: Any = SimpleNamespace(end=lambda: ended.append("helm"), close=lambda: None, processes=0)
    monkeypatch.setitem(session._helms, "one", stand_in)
    monkeypatch.setattr(session, "keeper", lambda _name: SimpleNamespace(server_version=lambda: "v1.36.3"))
    monkeypatch.setattr(session, "client", lambda _name: SimpleNamespace(guard=lambda _check: None))
    monkeypatch.setattr(leases, "extend", lambda held, *_args, **_more: held.lapse())
    session.write(admit_removal("one", "cluster/one"))
    assert ended == ["helm"]
    session.close()


def test_a_command_ends_with_its_parent(tmp_path: Path) -> None:
    """However the parent ends: a helm whose parent was killed renews no Lease, and must not write on."""
    code = """
    import subprocess, sys, time
    from pathlib import Path
    from resources.mortal import mortal
    child = subprocess.Popen(mortal([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]))
    Path(sys.argv[1]).write_text(str(child.pid))
    time.sleep(60)
    """
    told = tmp_path / "pid"
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(told)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == "up\n"
    child = int(told.read_text())
    os.kill(child, 0)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    end = time.monotonic() + 10
    while Path(f"/proc/{child}/cmdline").exists() and Path(f"/proc/{child}/cmdline").read_bytes():
        assert time.monotonic() < end
        time.sleep(0.02)
