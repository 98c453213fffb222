"""What a running cluster shows beside reach: device classes, second drivers, CPU claims, daemons of others' operators."""

from dataclasses import replace

import pytest

from modelplane_dagster.audit.live import LiveClaim, LiveDeviceClass, LivePod, Owner
from modelplane_dagster.audit.live_audit import audit_live
from modelplane_dagster.known import Known, Unknown
from tests.audit.three import CLUSTER, NODES, SLICES, WORKLOADS
from tests.audit.worlds import (
    CLASSES,
    EXPORTER,
    NOW,
    NV,
    PCI,
    cpu_groups,
    device,
    exists,
    foreign,
    live,
    node,
    pool,
    published,
    running,
    slice_of,
    stack,
    template,
    told,
    view,
    workloads_of,
)


def judged(*extra, cluster=CLUSTER, nodes=NODES, workloads=WORKLOADS, **more):
    parts = stack(cluster)
    reading = live(nodes, [*workloads, *extra], **{"slices": SLICES, **more})
    return [f for f in audit_live(cluster, parts, reading).findings if f.severity != "info"]


def test_a_whole_cluster_shows_none():
    assert judged() == []


BY_DRIVER = ('device.driver == "dra.cpu"',)


@pytest.mark.parametrize(
    ("name", "there", "expected"),
    [
        pytest.param(
            "gpu.amd.com",
            None,
            (
                "DeviceClassMissing",
                "pool/c/amd",
                (
                    "The cluster has no DeviceClass gpu.amd.com, through which pool amd hands out gpu.amd.com (class "
                    "class-amd, device gpu); amd-gpu-operator should bring it."
                ),
                "Reconcile the component that brings it, or correct deviceClassName in the class.",
            ),
            id="missing",
        ),
        pytest.param(
            "gpu.nvidia.com",
            LiveDeviceClass("gpu.nvidia.com", "gpu-operator"),
            (
                "SecondOwner",
                "component/c/nvidia-dra-driver-gpu",
                (
                    "DeviceClass gpu.nvidia.com belongs to the release gpu-operator, and nvidia-dra-driver-gpu brings it "
                    "as well."
                ),
                "Remove one of the two.",
            ),
            id="of another release",
        ),
        pytest.param("gpu.nvidia.com", LiveDeviceClass("gpu.nvidia.com"), None, id="ours, its annotation lost"),
        pytest.param("dra.cpu", LiveDeviceClass("dra.cpu", "mp-dra-driver-cpu", BY_DRIVER), None, id="by driver"),
        pytest.param(
            "dra.cpu",
            LiveDeviceClass("dra.cpu", "mp-dra-driver-cpu", ('device.driver == "cpu.dra"',)),
            (
                "DeviceClassMismatch",
                "pool/c/cpu",
                (
                    "DeviceClass dra.cpu on node cpu-1 of pool cpu: its selectors take 0 of the 1 devices that dra.cpu "
                    "publishes there."
                ),
                "Correct the selectors of the DeviceClass, or deviceClassName in the class.",
            ),
            id="selects none",
        ),
        pytest.param(
            "dra.cpu",
            LiveDeviceClass("dra.cpu", "mp-dra-driver-cpu", ('device.attributes["dra.cpu"].cores > 1',)),
            (
                "DeviceClassMismatch",
                "pool/c/cpu",
                (
                    "DeviceClass dra.cpu on node cpu-1 of pool cpu: a selector errs, which aborts every allocation: "
                    "ERROR"
                ),
                "Correct the selectors of the DeviceClass, or deviceClassName in the class.",
            ),
            id="errs",
        ),
    ],
)
def test_device_classes(name, there, expected):
    classes = (*(c for c in CLASSES if c.name != name), *([there] if there else []))
    found = [(f.code, f.subject, f.message, f.fix) for f in judged(device_classes=Known(classes))]
    if expected and expected[2].endswith("ERROR"):
        found = [(c, s, m[: len(expected[2]) - 5] + "ERROR", fix) for c, s, m, fix in found]
    assert found == ([expected] if expected else [])


def test_a_class_made_by_hand_blocks_the_install_to_come():
    without = [w for w in WORKLOADS if w.release != "mp-dra-driver-cpu"]
    by_hand = (*CLASSES[1:], LiveDeviceClass("dra.cpu"))
    found = [f for f in judged(workloads=without, device_classes=Known(by_hand)) if f.code == "SecondOwner"]
    assert [(f.subject, f.message, f.fix) for f in found] == [
        (
            "component/c/dra-driver-cpu",
            "DeviceClass dra.cpu was made outside Helm, and dra-driver-cpu brings it as well.",
            "kubectl delete deviceclass dra.cpu",
        )
    ]


