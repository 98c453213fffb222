"""Two owners of one thing on a running cluster, and what a cluster of one's own must bring."""

from dataclasses import replace

import pytest

from modelplane_dagster.audit.existing import audit_existing
from modelplane_dagster.audit.live import LiveNamespace, LiveQuota
from modelplane_dagster.audit.live_conflicts import audit_conflicts
from modelplane_dagster.known import Known, Unknown
from modelplane_dagster.kube.objects import Taint
from tests.audit.three import CLUSTER, NODES, PARTS, SLICES, WORKLOADS
from tests.audit.worlds import (
    AMD,
    CPU,
    NV,
    NVCPU,
    exists,
    foreign,
    live,
    node,
    pool,
    stack,
    template,
    told,
    view,
)

NFD_LABELS = {"app.kubernetes.io/name": "node-feature-discovery", "role": "worker"}


def conflicts(*extra, cluster=CLUSTER, nodes=NODES, **more):
    return told(audit_conflicts(cluster, stack(cluster), live(nodes, [*WORKLOADS, *extra], slices=SLICES, **more)))


def test_a_clean_cluster_has_none():
    assert conflicts() == []


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        pytest.param(
            foreign("theirs-node-feature-discovery-worker"), [("SecondNfd", "cluster/c")], id="an NFD by its name"
        ),
        pytest.param(foreign("nfd-worker"), [("SecondNfd", "cluster/c")], id="an NFD of OpenShift's name"),
        pytest.param(foreign("labeller", labels=NFD_LABELS), [("SecondNfd", "cluster/c")], id="an NFD by its labels"),
        pytest.param(foreign("node-feature-discovery-topology-updater"), [], id="its topology updater labels nothing"),
        pytest.param(foreign("node-feature-discovery-master", kind="Deployment"), [], id="its master alone"),
        pytest.param(
            foreign("amd-gpu-operator-charts-controller-manager", kind="Deployment"),
            [("SecondOwner", "cluster/c")],
            id="an AMD operator",
        ),
        pytest.param(
            foreign("agent", template(tolerations=exists("modelplane.ai/cpu")), host_network=True, host_ports=(8080,)),
            [("PortClash", "component/c/dra-driver-cpu")],
            id="a port of the CPU driver's node",
        ),
        pytest.param(foreign("agent", host_network=True, host_ports=(8080,)), [], id="the port on other nodes"),
        pytest.param(
            foreign("agent", template(tolerations=exists("modelplane.ai/cpu")), host_network=True, host_ports=(9100,)),
            [],
            id="another port",
        ),
    ],
)
def test_second_owners(extra, expected):
    assert conflicts(extra) == expected


def test_two_foreign_labellers_are_told_where_none_is_ours():
    cluster = view(CPU)
    reading = live(NODES, [foreign("a-node-feature-discovery-worker"), foreign("nfd-worker")])
    assert told(audit_conflicts(cluster, (), reading)) == [("SecondNfd", "cluster/c")]


@pytest.mark.parametrize(
    ("allocatable", "expected"),
    [
        ({"nvidia.com/gpu": "8"}, [("DevicePluginBesideDra", "pool/c/nv")]),
        ({"nvidia.com/mig-1g.10gb": "7"}, [("DevicePluginBesideDra", "pool/c/nv")]),
        ({"nvidia.com/gpu": "0"}, []),
        ({"amd.com/gpu": "8"}, []),
        ({}, []),
    ],
)
def test_the_double_ledger(allocatable, expected):
    nodes = (node("nv-1", NV, allocatable=allocatable), *NODES[1:])
    assert conflicts(nodes=nodes) == expected


PLUGIN = template(tolerations=exists("nvidia.com/gpu"))


@pytest.mark.parametrize(
    ("plugin", "expected"),
    [
        pytest.param(foreign("nvidia-device-plugin-daemonset", PLUGIN, desired=1), True, id="NVIDIA's manifest"),
        pytest.param(foreign("nvdp-nvidia-device-plugin", PLUGIN, desired=1), True, id="NVIDIA's chart"),
        pytest.param(foreign("nvidia-device-plugin", desired=1), False, id="elsewhere"),
        pytest.param(foreign("nvidia-device-plugin", PLUGIN), False, id="wants no node"),
        pytest.param(foreign("amdgpu-device-plugin-daemonset", PLUGIN, desired=1), False, id="another vendor's"),
        pytest.param(foreign("nvidia-device-plugin", PLUGIN, kind="Deployment", desired=1), False, id="no daemon"),
    ],
)
def test_a_device_plugins_daemon_tells_it_too(plugin, expected):
    assert conflicts(plugin) == ([("DevicePluginBesideDra", "pool/c/nv")] if expected else [])


