"""Civo Kubernetes through its REST API v2.

The region is part of every call. A pool's id is ours to choose, so posting it twice can't make two; clusters carry our
tag. Networks and firewalls have no tags, so their names are the mark (`sources.civo.owned_name`). Civo doesn't scale
pools: bounds are for the autoscaler inside the cluster, and an autoscaled pool's count is sent only when it is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import yaml

from modelplane_dagster import errors
from modelplane_dagster.drivers import POOL_LABEL
from modelplane_dagster.kube.objects import Taint
from modelplane_dagster.sources.civo import owned_name
from modelplane_dagster.sources.record import SYSTEM_POOL
from resources.clouds.drift import labels_to_set, standing, taints_to_add
from resources.clouds.rest import Dialect, Json, KeyedCloud, NotThereError, Reply, about, by_status, newest_first
from resources.clouds.seam import (
    CloudCluster,
    CloudPool,
    ClusterRef,
    ClusterState,
    InstanceType,
    PoolState,
    Progress,
    asked_for,
    end_of,
    not_there,
    not_usable,
)

_CLUSTERS = "/v2/kubernetes/clusters"
_PAGE = 100

_CLUSTER_STATES: Mapping[str, ClusterState] = {
    "ACTIVE": "ready",
    "BUILDING": "creating",
    "AVAILABLE": "creating",
    "UPGRADING": "updating",
    "SCALING": "updating",
    "DELETING": "deleting",
    "FAILED": "failed",
}
_USABLE = frozenset({"ACTIVE", "UPGRADING", "SCALING"})
_ERRORS: Mapping[str, type[errors.CloudError]] = {
    **dict.fromkeys(("authentication_failed", "authentication_invalid_key"), errors.CloudCredentialsError),
    "requires_authentication": errors.CloudCredentialsError,
    "quota_limit_reached": errors.CloudQuotaError,
    "out_of_capacity": errors.CloudCapacityError,
    "database_cluster_pool_no_sufficient_instances_available": errors.CloudCapacityError,
    "database_quota_lock_failed": errors.CloudRetryableError,
    "region_unavailable": errors.CloudRetryableError,
    **dict.fromkeys(("database_kubernetes_cluster_not_found", "database_cluster_pool_not_found"), NotThereError),
    "database_kubernetes_cluster_duplicate": errors.CloudNameTakenError,
    "database_size_not_found": errors.CloudInvalidError,
}
_STILL_USED = "database_network_delete_with_instance"


def _read_error(body: Json) -> tuple[str, str]:
    code = str(body.get("code") or body.get("result") or "")
    return code, ": ".join(str(body[k]) for k in ("reason", "details") if body.get(k)) or code


def _classify(reply: Reply) -> errors.CloudError:
    made = _ERRORS.get(reply.code)
    if made is None or reply.status == 429:
        return by_status("Civo", reply)
    return made(f"Civo: {reply.text}", code=reply.code)


class CivoCloud(KeyedCloud):
    """`account` and `whoami` speak of the id of the account that the key belongs to."""

    source = "Civo"
    dialect = Dialect(
        url="https://api.civo.com", key_env="CIVO_TOKEN", scheme="bearer", read_error=_read_error, classify=_classify
    )

    def _read_account(self) -> str:
        accounts = self._api.get("/v2/accounts", {"page": 1, "per_page": _PAGE})["items"]
        if not accounts:
            raise errors.CloudCredentialsError("Civo: the API key leads to no account.", code="account")
        return str(accounts[0]["id"])

    def observe(self, ref: ClusterRef) -> CloudCluster | None:
        cluster = self._named(ref)
        if cluster is None:
            return None
        ours = _ours(cluster, ref)
        pools = [_pool(cluster, raw, ours=ours) for raw in cluster.get("required_pools") or ()]
        system = next((p for p in pools if p.name == SYSTEM_POOL and ours), None)
        return CloudCluster(
            name=ref.name,
            state=standing(_cluster_state(cluster, system), system),
            version=str(cluster.get("kubernetes_version") or cluster.get("version") or ""),
            ours=ours,
            account=self.whoami(),
            pools=tuple(p for p in pools if p is not system),
            system_pool=system,
        )

    def ensure_control_plane(self, ref: ClusterRef, request: Mapping[str, Any]) -> Progress:
        """Network and firewall first, then the cluster with its system pool, then that pool's labels, which Civo drops
        from the cluster's own request."""
        self._check_account(ref)
        cluster = self._own_cluster(ref)
        if cluster is None:
            with about(f"create cluster {ref.name}"):
                network = self._ensure_named(ref, "/v2/networks", "label", request["network"])
                firewall = self._ensure_named(
                    ref, "/v2/firewalls", "name", {**request["firewall"], "network_id": network}
                )
                body = {**request["cluster"], "network_id": network, "firewall_id": firewall}
                self._create(_CLUSTERS, body, made=lambda: self._own_cluster(ref) is not None)
            return asked_for(f"cluster {ref.name}")
        if cluster.get("status") not in _USABLE or not cluster.get("ready"):
            return not_usable(ref, str(cluster.get("status")))
        return self._settle(ref, cluster, SYSTEM_POOL, request["system_pool"], fixed=True)

    def ensure_pool(self, ref: ClusterRef, name: str, request: Mapping[str, Any]) -> Progress:
        """Pending while the cluster isn't active. A pool's size can't change in place: another one is refused."""
        self._check_account(ref)
        cluster = self._own_cluster(ref)
        if cluster is None:
            return not_there(ref)
        if cluster.get("status") not in _USABLE or not cluster.get("ready"):
            return not_usable(ref, str(cluster.get("status")))
        body = request["pool"]
        if _required(cluster, name) is None:
            if _actual(cluster, name) is not None:
                return end_of(f"the old pool {name}")
            with about(f"create pool {name} of cluster {ref.name}"):
                self._create(
                    f"{_CLUSTERS}/{cluster['id']}/pools",
                    body,
                    made=lambda: _required(self._own_cluster(ref) or {}, name) is not None,
                )
            return asked_for(f"pool {name}")
        self._check_own(ref, cluster, name, body)
        return self._settle(ref, cluster, name, body, fixed="autoscaling" not in request)

    def credentials(self, ref: ClusterRef) -> dict[str, Any]:
        """Holds client certificates, which need no refreshing."""
        cluster = self._own_cluster(ref)
        text = cluster.get("kubeconfig") if cluster and cluster.get("status") in _USABLE else None
        config = yaml.safe_load(text) if text else None
        if not isinstance(config, dict):
            raise errors.NotReadyError(f"Civo: cluster {ref.name} has no kubeconfig yet.")
        return config

    def delete_pool(self, ref: ClusterRef, name: str) -> Progress:
        self._check_account(ref)
        cluster = self._own_cluster(ref)
        if cluster is None or (_required(cluster, name) is None and _actual(cluster, name) is None):
            return Progress("ready")
        if _required(cluster, name) is None:
            return end_of(f"pool {name}")
        self._check_own(ref, cluster, name, {})
        return self._end(ref, f"{_CLUSTERS}/{cluster['id']}/pools/{name}", f"pool {name}")

    def delete_cluster(self, ref: ClusterRef) -> Progress:
        """The pools go with the cluster; once it is gone, its firewall, then its network, which Civo keeps as long as
        an instance is left in it."""
        self._check_account(ref)
        cluster = self._own_cluster(ref)
        if cluster is not None:
            if cluster.get("status") == "DELETING":
                return end_of(f"cluster {ref.name}")
            return self._end(ref, f"{_CLUSTERS}/{cluster['id']}", f"cluster {ref.name}")
        changed = False
        for path, key in (("/v2/firewalls", "name"), ("/v2/networks", "label")):
            found = self._by_name(ref, path, key, owned_name(ref.name))
            if found is None:
                continue
            try:
                self._delete(f"{path}/{found['id']}", params={"region": ref.location})
            except errors.CloudError as error:
                if error.code != _STILL_USED:
                    raise
                return end_of(f"the instances in the network of {ref.name}", changed=changed)
            changed = True
        return Progress("ready", changed=changed)

    def instance_types(self, ref: ClusterRef, names: tuple[str, ...]) -> Mapping[str, InstanceType]:
        """Kubernetes sizes that the region offers; a sold-out one may be among them."""
        sizes = self._api.get("/v2/sizes", {"region": ref.location})
        rows = sizes["items"] if isinstance(sizes, dict) else sizes
        return MappingProxyType(
            {
                row["name"]: _instance_type(row)
                for row in rows
                if row["name"] in names and row.get("type") == "Kubernetes" and row.get("selectable")
            }
        )

    def versions(self, ref: ClusterRef) -> tuple[str, ...]:
        """The stable k3s versions; those in development or deprecated are left out."""
        rows = self._api.get("/v2/kubernetes/versions", {"region": ref.location})
        offered = [
            str(r["version"]) for r in rows if r.get("type") == "stable" and r.get("clusterType", "k3s") == "k3s"
        ]
        return newest_first(offered)

    def _clusters(self, ref: ClusterRef) -> Iterator[Json]:
        page, pages = 1, 1
        while page <= pages:
            answer = self._api.get(_CLUSTERS, {"region": ref.location, "page": page, "per_page": _PAGE})
            yield from answer.get("items") or ()
            pages, page = int(answer.get("pages") or 1), page + 1

    def _named(self, ref: ClusterRef) -> Json | None:
        """The cluster of that name in the region, read in full; names are unique there."""
        found = next((c for c in self._clusters(ref) if c.get("name") == ref.name), None)
        if found is None:
            return None
        try:
            return self._api.get(f"{_CLUSTERS}/{found['id']}", {"region": ref.location})
        except NotThereError:
            return None

    def _own_cluster(self, ref: ClusterRef) -> Json | None:
        """None when there is none; raises CloudNameTakenError when it isn't ours."""
        cluster = self._named(ref)
        if cluster is not None and not _ours(cluster, ref):
            raise errors.CloudNameTakenError(
                f"Civo: cluster {ref.name} exists in {ref.location} without our tag {ref.owner}."
            )
        return cluster

    def _check_own(self, ref: ClusterRef, cluster: Json, name: str, body: Mapping[str, Any]) -> None:
        """A pool has no tag. In a cluster of ours, the id that we choose with our pool label is ours; so is one that
        lost its labels and has the size asked for. Raises for another's, and for another size."""
        required = _required(cluster, name) or {}
        mark = _labels(cluster, name).get(POOL_LABEL)
        if mark is None and body.get("size") not in (None, required.get("size")):
            raise errors.CloudNameTakenError(
                f"Civo: pool {name} of cluster {ref.name} exists without our label {POOL_LABEL}."
            )
        if mark not in (None, name):
            raise errors.CloudNameTakenError(f"Civo: pool {name} of cluster {ref.name} is labelled as pool {mark}.")
        if body.get("size") not in (None, required.get("size")):
            raise errors.CloudInvalidError(
                f"Civo: pool {name} of cluster {ref.name} has size {required.get('size')}, and a size can't change in "
                f"place; make a new pool for {body.get('size')}.",
                code="size-immutable",
            )

    def _settle(self, ref: ClusterRef, cluster: Json, name: str, body: Mapping[str, Any], *, fixed: bool) -> Progress:
        """Brings labels, taints and, of a `fixed` pool, the count to the request. PUT replaces both sets, so each is
        sent whole: what stands there with what is missing."""
        required = _required(cluster, name)
        if required is None:
            return Progress("pending", f"pool {name}, which isn't there yet")
        labels, taints = _labels(cluster, name), _taints(cluster, name)
        add = labels_to_set(body["labels"], labels)
        more = taints_to_add([Taint.parse(t) for t in body["taints"]], taints)
        count = int(required["count"])
        wanted = int(body["count"]) if fixed else count
        if add or more or wanted != count:
            put: dict[str, Any] = {
                "region": ref.location,
                "labels": {**labels, **add},
                "taints": [t.as_dict() for t in (*taints, *more)],
            }
            if fixed:
                put["count"] = wanted
            with about(f"update pool {name} of cluster {ref.name}"):
                self._api.call("PUT", f"{_CLUSTERS}/{cluster['id']}/pools/{name}", body=put)
            return Progress("pending", f"pool {name} to be updated", changed=True)
        joined = _joined(cluster, name)
        if joined != count:
            return Progress("pending", f"pool {name}: {joined} of {count} nodes are up")
        return Progress("ready")

    def _by_name(self, ref: ClusterRef, path: str, key: str, name: str) -> Json | None:
        return next((n for n in self._api.get(path, {"region": ref.location}) if n.get(key) == name), None)

    def _ensure_named(self, ref: ClusterRef, path: str, key: str, body: Mapping[str, Any]) -> str:
        """The id of the network or firewall, which is made where it isn't there."""
        found = self._by_name(ref, path, key, body[key])
        return str((found or self._api.call("POST", path, body=body))["id"])

    def _end(self, ref: ClusterRef, path: str, what: str) -> Progress:
        """One that went away meanwhile is pending too: the next pass sees what is left."""
        return end_of(what, changed=self._delete(path, params={"region": ref.location}))


