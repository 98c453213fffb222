"""The daemon with everything in it: seeded clusters, their nodes and daemons, faults by the control endpoint."""

from __future__ import annotations

import time

import pytest

from modelplane_dagster.components.cpu import DRA_DRIVER_CPU
from modelplane_dagster.errors import ConfigError, NotReadyError
from resources.helm import Helm, chart_ref
from resources.kubernetes import ClusterClient
from resources.lab.agents.seed import read_seed
from resources.lab.client import LabClient, LabError, ensure_running, stop
from tests.helm_binary import helm_binary
from tests.lab.test_agents import cpu_values, eventually

SEED = """
clusters:
  metal:
    version: "1.35.2"
    nodes:
    - {name: room}
    - name: cpu
      count: 2
      cpus: 4
      labels: {modelplane.ai/pool: cpu, modelplane.ai/cpu: "true"}
      taints: [{key: modelplane.ai/cpu, value: "true"}]
"""


@pytest.mark.lab
def test_a_seeded_cluster_runs_what_is_installed_there(tmp_path, monkeypatch):
    seed = tmp_path / "seed.yaml"
    seed.write_text(SEED)
    monkeypatch.setenv("MODELPLANE_LAB_SEED", str(seed))
    home = tmp_path / "lab"
    lab = ensure_running(home)
    try:
        _check(lab, str(home / "charts"))
        stop(home)
        lab = ensure_running(home)
        client = ClusterClient(lab.kubeconfig("metal", "product"), name="metal")
        eventually(lambda: _slices(client), {"cpu-0": 2, "cpu-1": 2})
        assert lab.status()["clusters"][0]["faults"] == []
    finally:
        stop(home)


def _check(lab: LabClient, mirror: str) -> None:
    config = lab.kubeconfig("metal", "product")
    client = ClusterClient(config, name="metal")
    assert client.server_version() == "v1.35.2"
    eventually(lambda: [n["metadata"]["name"] for n in client.list("v1", "Node")], ["cpu-0", "cpu-1", "room"])
    lab.fault("pool/metal/cpu", "node-without-label")
    assert lab.status()["clusters"][0]["faults"] == ["pool/metal/cpu node-without-label"]
    with Helm(helm_binary(), config) as helm:
        chart = chart_ref(DRA_DRIVER_CPU.pin, mirror=mirror)
        release = helm.upgrade_install(
            "mp-dra-driver-cpu", chart, "dra-driver-cpu", cpu_values("individual"), timeout=20
        )
        assert release.status == "deployed"
    eventually(lambda: _slices(client), {"cpu-1": 2})
    lab.fault("pool/metal/cpu", "node-without-label", on=False)
    eventually(lambda: _slices(client), {"cpu-0": 2, "cpu-1": 2})
    lab.fault("cluster/metal", "unauthorized")
    assert lab.status()["clusters"][0]["faults"] == ["unauthorized"]
    lab.fault("cluster/metal", "unauthorized", on=False)
    with pytest.raises(LabError, match="no fault 'sulk' of 'pool/metal/cpu'"):
        lab.fault("pool/metal/cpu", "sulk")


def _slices(client: ClusterClient) -> dict[str, int]:
    found = client.list("resource.k8s.io/v1", "ResourceSlice")
    return {s["spec"]["nodeName"]: len(s["spec"]["devices"]) for s in found}


@pytest.mark.parametrize(
    "text",
    [
        "clusters: [",
        "clusters: {a: {version: '1.36', nodes: [{name: n, devices: [{card: none}]}]}}",
        "clusters: {a: {version: '1.36', nods: []}}",
        "clusters: {a: {version: newest}}",
        "nothing: {}",
    ],
)
def test_a_seed_that_cannot_be_read_is_the_users_to_fix(tmp_path, text):
    path = tmp_path / "seed.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"The lab's seed seed\.yaml"):
        read_seed(path)


def test_no_seed_means_no_cluster(tmp_path):
    assert read_seed(tmp_path / "absent.yaml") == {}


@pytest.mark.lab
@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        ("seed", ConfigError, "The lab's seed seed.yaml can't be read: "),
        ("home", NotReadyError, "the lab ended as it started: FileExistsError"),
    ],
)
def test_a_daemon_that_ends_as_it_starts_is_told_at_once(tmp_path, monkeypatch, spoil, error, message):
    (tmp_path / "seed.yaml").write_text("clusters: [" if spoil == "seed" else "clusters: {}")
    monkeypatch.setenv("MODELPLANE_LAB_SEED", str(tmp_path / "seed.yaml"))
    home = tmp_path / "lab"
    home.mkdir()
    if spoil == "home":
        (home / "clouds").write_text("not a folder")
    start = time.monotonic()
    with pytest.raises(error) as raised:
        ensure_running(home)
    assert raised.value.message.startswith(message), raised.value.message
    assert time.monotonic() - start < 15
    assert ("Traceback" in (home / "lab.log").read_text()) == (spoil == "home")
