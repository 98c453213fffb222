"""Agents on a served lab cluster: charts are installed with helm, and what the hardware does about it is seen by its API."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from modelplane_dagster.components.lists import components_for
from modelplane_dagster.kube.objects import Taint
from resources.helm import Helm, chart_ref
from resources.lab.agents.agent import ClusterAgent, Pace
from resources.lab.agents.faults import AgentFault, AgentFaults
from resources.lab.agents.hardware import CARDS, DesiredNode, DeviceGroup, Hardware
from resources.lab.charts import write_mirror
from tests.helm_binary import helm_binary
from tests.lab.served import served

pytestmark = pytest.mark.lab
PACE = Pace(least=0.05, settle=0.5, idle=5.0, withdraw=0.2)
NV, AMD, CPU = Taint("nvidia.com/gpu", "present"), Taint("amd.com/gpu", "present"), Taint("modelplane.ai/cpu", "true")


def cards(name, count):
    group = CARDS[name]
    return (DeviceGroup(group.driver, count, group.attributes, group.capacity),)


def node(name, pool="", taint=None, devices=(), **labels):
    ours = {"modelplane.ai/pool": pool, **labels} if pool else {}
    return DesiredNode(name, Hardware(8, 65536, devices=devices), ours, (taint,) if taint else ())


NODES = [
    node("sys-1"),
    node("nv-1", "nv", NV, cards("l4", 2)),
    node("amd-1", "amd", AMD, cards("mi325x", 1)),
    node("cpu-1", "cpu", CPU, **{"modelplane.ai/cpu": "true"}),
]


def tolerate(*taints):
    return [{"key": t.key, "operator": "Exists", "effect": "NoSchedule"} for t in taints]


def pools(*names):
    term = {"matchExpressions": [{"key": "modelplane.ai/pool", "operator": "In", "values": list(names)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


class Stage:
    """A served cluster with an agent, and helm with charts of one source."""

    def __init__(self, lab, name, mirror, source, version="v1.36.3") -> None:
        self.components = {c.key: c for c in components_for(source)}
        write_mirror(self.components.values(), mirror)
        lab.add(name, version)
        self.mirror, self.nodes, self.faults = mirror, list(NODES), AgentFaults()
        self.client = lab.client(name)
        self.agent = ClusterAgent(
            lab.client(name, "agent"),
            desired=lambda: self.nodes,
            components=self.components,
            faults=self.faults,
            pace=PACE,
        )
        self.helm = Helm(helm_binary(), lab.clusters.kubeconfig(name, "product"), cluster=name)
        self.agent.start()

    def close(self) -> None:
        self.agent.stop()
        self.helm.close()

    def install(self, key, values):
        component = self.components[key]
        chart = chart_ref(component.pin, mirror=str(self.mirror))
        return self.helm.upgrade_install(component.release, chart, component.namespace, values, timeout=20)

    def slices(self):
        """Driver, node and device names of every slice."""
        found = self.client.list("resource.k8s.io/v1", "ResourceSlice")
        return sorted(
            (s["spec"]["driver"], s["spec"]["nodeName"], [d["name"] for d in s["spec"]["devices"]]) for s in found
        )

    def daemons(self):
        """Name, desired and ready of every DaemonSet."""
        found = self.client.list("apps/v1", "DaemonSet")
        return {
            d["metadata"]["name"]: (d["status"]["desiredNumberScheduled"], d["status"]["numberReady"]) for d in found
        }

    def label(self, name, key):
        return self.client.get("v1", "Node", name)["metadata"]["labels"].get(key)


def eventually(seen, expected, seconds=15.0):
    """Waits until `seen()` is what is expected, then compares."""
    end = time.monotonic() + seconds
    while seen() != expected and time.monotonic() < end:
        time.sleep(0.05)
    assert seen() == expected


@pytest.fixture
def stage(tmp_path):
    with served(tmp_path / "clusters") as lab:
        stages = []

        def make(source="Existing", version="v1.36.3"):
            stages.append(Stage(lab, f"c{len(stages)}", tmp_path / "mirror", source, version))
            return stages[-1]

        yield make
        for one in stages:
            one.close()


def cpu_values(mode):
    return {
        "nodeSelector": {"modelplane.ai/cpu": "true"},
        "tolerations": tolerate(CPU),
        "driverConfig": {"reservedCPUs": "0-1", "cpuDeviceMode": mode},
    }


def test_nodes_join_change_and_leave(stage):
    one = stage()
    eventually(
        lambda: sorted(n["metadata"]["name"] for n in one.client.list("v1", "Node")),
        ["amd-1", "cpu-1", "nv-1", "sys-1"],
    )
    live = one.client.get("v1", "Node", "nv-1")
    assert live["spec"]["taints"] == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    eventually(lambda: one.client.get("v1", "Node", "nv-1")["status"].get("allocatable", {}).get("cpu"), "7800m")
    one.client.patch(("v1", "Node", "", "nv-1"), {"metadata": {"labels": {"theirs": "kept"}}})
    one.nodes = [NODES[0], node("nv-1", "nv", NV, cards("l4", 2), zone="b")]
    eventually(lambda: sorted(n["metadata"]["name"] for n in one.client.list("v1", "Node")), ["nv-1", "sys-1"])
    eventually(lambda: (one.label("nv-1", "zone"), one.label("nv-1", "theirs")), ("b", "kept"))


@pytest.mark.parametrize(
    ("mode", "names"), [("grouped", ["cpudevnuma000"]), ("individual", [f"cpudev{n:03}" for n in range(2, 8)])]
)
def test_the_cpu_driver_publishes_in_its_mode_and_withdraws(stage, mode, names):
    one = stage()
    one.install("dra-driver-cpu", cpu_values(mode))
    eventually(one.slices, [("dra.cpu", "cpu-1", names)])
    one.helm.uninstall("mp-dra-driver-cpu", "dra-driver-cpu")
    eventually(one.slices, [])


def test_a_server_without_shared_devices_drops_the_field_and_is_left_in_peace(stage):
    one = stage(version="v1.34.2")
    one.install("dra-driver-cpu", cpu_values("grouped"))
    eventually(one.slices, [("dra.cpu", "cpu-1", ["cpudevnuma000"])])
    (published,) = one.client.list("resource.k8s.io/v1", "ResourceSlice")
    assert "allowMultipleAllocations" not in published["spec"]["devices"][0]
    time.sleep(0.6)
    (later,) = one.client.list("resource.k8s.io/v1", "ResourceSlice")
    assert later["metadata"]["resourceVersion"] == published["metadata"]["resourceVersion"]


def test_the_nvidia_chain_from_label_to_slice(stage):
    one = stage()
    one.install(
        "node-feature-discovery", {"worker": {"affinity": pools("nv", "amd"), "tolerations": tolerate(NV, AMD)}}
    )
    card = "feature.node.kubernetes.io/pci-0302_10de.present"
    eventually(lambda: [one.label(n.name, card) for n in NODES], [None, "true", None, None])
    one.install(
        "nvidia-dra-driver-gpu",
        {"gpuResourcesEnabledOverride": True, "resources": {"computeDomains": {"enabled": False}}},
    )
    eventually(one.slices, [("gpu.nvidia.com", "nv-1", ["gpu-0", "gpu-1"])])
    (published,) = one.client.list("resource.k8s.io/v1", "ResourceSlice")
    assert published["spec"]["devices"][1]["capacity"] == {"memory": {"value": "23034Mi"}}
    one.helm.uninstall("mp-node-feature-discovery", "node-feature-discovery")
    eventually(lambda: one.label("nv-1", card), None)
    eventually(one.slices, [])


def test_the_amd_operator_makes_daemons_from_its_resource(stage):
    one = stage()
    one.install("node-feature-discovery", {"worker": {"affinity": pools("amd"), "tolerations": tolerate(AMD)}})
    one.install("amd-gpu-operator", {})
    spec = {
        "selector": {"modelplane.ai/pool": "amd"},
        "devicePlugin": {"enableDevicePlugin": False, "nodeLabellerTolerations": tolerate(AMD)},
        "draDriver": {"enable": True, "tolerations": tolerate(AMD)},
    }
    metadata = {"name": "mp-amd", "namespace": "kube-amd-gpu"}
    config = {"apiVersion": "amd.com/v1alpha1", "kind": "DeviceConfig", "metadata": metadata, "spec": spec}
    one.client.apply(config)
    eventually(one.slices, [("gpu.amd.com", "amd-1", ["gpu-0"])])
    made = {name: counts for name, counts in one.daemons().items() if name.startswith("mp-amd")}
    assert made == {"mp-amd-dra-driver": (1, 1), "mp-amd-node-labeller": (1, 1)}
    spec["draDriver"]["tolerations"] = []
    one.client.apply(config)
    eventually(one.slices, [])
    assert one.daemons()["mp-amd-dra-driver"] == (0, 0)
    one.client.delete("amd.com/v1alpha1", "DeviceConfig", "mp-amd", namespace="kube-amd-gpu")
    eventually(lambda: [name for name in one.daemons() if name.startswith("mp-amd")], [])


def gang(replicas):
    pod = {"spec": {"containers": [{"name": "engine", "image": "i:1"}], "tolerations": tolerate(NV)}}
    template = {"size": 3, "leaderTemplate": pod, "workerTemplate": pod}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "big", "namespace": "default"},
        "spec": {"replicas": replicas, "leaderWorkerTemplate": template},
    }


def test_a_gang_is_a_leader_and_its_workers(stage):
    one = stage()
    one.install("lws", {})
    one.client.apply(gang(2))
    pods = ["big-0", "big-0-1", "big-0-2", "big-1", "big-1-1", "big-1-2"]
    eventually(lambda: [p["metadata"]["name"] for p in one.client.list("v1", "Pod", namespace="default")], pods)
    prefix = "leaderworkerset.sigs.k8s.io/"

    def marks():
        labels = one.client.get("v1", "Pod", "big-1-2", namespace="default")["metadata"]["labels"]
        return {k.removeprefix(prefix): v for k, v in labels.items() if k.startswith(prefix)}

    eventually(marks, {"name": "big", "group-index": "1", "worker-index": "2"})
    key = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "big")
    eventually(lambda: one.client.get(*key, namespace="default").get("status", {}).get("readyReplicas"), 2)
    one.client.apply(gang(1))
    eventually(lambda: [p["metadata"]["name"] for p in one.client.list("v1", "Pod", namespace="default")], pods[:3])
    one.client.delete(*key, namespace="default")
    eventually(lambda: one.client.list("v1", "Pod", namespace="default"), [])


def test_an_issuer_becomes_ready_while_cert_manager_runs(stage):
    one = stage()
    one.install("cert-manager", {})
    issuer = {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Issuer",
        "metadata": {"name": "own", "namespace": "default"},
        "spec": {"selfSigned": {}},
    }
    one.client.apply(issuer)

    def seen():
        live = one.client.get("cert-manager.io/v1", "Issuer", "own", namespace="default")
        return [(c["type"], c["status"]) for c in live.get("status", {}).get("conditions", [])]

    eventually(seen, [("Ready", "True")])


def test_a_toleration_that_misses_the_pool_looks_healthy_and_publishes_nothing(stage):
    one = stage()
    wrong = [{"key": "nvidia.com/gpu", "operator": "Equal", "value": "true", "effect": "NoSchedule"}]
    hardware = {
        "kubeletPlugin": {"affinity": {"nodeAffinity": None}, "tolerations": wrong},
        "gpuResourcesEnabledOverride": True,
    }
    one.nodes = [node("sys-1", devices=cards("l4", 1)), NODES[1]]
    one.install("nvidia-dra-driver-gpu", hardware)
    eventually(lambda: one.daemons()["dra-driver-nvidia-gpu-kubelet-plugin"], (1, 1))
    eventually(one.slices, [("gpu.nvidia.com", "sys-1", ["gpu-0"])])


def test_faults(stage):
    one = stage()
    one.faults.set_fault("pool/c0/cpu", AgentFault.DRIVER_NEVER_PUBLISHES)
    one.install("dra-driver-cpu", cpu_values("grouped"))
    eventually(lambda: one.daemons()["mp-dra-driver-cpu"], (1, 1))
    time.sleep(0.5)
    assert one.slices() == []
    one.faults.clear_fault("pool/c0/cpu", AgentFault.DRIVER_NEVER_PUBLISHES)
    eventually(one.slices, [("dra.cpu", "cpu-1", ["cpudevnuma000"])])
    one.faults.set_fault("pool/c0/cpu", AgentFault.NODE_WITHOUT_LABEL)
    eventually(lambda: one.label("cpu-1", "modelplane.ai/cpu"), None)
    eventually(one.slices, [])
    one.faults.clear_fault("pool/c0/cpu", AgentFault.NODE_WITHOUT_LABEL)
    eventually(one.slices, [("dra.cpu", "cpu-1", ["cpudevnuma000"])])


def test_idle_agents_write_nothing_and_hardly_read(stage):
    one = stage()
    one.install("dra-driver-cpu", cpu_values("grouped"))
    eventually(one.slices, [("dra.cpu", "cpu-1", ["cpudevnuma000"])])
    time.sleep(1.5)
    before = one.agent.calls
    time.sleep(1.0)
    after = one.agent.calls
    assert (after.writes - before.writes, after.deletes - before.deletes) == (0, 0)
    assert after.reads - before.reads <= 3


def test_every_chart_of_a_source_installs(stage):
    one = stage("Existing")
    one.nodes = [NODES[0]]
    eventually(lambda: len(one.client.list("v1", "Node")), 1)
    charted = [c for c in one.components.values() if c.pin is not None]
    assert len(charted) > 5
    with ThreadPoolExecutor(4) as several:
        statuses = list(several.map(lambda c: one.install(c.key, {}).status, charted))
    assert set(statuses) == {"deployed"}