def _ours(cluster: Json, ref: ClusterRef) -> bool:
    return ref.owner in (cluster.get("tags") or ())


def _required(cluster: Json, name: str) -> Json | None:
    """The pool as it is asked for; None where it isn't."""
    return next((p for p in cluster.get("required_pools") or () if p.get("id") == name), None)


def _actual(cluster: Json, name: str) -> Json | None:
    """The pool as it stands; None where no node of it does."""
    return next((p for p in cluster.get("pools") or () if p.get("id") == name), None)


def _labels(cluster: Json, name: str) -> dict[str, str]:
    """As the standing pool has them; Civo's own (kubernetes.civo.com/) are left out, since it sets them itself."""
    raw = (_actual(cluster, name) or {}).get("labels") or {}
    return {str(k): str(v) for k, v in raw.items() if not str(k).startswith("kubernetes.civo.com/")}


def _taints(cluster: Json, name: str) -> tuple[Taint, ...]:
    return tuple(sorted(Taint.parse(t) for t in (_actual(cluster, name) or {}).get("taints") or ()))


def _joined(cluster: Json, name: str) -> int:
    return sum(1 for i in (_actual(cluster, name) or {}).get("instances") or () if i.get("status") == "ACTIVE")


def _cluster_state(cluster: Json, system: CloudPool | None) -> ClusterState:
    """In creation until the system pool has the labels that the cluster's own request lost."""
    state = _CLUSTER_STATES.get(cluster.get("status", ""), "updating")
    labelled = system is None or POOL_LABEL in system.labels
    return "creating" if state == "ready" and not (cluster.get("ready") and labelled) else state


def _pool(cluster: Json, required: Json, *, ours: bool) -> CloudPool:
    name, count = str(required["id"]), int(required["count"])
    labels, joined = _labels(cluster, name), _joined(cluster, name)
    return CloudPool(
        name=name,
        state=_pool_state(cluster, joined, count),
        labels=MappingProxyType(labels),
        taints=_taints(cluster, name),
        count=count,
        joined=joined,
        ours=ours and labels.get(POOL_LABEL, name) == name,
        provider=MappingProxyType({"size": required.get("size", "")}),
    )


def _pool_state(cluster: Json, joined: int, count: int) -> PoolState:
    if cluster.get("status") == "DELETING":
        return "deleting"
    if joined == count:
        return "ready"
    return "creating" if joined == 0 else "updating"


def _instance_type(row: Json) -> InstanceType:
    gpus = int(row.get("gpu_count") or 0)
    domain = str(row.get("gpu_type") or "").split("/")[0]
    vendor = {"nvidia.com": "nvidia", "amd.com": "amd"}.get(domain, "") if gpus else ""
    return InstanceType(row["name"], int(row["cpu_cores"]), int(row["ram_mb"]), gpus, vendor)
