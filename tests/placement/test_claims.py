"""The claims that placement makes, and what the pods that carry them ask for."""

from __future__ import annotations

from typing import Any

import pytest

from modelplane_dagster.placement.workloads import replica_objects, replica_variants
from modelplane_dagster.plan import FleetPlan, plan_fleet
from tests.made import CPU, NV, cls, cluster, cpus, deployment, device, engine, fleet, member, nvidia, pool, request

BIG_CPU = 'device.capacity["dra.cpu"].cpu.compareTo(quantity("4")) >= 0'
BIG_GPU = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("20Gi")) >= 0'


def planned(version: str, devices: list[Any], *requests: dict[str, Any]) -> FleetPlan:
    made = cls("k", *devices, source="EKS")
    model = deployment("m", engine(member(*requests)))
    return plan_fleet(fleet(made, cluster("c", "EKS", pool("p", "k"), kubernetesVersion=version), model))


def claimed(plan: FleetPlan) -> list[dict[str, Any]]:
    (placement,) = plan.placements
    return [dict(r) for r in placement.replicas[0].engines[0].members[0].requests]


def pod(plan: FleetPlan, **more: Any) -> dict[str, Any]:
    (placement,) = plan.placements
    key = (placement.namespace, placement.name)
    view = plan.clusters[0].view
    assert view is not None
    objects = replica_objects(key, plan.fleet.deployments[key], placement.replicas[0], view, **more).objects
    (workload,) = [o for o in objects if o["kind"] == "Deployment"]
    spec: dict[str, Any] = workload["spec"]["template"]["spec"]
    return spec


def test_grouped_asks_for_groups_and_an_amount_of_each() -> None:
    plan = planned("1.36", [cpus(2, 6)], request(BIG_CPU, 2, "cpus"))
    assert claimed(plan) == [
        {
            "name": "cpus",
            "exactly": {
                "deviceClassName": "dra.cpu",
                "allocationMode": "ExactCount",
                "count": 2,
                "capacity": {"requests": {"dra.cpu/cpu": "6"}},
                "selectors": [{"cel": {"expression": BIG_CPU}}],
            },
        }
    ]


@pytest.mark.parametrize("version", ["1.34", "1.35"])
def test_individual_counts_devices_and_carries_neither_capacity_nor_selectors(version: str) -> None:
    plan = planned(version, [cpus(2, 6)], request(BIG_CPU, 2, "cpus"))
    assert claimed(plan) == [
        {"name": "cpus", "exactly": {"deviceClassName": "dra.cpu", "allocationMode": "ExactCount", "count": 12}}
    ]


@pytest.mark.parametrize("version", ["1.35", "1.36"])
def test_the_pod_mirrors_the_claim(version: str) -> None:
    spec = pod(planned(version, [cpus(2, 6)], request(BIG_CPU, 2, "cpus")))
    assert spec["containers"][0]["resources"] == {
        "claims": [{"name": "devices"}],
        "requests": {"cpu": "12"},
        "limits": {"cpu": "12"},
    }


def test_the_pod_doesnt_mirror_what_the_scheduler_counts_itself() -> None:
    plan = planned("1.36", [cpus(2, 6)], request(BIG_CPU, 1, "cpus"))
    assert pod(plan, charged={"p"})["containers"][0]["resources"] == {
        "claims": [{"name": "devices"}],
        "requests": {"cpu": "1m"},
    }


@pytest.mark.parametrize(
    ("charges", "expected"),
    [({"p": False}, ["6"]), ({"p": True}, ["1m"]), ({}, ["6", "1m"]), ({"q": True}, ["6", "1m"])],
)
def test_what_may_stand_while_nothing_is_published(charges: dict[str, bool], expected: list[str]) -> None:
    """The one to apply first; what runs already is right either way."""
    plan = planned("1.36", [cpus(2, 6)], request(BIG_CPU, 1, "cpus"))
    (placement,) = plan.placements
    key, view = (placement.namespace, placement.name), plan.clusters[0].view
    assert view is not None
    may = replica_variants(key, plan.fleet.deployments[key], placement.replicas[0], view, charges=charges)
    pods = [o["spec"]["template"]["spec"] for v in may for o in v.objects if o["kind"] == "Deployment"]
    assert [p["containers"][0]["resources"]["requests"]["cpu"] for p in pods] == expected