def test_both_are_named_with_component_pool_and_fix():
    nodes = (node("nv-1", NV, allocatable={"nvidia.com/gpu": "8"}), *NODES[1:])
    others = (foreign("nfd-worker", desired=1), foreign("nvidia-device-plugin", PLUGIN, desired=1))
    found = audit_conflicts(CLUSTER, PARTS, live(nodes, [*WORKLOADS, *others], slices=SLICES))
    assert [(f.subject, f.message, f.fix) for f in found] == [
        (
            "cluster/c",
            (
                "DaemonSet nfd-worker in other is a Node Feature Discovery beside our component node-feature-discovery; "
                "both label nodes, those of pools nv, amd included."
            ),
            "Remove the one that isn't ours, or turn off the operator's own.",
        ),
        (
            "pool/c/nv",
            (
                "On nv-1 of pool nv a device plugin offers nvidia.com/gpu beside the slices of gpu.nvidia.com, which "
                "nvidia-dra-driver-gpu publishes, so one device can be handed out twice."
            ),
            "Turn the device plugin off on that pool.",
        ),
    ]


def test_a_device_plugin_where_no_slice_is_is_no_double_ledger():
    nodes = (*NODES, node("nv-2", NV, allocatable={"nvidia.com/gpu": "8"}))
    assert conflicts(nodes=nodes) == []


@pytest.mark.parametrize(
    ("source", "quotas", "expected"),
    [
        ("EKS", (), []),
        ("GKE", (), [("QuotaMissing", "component/c/nvidia-dra-driver-gpu")]),
        ("GKE", (LiveQuota("nvidia-dra-driver", "q", ("system-node-critical",)),), []),
        ("GKE", (LiveQuota("nvidia-dra-driver", "q"),), [("QuotaMissing", "component/c/nvidia-dra-driver-gpu")]),
    ],
)
def test_live_quotas(source, quotas, expected):
    assert conflicts(cluster=replace(CLUSTER, source=source), quotas=Known(quotas)) == expected


@pytest.mark.parametrize(
    ("enforces", "expected"),
    [
        ("", []),
        ("privileged", []),
        ("baseline", [("PodSecurityRefuses", "component/c/dra-driver-cpu")]),
        ("restricted", [("PodSecurityRefuses", "component/c/dra-driver-cpu")]),
    ],
)
def test_the_pod_security_of_a_plugins_namespace(enforces, expected):
    there = (LiveNamespace("dra-driver-cpu", enforces), LiveNamespace("other", "restricted"))
    assert conflicts(namespaces=Known(there)) == expected


def test_the_command_that_lets_the_pods_in():
    reading = live(NODES, WORKLOADS, slices=SLICES, namespaces=Known((LiveNamespace("monitoring", "baseline"),)))
    (found,) = audit_conflicts(CLUSTER, PARTS, reading)
    assert (found.message, found.fix) == (
        (
            "Namespace monitoring enforces the pod security level baseline, which refuses the pods of node-exporter: they "
            "mount paths of the host."
        ),
        "kubectl label namespace monitoring pod-security.kubernetes.io/enforce=privileged --overwrite",
    )


def test_a_port_that_only_the_declaration_tells():
    silent = [replace(w, host_ports=()) if w.name == "mp-dra-driver-cpu" else w for w in WORKLOADS]
    other = foreign("agent", template(tolerations=exists("modelplane.ai/cpu")), host_network=True, host_ports=(8080,))
    (found,) = audit_conflicts(CLUSTER, PARTS, live(NODES, [*silent, other], slices=SLICES))
    assert (found.code, found.message) == (
        "PortClash",
        ("mp-dra-driver-cpu in dra-driver-cpu and agent in other both listen on host port 8080 of cpu-1 of cpu."),
    )


def test_a_chart_that_another_release_brought():
    theirs = [
        replace(w, annotations={"meta.helm.sh/release-name": "nvidia"}) if w.name == "kubelet-plugin" else w
        for w in WORKLOADS
    ]
    (found,) = audit_conflicts(CLUSTER, PARTS, live(NODES, theirs, slices=SLICES))
    assert (found.code, found.subject, found.message, found.fix) == (
        "SecondOwner",
        "component/c/nvidia-dra-driver-gpu",
        "DaemonSet kubelet-plugin belongs to the release nvidia, and nvidia-dra-driver-gpu brings it as well.",
        "helm uninstall nvidia",
    )


def test_a_part_that_couldn_t_be_read_silences_its_rules_alone():
    found = conflicts(
        foreign("nfd-worker"),
        nodes=(node("nv-1", NV, allocatable={"nvidia.com/gpu": "8"}),),
        device_classes=Unknown("forbidden"),
        namespaces=Unknown("forbidden"),
    )
    assert found == [
        ("DevicePluginBesideDra", "pool/c/nv"),
        ("ReadFailed", "cluster/c"),
        ("SecondNfd", "cluster/c"),
    ]


OWN = view(NV, CPU, source="Existing")


def existing(nodes, *workloads, cluster=OWN):
    return audit_existing(cluster, stack(cluster), live(nodes, workloads, ()))


