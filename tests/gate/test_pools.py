"""Roles, labels, taints and what serves a pool, by the drivers that its class claims; and the accelerator's rules."""

from __future__ import annotations

from typing import Any

import pytest

from modelplane_dagster.cluster_plan import ClusterPlan
from modelplane_dagster.plan import plan_fleet
from modelplane_dagster.plan_json import plan_document
from tests.made import AMD, CPU, NET, NV, cls, cluster, cpus, device, fleet, nvidia, pool

L4 = {"type": "nvidia-l4", "count": 1}
ZONES = {"zones": ["us-central1-a"]}
NV_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
AMD_TAINT = {"key": "amd.com/gpu", "value": "present", "effect": "NoSchedule"}
CPU_TAINT = {"key": "modelplane.ai/cpu", "value": "true", "effect": "NoSchedule"}
NVIDIA_EKS = [
    "node-feature-discovery",
    "gpu-operator",
    "nvsentinel",
    "dra-driver-critical-pods-quota",
    "nvidia-dra-driver-gpu",
]


def planned(
    source: str, *devices: dict[str, Any], accelerator: dict[str, Any] | None = None, **more: Any
) -> ClusterPlan:
    """A cluster of one pool `p` whose class `k` has these devices."""
    own = more.pop("pool", ZONES if source == "GKE" else {})
    made = cls("k", *devices, source="" if source == "Existing" else source, accelerator=accelerator)
    return plan_fleet(fleet(made, cluster("c", source, pool("p", "k", **own), **more))).clusters[0]


def told(plan: ClusterPlan) -> tuple[str, list[tuple[str, str, str]]]:
    return plan.gate.verdict, [(f.code, f.severity.value, f.subject) for f in plan.gate.findings]


def row(source: str, *devices: dict[str, Any], accelerator: dict[str, Any] | None = None) -> dict[str, Any]:
    """The pool as the plan's JSON tells it, its request to the cloud left out."""
    own = ZONES if source == "GKE" else {}
    made = cls("k", *devices, source="" if source == "Existing" else source, accelerator=accelerator)
    document = plan_document(plan_fleet(fleet(made, cluster("c", source, pool("p", "k", **own)))))
    found = document["clusters"][0]["pools"][0]
    return {k: v for k, v in found.items() if k in ("role", "drivers", "labels", "taints", "servedBy")}


def test_a_gpu_pool_on_eks_needs_no_accelerator() -> None:
    assert row("EKS", nvidia()) == {
        "role": "GPU",
        "drivers": [NV],
        "labels": {"modelplane.ai/pool": "p", "modelplane.ai/gpu": "nvidia"},
        "taints": [NV_TAINT],
        "servedBy": NVIDIA_EKS,
    }
    plan = planned("EKS", nvidia())
    assert told(plan) == ("pass", [])
    request = plan_document(plan_fleet(fleet(cls("k", nvidia(), source="EKS"), cluster("c", "EKS", pool("p", "k")))))
    assert request["clusters"][0]["pools"][0]["provider"]["amiType"] == "AL2023_x86_64_NVIDIA"


def test_a_cpu_pool_carries_its_own_label_and_taint() -> None:
    assert row("EKS", cpus()) == {
        "role": "CPU",
        "drivers": [CPU],
        "labels": {"modelplane.ai/pool": "p", "modelplane.ai/cpu": "true"},
        "taints": [CPU_TAINT],
        "servedBy": ["dra-driver-cpu"],
    }


def test_a_gpu_pool_that_also_claims_cpus_has_both_labels_and_the_gpus_taint_alone() -> None:
    assert row("EKS", nvidia(), cpus()) == {
        "role": "GPU",
        "drivers": [CPU, NV],
        "labels": {"modelplane.ai/pool": "p", "modelplane.ai/gpu": "nvidia", "modelplane.ai/cpu": "true"},
        "taints": [NV_TAINT],
        "servedBy": [*NVIDIA_EKS, "dra-driver-cpu"],
    }


