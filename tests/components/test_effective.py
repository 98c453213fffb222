"""Where the declared workloads land: the nodes and the landings are those measured with the real charts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modelplane_dagster.components.amd import AMD_GPU_OPERATOR
from modelplane_dagster.components.cpu import DRA_DRIVER_CPU
from modelplane_dagster.components.effective import effective_placement, merged, placed, turned_on
from modelplane_dagster.components.fabric import AWS_DRANET
from modelplane_dagster.components.join import join
from modelplane_dagster.components.lists import components_for
from modelplane_dagster.components.nfd import NODE_FEATURE_DISCOVERY
from modelplane_dagster.components.nvidia import OperatorParts, dra_driver, gpu_operator
from modelplane_dagster.components.types import DeclaredWorkload, Knob
from modelplane_dagster.kube.objects import NodeFacts, PodPlacement, Requirement, Taint, Term, Toleration
from modelplane_dagster.kube.scheduling import may_run
from tests.components.worlds import amd, full, view

CP = Taint("node-role.kubernetes.io/control-plane", "")
NV, AMD, CPU = Taint("nvidia.com/gpu", "present"), Taint("amd.com/gpu", "present"), Taint("modelplane.ai/cpu", "true")
POOL, IS_CPU = "modelplane.ai/pool", {"modelplane.ai/cpu": "true"}
SEEN = {"feature.node.kubernetes.io/pci-0302_10de.present": "true"}
AMD_SEEN = {"feature.node.kubernetes.io/amd-gpu": "true"}


def node(name, labels=None, *taints):
    return NodeFacts(name, labels=labels or {}, taints=taints)


NODES = (
    node("cp-1", {}, CP),
    node("sys-1"),
    node("nv-1", {POOL: "nv", **SEEN}, NV),
    node("amd-1", {POOL: "amd", **AMD_SEEN}, AMD),
    node("cpu-1", {POOL: "cpu", **IS_CPU}, CPU),
    node("nvcpu-1", {POOL: "nvcpu", **SEEN, **IS_CPU}, NV),
    node("amdcpu-1", {POOL: "amdcpu", **AMD_SEEN, **IS_CPU}, AMD),
    node("nvbare-1", {POOL: "nvbare", **SEEN}),
    node("nvexec-1", {POOL: "nvexec"}, Taint("nvidia.com/gpu", "present", "NoExecute")),
    node("nvded-1", {POOL: "nvded"}, Taint("dedicated", "gpu")),
    node("nvstray-1", {"nvidia.com/gpu.present": "true"}, Taint("nvidia.com/gpu", "true")),
    node("amdstray-1", AMD_SEEN, AMD),
)
GPU_POOLS = ["amd", "amdcpu", "nv", "nvbare", "nvcpu", "nvded", "nvexec"]


def in_pools(*names):
    term = {"matchExpressions": [{"key": POOL, "operator": "In", "values": list(names)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def tolerating(*keys, effect="NoSchedule"):
    return [{"key": k, "operator": "Exists", **({"effect": effect} if effect else {})} for k in keys]


def workload(component, name) -> DeclaredWorkload:
    return next(w for w in component.workloads if w.name == name)


def lands(placement):
    return [n.name for n in NODES if may_run(placement, n)]


CPU_DAEMON = workload(DRA_DRIVER_CPU, "mp-dra-driver-cpu")
NFD_WORKER = workload(NODE_FEATURE_DISCOVERY, "mp-node-feature-discovery-worker")
NV_PLUGIN = workload(dra_driver("/"), "dra-driver-nvidia-gpu-kubelet-plugin")
EFA = workload(AWS_DRANET, "mp-aws-dranet")
THREE = ("modelplane.ai/cpu", "nvidia.com/gpu", "amd.com/gpu")


@pytest.mark.parametrize(
    ("daemon", "values", "nodes"),
    [
        pytest.param(
            CPU_DAEMON,
            {},
            "cp-1 sys-1 nv-1 amd-1 cpu-1 nvcpu-1 amdcpu-1 nvbare-1 nvded-1 nvstray-1 amdstray-1",
            id="cpu-defaults",
        ),
        pytest.param(
            CPU_DAEMON,
            {"nodeSelector": IS_CPU, "tolerations": tolerating("modelplane.ai/cpu")},
            "cpu-1",
            id="cpu-its-own-taint-alone",
        ),
        pytest.param(
            CPU_DAEMON,
            {"nodeSelector": IS_CPU, "tolerations": tolerating(*THREE)},
            "cpu-1 nvcpu-1 amdcpu-1",
            id="cpu-ours",
        ),
        pytest.param(CPU_DAEMON, {"tolerations": None}, "sys-1 nvbare-1", id="cpu-null-clears"),
        pytest.param(CPU_DAEMON, {"tolerations": []}, "sys-1 nvbare-1", id="cpu-empty-clears"),
        pytest.param(NFD_WORKER, {}, "sys-1 nvbare-1", id="nfd-defaults"),
        pytest.param(
            NFD_WORKER,
            {"worker": {"affinity": in_pools(*GPU_POOLS), "tolerations": tolerating("nvidia.com/gpu", "amd.com/gpu")}},
            "nv-1 amd-1 nvcpu-1 amdcpu-1 nvbare-1",
            id="nfd-ours",
        ),
        pytest.param(NV_PLUGIN, {}, "nv-1 nvcpu-1 nvbare-1 nvstray-1", id="nvidia-defaults-stray"),
        pytest.param(
            NV_PLUGIN, {"kubeletPlugin": {"affinity": in_pools("nv", "nvcpu")}}, "nv-1 nvcpu-1", id="nvidia-ours"
        ),
        pytest.param(
            NV_PLUGIN,
            {
                "kubeletPlugin": {
                    "affinity": in_pools("nv", "nvexec"),
                    "tolerations": tolerating("nvidia.com/gpu", effect=""),
                }
            },
            "nv-1 nvexec-1",
            id="nvidia-any-effect",
        ),
        pytest.param(EFA, {"tolerations": tolerating("nvidia.com/gpu")}, "", id="efa-by-instance-type"),
        pytest.param(
            EFA,
            {
                "supportedInstanceLabels": {"keys": [POOL], "values": ["nv", "nvcpu"]},
                "tolerations": tolerating("nvidia.com/gpu"),
            },
            "nv-1 nvcpu-1",
            id="efa-ours",
        ),
        pytest.param(
            EFA, {"supportedInstanceLabels": {"keys": [POOL], "values": ["nv", "nvcpu"]}}, "", id="efa-intolerant"
        ),
    ],
)
def test_landings(daemon, values, nodes):
    assert lands(effective_placement(daemon, values)) == nodes.split()


def test_efa_keeps_what_its_template_adds():
    values = {"supportedInstanceLabels": {"keys": [POOL], "values": ["nv"]}}
    assert effective_placement(EFA, values) == PodPlacement(
        {},
        (
            Term(
                (
                    Requirement(POOL, "In", ("nv",)),
                    Requirement("eks.amazonaws.com/compute-type", "NotIn", ("auto",)),
                )
            ),
        ),
        (Toleration("CriticalAddonsOnly", "Exists"),),
    )
    two = {"supportedInstanceLabels": {"keys": ["a", "b"], "values": ["x"]}}
    terms = effective_placement(EFA, two).affinity
    assert [[r.key for r in t.expressions] for t in terms] == [["a"], ["b", "eks.amazonaws.com/compute-type"]]


def test_amd_daemons_follow_hardware_by_default_and_the_pool_with_ours():
    driver = workload(AMD_GPU_OPERATOR, "{cr}-dra-driver")
    tolerated = {"draDriver": {"tolerations": tolerating("amd.com/gpu")}}
    assert lands(effective_placement(driver, tolerated)) == ["amd-1", "amdcpu-1", "amdstray-1"]
    ours = {**tolerated, "selector": {POOL: "amd"}}
    assert effective_placement(driver, ours).node_selector == {POOL: "amd"}
    assert lands(effective_placement(driver, ours)) == ["amd-1"]
    intolerant = {"selector": {POOL: "amd"}}
    assert lands(effective_placement(driver, intolerant)) == []


def test_amd_exporter_always_tolerates_unhealthy():
    exporter = workload(AMD_GPU_OPERATOR, "{cr}-metrics-exporter")
    unhealthy = Toleration("amd-gpu-unhealthy", "Exists", "", "NoSchedule")
    assert effective_placement(exporter, {}).tolerations == (unhealthy,)
    spec = {"metricsExporter": {"tolerations": tolerating("amd.com/gpu")}}
    ours = Toleration("amd.com/gpu", "Exists", "", "NoSchedule")
    assert effective_placement(exporter, spec).tolerations == (ours, unhealthy)


def test_an_empty_list_drops_what_the_amd_controllers_template_adds():
    controller = workload(AMD_GPU_OPERATOR, "mp-gpu-operator-charts-controller-manager")
    assert lands(effective_placement(controller, {})) == ["cp-1", "sys-1", "nvbare-1"]
    assert len(effective_placement(controller, {}).tolerations) == 3
    empty = {"controllerManager": {"manager": {"tolerations": []}}}
    assert effective_placement(controller, empty).tolerations == ()


def test_an_empty_list_does_not_clear_the_nvidia_operands():
    exporter = workload(gpu_operator(OperatorParts()), "nvidia-dcgm-exporter")
    kept = (Toleration("nvidia.com/gpu", "Exists", "", "NoSchedule"),)
    assert effective_placement(exporter, {"daemonsets": {"tolerations": []}}).tolerations == kept
    assert effective_placement(exporter, {}).node_selector == {"nvidia.com/gpu.deploy.dcgm-exporter": "true"}


def test_hook_jobs_ignore_what_their_templates_ignore():
    job = workload(gpu_operator(OperatorParts()), "gpu-operator-upgrade-crd")
    pinned = {"operator": {"nodeSelector": {"a": "b"}, "affinity": in_pools("nv")}}
    assert lands(effective_placement(job, pinned)) == ["cp-1", "sys-1", "nvbare-1"]


def test_defaults_merge_as_maps_and_null_takes_a_key_away():
    exporter = workload(
        next(c for c in components_for("Nebius") if c.key == "kube-prometheus-stack"), "prometheus-node-exporter"
    )
    more = {"prometheus-node-exporter": {"nodeSelector": {"a": "b"}}}
    assert effective_placement(exporter, more).node_selector == {"kubernetes.io/os": "linux", "a": "b"}
    less = {"prometheus-node-exporter": {"nodeSelector": {"kubernetes.io/os": None, "a": "b"}}}
    assert effective_placement(exporter, less).node_selector == {"a": "b"}
    none = {"prometheus-node-exporter": {"nodeSelector": None, "affinity": {"nodeAffinity": None}}}
    assert effective_placement(exporter, none).node_selector == {}
    assert effective_placement(exporter, none).affinity is None
    whole = {"prometheus-node-exporter": None}
    assert effective_placement(exporter, whole) == PodPlacement({}, None, ())


@pytest.mark.parametrize(
    ("default", "value", "result"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": {"b": 1}}, {"a": "text"}, {"a": "text"}),
        (None, {"a": None, "b": 1}, {"b": 1}),
        ([1], [], []),
    ],
)
def test_merge(default, value, result):
    assert merged(default, value) == result


def test_shapes_that_no_pod_takes_are_refused_with_their_path():
    with pytest.raises(TypeError, match=r"nodeSelector of mp-dra-driver-cpu is no mapping"):
        effective_placement(CPU_DAEMON, {"nodeSelector": True})


def test_switches():
    controller = workload(dra_driver("/"), "dra-driver-nvidia-gpu-controller")
    assert turned_on(controller, {})
    assert not turned_on(controller, {"resources": {"computeDomains": {"enabled": False}}})
    assert turned_on(DeclaredWorkload(kind="Job", name="j"), {})
    assert not turned_on(DeclaredWorkload(kind="Job", name="j", enabled="a.b", enabled_default=False), {"a": {}})


def names(source, key, world=None):
    joined = join(world or full(source), components_for(source)).get(key)
    return [(p.workload.kind, p.namespace, p.name) for p in placed(joined)]


def test_the_names_of_what_an_operator_makes_come_from_our_resources():
    assert names("Existing", "amd-gpu-operator", view("Existing", amd("x"), amd("y")))[-6:] == [
        ("DaemonSet", "kube-amd-gpu", "mp-x-dra-driver"),
        ("DaemonSet", "kube-amd-gpu", "mp-y-dra-driver"),
        ("DaemonSet", "kube-amd-gpu", "mp-x-node-labeller"),
        ("DaemonSet", "kube-amd-gpu", "mp-y-node-labeller"),
        ("DaemonSet", "kube-amd-gpu", "mp-x-metrics-exporter"),
        ("DaemonSet", "kube-amd-gpu", "mp-y-metrics-exporter"),
    ]
    exporter = placed(join(view("Existing", amd("x")), components_for("Existing")).get("amd-gpu-operator"))[-1]
    assert exporter.pod_labels == {"daemonset-name": "mp-x", "app.kubernetes.io/name": "metrics-exporter"}
    assert exporter.workload.ports == {"exporter-port": 5000}


@pytest.mark.parametrize(
    ("source", "daemons"),
    [
        ("EKS", "gpu-feature-discovery nvidia-dcgm nvidia-dcgm-exporter nvidia-mig-manager nvidia-operator-validator"),
        (
            "GKE",
            "nvidia-container-toolkit-daemonset gpu-feature-discovery nvidia-dcgm nvidia-dcgm-exporter "
            + "nvidia-mig-manager nvidia-operator-validator",
        ),
        (
            "Civo",
            "nvidia-driver-daemonset gpu-feature-discovery nvidia-dcgm-exporter nvidia-mig-manager "
            + "nvidia-operator-validator",
        ),
    ],
)
def test_the_gpu_operators_daemons_by_source(source, daemons):
    found = [name for kind, _, name in names(source, "gpu-operator") if kind == "DaemonSet"]
    assert found == daemons.split()


def test_a_manifest_of_ours_declares_its_own_placement():
    (daemon,) = placed(join(full("AKS"), components_for("AKS")).get("gpu-operator-toolkit-hardening"))
    assert daemon.placement == PodPlacement(
        {},
        (Term((Requirement(POOL, "In", ("ib", "l4", "l4cpu")),)),),
        (Toleration("nvidia.com/gpu", "Exists", "", "NoSchedule"),),
    )


def test_an_affinity_without_its_outer_key():
    policy = placed(join(full("AKS"), components_for("AKS")).get("network-operator"))[-1]
    assert (policy.name, policy.placement.node_selector) == (
        "rdma-shared-dp-ds",
        {
            "feature.node.kubernetes.io/pci-15b3.present": "true",
            "network.nvidia.com/operator.mofed.wait": "false",
        },
    )
    assert policy.placement.affinity == (Term((Requirement(POOL, "In", ("ib",)),)),)


def test_node_exporter_names_every_taint_that_it_tolerates():
    daemon = placed(join(full("Existing"), components_for("Existing")).get("kube-prometheus-stack"))[0]
    assert daemon.name == "prometheus-node-exporter"
    assert daemon.placement.tolerations == tuple(
        Toleration(key, "Exists")
        for key in (
            "CriticalAddonsOnly",
            "amd.com/gpu",
            "modelplane.ai/cpu",
            "node-role.kubernetes.io/control-plane",
            "node-role.kubernetes.io/master",
            "nvidia.com/gpu",
        )
    )


def test_knobs_without_a_path_take_nothing_from_values():
    daemon = DeclaredWorkload(kind="DaemonSet", name="d", node_selector=Knob(fixed={"a": "b"}))
    assert effective_placement(daemon, {"": {"x": "y"}}).node_selector == {"a": "b"}
    assert effective_placement(replace(daemon, node_selector=Knob(default={"c": "d"})), None).node_selector == {
        "c": "d"
    }