def test_classes_that_no_driver_brought_yet_aren_t_missed():
    assert "DeviceClassMissing" not in {f.code for f in judged(workloads=[], device_classes=Known(()))}


def test_classes_that_couldn_t_be_read_are_not_missing():
    assert judged(device_classes=Unknown("forbidden")) == []


NVIDIA_TAINTED = template(tolerations=exists("nvidia.com/gpu"), nodeSelector={PCI: "true"})
AMD_TAINTED = template(tolerations=exists("amd.com/gpu"), nodeSelector={"modelplane.ai/pool": "amd"})


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        pytest.param(
            foreign("k8s-gpu-dra-driver-kubeletplugin", AMD_TAINTED),
            (
                "SecondOwner",
                "component/c/amd-gpu-operator",
                (
                    "DaemonSet k8s-gpu-dra-driver-kubeletplugin in other is a DRA driver for gpu.amd.com and reaches amd-1 "
                    "of pool amd, which amd-gpu-operator serves."
                ),
                "Remove k8s-gpu-dra-driver-kubeletplugin, or keep it off those nodes.",
            ),
            id="the standalone AMD driver",
        ),
        pytest.param(
            foreign("x-dra-driver", AMD_TAINTED, owners=(Owner("DeviceConfig", "x", "u"),)),
            (
                "SecondOwner",
                "component/c/amd-gpu-operator",
                (
                    "DaemonSet x-dra-driver in other is a DRA driver for gpu.amd.com and reaches amd-1 of pool amd, which "
                    "amd-gpu-operator serves."
                ),
                "Remove x-dra-driver, or keep it off those nodes.",
            ),
            id="another AMD operator's driver",
        ),
        pytest.param(
            foreign(
                "nvidia-dra-driver-kubelet-plugin",
                NVIDIA_TAINTED,
                owners=(Owner("GPUCluster", "gpu-cluster", "u"),),
            ),
            (
                "SecondOwner",
                "component/c/nvidia-dra-driver-gpu",
                (
                    "DaemonSet nvidia-dra-driver-kubelet-plugin in other is a DRA driver for gpu.nvidia.com and reaches "
                    "nv-1 of pool nv, which nvidia-dra-driver-gpu serves."
                ),
                "Remove nvidia-dra-driver-kubelet-plugin, or keep it off those nodes.",
            ),
            id="a GPUCluster's driver",
        ),
        pytest.param(
            foreign("dra", template(), labels={"app.kubernetes.io/name": "dra-driver-cpu"}), None, id="off by its taint"
        ),
    ],
)
def test_second_drivers(other, expected):
    found = [(f.code, f.subject, f.message, f.fix) for f in judged(other)]
    assert found == ([expected] if expected else [])


def test_a_driver_of_the_platform_teams_own_is_no_second():
    cluster = view(NV, source="Existing")
    own = foreign("dra-driver-nvidia-gpu-kubelet-plugin", NVIDIA_TAINTED, uid="own")
    parts = stack(cluster, EXPORTER)
    reading = live((NODES[0], NODES[3]), [*workloads_of(parts), own], slices=SLICES)
    assert told(f for f in audit_live(cluster, parts, reading).findings if f.code == "SecondOwner") == []


def test_another_operators_daemon_isn_t_ours():
    """An AMD operator that somebody runs in a namespace of their own makes daemons from DeviceConfigs as ours does."""
    theirs = foreign("x-node-labeller", AMD_TAINTED, namespace="amd", owners=(Owner("DeviceConfig", "x", "u"),))
    assert judged(theirs) == []
    left = replace(theirs, namespace="kube-amd-gpu")
    assert told(judged(left)) == [("UndeclaredWorkload", "component/c/amd-gpu-operator")]


def test_a_daemon_that_no_node_takes_runs_nowhere_in_silence():
    """DESIRED 0, READY 0: no pod, no event."""
    nowhere = [
        replace(w, placement=template(nodeSelector={"x": "y"}), desired=0, ready=0)
        if w.name == "mp-amd-dra-driver"
        else w
        for w in WORKLOADS
    ]
    pods = running([w for w in WORKLOADS if w.name != "mp-amd-dra-driver"], NODES)
    (found,) = judged(workloads=nowhere, pods=pods)
    assert (found.code, found.subject) == ("PlanDisagrees", "component/c/amd-gpu-operator")
    assert "expected on pool amd, and not seen there" in found.message


