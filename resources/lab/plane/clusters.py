"""The lab's clusters with a real control plane each, in the place of the embedded API and controllers."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path

from modelplane_dagster.errors import ModelplaneError
from resources.kubernetes import ClusterClient
from resources.lab.api.clusters import ClusterSet, LabCluster
from resources.lab.api.switches import Switches
from resources.lab.plane.plane import Plane, PlaneError
from resources.lab.plane.rules import ADMISSION, prepare

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class PlaneCluster(LabCluster):
    """`up` once its API server is ready and holds the rules of its cloud; requests get 503 before."""

    plane: Plane
    up: bool = False


class PlaneClusters(ClusterSet[PlaneCluster]):
    """Planes start when a cluster is added and are seen to by `settle`, which also starts anew what has ended.

    Everything is called on the daemon's loop, whose thread outlives the planes.
    """

    def _opened(self, name: str, folder: Path, switches: Switches, tokens: dict[str, str]) -> PlaneCluster:
        admission = folder / "admission.yaml"
        admission.write_text(ADMISSION)
        extra = [f"--admission-control-config-file={admission}"] if switches.critical_pods_quota else []
        users = {user: token for token, user in tokens.items()}
        plane = Plane(folder / "plane", consumable_capacity=switches.shares_devices, extra=extra, tokens=users)
        plane.begin()
        return PlaneCluster(name=name, switches=switches, tokens=tokens, plane=plane)

    def _closed(self, cluster: PlaneCluster) -> None:
        cluster.up = False
        cluster.plane.kill()

    async def settle(self) -> None:
        """One look at every plane: those that came up get their rules, those of which a process ended get it again."""
        for cluster in self:
            try:
                await self._settle(cluster)
            except ModelplaneError as error:
                _log.warning("%s: %s", cluster.name, error.message)

    async def _settle(self, cluster: PlaneCluster) -> None:
        plane = cluster.plane
        if cluster.up:
            if ended := plane.failed():
                _log.warning("%s: %s; starting it again", cluster.name, ended)
                plane.revive()
            return
        if ended := plane.failed(Plane.API):
            raise PlaneError(ended)
        if await asyncio.to_thread(plane.is_ready):
            plane.finish()
            await asyncio.to_thread(_prepare, cluster)
            cluster.up = True


def _prepare(cluster: PlaneCluster) -> None:
    client = ClusterClient(cluster.plane.kubeconfig("controller"), name=cluster.name, manager="lab")
    try:
        prepare(client, cluster.switches)
    finally:
        client.close()
