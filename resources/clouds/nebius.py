"""Nebius managed Kubernetes through its SDK.

Objects carry our mark as labels and are looked up by parent and name before they are made. RUNNING says nothing about
nodes: a node group is ready when as many nodes are ready as it aims at, and what stops it stands in its events.

Changed labels and taints of a node group reach new nodes alone. The caller compares the nodes of our pools with
`CloudPool.labels` and `taints` and patches those that differ through Kubernetes; `provider["nodesFollow"]` is False to
say so, and the pass that changes a group names the keys that its standing nodes lack.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from modelplane_dagster import errors
from modelplane_dagster.sources.record import SYSTEM_POOL
from resources.clouds import drift
from resources.clouds.kubeconfig import LAB_USER, exec_user, kubeconfig
from resources.clouds.nebius_shapes import (
    Json,
    changed_group,
    demand_same_machine,
    id_of,
    instance_type,
    is_ours,
    pool_of,
    trouble,
    version_of,
)
from resources.clouds.rest import Limits, NotThereError, newest_first
from resources.clouds.seam import CloudCluster, ClusterRef, ClusterState, InstanceType, Progress, not_there, not_usable

if TYPE_CHECKING:
    from resources.clouds.nebius_api import NebiusApi

_STATES: Mapping[str, ClusterState] = {"PROVISIONING": "creating", "RUNNING": "ready", "DELETING": "deleting"}


class NebiusCloud:
    """`endpoint` is the URL of a simulated cloud (`grpc://host:port`), None for the real one. `account` is the project,
    which has no default; `secrets` holds a service account's credentials file, None for NEBIUS_IAM_TOKEN."""

    source = "Nebius"

    def __init__(
        self,
        *,
        endpoint: str | None = None,
        account: str | None = None,
        secrets: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._endpoint = endpoint.split("://")[-1].rstrip("/") if endpoint else None
        self._project = account or ""
        self._secret = next(iter(secrets.values())) if secrets else None
        self._limits = limits or Limits(timeout=20.0)
        self._connected: NebiusApi | None = None
        self._account = ""

    # Reading

    def whoami(self) -> str:
        """The project, read to prove that the credentials reach it."""
        if not self._account:
            if not self._project:
                raise errors.CloudCredentialsError(
                    "Nebius: no project; set spec.projectID of the cluster's ClusterProviderConfig.", code="project"
                )
            self._account = str(self._api.project(self._project)["metadata"]["id"])
        return self._account

    def observe(self, ref: ClusterRef) -> CloudCluster | None:
        cluster = self._find("cluster", self.whoami(), ref.name)
        if cluster is None:
            return None
        groups = self._groups(cluster)
        if groups is None:
            return None
        pools = [pool_of(group, ref) for group in groups]
        system = next((p for p in pools if p.name == SYSTEM_POOL and p.ours), None)
        status = cluster.get("status", {})
        return CloudCluster(
            name=ref.name,
            state=drift.standing(_STATES.get(status.get("state", ""), "updating"), system),
            version=version_of(cluster),
            ours=is_ours(cluster, ref),
            account=self.whoami(),
            pools=tuple(p for p in pools if p is not system),
            system_pool=system,
            message=trouble(status)[1],
        )

    def credentials(self, ref: ClusterRef) -> dict[str, Any]:
        """Nebius has IAM tokens alone, so the kubeconfig asks our plugin for one whenever the last has expired."""
        cluster = self._own(ref, "cluster", self.whoami(), ref.name)
        plane = (cluster or {}).get("status", {}).get("control_plane", {})
        server = plane.get("endpoints", {}).get("public_endpoint", "")
        if not server:
            raise errors.NotReadyError(f"The API of cluster {ref.name} has no endpoint yet.")
        env = {"MODELPLANE_NEBIUS_CREDENTIALS": self._secret} if self._secret else {}
        return kubeconfig(
            ref.name,
            server if "://" in server else f"https://{server}",
            LAB_USER if self._endpoint else exec_user("nebius", env=env),
            ca_pem=plane.get("auth", {}).get("cluster_ca_certificate", ""),
        )

    def instance_types(self, ref: ClusterRef, names: tuple[str, ...]) -> Mapping[str, InstanceType]:
        """A name is a platform, which stands for its first preset, or `platform/preset`."""
        del ref
        found: dict[str, InstanceType] = {}
        for platform in self._api.platforms(self.whoami()) if names else ():
            name = platform["metadata"]["name"]
            for index, preset in enumerate(platform["spec"].get("presets", ())):
                whole = f"{name}/{preset['name']}"
                for asked in {whole} | ({name} if index == 0 else set()):
                    if asked in names:
                        found[asked] = instance_type(asked, preset["resources"])
        return MappingProxyType(found)

    def versions(self, ref: ClusterRef) -> tuple[str, ...]:
        """Those that a cluster can be created with."""
        del ref
        rows = self._api.versions()
        offered = [str(r["version"]) for r in rows if not r.get("restricted") and not r.get("deprecated")]
        return newest_first(offered)

    # Ensuring

    def ensure_control_plane(self, ref: ClusterRef, request: Mapping[str, Any]) -> Progress:
        """Network, subnet, cluster, system pool, each once the one before is there."""
        project = self._demand_account(ref)
        cluster = self._own(ref, "cluster", project, ref.name)
        if cluster is not None:
            state = cluster.get("status", {}).get("state", "PROVISIONING")
            if state != "RUNNING":
                return not_usable(ref, state)
            return self._ensure_group(ref, cluster, request["node_group"])
        body = deepcopy(dict(request))
        network, done = self._ensure(ref, "network", project, body["network"])
        if not done:
            return Progress("pending", f"the network of cluster {ref.name}", changed=True)
        body["subnet"]["spec"]["network_id"] = network
        subnet, done = self._ensure(ref, "subnet", project, body["subnet"])
        if not done:
            return Progress("pending", f"the subnet of cluster {ref.name}", changed=True)
        body["cluster"]["spec"]["control_plane"]["subnet_id"] = subnet
        self._ensure(ref, "cluster", project, body["cluster"])
        return Progress("pending", f"cluster {ref.name} to be created", changed=True)

    def ensure_pool(self, ref: ClusterRef, name: str, request: Mapping[str, Any]) -> Progress:
        """A pool on an InfiniBand fabric gets its GPU cluster first. A platform or preset can't change in place."""
        project = self._demand_account(ref)
        cluster = self._own(ref, "cluster", project, ref.name)
        if cluster is None:
            return not_there(ref)
        state = cluster.get("status", {}).get("state", "PROVISIONING")
        if state != "RUNNING":
            return not_usable(ref, state)
        group = deepcopy(dict(request["node_group"]))
        if "gpu_cluster" in request:
            fabric, done = self._ensure(ref, "gpu_cluster", project, request["gpu_cluster"])
            if not done:
                return Progress("pending", f"the GPU cluster of pool {name}", changed=True)
            group["spec"]["template"]["gpu_cluster"] = {"id": fabric}
        return self._ensure_group(ref, cluster, group)

    def _ensure(self, ref: ClusterRef, kind: str, parent: str, body: Mapping[str, Any]) -> tuple[str, bool]:
        """The object's id, and whether it is there to be used. After a lost reply it is looked for once more."""
        name = body["metadata"]["name"]
        there = self._own(ref, kind, parent, name)
        if there is not None:
            return id_of(there), there.get("status", {}).get("state") != "CREATING"
        whole = {**body, "metadata": {**body["metadata"], "parent_id": parent}}
        try:
            return self._api.create(kind, whole)
        except errors.CloudRetryableError:
            there = self._own(ref, kind, parent, name)
            if there is None:
                raise
            return id_of(there), False

    def _ensure_group(self, ref: ClusterRef, cluster: Json, request: Mapping[str, Any]) -> Progress:
        name = request["metadata"]["name"]
        what = f"pool {name} of cluster {ref.name}"
        group = self._own(ref, "node_group", id_of(cluster), name)
        if group is None:
            self._ensure(ref, "node_group", id_of(cluster), request)
            return Progress("pending", f"{what} to be created", changed=True)
        pool = pool_of(group, ref)
        if pool.state == "deleting":
            return Progress("pending", f"the end of the old {what}")
        demand_same_machine(what, group["spec"], request["spec"])
        new, keys = changed_group(group, pool, request["spec"])
        if new is not None:
            self._api.update_node_group(new)
            stale = f"; its standing nodes keep theirs of {', '.join(keys)}" if keys and pool.joined else ""
            return Progress("pending", f"{what} to be updated{stale}", changed=True)
        if pool.state != "ready":
            self._raise_trouble(what, group)
            return Progress("pending", f"{what}: {pool.joined} of {pool.count} nodes are ready")
        return Progress("ready")

    def _raise_trouble(self, what: str, group: Json) -> None:
        from resources.clouds.nebius_api import event_error  # noqa: PLC0415 - the SDK is imported where it is used

        event, _ = trouble(group.get("status", {}))
        error = event_error(event, what)
        if error is not None:
            raise error

    # Deleting

    def delete_pool(self, ref: ClusterRef, name: str) -> Progress:
        """The node group, then the GPU cluster that it joined."""
        project = self._demand_account(ref)
        cluster = self._own(ref, "cluster", project, ref.name)
        what = f"the end of pool {name} of cluster {ref.name}"
        group = None if cluster is None else self._own(ref, "node_group", id_of(cluster), name)
        if group is not None:
            return self._delete("node_group", group, what)
        fabric = self._own(ref, "gpu_cluster", project, f"{ref.name}-{name}")
        return Progress("ready") if fabric is None else self._delete("gpu_cluster", fabric, what)

    def delete_cluster(self, ref: ClusterRef) -> Progress:
        """Node groups, cluster, GPU clusters, subnet, network: each kind once the one before is gone."""
        project = self._demand_account(ref)
        cluster = self._own(ref, "cluster", project, ref.name)
        what = f"the end of cluster {ref.name}"
        if cluster is not None:
            groups = self._groups(cluster)
            if groups:
                return self._delete_all("node_group", groups, what)
            return Progress("pending", what) if groups is None else self._delete("cluster", cluster, what)
        for kind in ("gpu_cluster", "subnet", "network"):
            left = [o for o in self._api.listed(kind, project) if is_ours(o, ref)]
            if left:
                return self._delete_all(kind, left, what)
        return Progress("ready")

    def _delete_all(self, kind: str, objects: list[Json], what: str) -> Progress:
        steps = [self._delete(kind, o, what) for o in objects]
        return Progress("pending", what, changed=any(s.changed for s in steps))

    def _delete(self, kind: str, there: Json, what: str) -> Progress:
        if there.get("status", {}).get("state") == "DELETING":
            return Progress("pending", what)
        return Progress("pending", what, changed=self._api.delete(kind, id_of(there)))

    # Looking up

    @property
    def _api(self) -> NebiusApi:
        if self._connected is None:
            from resources.clouds.nebius_api import NebiusApi  # noqa: PLC0415 - the SDK is imported where it is used

            self._connected = NebiusApi(endpoint=self._endpoint, service_account=self._secret, limits=self._limits)
        return self._connected

    def _demand_account(self, ref: ClusterRef) -> str:
        """Before every write. The project's id."""
        drift.demand_account(replace(ref, account=ref.account or self._project), self.whoami())
        return self.whoami()

    def _groups(self, cluster: Json) -> list[Json] | None:
        """None where the cluster went away meanwhile."""
        try:
            return list(self._api.listed("node_group", id_of(cluster)))
        except NotThereError:
            return None

    def _find(self, kind: str, parent: str, name: str) -> Json | None:
        """None also where the parent went away meanwhile."""
        try:
            return next((o for o in self._api.listed(kind, parent) if o["metadata"].get("name") == name), None)
        except NotThereError:
            return None

    def _own(self, ref: ClusterRef, kind: str, parent: str, name: str) -> Json | None:
        """None when there is none; raises CloudNameTakenError when it isn't ours."""
        there = self._find(kind, parent, name)
        if there is not None:
            drift.demand_ours(f"Nebius: {kind} {name}", ours=is_ours(there, ref))
        return there
