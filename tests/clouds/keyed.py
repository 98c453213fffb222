"""The two clouds that are reached with an API key, as their adapters' tests set them up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from modelplane_dagster.cluster import ClusterView, PoolView
from modelplane_dagster.sources import SOURCES
from resources.clouds.civo import CivoCloud
from resources.clouds.rest import Limits
from resources.clouds.seam import ClusterRef
from resources.clouds.vultr import VultrCloud
from resources.lab.clouds import civo as civo_sim
from resources.lab.clouds import vultr as vultr_sim
from tests.clouds.serving import until_ready
from tests.clouds.views import cluster, cpu_pool, gpu_pool

LIMITS = Limits(timeout=5.0, attempts=3, pause=0.0)


@dataclass(frozen=True)
class Keyed:
    """`fresh` is the word for a cluster that was just asked for; `key_env` the variable that holds a key."""

    ref: ClusterRef
    adapter: Any
    simulator: Any
    gpu: PoolView
    cpu: PoolView
    view: ClusterView
    fresh: str
    key_env: str


VULTR_GPU = gpu_pool(
    "gpu-l40s", machine={"plan": "vcg-l40s-16c-180g-48vram"}, accelerator="nvidia-l40s", minimum=1, maximum=4
)
VULTR_CPU = cpu_pool("cpu", machine={"plan": "vhf-8c-32gb"})
CIVO_GPU = gpu_pool("gpu-l40s", machine={"size": "an.g1.l40s.kube.x1"}, accelerator="nvidia-l40s", minimum=1, maximum=4)
CIVO_CPU = cpu_pool("cpu", machine={"size": "g4p.kube.medium"})

KEYED = {
    "Vultr": Keyed(
        ref=ClusterRef("demo", "Vultr", "ewr"),
        adapter=VultrCloud,
        simulator=vultr_sim.VultrSim,
        gpu=VULTR_GPU,
        cpu=VULTR_CPU,
        view=cluster("Vultr", VULTR_GPU, VULTR_CPU, version="v1.36.1+3", location="ewr"),
        fresh="pending",
        key_env="VULTR_API_KEY",
    ),
    "Civo": Keyed(
        ref=ClusterRef("demo", "Civo", "LON1"),
        adapter=CivoCloud,
        simulator=civo_sim.CivoSim,
        gpu=CIVO_GPU,
        cpu=CIVO_CPU,
        view=cluster("Civo", CIVO_GPU, CIVO_CPU, version="", location="LON1"),
        fresh="BUILDING",
        key_env="CIVO_TOKEN",
    ),
}


def plane_request(cloud):
    return SOURCES[cloud.source].control_plane_request(KEYED[cloud.source].view)


def pool_request(cloud, pool=None):
    """Of the row's GPU pool, unless another is given."""
    row = KEYED[cloud.source]
    return SOURCES[cloud.source].pool_request(row.view, pool or row.gpu)


def up(cloud):
    """Every answer until the control plane was ready."""
    return until_ready(lambda: cloud.ensure_control_plane(KEYED[cloud.source].ref, plane_request(cloud)))


def with_pool(cloud, pool=None):
    """Every answer until the pool was ready: the row's GPU pool, unless another is given."""
    row = KEYED[cloud.source]
    name = (pool or row.gpu).name
    return until_ready(lambda: cloud.ensure_pool(row.ref, name, pool_request(cloud, pool)))


def made(state, what):
    return state.counts[("write", f"POST {what}")]
