"""What a cloud can't do of what a pool asks, found before anything is provisioned."""

from __future__ import annotations

import pytest

from modelplane_dagster.plan import plan_fleet
from modelplane_dagster.sources import SOURCES
from tests.clouds import views
from tests.made import cls, cluster, fleet, nvidia, pool

L4 = {"type": "nvidia-l4", "count": 1}

GPU = {"machine": {}}
ZONED = {"machine": {}, "zones": ("z1",)}

CASES = {
    "EKS takes a plain GPU pool": ("EKS", views.gpu_pool(**GPU), []),
    "EKS has EFA": ("EKS", views.gpu_pool(**GPU, fabric="EFA"), []),
    "EKS has no InfiniBand": ("EKS", views.gpu_pool(**GPU, fabric="InfiniBand"), [("FabricUnsupported", "error")]),
    "EKS doesn't wake for a claim": (
        "EKS",
        views.gpu_pool(**GPU, minimum=0, maximum=2),
        [("ScaleFromZero", "warning")],
    ),
    "an empty pool that stays so is fine": ("EKS", views.gpu_pool(**GPU, count=0), []),
    "a pool that claims nothing may sleep": (
        "EKS",
        views.cpu_pool(**GPU, drivers=(), minimum=0, maximum=2),
        [],
    ),
    "a capacity block lies in one zone": (
        "EKS",
        views.gpu_pool(**GPU, capacity_block="cr-1"),
        [("ZonesRequired", "error")],
    ),
    "a capacity block with its zone": ("EKS", views.gpu_pool(**ZONED, capacity_block="cr-1"), []),
    "GKE wants zones for GPUs": ("GKE", views.gpu_pool(**GPU), [("ZonesRequired", "error")]),
    "GKE takes CPUs without": ("GKE", views.cpu_pool(**GPU), []),
    "GKE wakes GPU pools": ("GKE", views.gpu_pool(**ZONED, minimum=0, maximum=2), []),
    "GKE doesn't wake CPU pools": (
        "GKE",
        views.cpu_pool(**GPU, minimum=0, maximum=2),
        [("ScaleFromZero", "warning")],
    ),
    "GKE counts for each zone": (
        "GKE",
        views.gpu_pool(machine={}, zones=("z1", "z2"), count=3),
        [("CountNotSpread", "error")],
    ),
    "GKE has no EFA": ("GKE", views.gpu_pool(**ZONED, fabric="EFA"), [("FabricUnsupported", "error")]),
    "GKE's names are short": ("GKE", views.cpu_pool("p" * 41, **GPU), [("InvalidName", "error")]),
    "GKE has no capacity blocks": (
        "GKE",
        views.gpu_pool(**ZONED, capacity_block="cr-1"),
        [("CapacityBlockUnsupported", "error")],
    ),
    "AKS has InfiniBand": ("AKS", views.gpu_pool(**GPU, fabric="InfiniBand"), []),
    "AKS doesn't wake for a claim": (
        "AKS",
        views.gpu_pool(**GPU, minimum=0, maximum=2),
        [("ScaleFromZero", "warning")],
    ),
    "the system pool's name is taken": ("AKS", views.cpu_pool("system", **GPU), [("InvalidName", "error")]),
    "not on a cluster that has none": ("Existing", views.cpu_pool("system", **GPU), []),
    "Existing takes any fabric": ("Existing", views.gpu_pool(**GPU, fabric="InfiniBand"), []),
}


@pytest.mark.parametrize("case", CASES)
def test_check_pool(case):
    source, pool, expected = CASES[case]
    found = SOURCES[source].check_pool(views.cluster(source, pool), pool)
    assert [(f.code, f.severity.value) for f in found] == expected
    assert all(f.subject == f"pool/demo/{pool.name}" and f.fix for f in found)


@pytest.mark.parametrize(
    ("source", "length", "told"),
    [
        ("GKE", 40, None),
        ("GKE", 41, "has 41 characters, and GKE takes 40."),
        ("EKS", 63, None),
        ("Existing", 63, None),
    ],
)
def test_a_name_that_is_too_long_for_the_cloud_is_refused(source, length, told):
    name, own = "c" * length, "" if source == "Existing" else source
    made = fleet(cls("k", nvidia(), source=own, accelerator=L4), cluster(name, source, pool("p", "k", zones=["z1"])))
    gate = plan_fleet(made).clusters[0].gate
    assert [(f.code, f.subject, f.message, f.place is not None) for f in gate.findings if f.code == "InvalidName"] == (
        [("InvalidName", f"cluster/{name}", f"Cluster name {name} {told}", True)] if told else []
    )
    assert gate.verdict == ("refused" if told else "pass")
