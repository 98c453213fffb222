"""What reconciling would do against what was seen: created once, updated by what differs, unknown left alone, never deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from modelplane_dagster.actions import Action, cluster_actions, cluster_orphans, component_drift, pool_drift
from modelplane_dagster.cluster import PoolView
from modelplane_dagster.cluster_plan import ClusterPlan, object_digests, values_digest
from modelplane_dagster.known import Known, Unknown
from modelplane_dagster.kube.objects import Taint
from modelplane_dagster.observed import (
    ObservedCluster,
    ObservedComponent,
    ObservedControlPlane,
    ObservedPool,
    ObservedReplica,
    Record,
)
from modelplane_dagster.plan import FleetPlan, plan_fleet
from tests.made import cls, cluster, cpus, deployment, engine, fleet, member, nvidia, pool, request

LABELS = {"modelplane.ai/pool": "p", "modelplane.ai/cpu": "true"}
TAINT = Taint("modelplane.ai/cpu", "true")
POOL = ObservedPool("p", "ready", LABELS, (TAINT,), count=1, joined=1)
PLANE = ObservedControlPlane("ready", "1.36", ours=True, account="default")
MADE = fleet(cls("k", cpus(), source="EKS"), cluster("c", "EKS", pool("p", "k")))
PLAN = plan_fleet(MADE).clusters[0]
RECORD = Record("c", "EKS", "us-east-1", "default", "sha256:0", {"p": ("dra.cpu",)})


def installed(plan: ClusterPlan) -> dict[str, ObservedComponent]:
    """Everything as planned."""
    return {
        c.key: ObservedComponent(
            c.key,
            "deployed" if c.component.pin else "applied",
            c.component.pin.chart if c.component.pin else "",
            c.component.pin.version if c.component.pin else "",
            values_digest(c) if c.component.pin else "",
            objects=object_digests(c),
        )
        for c in plan.installed
    }


def seen(**parts: Any) -> ObservedCluster:
    whole = {
        "control_plane": Known(PLANE),
        "pools": Known({"p": POOL}),
        "components": Known(installed(PLAN)),
        "replicas": Known(()),
        "record": RECORD,
    }
    return ObservedCluster(**{"name": "c", **whole, **parts})


def ops(plan: ClusterPlan, observed: ObservedCluster | None) -> list[tuple[str, str]]:
    return [(a.op, a.subject) for a in cluster_actions(plan, observed) if a.op != "none"]


def test_nothing_observed_lists_everything() -> None:
    found = ops(PLAN, None)
    assert found[:2] == [("create", "cluster/c"), ("create", "pool/c/p")]
    assert {op for op, _ in found[2:]} == {"install"}
    assert [s for _, s in found[2:]] == sorted(f"component/c/{c.key}" for c in PLAN.installed)


def test_what_stands_as_planned_is_left_alone() -> None:
    assert ops(PLAN, seen()) == []


def test_a_cluster_that_isnt_there_is_made_whole() -> None:
    nothing = Unknown("the cluster's API isn't there yet")
    absent = seen(control_plane=Known(None), pools=Known({}), components=nothing, replicas=nothing)
    assert ops(PLAN, absent) == ops(PLAN, None)


@pytest.mark.parametrize(
    ("parts", "silent"),
    [
        ({"control_plane": Unknown("x")}, "cluster/c"),
        ({"pools": Unknown("x")}, "pool/c/p"),
        ({"components": Unknown("x")}, "component/c/dra-driver-cpu"),
    ],
)
def test_what_couldnt_be_read_is_not_none_found(parts: dict[str, Any], silent: str) -> None:
    found = {a.subject: a for a in cluster_actions(PLAN, seen(**parts))}
    assert found[silent] == Action("none", silent, "unknown: x")
    assert [a.op for a in found.values() if a.op != "none"] == []


def test_a_cluster_of_another_owner_is_never_made() -> None:
    foreign = replace(PLANE, ours=False)
    assert cluster_actions(PLAN, seen(control_plane=Known(foreign)))[0] == Action(
        "none", "cluster/c", "the name exists and isn't ours"
    )


def view(name: str = "p", **more: Any) -> PoolView:
    assert PLAN.view is not None
    return replace(PLAN.view.pool("p"), name=name, **more)


@pytest.mark.parametrize(
    ("desired", "observed", "expected"),
    [
        (view(), POOL, ()),
        # A cloud may choose a taint's value; key and effect are ours.
        (view(), replace(POOL, taints=(replace(TAINT, value="yes"),)), ()),
        (view(), replace(POOL, taints=(replace(TAINT, effect="NoExecute"),)), ("taint modelplane.ai/cpu=true:NoSchedule is missing",)),
        (view(), replace(POOL, taints=()), ("taint modelplane.ai/cpu=true:NoSchedule is missing",)),
        (view(), replace(POOL, labels={"modelplane.ai/pool": "p"}), ("label modelplane.ai/cpu is missing, not true",)),
        (view(), replace(POOL, labels={**LABELS, "modelplane.ai/cpu": "false", "own": "1"}), ("label modelplane.ai/cpu is false, not true",)),
        (view(count=3), POOL, ("count is 1, not 3",)),
        (view(count=0), POOL, ("count is 1, not 0",)),
        # An autoscaled pool's size isn't fought over; its bounds are ours.
        (view(count=3, minimum=1, maximum=5), replace(POOL, count=4, minimum=1, maximum=5), ()),
        (view(count=3, minimum=1, maximum=5), replace(POOL, count=4, minimum=1, maximum=3), ("bounds are 1 to 3, not 1 to 5",)),
        (view(count=3, minimum=1, maximum=5), replace(POOL, count=4), ()),
    ],
)  # fmt: skip
def test_how_a_pool_differs(desired: PoolView, observed: ObservedPool, expected: tuple[str, ...]) -> None:
    assert pool_drift(desired, observed) == expected


def component(key: str, **more: Any) -> str:
    (joined,) = [c for c in PLAN.installed if c.key == key]
    return component_drift(joined, replace(installed(PLAN)[key], **more))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, ""),
        ({"state": "failed"}, "its release is failed"),
        ({"state": "pending-install"}, "its release is pending-install"),
        ({"version": "0.0.1"}, "dra-driver-cpu 0.0.1 to dra-driver-cpu {version}"),
        ({"values": "sha256:0"}, "its values differ"),
    ],
)
def test_how_a_component_differs(more: dict[str, Any], expected: str) -> None:
    pin = PLAN.component("dra-driver-cpu").component.pin
    assert pin is not None
    assert component("dra-driver-cpu", **more) == expected.format(version=pin.version)


def test_crds_that_helm_leaves_behind_are_told_of() -> None:
    assert component("lws", version="0.0.1") == "lws 0.0.1 to lws v0.8.0, its CRDs first"


def test_objects_of_our_own_are_compared_one_by_one() -> None:
    (own,) = [c for c in PLAN.installed if c.key == "dra-driver-cpu"]
    whole = object_digests(own)
    if not whole:
        (own, *_) = [c for c in PLAN.installed if object_digests(c)]
        whole = object_digests(own)
    first = min(whole)
    assert component(own.key, objects={**whole, first: "sha256:0"}) == "its manifests differ"
    without = {k: v for k, v in whole.items() if k != first}
    assert component(own.key, objects=without) == f"{first} isn't there"


def test_what_no_manifest_asks_for_is_an_orphan_and_never_an_action() -> None:
    parts = {**installed(PLAN), "nvidia-dra-driver-gpu": ObservedComponent("nvidia-dra-driver-gpu", "deployed"), "old": ObservedComponent("old", "deployed")}  # fmt: skip
    observed = seen(pools=Known({"p": POOL, "q": replace(POOL, name="q")}), components=Known(parts))
    assert [o.as_dict() for o in cluster_orphans(PLAN, observed)] == [
        {"subject": "pool/c/q", "reason": "no manifest names the pool", "prune": "modelplane-dagster prune pool/c/q"},
        {
            "subject": "component/c/nvidia-dra-driver-gpu",
            "reason": "left out: no pool claims gpu.nvidia.com",
            "prune": "modelplane-dagster prune component/c/nvidia-dra-driver-gpu",
        },
        {
            "subject": "component/c/old",
            "reason": "no list holds the component any more",
            "prune": "modelplane-dagster prune component/c/old",
        },
    ]
    assert ops(PLAN, observed) == []


GPU = request('device.driver == "gpu.nvidia.com"', 1, "gpu")


# A GPU pool that runs on a cluster whose pools are as the deployments' tests need them.
LABELLED = {"modelplane.ai/pool": "p", "modelplane.ai/gpu": "nvidia"}
GPU_POOL = replace(POOL, labels=LABELLED, taints=(Taint("nvidia.com/gpu", "present"),), count=2, joined=2)
GPU_SEEN = {"pools": Known({"p": GPU_POOL}), "record": replace(RECORD, pools={"p": ("gpu.nvidia.com",)})}


def models(observed: dict[str, ObservedCluster] | None, *objects: Any) -> FleetPlan:
    return plan_fleet(fleet(cls("g", nvidia(), source="EKS"), *objects), observed=observed)


def replica(name: str = "m") -> ObservedReplica:
    return ObservedReplica("models", name, {"engine/Standalone": "p"}, ready=1, desired=1)


def test_a_deployment_is_created_where_it_isnt() -> None:
    objects = (cluster("c", "EKS", pool("p", "g", 2)), deployment("m", engine(member(GPU)), replicas=2))
    told = {}
    for count in (0, 1, 2):
        plan = models({"c": seen(replicas=Known((replica(),) * count), **GPU_SEEN)}, *objects)
        told[count] = [(a.op, a.reason) for a in plan.actions if a.subject == "deployment/models/m"]
    assert told == {0: [("create", "on c, c")], 1: [("create", "on c")], 2: [("none", "runs on c, c")]}


def test_what_is_placed_of_a_deployment_is_made_though_not_all_is() -> None:
    objects = (cluster("c", "EKS", pool("p", "g", 1)), deployment("m", engine(member(GPU)), replicas=2))
    plan = models({"c": seen(**GPU_SEEN)}, *objects)
    assert [(a.op, a.reason) for a in plan.actions if a.subject == "deployment/models/m"] == [("create", "on c")]
    assert [p.verdict for p in plan.placements] == ["unplaced"]


def test_clusters_and_deployments_without_a_manifest_are_orphans() -> None:
    observed = {"c": seen(replicas=Known((replica(), replica("gone")))), "lost": seen(name="lost"), "never": seen(name="never", record=None)}  # fmt: skip
    plan = models(observed, cluster("c", "EKS", pool("p", "g")), deployment("m", engine(member(GPU))))
    assert [(o.subject, o.reason) for o in plan.orphans if not o.subject.startswith("component/")] == [
        ("cluster/lost", "no manifest names the cluster"),
        ("deployment/models/gone", "it runs on c and no manifest names it"),
    ]


def test_a_broken_manifest_is_still_asked_for() -> None:
    broken = {**deployment("m", engine(member(GPU))), "spec": {"replicas": "many"}}
    unfinished = {**cluster("c", "EKS", pool("p", "g")), "spec": {}}
    plan = models({"c": seen(replicas=Known((replica(),)))}, broken, unfinished)
    assert (plan.orphans, [(a.op, a.subject) for a in plan.actions]) == ((), [("none", "cluster/c")])
