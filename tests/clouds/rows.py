"""One row a cloud: what the contract tests need to run the adapter against its simulated cloud.

A cloud joins the contract by adding its row to `ROWS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from modelplane_dagster.cluster import ClusterView, PoolView
from resources.lab.clouds import aks as aks_sim
from resources.lab.clouds import civo as civo_sim
from resources.lab.clouds import eks as eks_sim
from resources.lab.clouds import gke as gke_sim
from resources.lab.clouds import nebius as nebius_sim
from resources.lab.clouds import vultr as vultr_sim
from resources.lab.clouds.state import CloudState, Traits
from tests.clouds import views


@dataclass(frozen=True)
class Row:
    """`app` makes the ASGI app over a state; `create` and `update` are the meanings under which the simulated cloud
    counts a pool's creation and update (summed). `apart`: the system pool takes a request of its own."""

    source: str
    location: str
    version: str
    account: str
    app: Callable[[CloudState], Any]
    view: ClusterView
    pool: PoolView
    known_type: str
    create: tuple[str, ...]
    delete: str
    apart: bool = False
    dress: Any = None
    traits: Traits = field(default_factory=Traits)


EKS_POOL = views.gpu_pool(machine={"instanceType": "g6.xlarge", "diskSizeGb": 100})
GKE_POOL = views.gpu_pool(machine={"machineType": "g2-standard-8", "diskSizeGb": 100}, zones=("us-central1-a",))
AKS_POOL = views.gpu_pool("gpu-a100", machine={"vmSize": "Standard_NC24ads_A100_v4"}, accelerator="nvidia-a100")
NEBIUS_POOL = views.gpu_pool(machine={"platform": "gpu-l40s-a", "preset": "1gpu-8vcpu-32gb"}, accelerator="nvidia-l40s")
VULTR_POOL = views.gpu_pool(machine={"plan": "vcg-l40s-16c-180g-48vram"}, accelerator="nvidia-l40s")
CIVO_POOL = views.gpu_pool(machine={"size": "an.g1.l40s.kube.x1"}, accelerator="nvidia-l40s")

ROWS = [
    Row(
        source="EKS",
        location="us-east-1",
        version="1.36",
        account="111122223333",
        app=eks_sim.EksSim,
        view=views.cluster("EKS", EKS_POOL),
        pool=EKS_POOL,
        known_type="g6.xlarge",
        create=("POST create-pool",),
        delete="DELETE delete-pool",
        dress=eks_sim.dress,
        apart=True,
    ),
    Row(
        source="GKE",
        location="us-central1",
        version="1.35.4-gke.200",
        account="my-project",
        app=gke_sim.GkeSim,
        view=views.cluster("GKE", GKE_POOL, version="1.35", location="us-central1"),
        pool=GKE_POOL,
        known_type="g2-standard-8",
        create=("POST create-pool",),
        delete="DELETE delete-pool",
        dress=gke_sim.dress,
        traits=gke_sim.TRAITS,
    ),
    Row(
        source="AKS",
        location="westeurope",
        version="1.34",
        account="my-subscription",
        app=aks_sim.AksSim,
        view=views.cluster("AKS", AKS_POOL, version="1.34", location="westeurope"),
        pool=AKS_POOL,
        known_type="Standard_NC24ads_A100_v4",
        create=("PUT put-pool",),
        delete="DELETE delete-pool",
        dress=aks_sim.dress,
    ),
    Row(
        source="Nebius",
        location="",
        version="1.34",
        account="project-e00lab",
        app=nebius_sim.NebiusSim,
        view=views.cluster("Nebius", NEBIUS_POOL, version="1.34", location=""),
        pool=NEBIUS_POOL,
        known_type="gpu-h100-sxm",
        create=("NodeGroupService/Create",),
        delete="NodeGroupService/Delete",
        traits=nebius_sim.NebiusSim.traits,
        apart=True,
    ),
    Row(
        source="Vultr",
        location="ewr",
        version="v1.36.1+3",
        account="lab@vultr.invalid",
        app=vultr_sim.VultrSim,
        view=views.cluster("Vultr", VULTR_POOL, version="v1.36.1+3", location="ewr"),
        pool=VULTR_POOL,
        known_type="vcg-l40s-16c-180g-48vram",
        create=("POST create-pool",),
        delete="DELETE delete-pool",
    ),
    Row(
        source="Civo",
        location="LON1",
        version="1.34.1-k3s1",
        account="lab-civo-account",
        app=civo_sim.CivoSim,
        view=views.cluster("Civo", CIVO_POOL, version="1.34.1-k3s1", location="LON1"),
        pool=CIVO_POOL,
        known_type="an.g1.l40s.kube.x1",
        create=("POST create-pool",),
        delete="DELETE delete-pool",
    ),
]
