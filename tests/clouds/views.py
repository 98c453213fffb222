"""Clusters and pools for the tests, as the rules would resolve them."""

from __future__ import annotations

from modelplane_dagster import drivers
from modelplane_dagster.cluster import Accelerator, ClusterView, PoolView, Role
from modelplane_dagster.kube.objects import Taint

NVIDIA_TAINT = Taint("nvidia.com/gpu", "present", "NoSchedule")
CPU_TAINT = Taint("modelplane.ai/cpu", "true", "NoSchedule")


def cpu_pool(name="cpus", *, machine, **fields) -> PoolView:
    given = {
        "cluster": "demo",
        "class_name": "cpu",
        "role": Role.CPU,
        "drivers": (drivers.CPU,),
        "labels": {"modelplane.ai/pool": name, "modelplane.ai/cpu": "true"},
        "taints": (CPU_TAINT,),
        "count": 2,
    }
    return PoolView(name=name, machine=machine, **(given | fields))


def gpu_pool(name="l4s", *, machine, accelerator="nvidia-l4", **fields) -> PoolView:
    given = {
        "cluster": "demo",
        "class_name": "gpu",
        "role": Role.GPU,
        "drivers": (drivers.NVIDIA,),
        "labels": {"modelplane.ai/pool": name, "modelplane.ai/gpu": accelerator or "nvidia"},
        "taints": (NVIDIA_TAINT,),
        "count": 1,
        "accelerator": Accelerator(accelerator, 1) if accelerator else None,
    }
    return PoolView(name=name, machine=machine, **(given | fields))


def cluster(source, *pools, version="1.36", location="us-east-1") -> ClusterView:
    claimed = frozenset(d for p in pools for d in p.drivers)
    return ClusterView(name="demo", source=source, version=version, pools=pools, claimed=claimed, location=location)
