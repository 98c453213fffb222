"""The wrapper with the real helm on a lab cluster."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from modelplane_dagster.components.types import Component, DeclaredWorkload, Knob, Pin
from modelplane_dagster.errors import ConflictError, HelmError, UnreadableError
from resources.helm import ChartRef, Helm
from resources.helm_records import clear_pending, pending_record
from resources.kubernetes import ClusterClient
from resources.lab.charts import write_chart
from tests.helm_binary import helm_binary
from tests.lab.served import served

pytestmark = pytest.mark.lab
AGENT = Component(
    key="agent",
    release="mp-agent",
    namespace="agent",
    pin=Pin("agent", "https://charts.example", "1.0.0", "2026-11-30", "values"),
    settings={"mode": "string"},
    workloads=(DeclaredWorkload(kind="Deployment", name="agent", node_selector=Knob("nodeSelector", {})),),
)
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "8", "memory": "8Gi"}, "conditions": [{"type": "Ready", "status": "True"}]},
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with served(tmp_path_factory.mktemp("helm") / "clusters") as running:
        yield running


@pytest.fixture
def cluster(lab, tmp_path, request):
    name = request.node.name.replace("_", "-")[:40].strip("-")
    lab.add(name)
    client = lab.client(name)
    client.create(NODE)
    chart = ChartRef(str(write_chart(AGENT, tmp_path)))
    with Helm(helm_binary(), lab.clusters.kubeconfig(name, "product"), cluster="one") as helm:
        yield helm, client, chart


def test_install_upgrade_and_uninstall(cluster):
    helm, client, chart = cluster
    first = helm.upgrade_install("mp-agent", chart, "agent", {"mode": "a"}, timeout=20)
    assert (first.revision, first.status, first.chart) == (1, "deployed", "agent-1.0.0")
    second = helm.upgrade_install("mp-agent", chart, "agent", {}, timeout=20)
    assert [r.status for r in helm.history("mp-agent", "agent")] == ["superseded", "deployed"]
    assert helm.status("mp-agent", "agent").revision == second.revision == 2
    assert helm.get_values("mp-agent", "agent") == {}
    assert pending_record(client, "mp-agent", "agent") is None
    helm.uninstall("mp-agent", "agent")
    helm.uninstall("mp-agent", "agent")
    assert helm.list() == ()


def test_a_field_that_somebody_else_took_is_a_conflict_with_names(cluster, lab):
    helm, client, chart = cluster
    helm.upgrade_install("mp-agent", chart, "agent", {"mode": "a"}, timeout=20)
    ops = ClusterClient(lab.clusters.kubeconfig(client.name, "user"), manager="ops")
    settings = {"name": "mp-agent-settings", "namespace": "agent"}
    ops.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": settings, "data": {"mode": "theirs"}}, force=True)
    with pytest.raises(ConflictError) as caught:
        helm.upgrade_install("mp-agent", chart, "agent", {"mode": "b"}, timeout=20)
    assert str(caught.value) == "Cluster one: ConfigMap agent/mp-agent-settings: ops owns .data.mode"
    assert helm.status("mp-agent", "agent").status == "failed"


def test_an_install_that_never_gets_ready_fails_and_stays(cluster):
    helm, client, chart = cluster
    with pytest.raises(HelmError, match="agent"):
        helm.upgrade_install("mp-agent", chart, "agent", {"nodeSelector": {"no": "where"}}, timeout=2)
    assert helm.status("mp-agent", "agent").status == "failed"
    assert client.get("apps/v1", "Deployment", "agent", namespace="agent") is not None
    assert helm.upgrade_install("mp-agent", chart, "agent", {}, timeout=20).status == "deployed"


def test_a_record_left_by_a_killed_helm_is_found_and_cleared(cluster, monkeypatch):
    helm, client, chart = cluster
    started = []
    import resources.helm as module

    real = module.subprocess.Popen

    def remembered(*args, **kwargs):
        started.append(real(*args, **kwargs))
        return started[-1]

    monkeypatch.setattr(module.subprocess, "Popen", remembered)
    values = {"nodeSelector": {"no": "where"}}
    failed = []

    def install():
        with pytest.raises(HelmError) as caught:
            helm.upgrade_install("mp-agent", chart, "agent", values, timeout=60)
        failed.append(caught.value)

    thread = threading.Thread(target=install)
    thread.start()
    end = time.monotonic() + 15
    while client.list("apps/v1", "Deployment") == [] and time.monotonic() < end:
        time.sleep(0.05)
    started[0].send_signal(signal.SIGKILL)
    thread.join(10)
    assert failed
    record = pending_record(client, "mp-agent", "agent")
    assert (record.revision, record.status) == (1, "pending-install")
    assert helm.status("mp-agent", "agent").pending
    with pytest.raises(HelmError, match="in progress"):
        helm.upgrade_install("mp-agent", chart, "agent", {}, timeout=20)
    assert clear_pending(client, record) is True
    assert clear_pending(client, record) is False
    assert helm.upgrade_install("mp-agent", chart, "agent", {}, timeout=20).status == "deployed"


def test_a_cluster_that_does_not_answer_is_unreadable(lab, tmp_path):
    lab.add("mute")
    config = lab.clusters.kubeconfig("mute", "product")
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9/clusters/mute"
    with (
        Helm(helm_binary(), config, cluster="mute") as helm,
        pytest.raises(UnreadableError, match="Cluster mute: helm list"),
    ):
        helm.list()
