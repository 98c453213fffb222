"""What a cloud can't do of what a pool asks, found before anything is provisioned."""

from __future__ import annotations

import pytest

from modelplane_dagster.sources import SOURCES
from tests.clouds import views

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
