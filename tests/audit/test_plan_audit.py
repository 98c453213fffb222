"""Where a plan's workloads may run, and what it gets wrong."""

from dataclasses import replace

import pytest

from modelplane_dagster.audit.plan_audit import PlacementRow, audit_plan
from modelplane_dagster.cluster import ExternalDriver
from modelplane_dagster.components.types import Component, DeclaredWorkload, Grant, Knob, Reach
from tests.audit.worlds import (
    AMD,
    AMD_OPERATOR,
    CPU,
    CPU_DRIVER,
    EXPORTER,
    NFD,
    NV,
    NV_DRIVER,
    NVCPU,
    PCI,
    cpus,
    daemon,
    deployment,
    device,
    device_config,
    exists,
    in_pools,
    joined,
    pin,
    pool,
    stack,
    told,
    view,
)


def test_the_whole_stack_reaches_its_pools_and_no_other():
    cluster = view(NV, AMD, CPU, NVCPU)
    audit = audit_plan(cluster, stack(cluster))
    assert audit.findings == ()
    assert audit.rows == (
        PlacementRow("kube-prometheus-stack", "DaemonSet", "node-exporter", ("nv", "amd", "cpu", "nvcpu", "system")),
        PlacementRow("node-feature-discovery", "DaemonSet", "mp-nfd-worker", ("nv", "amd", "nvcpu")),
        PlacementRow("node-feature-discovery", "Deployment", "mp-nfd-master", ("system",)),
        PlacementRow("nvidia-dra-driver-gpu", "DaemonSet", "kubelet-plugin", ("nv", "nvcpu")),
        PlacementRow("amd-gpu-operator", "Deployment", "mp-amd-controller", ("system",)),
        PlacementRow("amd-gpu-operator", "DaemonSet", "mp-amd-dra-driver", ("amd",)),
        PlacementRow("dra-driver-cpu", "DaemonSet", "mp-dra-driver-cpu", ("cpu", "nvcpu")),
    )


def test_an_existing_cluster_is_given_no_system_node():
    cluster = view(NV, source="Existing")
    audit = audit_plan(cluster, stack(cluster))
    assert audit.findings == ()
    assert [(r.name, r.reaches) for r in audit.rows] == [
        ("node-exporter", ("nv",)),
        ("mp-nfd-worker", ("nv",)),
        ("mp-nfd-master", ()),
        ("kubelet-plugin", ("nv",)),
    ]


CPU_ONLY = {"nodeSelector": {"modelplane.ai/cpu": "true"}, "tolerations": exists("modelplane.ai/cpu")}
WIDE = {"nodeSelector": {}, "tolerations": exists("modelplane.ai/cpu", "nvidia.com/gpu")}
RESERVED = {"driverConfig": {"reservedCPUs": "0-1"}}


