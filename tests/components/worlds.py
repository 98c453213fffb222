"""Clusters for the tests of components: pools as the rules make them, written out here and not computed."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from modelplane_dagster.cluster import ClusterView, ExternalDriver, PoolView, Role, Source
from modelplane_dagster.kube.objects import Taint

NV, AMD, CPU = "gpu.nvidia.com", "gpu.amd.com", "dra.cpu"
NV_TAINT = Taint("nvidia.com/gpu", "present", "NoSchedule")
AMD_TAINT = Taint("amd.com/gpu", "present", "NoSchedule")
CPU_TAINT = Taint("modelplane.ai/cpu", "true", "NoSchedule")


def pool(name: str, *drivers: str, role: Role = Role.GPU, taints=(), labels=None, **more) -> PoolView:
    every = {"modelplane.ai/pool": name, **(labels or {})}
    return PoolView(
        cluster="c",
        name=name,
        class_name=f"class-{name}",
        role=role,
        drivers=tuple(sorted(drivers)),
        labels=MappingProxyType(every),
        taints=tuple(taints),
        **more,
    )


def nvidia(name: str = "l4", **more) -> PoolView:
    return pool(name, NV, taints=[NV_TAINT], labels={"modelplane.ai/gpu": "nvidia"}, **more)


def amd(name: str = "mi325x", **more) -> PoolView:
    return pool(name, AMD, taints=[AMD_TAINT], labels={"modelplane.ai/gpu": "amd"}, **more)


def cpu(name: str = "cpus", **more) -> PoolView:
    return pool(name, CPU, role=Role.CPU, taints=[CPU_TAINT], labels={"modelplane.ai/cpu": "true"}, **more)


def nvidia_cpu(name: str = "l4cpu", **more) -> PoolView:
    labels = {"modelplane.ai/gpu": "nvidia", "modelplane.ai/cpu": "true"}
    return pool(name, NV, CPU, taints=[NV_TAINT], labels=labels, **more)


def amd_cpu(name: str = "mi325xcpu", **more) -> PoolView:
    labels = {"modelplane.ai/gpu": "amd", "modelplane.ai/cpu": "true"}
    return pool(name, AMD, CPU, taints=[AMD_TAINT], labels=labels, **more)


def view(source: Source, *pools: PoolView, external: tuple[ExternalDriver, ...] = (), **more) -> ClusterView:
    claimed = frozenset(d for p in pools for d in p.drivers)
    facts = {"version": "1.36", "location": "somewhere", "cpu_mode": "grouped" if CPU in claimed else None, **more}
    return ClusterView(name="c", source=source, pools=pools, claimed=claimed, external=external, **facts)


def full(source: Source) -> ClusterView:
    """One cluster of a source in which every component of its list is installed."""
    pools = [nvidia(minimum=1, maximum=4), cpu(), nvidia_cpu()]
    if source == "EKS":
        pools.append(replace(nvidia("efa"), fabric="EFA"))
    if source == "AKS":
        pools.append(replace(nvidia("ib"), fabric="InfiniBand"))
    if source == "Existing":
        pools += [amd(), amd_cpu()]
    return view(source, *pools)
