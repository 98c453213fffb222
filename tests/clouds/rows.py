"""One row a cloud: what the contract tests need to run the adapter against its simulated cloud.

A cloud joins the contract by adding its row to `ROWS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from modelplane_dagster.cluster import ClusterView, PoolView
from resources.lab.clouds import eks as eks_sim
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
]
