"""A second Node Feature Discovery and a device plugin beside DRA, planted on a healthy cluster by somebody else: both are told,
by every route, and nobody's objects are touched."""

from __future__ import annotations

from typing import Any

import pytest

from resources.kubernetes import ClusterClient
from tests.e2e.site import Site, eventually, site

pytestmark = [pytest.mark.lab]
SEED = """
clusters:
  metal:
    version: "1.36.1"
    nodes:
    - {name: room, cpus: 8, memoryGiB: 32}
    - name: h100
      cpus: 64
      memoryGiB: 512
      labels: {modelplane.ai/pool: h100, modelplane.ai/gpu: nvidia}
      taints: [{key: nvidia.com/gpu, value: present}]
      devices: [{card: h100, count: 8}]
"""
CLUSTER = """
apiVersion: modelplane.ai/v1alpha1
kind: InferenceCluster
metadata: {name: metal}
spec:
  cluster:
    source: Existing
    existing: {secretRef: {name: metal-kubeconfig, key: kubeconfig}}
  nodePools:
  - {name: h100, className: metal-h100, nodeCount: 1}
"""
NFD = (
    "DaemonSet nfd-node-feature-discovery-worker in nfd is a Node Feature Discovery beside our component "
    "node-feature-discovery; both label nodes, those of pool h100 included."
)
PLUGIN = (
    "On h100 of pool h100 the device plugin nvidia-device-plugin-daemonset in kube-system runs beside the slices of "
    "gpu.nvidia.com, which nvidia-dra-driver-gpu publishes, so one device can be handed out twice."
)
TOLD = [
    ("DevicePluginBesideDra", "pool/metal/h100", PLUGIN, "Turn the device plugin off on that pool."),
    ("SecondNfd", "cluster/metal", NFD, "Remove the one that isn't ours, or turn off the operator's own."),
]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with site(tmp_path_factory.mktemp("owners"), seed=SEED) as made:
        made.copy("fleet/classes/metal-h100.yaml")
        made.write("cluster.yaml", CLUSTER)
        ran = made.reconcile().clean()
        assert (ran.status, ran.json["verdict"], told(ran.json["clusters"][0]["findings"])) == (0, "converged", [])
        yield made


def told(findings: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    return sorted((f["code"], f["subject"], f["message"], f["fix"]) for f in findings)


def daemon(namespace: str, name: str, **pod: Any) -> dict[str, Any]:
    labels = {"app": name}
    container = {"name": "main", "image": "registry.example/foreign:1"}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container], **pod}},
        },
    }


def standing(client: ClusterClient) -> dict[str, str]:
    """Every object that somebody could be tempted to take away, by what identifies it."""
    kinds = [("apps/v1", k) for k in ("DaemonSet", "Deployment")] + [
        ("v1", "Secret"),
        ("resource.k8s.io/v1", "ResourceSlice"),
    ]
    found = [(kind, b["metadata"]) for api, kind in kinds for b in client.list(api, kind)]
    return {f"{kind}/{m.get('namespace', '')}/{m['name']}": m["uid"] for kind, m in found}


def test_both_are_told_and_nothing_is_deleted(running: Site):
    client = ClusterClient(running.lab.kubeconfig("metal", "user"), manager="kubectl")
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "nfd"}})
    client.create(daemon("nfd", "nfd-node-feature-discovery-worker", tolerations=[toleration]))
    client.create(daemon("kube-system", "nvidia-device-plugin-daemonset", tolerations=[toleration]))
    daemons = ("nfd-node-feature-discovery-worker", "nvidia-device-plugin-daemonset")

    def ready() -> bool:
        rows = {b["metadata"]["name"]: b["status"] for b in client.list("apps/v1", "DaemonSet")}
        return all(rows[name].get("numberReady") == 2 for name in daemons)

    eventually(ready)
    before, deleted = standing(client), running.changes()["cluster metal"].deletes
    # Nobody's waiting removes them, so it doesn't take the ten minutes.
    ran = running.reconcile("10m").clean()
    assert (ran.status, ran.json["verdict"], ran.json["stuck"]) == (4, "late", True)
    (row,) = ran.json["clusters"]
    assert (row["state"], told(row["findings"])) == ("pending", TOLD)
    plan = running.run("plan", str(running.folder), "--observe", "--format", "json").clean()
    (cluster,) = plan.json["clusters"]
    assert (plan.status, cluster["gate"]["verdict"], told(cluster["placement"]["findings"])) == (0, "pass", TOLD)
    assert [a for a in plan.json["actions"] if a["op"] != "none"] == []
    text = " ".join(running.run("plan", str(running.folder), "--observe").clean().out.split())
    assert [text.count(" ".join(said.split())) for _, _, message, fix in TOLD for said in (message, fix)] == [
        1,
        1,
        1,
        1,
    ]
    assert (standing(client), running.changes()["cluster metal"].deletes) == (before, deleted)
    for namespace, name in zip(("nfd", "kube-system"), daemons, strict=True):
        client.delete("apps/v1", "DaemonSet", name, namespace=namespace)
    again = running.reconcile().clean()
    assert (again.status, told(again.json["clusters"][0]["findings"])) == (0, [])


def test_a_node_that_allocates_the_devices_a_second_time(running: Site):
    """What a kubelet says once a device plugin registered with it."""
    client = ClusterClient(running.lab.kubeconfig("metal", "user"), manager="kubelet")
    amount = {"nvidia.com/gpu": "8"}
    client.patch(("v1", "Node", "", "h100"), {"status": {"allocatable": amount, "capacity": amount}}, status=True)
    message = PLUGIN.replace(
        "the device plugin nvidia-device-plugin-daemonset in kube-system runs", "a device plugin offers nvidia.com/gpu"
    )
    ran = running.reconcile("2s").clean()
    assert told(ran.json["clusters"][0]["findings"]) == [
        ("DevicePluginBesideDra", "pool/metal/h100", message, TOLD[0][3])
    ]