@pytest.mark.parametrize(
    ("key", "values", "expected"),
    [
        pytest.param(
            "dra_driver_cpu",
            RESERVED,
            [
                ("StackStrays", "pool/c/amd"),
                ("StackStrays", "pool/c/nv"),
                ("StackStrays", "pool/c/system"),
                ("ToleratesEverything", "component/c/dra-driver-cpu"),
            ],
            id="the CPU chart's defaults go everywhere",
        ),
        pytest.param(
            "dra_driver_cpu",
            {**CPU_ONLY, **RESERVED},
            [("StackMissesPool", "pool/c/nvcpu")],
            id="the CPU taint alone misses the GPU pool that claims CPUs",
        ),
        pytest.param(
            "dra_driver_cpu",
            {**WIDE, **RESERVED},
            [
                ("StackStrays", "pool/c/nv"),
                ("StackStrays", "pool/c/system"),
                ("TolerationTooBroad", "component/c/dra-driver-cpu"),
            ],
            id="without a selector a keyed toleration opens a pool",
        ),
        pytest.param(
            "node_feature_discovery",
            {"affinity": in_pools("nv", "amd", "nvcpu"), "tolerations": exists("nvidia.com/gpu")},
            [("StackMissesPool", "pool/c/amd")],
            id="NFD misses a taint",
        ),
        pytest.param(
            "node_feature_discovery",
            {},
            [
                ("StackMissesPool", "pool/c/amd"),
                ("StackMissesPool", "pool/c/nv"),
                ("StackMissesPool", "pool/c/nv"),
                ("StackMissesPool", "pool/c/nvcpu"),
                ("StackMissesPool", "pool/c/nvcpu"),
                ("StackStrays", "pool/c/system"),
            ],
            id="NFD's defaults: no label, so no driver's daemon either",
        ),
        pytest.param(
            "nvidia_dra_driver_gpu",
            {"nodeSelector": {PCI: "true"}, "tolerations": exists("nvidia.com/gpu", effect="NoExecute")},
            [("StackMissesPool", "pool/c/nv"), ("StackMissesPool", "pool/c/nvcpu")],
            id="a toleration of another effect",
        ),
        pytest.param(
            "kube_prometheus_stack",
            {"tolerations": exists("nvidia.com/gpu", "amd.com/gpu")},
            [("StackMissesPool", "pool/c/cpu")],
            id="an all-reach workload names every driver's key",
        ),
        pytest.param(
            "kube_prometheus_stack",
            {"tolerations": [{"operator": "Exists"}]},
            [("ToleratesEverything", "component/c/kube-prometheus-stack")],
            id="nothing of ours tolerates everything, all-reach or not",
        ),
    ],
)
def test_values_that_miss_or_stray(key, values, expected):
    cluster = view(NV, AMD, CPU, NVCPU)
    audit = audit_plan(cluster, stack(cluster, **{key: {"values": values}}))
    assert told(audit.findings) == expected


def test_a_miss_says_who_misses_what_and_why():
    cluster = view(NVCPU)
    parts = (joined(CPU_DRIVER, cluster, values={**CPU_ONLY, **RESERVED}),)
    (found,) = audit_plan(cluster, parts).findings
    assert found.message == (
        "dra-driver-cpu: DaemonSet mp-dra-driver-cpu must run on every node of pool nvcpu and would run on none: "
        "it doesn't tolerate the taint nvidia.com/gpu=present:NoSchedule."
    )


def test_deviceconfigs_serve_their_pools_together():
    amd2 = pool("amd2", device("gpu.amd.com", 4))
    cluster = view(AMD, amd2)
    assert audit_plan(cluster, stack(cluster)).findings == ()
    one = (device_config("mp-amd", {"modelplane.ai/pool": "amd"}),)
    missing = audit_plan(cluster, stack(cluster, amd_gpu_operator={"manifests": one}))
    assert told(missing.findings) == [("StackMissesPool", "pool/c/amd2")]
    none = audit_plan(cluster, stack(cluster, amd_gpu_operator={"manifests": ()}))
    assert told(none.findings) == [("StackMissesPool", "pool/c/amd"), ("StackMissesPool", "pool/c/amd2")]
    both = (device_config("a", {"modelplane.ai/pool": "amd"}), device_config("b", {"pci-amd": "true"}))
    twice = audit_plan(cluster, stack(cluster, amd_gpu_operator={"manifests": both}))
    assert told(twice.findings) == [("SecondOwner", "component/c/amd-gpu-operator")]


def test_grants_wait_for_what_they_need():
    chained = replace(
        NFD,
        grants=(
            Grant(labels={PCI: "true"}, driver="gpu.nvidia.com", needs={"second": "yes"}),
            Grant(labels={"second": "yes"}, driver="gpu.nvidia.com", needs={"first": "yes"}),
            Grant(labels={"first": "yes"}, driver="gpu.nvidia.com", by="mp-nfd-worker"),
        ),
    )
    cluster = view(NV)
    assert audit_plan(cluster, stack(cluster, chained, NV_DRIVER)).findings == ()
    broken = replace(chained, grants=chained.grants[:2])
    assert told(audit_plan(cluster, stack(cluster, broken, NV_DRIVER)).findings) == [("StackMissesPool", "pool/c/nv")]


