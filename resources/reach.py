"""How each cluster is reached: its cloud, its kubeconfig, one client and one helm for the whole run, and what they cost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from modelplane_dagster.accounts import Account
from modelplane_dagster.cluster_plan import ClusterPlan, Planner
from modelplane_dagster.errors import UnreadableError
from resources import lease as leases
from resources.clouds.seam import CloudCluster, ClusterRef
from resources.helm import Helm
from resources.kubernetes import ClusterClient
from resources.records import Records
from resources.tally import ClusterCalls, Tally, calls_of
from resources.world import World

if TYPE_CHECKING:
    from modelplane_dagster.manifests.fleet import Fleet
    from modelplane_dagster.observed import ObservedCluster
    from resources.clouds.seam import Cloud
    from resources.settings import Settings


class Reach:
    """Safe to share between threads. `tally` gets what every client and helm did, once, when they are closed."""

    def __init__(self, settings: Settings, fleet: Fleet, world: World, *, tally: Tally | None = None) -> None:
        self.settings = settings
        self.fleet = fleet
        self.world = world
        self.planner = Planner(fleet, settings.overlay())
        self.records = Records(settings.home / "records")
        self.tally = tally or Tally()
        self._clients: dict[str, ClusterClient] = {}
        self._helms: dict[str, Helm] = {}
        self._clouds: dict[tuple[str, str], Cloud] = {}
        self._leases: dict[str, leases.ClusterLease] = {}
        # The Lease's own clients: a renewal may not wait behind a slow list, nor as long as one.
        self._keepers: dict[str, ClusterClient] = {}
        self._lock = threading.RLock()
        self._alone: dict[tuple[str, str], threading.RLock] = {}

    def plan(self, name: str, observed: ObservedCluster | None = None) -> ClusterPlan:
        """The cluster's plan; sessions add what was probed and seen."""
        return self.planner.plan(name, keep=observed.kept if observed is not None else None)

    def ref(self, name: str) -> ClusterRef:
        """Where the cluster is, by its manifest, else by its record."""
        if name in self.fleet.clusters:
            plan = self.plan(name)
            if plan.view is not None:
                return ClusterRef(name, plan.source, plan.view.location, plan.account.on_cloud)
        record = self.records.read(name)
        if record is None:
            msg = f"Nothing says where cluster {name} is: no valid manifest and no record."
            raise UnreadableError(msg)
        return ClusterRef(name, record.source, record.location, "")

    def account(self, name: str) -> Account:
        if name in self.fleet.clusters:
            return self.plan(name).account
        record = self.records.read(name)
        if record is None:
            return Account("default")
        kind, config_name = record.credentials
        for config in self.fleet.provider_configs:
            if (config.provider, config.kind, config.name) == (record.source, kind, config_name):
                return Account(record.account, config)
        return Account(record.account)

    def cloud(self, name: str) -> Cloud:
        account = self.account(name)
        source = self.ref(name).source
        with self._lock:
            key = (source, account.name)
            if key not in self._clouds:
                self._clouds[key] = self.world.cloud(source, account)
            return self._clouds[key]

    def cloud_cluster(self, name: str) -> CloudCluster | None:
        """The cluster on its cloud; None when it is known not to exist."""
        return self.cloud(name).observe(self.ref(name))

    def kubeconfig(self, name: str) -> Mapping[str, object]:
        """Raises NotReadyError while the API isn't there, ConfigError for a kubeconfig that is missing or broken."""
        ref = self.ref(name)
        if ref.source != "Existing":
            return self.cloud(name).credentials(ref)
        return self.world.kubeconfig(name, self._secret(name))

    def _secret(self, name: str) -> tuple[str, str]:
        cluster = self.fleet.clusters.get(name)
        existing = cluster.spec.cluster.existing if cluster else None
        if existing is not None:
            return existing.secret_ref.name, existing.secret_ref.key
        record = self.records.read(name)
        secret, _, key = (record.kubeconfig if record else "").partition("/")
        return secret, key

    def alone(self, name: str, what: str) -> threading.RLock:
        """The lock of one thing of one cluster. What waits for a cluster, its cloud or another writer holds no more than
        this, so that it keeps no other cluster waiting."""
        with self._lock:
            return self._alone.setdefault((name, what), threading.RLock())

    def client(self, name: str) -> ClusterClient:
        with self.alone(name, "client"):
            if name not in self._clients:
                self._clients[name] = ClusterClient(self.kubeconfig(name), name=name, reload=self._reload(name))
            return self._clients[name]

    def keeper(self, name: str) -> ClusterClient:
        """The client that renews the cluster's Lease."""
        with self.alone(name, "client"):
            if name not in self._keepers:
                given = self.kubeconfig(name)
                self._keepers[name] = ClusterClient(
                    given, name=name, reload=self._reload(name), timeout=leases.ANSWER, retries=1
                )
            return self._keepers[name]

    def _reload(self, name: str) -> Callable[[], Mapping[str, object]] | None:
        return (lambda: self.kubeconfig(name)) if self.ref(name).source == "Existing" else None

    def helm(self, name: str) -> Helm:
        """Helm on the cluster; holds the lease's descriptor, so that a helm that outlives us keeps others away."""
        held = self._leases.get(name)
        with self.alone(name, "helm"):
            if name not in self._helms:
                fds, dead_man = ((held.file.fd,), held.dead_man) if held else ((), None)
                self._helms[name] = Helm(
                    self.world.helm(), self.kubeconfig(name), cluster=name, pass_fds=fds, dead_man=dead_man
                )
            elif self.ref(name).source == "Existing":
                # Its kubeconfig may be replaced while the run goes on, as a mounted secret is.
                self._helms[name].use(self.kubeconfig(name))
            return self._helms[name]

    def has_api(self, name: str) -> bool:
        """Its API should answer by now. Raises where its cloud can't be asked."""
        if self.ref(name).source == "Existing":
            return True
        seen = self.cloud_cluster(name)
        return seen is not None and seen.state in ("ready", "updating")

    def end_helm(self, name: str) -> None:
        """Its lease stands no longer."""
        helm = self._helms.get(name)
        if helm is not None:
            helm.end()

    def calls(self) -> Mapping[str, ClusterCalls]:
        """What was asked of each cluster so far, the open clients' and helms' part."""
        found = {name: calls_of(client) for name, client in self._clients.items()}
        for name, client in self._keepers.items():
            found[name] = found.get(name, ClusterCalls()) + calls_of(client)
        for name, helm in self._helms.items():
            found[name] = found.get(name, ClusterCalls()) + ClusterCalls(helm=helm.processes)
        return found

    def close(self) -> None:
        """Lets go of every lease and client."""
        for held in self._leases.values():
            held.release()
        for name, made in self.calls().items():
            self.tally.add(name, made)
        for helm in self._helms.values():
            helm.close()
        for client in (*self._clients.values(), *self._keepers.values()):
            client.close()
        self._leases.clear()
        self._keepers.clear()
        self._helms.clear()
        self._clients.clear()
