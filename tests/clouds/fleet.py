"""Cluster and pool views as the resolver makes them, written out."""

from __future__ import annotations

from modelplane_dagster.cluster import Accelerator, ClusterView, PoolView, Role
from modelplane_dagster.kube.objects import Taint

GPU_TAINT = Taint("nvidia.com/gpu", "present")
CPU_TAINT = Taint("modelplane.ai/cpu", "true")


def gpu_pool(cluster, machine, **more):
    fields = {
        "cluster": cluster,
        "name": "gpu-l40s",
        "class_name": "l40s",
        "role": Role.GPU,
        "drivers": ("gpu.nvidia.com",),
        "labels": {"modelplane.ai/pool": "gpu-l40s", "modelplane.ai/gpu": "nvidia-l40s"},
        "taints": (GPU_TAINT,),
        "accelerator": Accelerator("nvidia-l40s", 1),
        "machine": machine,
        **more,
    }
    return PoolView(**fields)


def cpu_pool(cluster, machine, **more):
    fields = {
        "cluster": cluster,
        "name": "cpu",
        "class_name": "cpu",
        "role": Role.CPU,
        "drivers": ("dra.cpu",),
        "labels": {"modelplane.ai/pool": "cpu", "modelplane.ai/cpu": "true"},
        "taints": (CPU_TAINT,),
        "machine": machine,
        **more,
    }
    return PoolView(**fields)


def cluster_of(source, version, location, *pools):
    claimed = frozenset(d for p in pools for d in p.drivers)
    return ClusterView("c1", source, version, pools, claimed, location=location)
