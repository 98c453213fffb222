"""What runs refuses an edit: roles, drivers and accounts of what was made don't change in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from modelplane_dagster.known import Known, Unknown
from modelplane_dagster.kube.objects import Taint
from modelplane_dagster.observed import ObservedCluster, ObservedControlPlane, ObservedPool, Record
from modelplane_dagster.plan import FleetPlan, plan_fleet
from tests.made import CPU, NET, NV, cls, cluster, cpus, device, fleet, nvidia, pool, provider_config

READY = ObservedControlPlane("ready", "1.36", ours=True, account="default")
GPU_LABELS = {"modelplane.ai/pool": "p", "modelplane.ai/gpu": "nvidia"}
CPU_LABELS = {"modelplane.ai/pool": "p", "modelplane.ai/cpu": "true"}
BOTH_LABELS = {**GPU_LABELS, **CPU_LABELS}
GPU_TAINT = Taint("nvidia.com/gpu", "present")
CPU_TAINT = Taint("modelplane.ai/cpu", "true")


def seen(
    *,
    labels: Mapping[str, str] | None = GPU_LABELS,
    taints: tuple[Taint, ...] = (GPU_TAINT,),
    recorded: tuple[str, ...] | None = (NV,),
    account: str = "default",
    source: str = "EKS",
) -> ObservedCluster:
    """`labels` None: the cloud has no such pool. `recorded` None: the cluster was never changed by us."""
    pools = {} if labels is None else {"p": ObservedPool("p", "ready", labels, taints, count=1, joined=1)}
    record = None
    if recorded is not None:
        record = Record("c", source, "us-east-1", account, "sha256:0", {"p": recorded})
    return ObservedCluster(
        name="c",
        control_plane=Known(READY),
        pools=Known(pools),
        components=Known({}),
        replicas=Known(()),
        record=record,
    )


def planned(observed: ObservedCluster | None, *devices: dict[str, Any], source: str = "EKS", **more: Any) -> FleetPlan:
    made = cls("k", *devices, source="" if source == "Existing" else source)
    extra = more.pop("extra", ())
    return plan_fleet(
        fleet(made, cluster("c", source, pool("p", "k"), **more), *extra),
        observed={"c": observed} if observed else None,
    )


def codes(plan: FleetPlan) -> list[str]:
    return [f.code for f in plan.clusters[0].gate.findings]


@pytest.mark.parametrize(
    ("observed", "devices", "expected"),
    [
        (seen(), [nvidia()], []),
        (seen(), [nvidia(), cpus()], []),
        (seen(), [cpus()], ["PoolRoleChanged"]),
        (seen(labels=CPU_LABELS, taints=(CPU_TAINT,), recorded=(CPU,)), [nvidia(), cpus()], ["PoolRoleChanged"]),
        (seen(labels=BOTH_LABELS, recorded=(CPU, NV)), [nvidia()], ["PoolRoleChanged"]),
        # The record alone, where the cloud forgot the labels; and the labels alone, where the record holds no driver.
        (seen(labels={}, taints=(), recorded=(NV,)), [cpus()], ["PoolRoleChanged"]),
        (seen(recorded=()), [cpus()], ["PoolRoleChanged"]),
        # Made by nobody we know, or on record and not on the cloud: nothing runs.
        (seen(recorded=None), [cpus()], []),
        (seen(labels=None), [cpus()], []),
    ],
)
def test_a_running_pool_keeps_its_drivers_and_its_role(observed: ObservedCluster, devices: Any, expected: Any) -> None:
    assert codes(planned(observed, *devices)) == expected


def test_the_refusal_says_what_runs_and_where_the_pool_stands() -> None:
    plan = planned(seen(), cpus())
    (found,) = plan.clusters[0].gate.findings
    assert (found.subject, found.message) == (
        "pool/c/p",
        (
            "Pool p runs as a GPU pool for gpu.nvidia.com, and class k no longer claims gpu.nvidia.com; a running pool neither "
            "loses a driver nor changes its role."
        ),
    )
    assert found.place is not None
    assert (found.place.file, found.place.line) == ("fleet.yaml", 4)


def test_a_refused_edit_yields_no_action_on_the_cluster() -> None:
    plan = planned(seen(), cpus())
    assert [(a.op, a.subject) for a in plan.actions] == [("none", "cluster/c")]
    assert (plan.refused, plan.clusters[0].gate.verdict) == (True, "refused")


def test_pools_of_ones_own_are_judged_by_the_record() -> None:
    observed = seen(labels=None, recorded=(NV,), account="secret kubeconfig/kubeconfig", source="Existing")
    assert codes(planned(observed, cpus(), source="Existing")) == ["PoolRoleChanged", "VersionUnknown"]


def test_pools_that_cant_be_read_are_judged_by_nothing_and_change_nothing() -> None:
    blind = ObservedCluster(
        name="c",
        control_plane=Known(READY),
        pools=Unknown("the cloud doesn't answer"),
        components=Known({}),
        replicas=Known(()),
        record=seen().record,
    )
    plan = planned(blind, nvidia())
    assert [(a.op, a.reason) for a in plan.actions if a.subject == "pool/c/p"] == [
        ("none", "unknown: the cloud doesn't answer")
    ]


ACCOUNT = provider_config("EKS", "prod", projectID="project-7")


@pytest.mark.parametrize(
    ("credentials", "extra", "account", "expected"),
    [
        (None, (), "default", []),
        (None, (), "project-7", ["AccountChanged"]),
        ("prod", (ACCOUNT,), "project-7", []),
        ("prod", (ACCOUNT,), "default", ["AccountChanged"]),
        ("prod", (), "project-7", ["AccountChanged", "CredentialsUnmapped"]),
    ],
)
def test_the_account_of_a_known_cluster_doesnt_change(
    credentials: str | None, extra: Any, account: str, expected: Any
) -> None:
    own = {"credentials": {"type": "ClusterProviderConfig", "name": credentials}} if credentials else {}
    plan = planned(seen(account=account), nvidia(), extra=extra, **own)
    assert codes(plan) == expected


def test_the_account_is_shown_and_an_unmapped_one_refused_before_anything_is_made() -> None:
    own = {"credentials": {"type": "ClusterProviderConfig", "name": "prod"}}
    mapped, unmapped = planned(None, nvidia(), extra=(ACCOUNT,), **own), planned(None, nvidia(), **own)
    assert (mapped.clusters[0].account.name, codes(mapped)) == ("project-7", [])
    assert (unmapped.clusters[0].gate.verdict, codes(unmapped)) == ("refused", ["CredentialsUnmapped"])
    assert [(a.op, a.subject) for a in unmapped.actions] == [("none", "cluster/c")]


def test_a_pool_may_lose_what_is_synthetic() -> None:
    observed = seen(recorded=(NV,))
    assert codes(planned(observed, nvidia(), {**device(NET), "claim": "Synthetic"})) == []