def test_the_cpu_driver_reaches_gpu_pools_that_claim_cpus() -> None:
    made = (cls("both", nvidia(), cpus(), source="EKS"), cls("gpu", nvidia(), source="EKS"))
    pools = (pool("mixed", "both"), pool("plain", "gpu"))
    plan = plan_fleet(fleet(*made, cluster("c", "EKS", *pools))).clusters[0]
    assert plan.audit is not None
    reached = {r.component: tuple(r.reaches) for r in plan.audit.rows if r.component == "dra-driver-cpu"}
    assert reached == {"dra-driver-cpu": ("mixed",)}
    assert plan.component("dra-driver-cpu").values["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    ]
    assert plan.component("dra-driver-cpu").values["nodeSelector"] == {"modelplane.ai/cpu": "true"}


def test_an_amd_pool_on_a_cluster_of_ones_own() -> None:
    assert row("Existing", device(AMD, 8)) == {
        "role": "GPU",
        "drivers": [AMD],
        "labels": {"modelplane.ai/pool": "p", "modelplane.ai/gpu": "amd"},
        "taints": [AMD_TAINT],
        "servedBy": ["node-feature-discovery", "amd-gpu-operator"],
    }


def test_the_accelerators_type_is_the_label_where_it_is_set() -> None:
    assert row("GKE", nvidia(), accelerator=L4)["labels"] == {
        "modelplane.ai/pool": "p",
        "modelplane.ai/gpu": "nvidia-l4",
    }


def test_what_is_synthetic_gives_no_role() -> None:
    plan = planned("EKS", {**nvidia(), "claim": "Synthetic"})
    assert plan.view is not None
    assert (plan.view.claimed, plan.view.pools[0].role, told(plan)) == (
        frozenset(),
        "None",
        ("pass", [("RoleNone", "warning", "pool/c/p")]),
    )
    assert [c.key for c in plan.tagged] == []


@pytest.mark.parametrize(
    ("source", "devices", "accelerator", "expected"),
    [
        ("EKS", [nvidia()], None, ("pass", [])),
        ("EKS", [nvidia()], L4, ("pass", [])),
        ("AKS", [nvidia()], None, ("pass", [])),
        ("Nebius", [nvidia()], None, ("pass", [])),
        ("Vultr", [nvidia()], None, ("pass", [])),
        ("GKE", [nvidia()], L4, ("pass", [])),
        ("GKE", [nvidia()], None, ("refused", [("AcceleratorRequired", "error", "pool/c/p")])),
        ("GKE", [cpus()], None, ("pass", [])),
        ("GKE", [cpus()], L4, ("refused", [("AcceleratorUnclaimed", "error", "pool/c/p")])),
        ("EKS", [cpus()], L4, ("refused", [("AcceleratorUnclaimed", "error", "pool/c/p")])),
        ("AKS", [cpus()], L4, ("refused", [("AcceleratorUnclaimed", "error", "pool/c/p")])),
        ("EKS", [nvidia()], {"type": "amd-mi300x", "count": 8}, ("refused", [("AcceleratorUnclaimed", "error", "pool/c/p")])),
        ("EKS", [device(AMD)], None, ("refused", [("UnsupportedDevices", "error", "pool/c/p")])),
        ("EKS", [device("gpu.intel.com")], None, ("refused", [("UnsupportedDevices", "error", "pool/c/p"), ("RoleNone", "warning", "pool/c/p")])),
        ("Existing", [nvidia(), device(AMD, name="amd")], None, ("refused", [("MixedGpuVendors", "error", "pool/c/p"), ("VersionUnknown", "info", "cluster/c")])),
    ],
)  # fmt: skip
def test_what_the_gate_says_of_a_class(source: str, devices: Any, accelerator: Any, expected: Any) -> None:
    assert told(planned(source, *devices, accelerator=accelerator)) == expected


def test_a_refusal_names_class_device_driver_source_and_what_it_supports() -> None:
    plan = planned("EKS", device(AMD, name="mi300x"))
    assert [f.message for f in plan.gate.findings] == [
        (
            "Class k claims the device mi300x of driver gpu.amd.com, which EKS doesn't support; EKS supports dra.cpu, "
            "dra.net, gpu.nvidia.com."
        )
    ]
    place = plan.gate.findings[0].place
    assert place is not None
    assert (place.file, place.line) == ("fleet.yaml", 2)


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, ("refused", [("FabricRequired", "error", "pool/c/p")])),
        ({"fabric": {"type": "EFA"}}, ("pass", [])),
    ],
)
def test_the_network_driver_comes_with_its_fabric(own: Any, expected: Any) -> None:
    machine = {"instanceType": "p5.48xlarge", "diskSizeGb": 100}
    made = cls("k", nvidia(8), device(NET, 32), source="EKS", machine=machine)
    plan = plan_fleet(fleet(made, cluster("c", "EKS", pool("p", "k", zones=["us-east-1a"], **own)))).clusters[0]
    assert told(plan) == expected
