"""The lab cluster's controllers, scheduler and kubelets, in process on the API's store."""

from __future__ import annotations

from resources.lab.api.store import Store
from resources.lab.controllers.claims import Claims, Reservations
from resources.lab.controllers.daemons import Daemons
from resources.lab.controllers.engine import Cluster, Controller, Engine, Timing
from resources.lab.controllers.jobs import Jobs
from resources.lab.controllers.kubelet import Kubelets
from resources.lab.controllers.replicas import Deployments, ReplicaSets, StatefulSets
from resources.lab.controllers.scheduler import Scheduler

__all__ = ["Engine", "Timing", "controllers"]


def controllers(store: Store, *, timing: Timing | None = None) -> Engine:
    """The engine of one cluster, not started: `start` it on the event loop that owns the store."""
    return Engine(store, _all, timing=timing)


def _all(cluster: Cluster) -> list[Controller]:
    kinds = (Deployments, ReplicaSets, StatefulSets, Daemons, Jobs, Claims, Reservations, Scheduler, Kubelets)
    return [kind(cluster) for kind in kinds]