def test_a_cluster_that_meets_its_requirements():
    assert existing((node("a", NV), node("b", CPU), node("c"))) == ()


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param(
            (node("a", CPU), node("c")),
            [
                (
                    "LabelMissing",
                    "pool/c/nv",
                    "No node carries modelplane.ai/pool=nv, and pool nv should have 1.",
                    "kubectl label node NODE modelplane.ai/pool=nv modelplane.ai/gpu=nvidia",
                )
            ],
            id="no node of the pool",
        ),
        pytest.param(
            (node("a", NV), node("b", CPU, labels={"modelplane.ai/cpu": None}), node("c")),
            [
                (
                    "LabelMissing",
                    "pool/c/cpu",
                    "b of pool cpu should carry the label modelplane.ai/cpu=true.",
                    "kubectl label node b modelplane.ai/cpu=true",
                )
            ],
            id="the CPU label",
        ),
        pytest.param(
            (node("a", NV), node("b", CPU, labels={"modelplane.ai/cpu": "yes"}), node("c")),
            [
                (
                    "LabelMissing",
                    "pool/c/cpu",
                    "b of pool cpu should carry the label modelplane.ai/cpu=true.",
                    "kubectl label node b modelplane.ai/cpu=true --overwrite",
                )
            ],
            id="a label of another value",
        ),
        pytest.param(
            (node("a2", NV, taints=()), node("a1", NV, taints=()), node("b", CPU), node("c")),
            [
                (
                    "TaintMissing",
                    "pool/c/nv",
                    (
                        "a1, a2 of pool nv should carry the taint nvidia.com/gpu=present:NoSchedule; without it other pods, "
                        "our controllers among them, may land there."
                    ),
                    "kubectl taint node a1 a2 nvidia.com/gpu=present:NoSchedule",
                )
            ],
            id="a taint",
        ),
        pytest.param(
            (node("a", NV, taints=(Taint("nvidia.com/gpu", "true"),)), node("b", CPU), node("c")),
            [],
            id="a taint's value doesn't count",
        ),
        pytest.param(
            (node("a", NV), node("b", CPU)),
            [
                (
                    "NoRoomForControllers",
                    "cluster/c",
                    (
                        "Each of the 2 nodes of cluster c that can be judged carries a pool's taint or is cordoned, so "
                        "controllers and upgrade hooks find no node."
                    ),
                    "Add a node without pool taints.",
                )
            ],
            id="no room for controllers",
        ),
        pytest.param(
            (node("a", NV), node("b", CPU), node("c", taints=(Taint("CriticalAddonsOnly", "true"),))),
            [
                (
                    "NoRoomForControllers",
                    "component/c/node-feature-discovery",
                    (
                        "Deployment mp-nfd-master finds no node where it may run: on c it doesn't tolerate the taint "
                        "CriticalAddonsOnly=true:NoSchedule."
                    ),
                    "Add a node without pool taints.",
                )
            ],
            id="a node that only others may use",
        ),
        pytest.param(
            (node("a", NV, taints=(*NV.taints, Taint("dedicated", "ml", "NoExecute"))), node("b", CPU), node("c")),
            [
                (
                    "StackMissesPool",
                    "pool/c/nv",
                    (
                        "The taint dedicated=ml:NoExecute on a of pool nv keeps out kubelet-plugin, mp-nfd-worker, "
                        "node-exporter."
                    ),
                    "kubectl taint node a dedicated=ml:NoExecute-",
                )
            ],
            id="a taint of others",
        ),
    ],
)
def test_requirements(nodes, expected):
    assert [(f.code, f.subject, f.message, f.fix) for f in existing(nodes)] == expected


def test_a_missing_taint_warns():
    (found,) = existing((node("a", NV, taints=()), node("b", CPU), node("c")))
    assert (found.code, found.severity) == ("TaintMissing", "warning")


@pytest.mark.parametrize("shrunk", [{"count": 0}, {"count": 1, "minimum": 0, "maximum": 4}])
def test_a_pool_that_may_be_empty_asks_for_no_label(shrunk):
    cluster = view(replace(NV, **shrunk), CPU, source="Existing")
    assert existing((node("b", CPU), node("c")), cluster=cluster) == ()


def test_a_gpu_pool_that_claims_cpus_carries_both_labels():
    cluster = view(NVCPU, source="Existing")
    bare = replace(pool("nvcpu"), taints=NVCPU.taints)
    assert told(existing((node("a", bare), node("c")), cluster=cluster)) == [
        ("LabelMissing", "pool/c/nvcpu"),
        ("LabelMissing", "pool/c/nvcpu"),
    ]


def test_what_others_run_already():
    others = (foreign("nfd-worker"), foreign("x-gpu-operator-charts-controller-manager", kind="Deployment"))
    cluster = view(AMD, source="Existing")
    assert told(existing((node("a", AMD), node("c")), *others, cluster=cluster)) == [
        ("SecondNfd", "cluster/c"),
        ("SecondOwner", "cluster/c"),
    ]


def test_nodes_that_couldn_t_be_read_require_nothing():
    reading = replace(live((), ()), nodes=Unknown("timed out"))
    assert told(audit_existing(OWN, stack(OWN), reading)) == [("ReadFailed", "cluster/c")]
