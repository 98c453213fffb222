"""The lab on real control planes: one address, its faults and counts before each, its clouds' admission behind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from modelplane_dagster.errors import AccessError, ConfigError, KubernetesError, UnreadableError
from resources.kubernetes import ClusterClient
from resources.lab.client import LabClient, ensure_running, stop

pytestmark = pytest.mark.kubernetes
SEED = """
clusters:
  old:
    version: "1.34.2"
    nodes:
    - {name: room, count: 1, cpus: 4, memoryGiB: 16}
"""


@pytest.fixture(scope="module")
def lab(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabClient]:
    home = tmp_path_factory.mktemp("lab")
    seed = home / "seed.yaml"
    seed.write_text(SEED)
    with pytest.MonkeyPatch.context() as env:
        env.setenv("MODELPLANE_LAB_SEED", str(seed))
        env.setenv("KUBE_ASSETS", str(assets))
        client = ensure_running(home / "lab", "kubernetes")
    client.add_cluster("strict", "1.36.1", critical_pods_quota=True, refuse_keyless_tolerations=True)
    for name in ("old", "strict"):
        _up(client, name)
    yield client
    stop(home / "lab")


def _up(lab: LabClient, name: str) -> None:
    end = time.monotonic() + 120
    with ClusterClientFor(lab, name) as api:
        while True:
            try:
                if api.list("v1", "ServiceAccount", namespace="default"):
                    return
            except (UnreadableError, KubernetesError) as error:
                assert time.monotonic() < end, error.message
            time.sleep(0.3)


class ClusterClientFor:
    def __init__(self, lab: LabClient, name: str, user: str = "user") -> None:
        self._client = ClusterClient(lab.kubeconfig(name, user), name=name, retries=0)

    def __enter__(self) -> ClusterClient:
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.close()


def _shown(lab: LabClient, name: str) -> dict[str, Any]:
    return next(c for c in lab.status()["clusters"] if c["name"] == name)


def test_a_cluster_is_as_old_as_it_was_made(lab: LabClient) -> None:
    with ClusterClientFor(lab, "old") as api:
        assert api.server_version() == "v1.34.2"
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "c", "namespace": "default"},
            "spec": {
                "devices": {
                    "requests": [
                        {"name": "r", "exactly": {"deviceClassName": "x", "capacity": {"requests": {"a.b/c": "1"}}}}
                    ]
                }
            },
        }
        assert "capacity" not in api.create(claim)["spec"]["devices"]["requests"][0]["exactly"]


def test_the_seeds_nodes_join(lab: LabClient) -> None:
    with ClusterClientFor(lab, "old") as api:
        end = time.monotonic() + 30
        while not (found := api.list("v1", "Node")):
            assert time.monotonic() < end
            time.sleep(0.2)
    assert [n["metadata"]["name"] for n in found] == ["room-0"]


def test_requests_are_counted_by_kind(lab: LabClient) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "counted", "namespace": "default"}}
    with ClusterClientFor(lab, "old", "product") as api:
        api.list("v1", "ConfigMap")
        before = _shown(lab, "old")
        api.list("v1", "ConfigMap")
        api.create(body)
        api.delete("v1", "ConfigMap", "counted", namespace="default")
    after = _shown(lab, "old")
    assert {k: after[k] - before[k] for k in ("reads", "writes", "deletes")} == {"reads": 1, "writes": 1, "deletes": 1}


def test_the_front_has_the_faults_of_the_embedded_lab(lab: LabClient) -> None:
    with ClusterClientFor(lab, "old") as api:
        lab.set_fault("old", "unauthorized")
        with pytest.raises(AccessError, match="401 Unauthorized"):
            api.list("v1", "Namespace")
        lab.clear_fault("old", "unauthorized")
        lab.set_fault("old", "drop_connections")
        with pytest.raises(UnreadableError):
            api.list("v1", "Namespace")
        lab.clear_fault("old", "drop_connections")
        time.sleep(1.1)  # as long as a client takes an API for down after it didn't answer
        assert api.list("v1", "Namespace")


def test_a_cloud_that_refuses_keyless_tolerations_does(lab: LabClient) -> None:
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "keyless", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "stand-in:1"}], "tolerations": [{"operator": "Exists"}]},
    }
    with ClusterClientFor(lab, "strict") as api:
        with pytest.raises(KubernetesError, match="tolerates every taint"):
            api.create(pod)
        pod["spec"]["tolerations"] = [{"key": "a", "operator": "Exists"}]
        assert api.create(pod)["metadata"]["name"] == "keyless"


def test_a_cloud_with_a_quota_of_critical_pods_has_it(lab: LabClient) -> None:
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "critical", "namespace": "default"},
        "spec": {
            "containers": [{"name": "c", "image": "stand-in:1"}],
            "priorityClassName": "system-node-critical",
        },
    }
    with ClusterClientFor(lab, "strict") as api:
        with pytest.raises(KubernetesError, match="insufficient quota"):
            api.create(pod)
        pod["metadata"]["namespace"] = "kube-system"
        assert api.create(pod)["metadata"]["name"] == "critical"


def test_a_home_keeps_its_kind_of_lab(lab: LabClient) -> None:
    with pytest.raises(ConfigError, match="MODELPLANE_LAB=kubernetes"):
        ensure_running(lab.home, "embedded")


def test_a_dead_api_server_is_started_again_with_its_state(lab: LabClient) -> None:
    import os
    import signal

    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept", "namespace": "default"}}
    with ClusterClientFor(lab, "old") as api:
        api.create(body)
        pid = int((lab.home / "planes" / "old" / "plane" / "kube-apiserver.pid").read_text())
        os.kill(pid, signal.SIGKILL)
    _up(lab, "old")
    with ClusterClientFor(lab, "old") as api:
        assert api.get("v1", "ConfigMap", "kept", namespace="default") is not None
