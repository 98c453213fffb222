"""Which way the CPU driver runs by the cluster's version, and which versions are refused."""

from __future__ import annotations

from typing import Any

import pytest

from modelplane_dagster.cpu import devices_for, mode_for, reserved_cpus
from modelplane_dagster.kube.versions import KubernetesVersion
from modelplane_dagster.plan import plan_fleet
from tests.made import cls, cluster, cpus, fleet, nvidia, pool

TOO_OLD = ("refused", ["UnsupportedKubernetesVersion"], None)


@pytest.mark.parametrize(
    ("source", "version", "expected"),
    [
        ("EKS", "1.33", TOO_OLD),
        ("EKS", "1.34", ("pass", [], "individual")),
        ("EKS", "1.35", ("pass", [], "individual")),
        ("EKS", "1.36", ("pass", [], "grouped")),
        ("EKS", "1.37", ("pass", [], "grouped")),
        ("Vultr", "v1.33.4+1", TOO_OLD),
        ("Vultr", "v1.36.1+3", ("pass", [], "grouped")),
        ("Civo", "1.34.1-k3s1", ("pass", [], "individual")),
        ("Civo", None, ("pass", ["VersionUnknown"], None)),
        ("GKE", None, ("pass", [], "individual")),
        ("AKS", None, ("pass", [], "individual")),
        ("Nebius", None, ("pass", [], "individual")),
        ("EKS", None, ("pass", [], "grouped")),
        ("Existing", None, ("pass", ["VersionUnknown"], None)),
    ],
)
def test_the_mode_follows_the_version(source: str, version: str | None, expected: Any) -> None:
    own = {"kubernetesVersion": version} if version else {}
    made = cls("k", cpus(2, 6), source="" if source == "Existing" else source)
    plan = plan_fleet(fleet(made, cluster("c", source, pool("p", "k"), **own))).clusters[0]
    assert plan.view is not None
    assert (plan.gate.verdict, [f.code for f in plan.gate.findings], plan.view.cpu_mode) == expected


def test_without_a_cpu_claim_there_is_no_mode() -> None:
    plan = plan_fleet(fleet(cls("k", nvidia(), source="EKS"), cluster("c", "EKS", pool("p", "k")))).clusters[0]
    assert plan.view is not None
    assert plan.view.cpu_mode is None


@pytest.mark.parametrize(
    ("version", "each", "expected"),
    [
        ("1.35", 32, ("pass", [])),
        ("1.35", 33, ("refused", ["ClaimTooLarge"])),
        ("1.36", 64, ("pass", [])),
    ],
)
def test_a_group_of_more_cpus_than_a_claim_holds(version: str, each: int, expected: Any) -> None:
    made = cls("k", cpus(2, each), source="EKS")
    plan = plan_fleet(fleet(made, cluster("c", "EKS", pool("p", "k"), kubernetesVersion=version))).clusters[0]
    assert (plan.gate.verdict, [f.code for f in plan.gate.findings]) == expected


def test_the_release_is_given_the_mode() -> None:
    modes = {}
    for version in ("1.35", "1.36"):
        made = cls("k", cpus(), source="EKS")
        plan = plan_fleet(fleet(made, cluster("c", "EKS", pool("p", "k"), kubernetesVersion=version))).clusters[0]
        modes[version] = plan.component("dra-driver-cpu").values["driverConfig"]["cpuDeviceMode"]
    assert modes == {"1.35": "individual", "1.36": "grouped"}


@pytest.mark.parametrize(
    ("text", "mode"),
    [("1.33.9", None), ("1.34.0", "individual"), ("v1.35.2-gke.100", "individual"), ("1.36", "grouped"), ("2.0", "grouped")],
)  # fmt: skip
def test_the_mode_of_a_version(text: str, mode: str | None) -> None:
    assert mode_for(KubernetesVersion.parse(text)) == mode


def test_devices_of_a_claim() -> None:
    assert (devices_for("grouped", groups=2, cpus=6), devices_for("individual", groups=2, cpus=6)) == (2, 12)


@pytest.mark.parametrize(("text", "count"), [("0", 1), ("0-1", 2), ("0,2-3", 3), ("0-3,8-11", 8)])
def test_a_cpuset_names_so_many_cpus(text: str, count: int) -> None:
    assert reserved_cpus(text) == count