@pytest.mark.parametrize(
    ("reach", "values", "expected"),
    [
        ("only", {"nodeSelector": {}}, [("StackMissesPool", "pool/c/nv"), ("StackStrays", "pool/c/system")]),
        ("at least", {"nodeSelector": {}}, [("StackMissesPool", "pool/c/nv")]),
        ("at least", {"tolerations": exists("nvidia.com/gpu")}, []),
        (
            "at least",
            {"tolerations": exists("nvidia.com/gpu", "modelplane.ai/cpu")},
            [("TolerationTooBroad", "component/c/agent")],
        ),
        ("where", {"nodeSelector": {"mig": "true"}, "tolerations": exists("nvidia.com/gpu")}, []),
        ("where", {"tolerations": exists("nvidia.com/gpu")}, [("StackStrays", "pool/c/system")]),
        ("all", {"tolerations": exists("nvidia.com/gpu", "modelplane.ai/cpu")}, []),
        (
            "all",
            {"nodeSelector": {"modelplane.ai/pool": "nv"}, "tolerations": exists("nvidia.com/gpu")},
            [("StackMissesPool", "pool/c/cpu"), ("StackMissesPool", "pool/c/system")],
        ),
    ],
)
def test_reach(reach, values, expected):
    agent = Component(
        key="agent",
        release="mp-agent",
        namespace="agent",
        drivers=frozenset({"gpu.nvidia.com"}),
        workloads=(daemon("agent", reach=Reach(reach, {"mig": "true"})),),
    )
    cluster = view(NV, CPU)
    assert told(audit_plan(cluster, (joined(agent, cluster, values=values),)).findings) == expected


def test_where_asks_for_the_nodes_that_carry_its_labels():
    labelled = replace(NV, labels={**NV.labels, "mig": "true"})
    agent = Component(
        key="agent",
        drivers=frozenset({"gpu.nvidia.com"}),
        workloads=(daemon("agent", reach=Reach("where", {"mig": "true"})),),
    )
    cluster = view(labelled)
    assert told(audit_plan(cluster, (joined(agent, cluster, values={}),)).findings) == [
        ("StackMissesPool", "pool/c/nv"),
        ("StackStrays", "pool/c/system"),
    ]


def _operator(chart, **values):
    return Component(key=chart, release=f"mp-{chart}", namespace=chart, pin=pin(chart), values=lambda _: dict(values))


OFF = {"nfd": {"enabled": False}, "devicePlugin": {"enabled": False}, "driver": {"enabled": False}}
AMD_OFF = {"node-feature-discovery": {"enabled": False}, "crds": {"defaultCR": {"install": False}}}


@pytest.mark.parametrize(
    ("components", "expected"),
    [
        pytest.param((NFD, NV_DRIVER, _operator("gpu-operator", **OFF)), [], id="all off"),
        pytest.param(
            (NFD, NV_DRIVER, _operator("gpu-operator", **{**OFF, "nfd": {}})),
            [("SecondNfd", "component/c/gpu-operator")],
            id="C1: NVIDIA's own NFD, on by default",
        ),
        pytest.param(
            (NFD, NV_DRIVER, _operator("gpu-operator-charts", **{**AMD_OFF, "node-feature-discovery": {}})),
            [("SecondNfd", "component/c/gpu-operator-charts")],
            id="C1: AMD's own NFD",
        ),
        pytest.param(
            (NFD, NV_DRIVER, _operator("gpu-operator", **{**OFF, "devicePlugin": {}})),
            [("DevicePluginBesideDra", "component/c/gpu-operator")],
            id="C2: the device plugin, on by default",
        ),
        pytest.param(
            (NFD, NV_DRIVER, _operator("gpu-operator", **OFF, gpuCluster={"deployCR": True})),
            [("SecondOwner", "component/c/gpu-operator")],
            id="C5: a GPUCluster beside the driver's own chart",
        ),
        pytest.param(
            (NFD, NV_DRIVER, replace(NV_DRIVER, key="second", release="mp-second", workloads=())),
            [("SecondOwner", "component/c/second"), ("SecondOwner", "component/c/second")],
            id="C4: two owners, of the driver and of its DeviceClass",
        ),
    ],
)
def test_conflicts(components, expected):
    cluster = view(NV)
    assert told(audit_plan(cluster, stack(cluster, *components)).findings) == expected


