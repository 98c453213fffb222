"""What a source supports is derived: one more published driver changes the matrix, the gate and the docs; a tag alone doesn't."""

from __future__ import annotations

from typing import Any

import pytest

from docs.generate import drivers_page
from modelplane_dagster.cli.drivers import matrix
from modelplane_dagster.cluster_plan import ClusterPlan
from modelplane_dagster.plan import plan_fleet
from tests.made import AMD, NV, cls, cluster, cpus, device, fleet, nvidia, pool

PUBLISHES = {"nodewright-operator": {"publishes": AMD, "drivers": [AMD]}}
TAG_ALONE = {"nodewright-operator": {"drivers": [AMD]}}


def planned(overlay: Any) -> ClusterPlan:
    made = fleet(cls("k", device(AMD), source="AKS"), cluster("c", "AKS", pool("p", "k")))
    return plan_fleet(made, overlay=overlay).clusters[0]


def test_the_matrix() -> None:
    rows = {s: {d: e.get("via") or "external" for d, e in row.items()} for s, row in matrix(None).items()}
    own = {"dra.cpu": ["dra-driver-cpu"], "gpu.nvidia.com": ["nvidia-dra-driver-gpu"]}
    assert rows == {
        "EKS": {**own, "dra.net": "external"},
        "GKE": own,
        "AKS": own,
        "Nebius": own,
        "Vultr": own,
        "Civo": own,
        "Existing": {**own, "gpu.amd.com": ["amd-gpu-operator"]},
    }


def test_one_more_published_driver_changes_matrix_gate_and_docs() -> None:
    before, after = planned(None), planned(PUBLISHES)
    assert (before.gate.verdict, [f.code for f in before.gate.findings]) == ("refused", ["UnsupportedDevices"])
    assert (after.gate.verdict, after.supported) == ("pass", ("dra.cpu", AMD, NV))
    assert "nodewright-operator" in {c.key for c in after.serving("p")}
    assert matrix(PUBLISHES)["AKS"] == {**matrix(None)["AKS"], AMD: {"via": ["nodewright-operator"]}}
    shipped, changed = drivers_page(), drivers_page(PUBLISHES)
    before_row, after_row = (next(r for r in p.splitlines() if r.startswith("| AKS")) for p in (shipped, changed))
    assert before_row == "| AKS | `dra-driver-cpu` | - | - | `nvidia-dra-driver-gpu` |"
    assert after_row == "| AKS | `dra-driver-cpu` | - | `nodewright-operator` | `nvidia-dra-driver-gpu` |"


def test_a_tag_alone_changes_what_is_installed_and_not_what_is_supported() -> None:
    assert matrix(TAG_ALONE) == matrix(None)
    assert drivers_page(TAG_ALONE) == drivers_page()
    plan = planned(TAG_ALONE)
    assert (plan.gate.verdict, "UnsupportedDevices" in {f.code for f in plan.gate.findings}) == ("refused", True)
    nvidia_only = fleet(cls("k", nvidia(), source="AKS"), cluster("c", "AKS", pool("p", "k")))
    kept = {c.key for c in plan_fleet(nvidia_only).clusters[0].installed}
    left = {c.key for c in plan_fleet(nvidia_only, overlay=TAG_ALONE).clusters[0].installed}
    assert kept - left == {"nodewright-operator"}


NVIDIA_PARTS = {
    "gpu-operator",
    "nvidia-dra-driver-gpu",
    "dra-driver-critical-pods-quota",
    "nvsentinel",
    "gpu-operator-toolkit-hardening",
}
ALL_SOURCES = ("EKS", "GKE", "AKS", "Nebius", "Vultr", "Civo", "Existing")


@pytest.mark.parametrize("source", ALL_SOURCES)
@pytest.mark.parametrize("kinds", [(), ("gpu",), ("cpu",), ("gpu", "cpu")])
def test_a_cluster_gets_what_its_pools_claim_and_nothing_else(source: str, kinds: tuple[str, ...]) -> None:
    own = "" if source == "Existing" else source
    zones = {"zones": ["us-central1-a"]} if source == "GKE" else {}
    accelerator = {"type": "nvidia-l4", "count": 1} if source == "GKE" else None
    synthetic = cls("none", {**device("board.example.com"), "claim": "Synthetic"}, source=own)
    classes = {"gpu": cls("gpu", nvidia(), source=own, accelerator=accelerator), "cpu": cls("cpu", cpus(), source=own)}
    pools = [pool(k, k, **(zones if k == "gpu" else {})) for k in kinds] or [pool("none", "none")]
    plan = plan_fleet(fleet(synthetic, *classes.values(), cluster("c", source, *pools))).clusters[0]
    keys = {c.key for c in plan.installed}
    assert plan.gate.verdict == "pass"
    assert bool(keys & NVIDIA_PARTS) == ("gpu" in kinds)
    assert ("nvidia-dra-driver-gpu" in keys) == ("gpu" in kinds)
    assert ("dra-driver-cpu" in keys) == ("cpu" in kinds)
    assert "amd-gpu-operator" not in keys
    assert ("node-feature-discovery" in keys) == ("gpu" in kinds and source != "Vultr")
    assert not plan.audit or plan.audit.findings == ()


@pytest.mark.parametrize("source", ALL_SOURCES)
def test_with_a_class_missing_nothing_changes(source: str) -> None:
    plan = plan_fleet(fleet(cluster("c", source, pool("p", "missing"))))
    (only,) = plan.clusters
    assert (only.gate.verdict, only.view, only.installed) == ("unknown", None, ())
    assert [(a.op, a.subject) for a in plan.actions] == [("none", "cluster/c")]
