"""Facts read from the JSON of the Kubernetes API."""

import pytest

from modelplane_dagster.audit.live import (
    LiveClaim,
    LiveDeviceClass,
    LiveNamespace,
    LiveNode,
    LivePod,
    LiveQuota,
    LiveWorkload,
    Owner,
    cpu_requests,
    parse_all,
)
from modelplane_dagster.kube.objects import NodeFacts, PodPlacement, Taint, Toleration


def test_a_node():
    raw = {
        "metadata": {"name": "n", "labels": {"a": "b"}, "creationTimestamp": "2026-11-30T12:00:00Z"},
        "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoExecute"}]},
        "status": {
            "conditions": [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
            "capacity": {"cpu": "8"},
            "allocatable": {"cpu": "7900m"},
        },
    }
    facts = NodeFacts(
        "n", {"a": "b"}, (Taint("k", "", "NoExecute"),), unschedulable=True, created=1796040000.0,
        allocatable={"cpu": "7900m"},
    )  # fmt: skip
    assert LiveNode.parse(raw) == LiveNode(facts, {"cpu": "8"})


@pytest.mark.parametrize("status", [{}, {"conditions": [{"type": "Ready", "status": "Unknown"}]}])
def test_a_node_that_doesn_t_say_that_it_is_ready_isn_t(status):
    node = LiveNode.parse({"metadata": {"name": "n", "deletionTimestamp": "2026-11-30T12:00:00Z"}, "status": status})
    assert (node.facts.ready, node.facts.terminating) == (False, True)


def test_a_daemonset():
    raw = {
        "metadata": {
            "name": "d",
            "namespace": "ns",
            "uid": "u",
            "annotations": {"meta.helm.sh/release-name": "mp-d"},
            "ownerReferences": [{"kind": "DeviceConfig", "name": "c", "uid": "x", "controller": True}],
        },
        "spec": {
            "template": {
                "spec": {
                    "hostNetwork": True,
                    "priorityClassName": "system-node-critical",
                    "nodeSelector": {"a": "b"},
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [
                        {"ports": [{"containerPort": 8080}], "resources": {"requests": {"cpu": "100m"}}},
                        {"ports": [{"containerPort": 9, "hostPort": 9100}], "resources": {"limits": {"cpu": "1"}}},
                    ],
                }
            }
        },
        "status": {"desiredNumberScheduled": 3, "numberReady": 2},
    }
    (daemon,) = parse_all("DaemonSet", [raw])
    assert daemon == LiveWorkload(
        kind="DaemonSet",
        namespace="ns",
        name="d",
        uid="u",
        placement=PodPlacement({"a": "b"}, None, (Toleration(operator="Exists"),)),
        annotations={"meta.helm.sh/release-name": "mp-d"},
        owners=(Owner("DeviceConfig", "c", "x"),),
        host_network=True,
        host_ports=(8080, 9100),
        priority_class="system-node-critical",
        cpu=1.1,
        desired=3,
        ready=2,
    )
    assert (daemon.release, daemon.subject) == ("mp-d", "DaemonSet/ns/d")


def test_a_deployment_counts_replicas_and_has_no_host_port_by_itself():
    raw = {
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "ns"},
        "spec": {"template": {"spec": {"containers": [{"ports": [{"containerPort": 80}]}]}}},
    }
    made = LiveWorkload.parse(raw)
    assert (made.desired, made.ready, made.host_ports, made.release) == (1, 0, (), "")


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        ({}, 0.0),
        ({"containers": [{"resources": {"requests": {"cpu": "500m"}}}, {}]}, 0.5),
        ({"containers": [{"resources": {"limits": {"cpu": "2"}}}]}, 2.0),
        ({"resources": {"requests": {"cpu": "3"}}, "containers": [{"resources": {"requests": {"cpu": "1"}}}]}, 3.0),
        ({"containers": [{"resources": {"requests": {"cpu": "1"}}}],
          "initContainers": [{"resources": {"requests": {"cpu": "4"}}}]}, 4.0),
        ({"containers": [{"resources": {"requests": {"cpu": "1"}}}],
          "initContainers": [{"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
                             {"resources": {"requests": {"cpu": "2"}}}]}, 3.0),
        ({"overhead": {"cpu": "250m"}, "containers": [{"resources": {"requests": {"cpu": "1"}}}]}, 1.25),
        ({"containers": [{"resources": {"requests": {"cpu": "nonsense"}}}]}, 0.0),
    ],
)  # fmt: skip
def test_what_the_scheduler_charges(pod, expected):
    assert cpu_requests(pod) == pytest.approx(expected)


