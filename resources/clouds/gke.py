"""GKE through google-cloud-container, over REST.

Counts on GKE are per zone; everything here that isn't a request speaks of totals. A pool's real size stands in its
instance groups alone, so observing reads those from Compute Engine (permission compute.instanceGroupManagers.get). A
pool without zones lies in as many of the cluster's zones as divide its count evenly; a later count must divide too.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from modelplane_dagster import errors
from modelplane_dagster.kube.objects import Taint
from modelplane_dagster.sources.record import EFFECT_WORDS, EFFECTS, POOL_TAG, SYSTEM_POOL
from resources.clouds import drift
from resources.clouds.gke_api import GkeApi
from resources.clouds.kubeconfig import LAB_USER, exec_user, kubeconfig
from resources.clouds.seam import CloudCluster, CloudPool, ClusterRef, ClusterState, InstanceType, PoolState, Progress

if TYPE_CHECKING:
    from google.cloud.container_v1 import Cluster, NodePool

_CLUSTER_STATES: dict[str, ClusterState] = {
    "PROVISIONING": "creating",
    "RUNNING": "ready",
    "RECONCILING": "updating",
    "STOPPING": "deleting",
    "ERROR": "failed",
    # It answers, and some of it needs a person: its pools can still be worked on.
    "DEGRADED": "ready",
}
_POOL_STATES: dict[str, PoolState] = {
    "PROVISIONING": "creating",
    "RUNNING": "ready",
    "RUNNING_WITH_ERROR": "degraded",
    "RECONCILING": "updating",
    "STOPPING": "deleting",
    "ERROR": "create-failed",
}


class GkeCloud:
    """The cloud seam for GKE. `account` is the project; `secrets["credentials"]` a service account's JSON."""

    source = "GKE"

    def __init__(
        self, *, endpoint: str | None = None, account: str | None = None, secrets: Mapping[str, str] | None = None
    ) -> None:
        self._api = GkeApi(endpoint=endpoint, account=account, secrets=secrets)
        self._client, self._sdk = self._api.client, self._api.sdk

    # Reading

    def whoami(self) -> str:
        if not self._api.project:
            raise errors.CloudCredentialsError("Google's credentials name no project, and the fleet gives none.")
        return self._api.project

    def observe(self, ref: ClusterRef) -> CloudCluster | None:
        cluster = self._cluster(ref)
        if cluster is None:
            return None
        ours = drift.is_ours(cluster.resource_labels, ref)
        pools = [self._pool(ref, pool) for pool in cluster.node_pools]
        system = next((p for p in pools if _is_system(p)), None)
        return CloudCluster(
            name=ref.name,
            state=drift.standing(_CLUSTER_STATES.get(cluster.status.name, "updating"), system),
            version=cluster.current_master_version,
            ours=ours,
            account=self.whoami(),
            pools=tuple(p for p in pools if not _is_system(p)),
            system_pool=system,
            message=" ".join(c.message for c in cluster.conditions),
        )

    def credentials(self, ref: ClusterRef) -> dict[str, Any]:
        cluster = self._cluster(ref)
        if cluster is None or not cluster.endpoint:
            raise errors.NotReadyError(f"The API of cluster {ref.name} has no endpoint yet.")
        server = cluster.endpoint if "://" in cluster.endpoint else f"https://{cluster.endpoint}"
        ca_pem = base64.b64decode(cluster.master_auth.cluster_ca_certificate).decode()
        env = {"MODELPLANE_GKE_CREDENTIALS": self._api.secrets["credentials"]} if self._api.secrets else None
        return kubeconfig(
            ref.name, server, LAB_USER if self._api.simulated else exec_user("gke", env=env), ca_pem=ca_pem
        )

    def instance_types(self, ref: ClusterRef, names: tuple[str, ...]) -> Mapping[str, InstanceType]:
        if not names:
            return {}
        wanted = " OR ".join(f'(name = "{name}")' for name in names)
        url = f"{self._api.compute}/projects/{self.whoami()}/aggregated/machineTypes"
        answer = self._api.get(f"list machine types of {ref.location}", url, {"filter": wanted})
        found: dict[str, InstanceType] = {}
        for place, listed in answer.get("items", {}).items():
            if not self._api.simulated and not place.removeprefix("zones/").startswith(ref.location):
                continue
            found |= {item["name"]: _instance_type(item) for item in listed.get("machineTypes", [])}
        return {name: found[name] for name in names if name in found}

    def versions(self, ref: ClusterRef) -> tuple[str, ...]:
        place = self._place(ref)
        answer = self._api.read(
            f"list versions in {ref.location}", lambda kw: self._client.get_server_config(name=place, **kw)
        )
        return tuple(answer.valid_master_versions)

    # Writing

    def ensure_control_plane(self, ref: ClusterRef, request: Mapping[str, Any]) -> Progress:
        cluster = self._cluster(ref)
        if cluster is None:
            drift.demand_account(ref, self.whoami())
            body = self._sdk.Cluster.from_json(json.dumps(request))
            parent = self._place(ref)
            self._api.create(
                f"create cluster {ref.name}", lambda kw: self._client.create_cluster(parent=parent, cluster=body, **kw)
            )
            made = self._cluster(ref)
            drift.demand_ours(f"Cluster {ref.name}", ours=made is None or drift.is_ours(made.resource_labels, ref))
            return Progress("pending", f"cluster {ref.name} to be created", changed=True)
        drift.demand_ours(f"Cluster {ref.name}", ours=drift.is_ours(cluster.resource_labels, ref))
        state = _CLUSTER_STATES.get(cluster.status.name, "updating")
        if state == "failed":
            self._api.raise_condition(f"create cluster {ref.name}", cluster)
        if state in ("creating", "deleting"):
            return Progress("pending", f"cluster {ref.name}, which is {state}")
        return self._ensure(ref, cluster, request["nodePools"][0])

    def ensure_pool(self, ref: ClusterRef, name: str, request: Mapping[str, Any]) -> Progress:
        cluster = self._cluster(ref)
        if cluster is None:
            raise errors.NotReadyError(f"Cluster {ref.name} isn't there, so pool {name} can't be made.")
        return self._ensure(ref, cluster, request)

    def _ensure(self, ref: ClusterRef, cluster: Cluster, request: Mapping[str, Any]) -> Progress:
        name = request["name"]
        what = f"pool {name} of cluster {ref.name}"
        pool = next((p for p in cluster.node_pools if p.name == name), None)
        if pool is None:
            drift.demand_ours(f"Cluster {ref.name}", ours=drift.is_ours(cluster.resource_labels, ref))
            return self._create_pool(ref, cluster, request)
        drift.demand_ours(what, ours=drift.is_ours(pool.config.resource_labels, ref))
        state = _POOL_STATES.get(pool.status.name, "updating")
        if state == "create-failed":
            if self._pool(ref, pool).joined == 0:
                path = f"{self._path(ref)}/nodePools/{name}"
                with self._api.asking(f"clear {what}, which failed"):
                    self._client.delete_node_pool(name=path, retry=None, timeout=drift.READ_SECONDS)
            self._api.raise_condition(f"create {what}", pool)
        if state in ("creating", "updating", "deleting"):
            return Progress("pending", f"{what}, which is {state}")
        return self._update(ref, pool, request) or self._settled(what, pool)

    def _settled(self, what: str, pool: NodePool) -> Progress:
        if pool.status.name == "RUNNING_WITH_ERROR":
            self._api.raise_condition(f"fill {what}", pool)
        return Progress("ready")

    def _create_pool(self, ref: ClusterRef, cluster: Cluster, request: Mapping[str, Any]) -> Progress:
        what = f"pool {request['name']} of cluster {ref.name}"
        drift.demand_account(ref, self.whoami())
        if busy := self._busy(ref):
            return Progress("pending", f"{busy} before {what} can be created")
        body = self._sdk.NodePool.from_json(json.dumps(request))
        if not body.locations and not body.autoscaling.enabled:
            zones = _spread(body.initial_node_count, list(cluster.locations))
            body.locations, body.initial_node_count = zones, body.initial_node_count // len(zones)
        elif not body.locations:
            body.initial_node_count = -(-body.initial_node_count // max(1, len(cluster.locations)))
        parent = self._path(ref)
        self._api.create(
            f"create {what}", lambda kw: self._client.create_node_pool(parent=parent, node_pool=body, **kw)
        )
        return Progress("pending", f"{what} to be created", changed=True)

    def _update(self, ref: ClusterRef, pool: NodePool, request: Mapping[str, Any]) -> Progress | None:
        """One mutation, since GKE takes one at a time; the next pass goes on. None for no drift."""
        what, path = f"pool {pool.name} of cluster {ref.name}", f"{self._path(ref)}/nodePools/{pool.name}"
        change = self._change(ref, pool, request, path)
        if change is None:
            return None
        if busy := self._busy(ref):
            return Progress("pending", f"{busy} before {what} can be updated")
        with self._api.asking(f"update {what}"):
            change({"retry": None, "timeout": drift.READ_SECONDS})
        return Progress("pending", f"{what} to be updated", changed=True)

    def _change(
        self, ref: ClusterRef, pool: NodePool, request: Mapping[str, Any], path: str
    ) -> Callable[[dict[str, Any]], object] | None:
        """The first mutation that brings the pool nearer to the request. Labels and taints go out as whole sets, with
        those that GKE and others put there."""
        config, sdk, client = request["config"], self._sdk, self._client
        if labels := drift.labels_to_set(config.get("labels", {}), pool.config.labels):
            update = sdk.UpdateNodePoolRequest(
                name=path, labels=sdk.NodeLabels(labels={**pool.config.labels, **labels}), etag=pool.etag
            )
            return lambda kw: client.update_node_pool(request=update, **kw)
        if taints := drift.taints_to_add(_wanted(config), _taints(pool)):
            added = [sdk.NodeTaint(key=t.key, value=t.value, effect=EFFECT_WORDS[t.effect]) for t in taints]
            update = sdk.UpdateNodePoolRequest(
                name=path, taints=sdk.NodeTaints(taints=[*pool.config.taints, *added]), etag=pool.etag
            )
            return lambda kw: client.update_node_pool(request=update, **kw)
        bounds = sdk.NodePool.from_json(json.dumps({"autoscaling": request.get("autoscaling", {})})).autoscaling
        if _bounds(bounds) != _bounds(pool.autoscaling):
            rebound = sdk.SetNodePoolAutoscalingRequest(name=path, autoscaling=bounds)
            return lambda kw: client.set_node_pool_autoscaling(request=rebound, **kw)
        if bounds.enabled:
            return None
        total = request["initialNodeCount"] * max(1, len(request.get("locations", ())))
        zones = max(1, len(pool.locations))
        if total == self._pool(ref, pool).count:
            return None
        if total % zones:
            raise errors.CloudInvalidError(
                f"Pool {pool.name} of cluster {ref.name} lies in {zones} zones, and GKE counts nodes for each zone, so it"
                f" can't hold {total} nodes; choose a multiple of {zones}, or make a new pool."
            )
        resize = sdk.SetNodePoolSizeRequest(name=path, node_count=total // zones)
        return lambda kw: client.set_node_pool_size(request=resize, **kw)

    def delete_pool(self, ref: ClusterRef, name: str) -> Progress:
        cluster = self._cluster(ref)
        pool = next((p for p in cluster.node_pools if p.name == name), None) if cluster else None
        if pool is None:
            return Progress("ready")
        what = f"pool {name} of cluster {ref.name}"
        drift.demand_ours(what, ours=drift.is_ours(pool.config.resource_labels, ref))
        if pool.status.name == "STOPPING":
            return Progress("pending", f"{what} to go")
        if busy := self._busy(ref):
            return Progress("pending", f"{busy} before {what} can go")
        path = f"{self._path(ref)}/nodePools/{name}"
        with self._api.asking(f"delete {what}"):
            self._client.delete_node_pool(name=path, retry=None, timeout=drift.READ_SECONDS)
        return Progress("pending", f"{what} to go", changed=True)

    def delete_cluster(self, ref: ClusterRef) -> Progress:
        """The pools go with the cluster."""
        cluster = self._cluster(ref)
        if cluster is None:
            return Progress("ready")
        drift.demand_ours(f"Cluster {ref.name}", ours=drift.is_ours(cluster.resource_labels, ref))
        if cluster.status.name == "STOPPING":
            return Progress("pending", f"cluster {ref.name} to go")
        if busy := self._busy(ref):
            return Progress("pending", f"{busy} before cluster {ref.name} can go")
        with self._api.asking(f"delete cluster {ref.name}"):
            self._client.delete_cluster(name=self._path(ref), retry=None, timeout=drift.READ_SECONDS)
        return Progress("pending", f"cluster {ref.name} to go", changed=True)

    # What GKE tells

    def _place(self, ref: ClusterRef) -> str:
        if not ref.location:
            raise errors.CloudInvalidError(f"Cluster {ref.name} has no region.")
        return f"projects/{self.whoami()}/locations/{ref.location}"

    def _path(self, ref: ClusterRef) -> str:
        return f"{self._place(ref)}/clusters/{ref.name}"

    def _cluster(self, ref: ClusterRef) -> Cluster | None:
        path = self._path(ref)
        try:
            return self._api.read(f"describe cluster {ref.name}", lambda kw: self._client.get_cluster(name=path, **kw))
        except drift.AbsentError:
            return None

    def _busy(self, ref: ClusterRef) -> str:
        """The operation that runs on the cluster, empty for none."""
        place = self._place(ref)
        answer = self._api.read(
            f"list operations in {ref.location}", lambda kw: self._client.list_operations(parent=place, **kw)
        )
        for operation in answer.operations:
            mine = f"/clusters/{ref.name}/" in f"{operation.target_link}/"
            if mine and operation.status.name != "DONE":
                return f"{operation.operation_type.name} of {ref.name} to end"
        return ""

    def _pool(self, ref: ClusterRef, pool: NodePool) -> CloudPool:
        count, joined = self._sizes(ref, pool)
        scaled, tags = pool.autoscaling.enabled, dict(pool.config.resource_labels)
        low, high = _bounds(pool.autoscaling)[1:]
        return CloudPool(
            name=pool.name,
            state=_POOL_STATES.get(pool.status.name, "updating"),
            labels=dict(pool.config.labels),
            taints=_taints(pool),
            count=count,
            joined=joined,
            minimum=low if scaled else None,
            maximum=high if scaled else None,
            message=" ".join(c.message for c in pool.conditions),
            ours=drift.is_ours(tags, ref),
            provider={
                "pool": tags.get(POOL_TAG, ""),
                "machineType": pool.config.machine_type,
                "diskSizeGb": pool.config.disk_size_gb,
                "imageType": pool.config.image_type,
                "locations": list(pool.locations),
                "accelerators": [
                    {"acceleratorType": a.accelerator_type, "acceleratorCount": str(a.accelerator_count)}
                    for a in pool.config.accelerators
                ],
            },
        )

    def _sizes(self, ref: ClusterRef, pool: NodePool) -> tuple[int, int]:
        """How many nodes are asked for and how many stand, over all zones. Before a pool has instance groups: what it
        was asked to begin with, and none."""
        if not pool.instance_group_urls:
            return pool.initial_node_count * max(1, len(pool.locations)), 0
        what = f"count the machines of pool {pool.name} of cluster {ref.name}"
        groups = [self._api.get(what, url, {}) for url in pool.instance_group_urls]
        return sum(g["targetSize"] for g in groups), sum(g.get("currentActions", {}).get("none", 0) for g in groups)


def _spread(count: int, zones: list[str]) -> list[str]:
    """The first zones, as many as divide the count evenly; one where none does."""
    return next((zones[:n] for n in range(len(zones), 1, -1) if count and count % n == 0), zones[:1])


def _wanted(config: Mapping[str, Any]) -> tuple[Taint, ...]:
    return tuple(Taint(t["key"], t.get("value", ""), EFFECTS[t["effect"]]) for t in config.get("taints", ()))


def _taints(pool: NodePool) -> tuple[Taint, ...]:
    known = (t for t in pool.config.taints if t.effect.name in EFFECTS)
    return tuple(Taint(t.key, t.value, EFFECTS[t.effect.name]) for t in known)


def _bounds(autoscaling: Any) -> tuple[bool, int, int]:  # noqa: ANN401 - a message of the lazy SDK
    """Whether the pool is scaled, with its totals; a pool of someone else's may have bounds for each zone instead."""
    if not autoscaling.enabled:
        return False, 0, 0
    low = autoscaling.total_min_node_count or autoscaling.min_node_count
    return True, low, autoscaling.total_max_node_count or autoscaling.max_node_count


def _is_system(pool: CloudPool) -> bool:
    return pool.ours and pool.name == SYSTEM_POOL


def _instance_type(item: Mapping[str, Any]) -> InstanceType:
    accelerators = item.get("accelerators", [])
    kind = accelerators[0]["guestAcceleratorType"] if accelerators else ""
    return InstanceType(
        name=item["name"],
        vcpus=item["guestCpus"],
        memory_mib=item["memoryMb"],
        gpus=sum(a["guestAcceleratorCount"] for a in accelerators if not a["guestAcceleratorType"].startswith("ct")),
        gpu_vendor="nvidia" if kind.startswith("nvidia-") else "",
    )
