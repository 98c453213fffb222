"""What makes the lab's clusters move, in its daemon: charts to install, controllers, hardware agents, seeded clusters."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from modelplane_dagster.cluster import SOURCES
from modelplane_dagster.components.lists import components_for
from modelplane_dagster.components.types import Component
from modelplane_dagster.errors import ConfigError
from resources.kubernetes import ClusterClient
from resources.lab.agents.agent import ClusterAgent
from resources.lab.agents.faults import AgentFault, AgentFaults
from resources.lab.agents.hardware import DesiredNode
from resources.lab.agents.machines import machine_hardware
from resources.lab.agents.seed import SeedCluster, read_seed, seed_path
from resources.lab.api.clusters import Cluster, LabCluster
from resources.lab.charts import write_mirror
from resources.lab.clouds.part import CloudsPart, server_version
from resources.lab.clouds.state import Fault
from resources.lab.controllers import Engine, controllers
from resources.lab.plane.clusters import PlaneCluster, PlaneClusters
from resources.settings import from_environment

if TYPE_CHECKING:
    from resources.lab.daemon import Lab

_LOOK = 0.1
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Running:
    """What runs for one cluster: it ends with the cluster. A real control plane needs no engine."""

    cluster: LabCluster
    engine: Engine | None
    agent: ClusterAgent
    client: ClusterClient

    def stop(self) -> None:
        if self.engine is not None:
            self.engine.stop()
        self.agent.stop()
        self.client.close()


class PlayPart:
    """Follows the lab's clusters as they come and go. `seed` is the file of clusters that nobody provisions;
    MODELPLANE_LAB_SEED names another."""

    def __init__(self, clouds: CloudsPart, *, seed: Path | None = None) -> None:
        self._clouds = clouds
        self._seed_path = seed or seed_path()
        self._seeds: Mapping[str, SeedCluster] = {}
        self._lists: dict[str, tuple[Component, ...]] = {}
        self._running: dict[str, _Running] = {}
        self._faults = AgentFaults()
        self._task: asyncio.Task[None] | None = None

    async def start(self, lab: Lab) -> None:
        self._faults = AgentFaults(lab.home / "agent-faults.json")
        self._lists = _lists()
        await asyncio.to_thread(write_mirror, [c for s in self._lists.values() for c in s], lab.home / "charts")
        self._seeds = read_seed(self._seed_path)
        for seed in self._seeds.values():
            lab.clusters.add_cluster(
                seed.name, server_version(seed.version), consumable_capacity=seed.consumable_capacity
            )
        lab.shows["clouds"] = self._clouds.status
        lab.cluster_faults = self._cluster_faults
        lab.set_fault = self._set_fault
        self._task = asyncio.ensure_future(self._follow(lab))

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        for running in self._running.values():
            running.stop()

    async def _follow(self, lab: Lab) -> None:
        while True:
            for state in self._clouds.states.values():
                state.settle()
            if isinstance(lab.clusters, PlaneClusters):
                await lab.clusters.settle()
            self._match(lab)
            await asyncio.sleep(_LOOK)

    def _match(self, lab: Lab) -> None:
        """Starts what is missing and ends what is left over; a cluster made anew under its name is another one."""
        live = {c.name: c for c in lab.clusters if not isinstance(c, PlaneCluster) or c.up}
        for name, running in list(self._running.items()):
            if live.get(name) is not running.cluster:
                self._running.pop(name).stop()
        for name, cluster in live.items():
            if name not in self._running:
                self._running[name] = self._begun(lab, cluster)

    def _begun(self, lab: Lab, cluster: LabCluster) -> _Running:
        engine = controllers(cluster.store) if isinstance(cluster, Cluster) else None
        if engine is not None:
            engine.start()
        # The agents ask a real API server itself: the lab's front has nothing to count or break for them.
        own = cluster.plane.kubeconfig("agent") if isinstance(cluster, PlaneCluster) else None
        config = own or lab.clusters.kubeconfig(cluster.name, "agent")
        client = ClusterClient(config, name=cluster.name, manager="lab-agent")
        source, desired = self._nodes_of(cluster.name)
        components = {c.key: c for c in self._lists.get(source, ())}
        agent = ClusterAgent(
            client, desired=desired, components=components, faults=self._faults, finds_hardware=engine is None
        )
        agent.start()
        return _Running(cluster, engine, agent, client)

    def _nodes_of(self, name: str) -> tuple[str, Callable[[], Iterable[DesiredNode] | None]]:
        """The cluster's source, and who says which nodes stand. A cluster of neither seed nor cloud is taken to be an
        existing one, whose nodes are left alone."""
        if name in self._seeds:
            nodes = self._seeds[name].nodes
            return "Existing", lambda: nodes
        cloud = self._clouds.cloud_of(name)
        if cloud is None:
            return "Existing", lambda: None
        return cloud.source, lambda: [
            DesiredNode(n.name, machine_hardware(n.machine), n.labels, n.taints, n.provider_id)
            for n in cloud.desired_nodes(name)
        ]

    def _cluster_faults(self, name: str) -> list[str]:
        return [f"{subject} {kind.value}" for subject, kind in self._faults.all() if subject.split("/")[1:2] == [name]]

    def _set_fault(self, subject: str, kind: str, on: bool) -> bool:  # noqa: FBT001 - the daemon's seam
        """False for a kind that neither agents nor clouds have, and for a cloud that isn't there."""
        if kind in set(AgentFault):
            change = self._faults.set_fault if on else self._faults.clear_fault
            change(subject, AgentFault(kind))
            return True
        if kind in set(Fault):
            return self._clouds.set_fault(subject, kind, on=on)
        return False


def _lists() -> dict[str, tuple[Component, ...]]:
    """Each source's components, with the site's overlay where it can be read: it may change versions."""
    try:
        overlay = from_environment().overlay()
        return {source: components_for(source, overlay) for source in SOURCES}
    except ConfigError as error:
        _log.warning("%s", error.message)
        return {source: components_for(source) for source in SOURCES}
