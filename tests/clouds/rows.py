"""One row a cloud: what the contract tests need to run the adapter against its simulated cloud.

A cloud joins the contract by adding its row to `ROWS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from modelplane_dagster.cluster import ClusterView, PoolView
from resources.lab.clouds import aks as aks_sim
from resources.lab.clouds import eks as eks_sim
from resources.lab.clouds import gke as gke_sim
from resources.lab.clouds.state import CloudState, Traits
from tests.clouds import views


@dataclass(frozen=True)
class Row:
    """`app` makes the ASGI app over a state; `create` and `update` are the meanings under which the simulated cloud
    counts a pool's creation and update (summed)."""

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
    dress: Any = None
    traits: Traits = field(default_factory=Traits)


EKS_POOL = views.gpu_pool(machine={"instanceType": "g6.xlarge", "diskSizeGb": 100})
GKE_POOL = views.gpu_pool(machine={"machineType": "g2-standard-8", "diskSizeGb": 100}, zones=("us-central1-a",))
AKS_POOL = views.gpu_pool("gpu-a100", machine={"vmSize": "Standard_NC24ads_A100_v4"}, accelerator="nvidia-a100")

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
]