def test_a_replica_without_cpus_is_one_thing_alone() -> None:
    plan = planned("1.36", [nvidia(4)], request(BIG_GPU, 2, "gpus"))
    (placement,) = plan.placements
    key, view = (placement.namespace, placement.name), plan.clusters[0].view
    assert view is not None
    deployed = plan.fleet.deployments[key]
    assert len(replica_variants(key, deployed, placement.replicas[0], view, charges={})) == 1


def test_a_gpu_beside_cpus_keeps_its_selectors() -> None:
    plan = planned("1.35", [nvidia(4), cpus(1, 8)], request(BIG_GPU, 2, "gpus"), request(BIG_CPU, 1, "cpus"))
    assert claimed(plan) == [
        {
            "name": "gpus",
            "exactly": {
                "deviceClassName": NV,
                "allocationMode": "ExactCount",
                "count": 2,
                "selectors": [{"cel": {"expression": BIG_GPU}}],
            },
        },
        {"name": "cpus", "exactly": {"deviceClassName": CPU, "allocationMode": "ExactCount", "count": 8}},
    ]


@pytest.mark.parametrize(
    ("version", "groups", "each", "gpus", "expected"),
    [
        ("1.35", 2, 16, 0, ("placed", [])),
        ("1.35", 3, 11, 0, ("refused", ["ClaimTooLarge"])),
        ("1.35", 1, 30, 2, ("placed", [])),
        ("1.35", 1, 31, 2, ("refused", ["ClaimTooLarge"])),
        ("1.36", 3, 11, 0, ("placed", [])),
    ],
)
def test_a_claim_holds_32_devices_over_all_its_requests(
    version: str, groups: int, each: int, gpus: int, expected: Any
) -> None:
    devices = [cpus(groups, each), *([nvidia(gpus)] if gpus else [])]
    asks = [request(BIG_CPU, groups, "cpus"), *([request(BIG_GPU, gpus, "gpus")] if gpus else [])]
    (placement,) = planned(version, devices, *asks).placements
    assert (placement.verdict, [f.code for f in placement.findings]) == expected


def test_a_claim_that_is_too_large_says_how_large() -> None:
    plan = planned("1.35", [cpus(3, 11)], request(BIG_CPU, 3, "cpus"))
    (found,) = plan.placements[0].findings
    assert (found.subject, found.message, plan.refused) == (
        "deployment/models/m",
        "A claim of engine engine needs 33 devices on pool p of c; one claim holds 32.",
        True,
    )


def test_what_is_synthetic_is_matched_and_not_claimed() -> None:
    board = {**device("board.example.com", name="board", attributes={"slots": {"int": 4}}), "claim": "Synthetic"}
    fits = 'device.driver == "board.example.com" && device.attributes["board.example.com"].slots >= 4'
    plan = planned("1.36", [nvidia(), board], request(BIG_GPU, 1, "gpu"), request(fits, 1, "board"))
    assert [r["name"] for r in claimed(plan)] == ["gpu"]


def test_a_fraction_of_a_cpu_isnt_claimed() -> None:
    plan = planned("1.36", [cpus(1, "5500m")], request("true", 1, "cpus"))
    assert claimed(plan)[0]["exactly"]["capacity"] == {"requests": {"dra.cpu/cpu": "5"}}


def test_pods_are_pinned_and_tolerate_every_drivers_taint() -> None:
    spec = pod(planned("1.36", [nvidia()], request(BIG_GPU, 1, "gpu")))
    assert spec["nodeSelector"] == {"modelplane.ai/pool": "p"}
    assert spec["tolerations"] == [
        {"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "modelplane.ai/cpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    ]
    assert spec["resourceClaims"] == [{"name": "devices", "resourceClaimTemplateName": "m-0-engine-standalone"}]