@pytest.mark.parametrize(
    ("values", "spec", "expected"),
    [
        (AMD_OFF, {}, []),
        (
            {"node-feature-discovery": {"enabled": False}, "crds": {"defaultCR": {"upgrade": True}},
             "deviceConfig": {"spec": {"devicePlugin": {"enableDevicePlugin": False}}}},
            {},
            [],
        ),
        (
            {"node-feature-discovery": {"enabled": False},
             "deviceConfig": {"spec": {"devicePlugin": {"enableDevicePlugin": False}}}},
            {},
            ["ConfigNotApplied"],
        ),
        (AMD_OFF, {"devicePlugin": {}}, ["DevicePluginBesideDra"]),
    ],
)  # fmt: skip
def test_amd_device_configs(values, spec, expected):
    cluster = view(AMD)
    config = (device_config("mp-amd", {"modelplane.ai/pool": "amd"}, **spec),)
    audit = audit_plan(cluster, stack(cluster, amd_gpu_operator={"values": values, "manifests": config}))
    assert [f.code for f in audit.findings] == expected


def test_an_external_driver_has_one_owner():
    cluster = view(NV, source="Existing", external=(ExternalDriver("gpu.nvidia.com", "GPU"),))
    unconfined = replace(NV_DRIVER, workloads=(), when=None)
    assert told(audit_plan(cluster, (joined(unconfined, cluster),)).findings) == [
        ("SecondOwner", "component/c/nvidia-dra-driver-gpu")
    ]


@pytest.mark.parametrize(
    ("port", "selector", "expected"),
    [
        (8080, {}, [("PortClash", "component/c/agent")]),
        (9177, {}, []),
        (8080, {"modelplane.ai/pool": "nv"}, []),
    ],
)
def test_host_ports(port, selector, expected):
    agent = Component(
        key="agent",
        workloads=(
            daemon("agent", reach=Reach("at least"), drivers=frozenset({"x"}), host_network=True, host_ports=(port,)),
        ),
    )
    cluster = view(NV, CPU)
    values = {"nodeSelector": selector, "tolerations": []}
    parts = (joined(CPU_DRIVER, cluster), joined(agent, cluster, values=values))
    untainted = replace(CPU, taints=())
    cluster = replace(cluster, pools=(NV, untainted))
    assert told(audit_plan(cluster, parts).findings) == expected


def _quota(namespace, *classes):
    selector = {"scopeName": "PriorityClass", "operator": "In", "values": list(classes)}
    return {
        "kind": "ResourceQuota",
        "metadata": {"name": "critical", "namespace": namespace},
        "spec": {"scopeSelector": {"matchExpressions": [selector]}},
    }


@pytest.mark.parametrize(
    ("source", "quotas", "expected"),
    [
        ("EKS", (), []),
        ("GKE", (), [("QuotaMissing", "component/c/nvidia-dra-driver-gpu")]),
        ("GKE", (_quota("nvidia-dra-driver", "system-node-critical"),), []),
        (
            "GKE",
            (_quota("elsewhere", "system-node-critical"),),
            [("QuotaMissing", "component/c/nvidia-dra-driver-gpu")],
        ),
        (
            "GKE",
            (_quota("nvidia-dra-driver", "system-cluster-critical"),),
            [("QuotaMissing", "component/c/nvidia-dra-driver-gpu")],
        ),
    ],
)
def test_quotas_on_gke(source, quotas, expected):
    cluster = view(NV, source=source)
    parts = stack(cluster, NFD, NV_DRIVER, nvidia_dra_driver_gpu={"prepares": quotas})
    assert told(audit_plan(cluster, parts).findings) == expected


