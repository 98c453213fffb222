"""Restarts, the journal, the daemon's life."""

from __future__ import annotations

import json
import os
import signal
import stat
import time
from pathlib import Path

import pytest

from modelplane_dagster.errors import NotReadyError
from resources.lab.api.errors import ApiError
from resources.lab.api.storage import Storage
from resources.lab.client import LabClient, LabError, ensure_running, stop
from resources.lab.home import running
from tests.lab.objects import CONFIG_MAPS, CRDS, WIDGETS, config_map, widget, widget_crd
from tests.lab.server import Served

KEY = ("", "configmaps")


def _obj(name: str, **data: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def test_the_journal_survives_a_torn_last_line(tmp_path: Path):
    path = tmp_path / "objects.jsonl"
    storage = Storage(path)
    storage.put(KEY, ("ns", "a"), _obj("a", k="1"))
    storage.put(KEY, ("ns", "b"), _obj("b"))
    storage.put(KEY, ("ns", "a"), _obj("a", k="2"))
    storage.remove(KEY, ("ns", "b"))
    version = storage.version
    with path.open("ab") as out:
        out.write(b'{"rv":99,"at":["","confi')
    again = Storage(path)
    assert again.names(KEY) == [("ns", "a")]
    assert again.get(KEY, ("ns", "a")).obj["data"] == {"k": "2"}
    assert again.version == version
    again.put(KEY, ("ns", "c"), _obj("c"))
    assert Storage(path).names(KEY) == [("ns", "a"), ("ns", "c")]


def test_the_version_goes_on_after_deletions_and_a_restart(tmp_path: Path):
    path = tmp_path / "objects.jsonl"
    storage = Storage(path)
    storage.put(KEY, ("ns", "a"), _obj("a"))
    storage.remove(KEY, ("ns", "a"))
    assert [Storage(path).version, Storage(path).version] == [storage.version, storage.version]


def test_the_journal_is_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("resources.lab.api.storage.COMPACT_FROM", 2000)
    path = tmp_path / "objects.jsonl"
    storage = Storage(path)
    for number in range(500):
        storage.put(KEY, ("ns", "a"), _obj("a", k=str(number)))
    assert path.stat().st_size < 3000
    assert Storage(path).get(KEY, ("ns", "a")).obj["data"] == {"k": "499"}


def test_clusters_come_back_with_their_objects_tokens_and_apis(tmp_path: Path):
    first = Served(tmp_path)
    api = first.add("c", "v1.35.4", critical_pods_quota=True)
    api.post(CRDS, widget_crd())
    api.post(WIDGETS, widget("w", size=3))
    made = api.post(CONFIG_MAPS, config_map("a", k="1")).body
    first.stop()
    second = Served(tmp_path)
    again = second.api("c")
    assert again.token == api.token
    assert second.port == first.port
    assert again.get("/version").body["gitVersion"] == "v1.35.4"
    assert again.get(f"{CONFIG_MAPS}/a").body == made
    assert again.get(f"{WIDGETS}/w").body["spec"]["size"] == 3
    gone = again.get(f"{CONFIG_MAPS}?watch=true&resourceVersion=2").raw
    assert json.loads(gone)["object"]["code"] == 410
    assert second.lab.clusters.get("c").store.switches.critical_pods_quota
    second.stop()


def test_a_removed_cluster_is_gone_for_good(fresh: Served):
    api = fresh.add("c")
    fresh.call(lambda: fresh.lab.clusters.remove_cluster("c"))
    assert api.get("/version").status == 503
    assert not (fresh.home / "clusters" / "c").exists()
    assert fresh.add("c").token != api.token


def test_a_cluster_without_an_api_yet(fresh: Served):
    api = fresh.add("c", ready=False)
    assert api.get("/version").status == 503
    fresh.call(lambda: fresh.lab.clusters.set_ready("c", ready=True))
    assert api.get("/version").status == 200


def test_controllers_write_in_process_and_see_every_change(fresh: Served):
    api = fresh.add("c")
    store = fresh.lab.clusters.get("c").store
    seen: list[tuple[str, str]] = []
    end = fresh.call(lambda: store.subscribe(lambda event: seen.append((event.type, event.name[1]))))
    api.post(CONFIG_MAPS, config_map("a"))
    fresh.call(lambda: store.patch("configmaps", "a", {"data": {"k": "1"}}, namespace="default"))
    fresh.call(lambda: store.delete("configmaps", "a", namespace="default"))
    fresh.call(end)
    api.post(CONFIG_MAPS, config_map("b"))
    assert seen == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


@pytest.mark.lab
def test_the_daemon_starts_once_keeps_its_port_and_survives_a_kill(tmp_path: Path):
    assert running(tmp_path) is None
    with pytest.raises(NotReadyError):
        LabClient(tmp_path).status()
    lab = ensure_running(tmp_path)
    try:
        port, pid = lab.port, running(tmp_path)
        assert stat.S_IMODE((tmp_path / "lab.token").stat().st_mode) == 0o600
        lab.add_cluster("c", "v1.36.3")
        with pytest.raises(LabError, match="no fault 'sulk'"):
            lab.set_fault("c", "sulk")
        lab.set_fault("c", "drop_connections")
        # The daemon may seed clusters of its own.
        shown = next(c for c in lab.status()["clusters"] if c["name"] == "c")
        assert (shown["name"], shown["version"], shown["faults"]) == ("c", "v1.36.3", ["drop_connections"])
        assert ensure_running(tmp_path).status()["pid"] == pid
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 5
        while running(tmp_path) is not None and time.monotonic() < deadline:
            time.sleep(0.01)
        again = ensure_running(tmp_path)
        assert again.port == port
        assert "c" in [c["name"] for c in again.status()["clusters"]]
        config = again.kubeconfig("c", "user")
        assert config["clusters"][0]["cluster"]["server"] == f"https://127.0.0.1:{port}/clusters/c"
    finally:
        assert stop(tmp_path)
    assert not stop(tmp_path)


@pytest.mark.lab
def test_the_control_endpoints_want_the_token(fresh: Served):
    api = fresh.add("c")
    api.base = ""
    assert api.get("/lab/status").status == 401
    assert api.get("/elsewhere").status == 404


def test_a_half_made_cluster_is_made_anew(fresh: Served):
    folder = fresh.home / "clusters" / "c"
    folder.mkdir(parents=True)
    (folder / "objects.jsonl").write_bytes(b'{"rv":7}\n')
    assert fresh.add("c").get("/version").status == 200


@pytest.mark.parametrize("name", ["..", "A", "a/b", ""])
def test_names_that_no_cluster_can_have(fresh: Served, name: str):
    with pytest.raises(ApiError, match="can't name a cluster"):
        fresh.add(name)