def claiming(**more):
    made = {"namespace": "ml", "name": "engine", "node": "cpu-1", "claims": ("engine-cpu",), "cpu": 6.0, **more}
    return LivePod(**made)


def group(amount):
    key = ("dra.cpu", "cpu-1", "cpudevnuma000")
    return LiveClaim("ml", "engine-cpu", (key,), {(*key, "dra.cpu/cpu"): amount} if amount else {})


SINGLE = LiveClaim("ml", "engine-cpu", tuple(("dra.cpu", "cpu-1", f"cpudev00{i}") for i in range(6)))


@pytest.mark.parametrize(
    ("pod", "claim", "expected"),
    [
        pytest.param(claiming(), group("6"), None, id="mirrored"),
        pytest.param(claiming(cpu=2.0), group("2"), None, id="an amount of a group"),
        pytest.param(
            claiming(cpu=0.0),
            group("6"),
            "Pod ml/engine on node cpu-1 claims 6 CPUs and requests 0.",
            id="not mirrored",
        ),
        pytest.param(
            claiming(cpu=2.0),
            group(None),
            "Pod ml/engine on node cpu-1 claims 6 CPUs and requests 2.",
            id="a whole group where no amount is recorded",
        ),
        pytest.param(claiming(), SINGLE, None, id="single CPUs, mirrored"),
        pytest.param(
            claiming(cpu=5.5), SINGLE, "Pod ml/engine on node cpu-1 claims 6 CPUs and requests 5.5.", id="single CPUs"
        ),
        pytest.param(claiming(cpu=0.0, phase="Succeeded"), group("6"), None, id="over"),
        pytest.param(claiming(cpu=0.0, namespace="other"), group("6"), None, id="a claim of another namespace"),
    ],
)
def test_pods_mirror_their_cpu_claims(pod, claim, expected):
    found = judged(pods=[*running(WORKLOADS, NODES), pod], claims=Known((claim,)))
    assert [(f.code, f.subject, f.message) for f in found] == (
        [("ClaimNotMirrored", "pool/c/cpu", expected)] if expected else []
    )


def test_claims_that_the_scheduler_charges_needn_t_be_mirrored():
    charged = [{**d, "nodeAllocatableResources": {"cpu": {}}} for d in cpu_groups(1, 6)]
    slices = (*SLICES[:2], slice_of("dra.cpu", "cpu-1", charged))
    assert (
        judged(pods=[*running(WORKLOADS, NODES), claiming(cpu=0.0)], claims=Known((group("6"),)), slices=slices) == []
    )


def test_groups_that_the_server_keeps_for_one_claim_are_told():
    """With DRAConsumableCapacity off the server drops allowMultipleAllocations from the slice without a word."""
    dropped = [{k: v for k, v in d.items() if k != "allowMultipleAllocations"} for d in cpu_groups(1, 6)]
    (found,) = judged(slices=(*SLICES[:2], slice_of("dra.cpu", "cpu-1", dropped)))
    assert (found.code, found.severity, found.subject, found.message, found.fix) == (
        "FieldDropped",
        "error",
        "pool/c/cpu",
        (
            "dra-driver-cpu publishes groups of CPUs on cpu-1 of pool cpu, and cluster c has dropped "
            "allowMultipleAllocations from them, as with DRAConsumableCapacity off: each claim takes a whole group."
        ),
        "Turn DRAConsumableCapacity on, or prune component/c/dra-driver-cpu so that it comes back individual.",
    )


def test_young_nodes_are_given_time():
    """Neither its class nor its daemons are judged on a node that joined within the grace period."""
    young = node("nv-2", NV, created=NOW - 60)
    wrong = (*CLASSES[:2], LiveDeviceClass("gpu.nvidia.com", "mp-dra-driver-nvidia-gpu", ("false",)))
    only = view(pool("nv", device("gpu.nvidia.com", 8)))
    slices = tuple(published((young,), only.pools))
    reading = live((young, NODES[3]), workloads_of(stack(only)), [], slices, device_classes=Known(wrong))
    assert told(audit_live(only, stack(only), reading).findings) == [
        ("PoolPending", "pool/c/nv"),
        ("StackMissesPool", "pool/c/system"),
    ]