GOOGLE = {"cloud.google.com/gke-nvidia-gpu-dra-driver": "true"}
OWN = {"gke-no-default-nvidia-gpu-device-plugin": "true"}


@pytest.mark.parametrize(
    ("labels", "driver", "expected"),
    [
        (GOOGLE, False, []),
        (OWN, True, []),
        ({**GOOGLE, **OWN}, False, [("DriverPathMixed", "pool/c/nv")]),
        (GOOGLE, True, [("DriverPathMixed", "pool/c/nv")]),
    ],
)
def test_gke_driver_paths(labels, driver, expected):
    cluster = view(replace(NV, labels={**NV.labels, **labels}), source="GKE")
    operator = _operator("gpu-operator", **{**OFF, "driver": {"enabled": driver}})
    quota = {"prepares": (_quota("nvidia-dra-driver", "system-node-critical"),)}
    parts = stack(cluster, NFD, NV_DRIVER, operator, nvidia_dra_driver_gpu=quota)
    assert told(audit_plan(cluster, parts).findings) == expected


@pytest.mark.parametrize(
    ("kind", "source", "expected"),
    [
        ("Job", "EKS", [("HookHasNoRoom", "component/c/op")]),
        ("Deployment", "EKS", [("NoRoomForControllers", "component/c/op")]),
        ("Deployment", "Existing", []),
    ],
)
def test_controllers_and_hooks_need_a_node(kind, source, expected):
    workload = DeclaredWorkload(kind=kind, name="op", node_selector=Knob("nodeSelector", {"role": "infra"}))
    cluster = view(NV, source=source)
    part = joined(Component(key="op", release="mp-op", workloads=(workload,)), cluster)
    assert told(audit_plan(cluster, (part,)).findings) == expected


def test_a_controller_that_tolerates_a_pools_taint_is_too_broad():
    cluster = view(NV)
    part = joined(
        Component(key="op", workloads=(deployment("op"),)),
        cluster,
        values={"controller": {"tolerations": exists("nvidia.com/gpu", "node-role.kubernetes.io/control-plane")}},
    )
    (found,) = audit_plan(cluster, (part,)).findings
    assert (found.code, found.message) == (
        "TolerationTooBroad",
        "Deployment op tolerates nvidia.com/gpu Exists NoSchedule, which lets it onto nv, where it serves nothing.",
    )


def test_daemons_that_leave_no_room_for_cpu_claims():
    cluster = view(pool("cpu", cpus(1, 6)))
    heavy = Component(key="heavy", workloads=(daemon("heavy", reach=Reach("all"), cpu_request="1950m"),))
    values = {"tolerations": exists("modelplane.ai/cpu")}
    parts = (joined(CPU_DRIVER, cluster), joined(heavy, cluster, values=values))
    (found,) = audit_plan(cluster, parts).findings
    assert (found.code, found.subject) == ("CpuNotAllocatable", "pool/c/cpu")
    assert found.message == (
        "The CPU driver reserves 2 CPUs, and the daemons of the node request 2.05 (heavy 1.95, mp-dra-driver-cpu 0.1) "
        "besides what the kubelet reserves, so a pod that mirrors a full claim of 6 CPUs never fits."
    )
    charged = {"driverConfig": {"reservedCPUs": "0-1", "publishNodeAllocatableResourceMapping": True}}
    values = {**CPU_DRIVER.values(cluster), **charged}
    assert audit_plan(cluster, (joined(CPU_DRIVER, cluster, values=values), parts[1])).findings == ()


def test_what_isn_t_installed_isn_t_audited():
    cluster = view(NV)
    left_out = joined(AMD_OPERATOR, cluster, install=False)
    assert audit_plan(cluster, (left_out, joined(EXPORTER, cluster, install=False))) == audit_plan(cluster, ())