def test_pods():
    raw = {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "annotations": {"kubernetes.io/config.mirror": "x"},
            "ownerReferences": [
                {"kind": "Other", "name": "o", "uid": "o"},
                {"kind": "DaemonSet", "name": "d", "uid": "u", "controller": True},
            ],
        },
        "spec": {"nodeName": "n", "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x"}],
        },
    }
    assert LivePod.parse(raw) == LivePod(
        namespace="ns", name="p", node="n", owner="u", owner_kind="DaemonSet", claims=("p-gpu-x",), mirror=True
    )
    bare = LivePod.parse({"metadata": {"name": "p"}, "spec": {}})
    assert (bare.node, bare.phase, bare.ready, bare.owner) == ("", "Pending", False, "")


def test_an_engine_pod_that_no_node_takes():
    labels = {
        "modelplane.ai/deployment-namespace": "ml",
        "modelplane.ai/deployment": "qwen",
        "modelplane.ai/replica": "1",
    }
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}
    pod = LivePod.parse({"metadata": {"name": "p", "labels": labels}, "spec": {}, "status": {"conditions": [told]}})
    assert (pod.replica, pod.waits) == (("ml", "qwen", "1"), "0/3 nodes are available")
    placed = {"type": "PodScheduled", "status": "True"}
    pod = LivePod.parse({"metadata": {"name": "p"}, "spec": {}, "status": {"conditions": [placed]}})
    assert (pod.replica, pod.waits) == (None, "")


def test_what_a_claim_takes_of_a_shared_device_and_a_class_selects():
    shared = {
        "request": "r",
        "driver": "dra.cpu",
        "pool": "n",
        "device": "cpudevnuma000",
        "shareID": "s",
        "consumedCapacity": {"dra.cpu/cpu": "6"},
    }
    claim = {
        "metadata": {"name": "c", "namespace": "ns"},
        "status": {"allocation": {"devices": {"results": [shared]}}},
    }
    assert LiveClaim.parse(claim).taken == {("dra.cpu", "n", "cpudevnuma000", "dra.cpu/cpu"): "6"}
    selects = {"selectors": [{"cel": {"expression": "true"}}, {}]}
    assert LiveDeviceClass.parse({"metadata": {"name": "x"}, "spec": selects}).selectors == ("true",)


def test_the_level_that_a_namespace_enforces():
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    assert LiveNamespace.parse({"metadata": {"name": "n", "labels": labels}}) == LiveNamespace("n", "baseline")
    assert LiveNamespace.parse({"metadata": {"name": "n"}}) == LiveNamespace("n")


def test_claims_classes_and_quotas():
    result = {"request": "r", "driver": "d", "pool": "p", "device": "x"}
    claim = {
        "metadata": {"name": "c", "namespace": "ns"},
        "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [{"name": "pod"}]},
    }
    assert LiveClaim.parse(claim) == LiveClaim("ns", "c", (("d", "p", "x"),))
    assert LiveClaim.parse({"metadata": {"name": "c", "namespace": "ns"}}) == LiveClaim("ns", "c")
    owned = {"name": "gpu", "annotations": {"meta.helm.sh/release-name": "r"}}
    shown = {"metadata": owned, "spec": {"extendedResourceName": "nvidia.com/gpu"}}
    assert LiveDeviceClass.parse(shown) == LiveDeviceClass("gpu", "r")
    expressions = [
        {"scopeName": "PriorityClass", "operator": "In", "values": ["b", "a"]},
        {"scopeName": "PriorityClass", "operator": "NotIn", "values": ["c"]},
        {"scopeName": "BestEffort", "operator": "Exists"},
    ]
    quota = {
        "metadata": {"name": "q", "namespace": "ns"},
        "spec": {"scopeSelector": {"matchExpressions": expressions}},
    }
    assert LiveQuota.parse(quota) == LiveQuota("ns", "q", ("a", "b"))
