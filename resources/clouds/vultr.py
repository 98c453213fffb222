"""Vultr Kubernetes Engine through its REST API v2.

Vultr has no request tokens and allows labels twice, so every create is preceded by a look-up of label and mark. A
cluster can't be tagged: it is ours when one of its pools carries our tag. Deleting a cluster leaves its block storage
and load balancers, which may hold data or addresses that outlive it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import yaml

from modelplane_dagster import errors
from modelplane_dagster.kube.objects import Taint
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
_PAGE = 500

_CLUSTER_STATES: Mapping[str, ClusterState] = {
    "active": "ready",
    "pending": "creating",
    "upgrading": "updating",
    "deleting": "deleting",
    "failed": "failed",
}
# Vultr gives no error codes; these words are all that tells an account's limit from a bad request (unverified live).
_QUOTA_WORDS = ("limit for your account", "maximum monthly fee", "exceeds your account")


def _classify(reply: Reply) -> errors.CloudError:
    message = f"Vultr: {reply.text}"
    if reply.status in (400, 403, 422) and any(words in reply.text.lower() for words in _QUOTA_WORDS):
        return errors.CloudQuotaError(message, code=str(reply.status))
    if reply.status == 409:
        return errors.CloudBusyError(message, code="409")
    return by_status("Vultr", reply)


class VultrCloud(KeyedCloud):
    """`account` and `whoami` speak of the account's e-mail address, or of its name where the key may not see that."""

    source = "Vultr"
    dialect = Dialect(
        url="https://api.vultr.com",
        key_env="VULTR_API_KEY",
        scheme="Bearer",
        read_error=lambda body: ("", str(body["error"])),
        classify=_classify,
    )

    def _read_account(self) -> str:
        account = self._api.get("/v2/account")["account"]
        return str(account.get("email") or account.get("name") or "")

    def observe(self, ref: ClusterRef) -> CloudCluster | None:
        """Of several clusters with the label the oldest of ours, else the oldest; the message names the others."""
        found = self._labelled(ref)
        if not found:
            return None
        cluster = found[0]
        pools = [_pool(raw, ref) for raw in self._pools(cluster["id"])]
        system = next((p for p in pools if p.name == SYSTEM_POOL and p.ours), None)
        return CloudCluster(
            name=ref.name,
            state=standing(_CLUSTER_STATES.get(cluster.get("status", ""), "updating"), system),
            version=cluster.get("version", ""),
            ours=_ours(cluster, ref),
            account=self.whoami(),
            pools=tuple(p for p in pools if p is not system),
            system_pool=system,
            message=_also(found[1:], ref),
        )

    def ensure_control_plane(self, ref: ClusterRef, request: Mapping[str, Any]) -> Progress:
        self._check_account(ref)
        cluster = self._own_cluster(ref)
        if cluster is None:
            plans = {pool["plan"] for pool in request["node_pools"]}
            with about(f"create cluster {ref.name}"), self._needing(ref, plans):
                self._create(_CLUSTERS, request, made=lambda: self._own_cluster(ref) is not None)
            return asked_for(f"cluster {ref.name}")
        if cluster.get("status") != "active":
            return not_usable(ref, str(cluster.get("status")))
        for pool in self._pools(cluster["id"]):
            if pool.get("label") == SYSTEM_POOL and pool.get("tag") == ref.owner:
                return self._settle(ref, cluster, pool, request["node_pools"][0])
        return self._ensure_pool_in(ref, cluster, SYSTEM_POOL, request["node_pools"][0])

    def ensure_pool(self, ref: ClusterRef, name: str, request: Mapping[str, Any]) -> Progress:
        """Pending while the cluster isn't active. A pool's plan can't change in place: another one is refused."""
        self._check_account(ref)
        cluster = self._own_cluster(ref)
        if cluster is None:
            return not_there(ref)
        if cluster.get("status") != "active":
            return not_usable(ref, str(cluster.get("status")))
        return self._ensure_pool_in(ref, cluster, name, request)

    def credentials(self, ref: ClusterRef) -> dict[str, Any]:
        """Holds client certificates, which need no refreshing."""
        cluster = self._own_cluster(ref)
        if cluster is None or cluster.get("status") != "active":
            raise errors.NotReadyError(f"Vultr: cluster {ref.name} isn't active, so it has no kubeconfig yet.")
        encoded = self._api.get(f"{_CLUSTERS}/{cluster['id']}/config")["kube_config"]
        config = yaml.safe_load(base64.b64decode(encoded))
        if not isinstance(config, dict):
            raise errors.NotReadyError(f"Vultr: the kubeconfig of cluster {ref.name} is empty.")
        return config

    def delete_pool(self, ref: ClusterRef, name: str) -> Progress:
        self._check_account(ref)
        cluster = self._own_cluster(ref)
        pool = None if cluster is None else self._own_pool(ref, cluster["id"], name)
        if cluster is None or pool is None:
            return Progress("ready")
        if pool.get("status") == "deleting":
            return end_of(f"pool {name}")
        gone = not self._delete(f"{_CLUSTERS}/{cluster['id']}/node-pools/{pool['id']}")
        return Progress("ready") if gone else end_of(f"pool {name}", changed=True)

    def delete_cluster(self, ref: ClusterRef) -> Progress:
        """The pools go with the cluster."""
        self._check_account(ref)
        cluster = self._own_cluster(ref)
        if cluster is None:
            return Progress("ready")
        if cluster.get("status") == "deleting":
            return end_of(f"cluster {ref.name}")
        gone = not self._delete(f"{_CLUSTERS}/{cluster['id']}")
        return Progress("ready") if gone else end_of(f"cluster {ref.name}", changed=True)

    def instance_types(self, ref: ClusterRef, names: tuple[str, ...]) -> Mapping[str, InstanceType]:
        """Plans that the region lists, sold out or not. A plan doesn't say how many GPUs it has: `gpus` is 1 for some."""
        plans = {
            plan["id"]: _instance_type(plan)
            for plan in self._all("/v2/plans", "plans")
            if plan["id"] in names and ref.location in plan.get("locations", ())
        }
        return MappingProxyType(plans)

    def versions(self, ref: ClusterRef) -> tuple[str, ...]:
        del ref
        listed = self._api.get("/v2/kubernetes/versions")["versions"]
        return newest_first(str(v) for v in listed)

    def _all(self, path: str, key: str) -> Iterator[Json]:
        """Every page; the cursor of the last one is empty."""
        cursor = ""
        while True:
            params = {"per_page": _PAGE, **({"cursor": cursor} if cursor else {})}
            page = self._api.get(path, params)
            yield from page[key]
            cursor = ((page.get("meta") or {}).get("links") or {}).get("next") or ""
            if not cursor:
                return

    def _labelled(self, ref: ClusterRef) -> list[Json]:
        """The clusters of that label and region: ours first, then by age."""
        found = [
            c
            for c in self._all(_CLUSTERS, "vke_clusters")
            if c.get("label") == ref.name and (not ref.location or c.get("region") == ref.location)
        ]
        return sorted(found, key=lambda c: (not _ours(c, ref), c.get("date_created", ""), c["id"]))

    def _own_cluster(self, ref: ClusterRef) -> Json | None:
        """None when there is none; raises CloudNameTakenError when only others' carry the label."""
        found = self._labelled(ref)
        if not found:
            return None
        if not _ours(found[0], ref):
            raise errors.CloudNameTakenError(
                f"Vultr: cluster {ref.name} exists in {ref.location} and none of its pools is ours."
            )
        return found[0]

    def _pools(self, cluster_id: str) -> list[Json]:
        """By age. None of a cluster that went away meanwhile."""
        try:
            pools = list(self._all(f"{_CLUSTERS}/{cluster_id}/node-pools", "node_pools"))
        except NotThereError:
            return []
        return sorted(pools, key=lambda p: (p.get("date_created", ""), p["id"]))

    def _own_pool(self, ref: ClusterRef, cluster_id: str, name: str) -> Json | None:
        found = [p for p in self._pools(cluster_id) if p.get("label") == name]
        ours = [p for p in found if p.get("tag") == ref.owner]
        if found and not ours:
            raise errors.CloudNameTakenError(f"Vultr: pool {name} of cluster {ref.name} exists and isn't ours.")
        return ours[0] if ours else None

    def _ensure_pool_in(self, ref: ClusterRef, cluster: Json, name: str, request: Mapping[str, Any]) -> Progress:
        pool = self._own_pool(ref, cluster["id"], name)
        if pool is None:
            path = f"{_CLUSTERS}/{cluster['id']}/node-pools"
            with about(f"create pool {name} of cluster {ref.name}"), self._needing(ref, {request["plan"]}):
                self._create(path, request, made=lambda: self._own_pool(ref, cluster["id"], name) is not None)
            return asked_for(f"pool {name}")
        if pool.get("plan") != request["plan"]:
            raise errors.CloudInvalidError(
                f"Vultr: pool {name} of cluster {ref.name} has plan {pool.get('plan')}, and a plan can't change in place; "
                f"make a new pool for {request['plan']}.",
                code="plan-immutable",
            )
        return self._settle(ref, cluster, pool, request)

    def _settle(self, ref: ClusterRef, cluster: Json, pool: Json, request: Mapping[str, Any]) -> Progress:
        """Brings labels, taints and bounds of a standing pool to the request, and says how far its nodes are."""
        if pool.get("status") == "deleting":
            return end_of(f"the old pool {pool.get('label')}")
        path = f"{_CLUSTERS}/{cluster['id']}/node-pools/{pool['id']}"
        changed = self._relabel(path, pool, request)
        changed = self._retaint(path, pool, request) or changed
        resize = _resize(pool, request)
        if resize:
            with about(f"resize pool {pool['label']} of cluster {ref.name}"), self._needing(ref, {pool["plan"]}):
                self._api.call("PATCH", path, body=resize)
            changed = True
        seen = _pool(pool, ref)
        if changed:
            return Progress("pending", f"pool {seen.name} to be updated", changed=True)
        if seen.state != "ready":
            return Progress("pending", f"pool {seen.name}: {seen.joined} of {seen.count} nodes are up")
        return Progress("ready")

    def _relabel(self, path: str, pool: Json, request: Mapping[str, Any]) -> bool:
        """A label can't be changed: one with another value is deleted, then made again."""
        wrong = labels_to_set(request.get("labels", {}), _labels(pool))
        if not wrong:
            return False
        ids = {row["key"]: row["id"] for row in self._api.get(f"{path}/labels")["labels"]}
        for key, value in wrong.items():
            if key in ids:
                self._api.call("DELETE", f"{path}/labels/{ids[key]}")
            self._api.call("POST", f"{path}/labels", body={"key": key, "value": value})
        return True

    def _retaint(self, path: str, pool: Json, request: Mapping[str, Any]) -> bool:
        wanted = [Taint.parse(t) for t in request.get("taints", ())]
        wrong = taints_to_add(wanted, _taints(pool))
        for taint in wrong:
            self._api.call("POST", f"{path}/taints", body=taint.as_dict())
        return bool(wrong)

    @contextmanager
    def _needing(self, ref: ClusterRef, plans: set[str]) -> Iterator[None]:
        """Vultr refuses a sold-out plan as a bad request, so the region's availability tells the two apart."""
        try:
            yield
        except errors.CloudInvalidError as error:
            available = set(self._api.get(f"/v2/regions/{ref.location}/availability")["available_plans"])
            gone = sorted(plans - available)
            if not gone:
                raise
            raise errors.CloudCapacityError(
                f"Vultr: plan {', '.join(gone)} isn't available in {ref.location} now; another region or plan may be.",
                code=error.code,
            ) from error


def _ours(cluster: Json, ref: ClusterRef) -> bool:
    return any(pool.get("tag") == ref.owner for pool in cluster.get("node_pools") or ())


def _also(others: list[Json], ref: ClusterRef) -> str:
    """Two of ours under one label come from a create whose reply was lost and whose object showed up late."""
    ours = [c["id"] for c in others if _ours(c, ref)]
    return f"more clusters of ours carry this label: {', '.join(ours)}" if ours else ""


def _labels(pool: Json) -> dict[str, str]:
    return {str(k): str(v) for k, v in (pool.get("labels") or {}).items()}


def _taints(pool: Json) -> tuple[Taint, ...]:
    return tuple(sorted(Taint.parse(t) for t in pool.get("taints") or ()))


def _pool(raw: Json, ref: ClusterRef) -> CloudPool:
    count = int(raw.get("node_quantity", 0))
    joined = sum(1 for node in raw.get("nodes") or () if node.get("status") == "active")
    scaled = bool(raw.get("auto_scaler"))
    return CloudPool(
        name=str(raw.get("label", "")),
        state=_pool_state(raw.get("status", ""), joined, count),
        labels=MappingProxyType(_labels(raw)),
        taints=_taints(raw),
        count=count,
        joined=joined,
        minimum=int(raw["min_nodes"]) if scaled else None,
        maximum=int(raw["max_nodes"]) if scaled else None,
        ours=raw.get("tag") == ref.owner,
        provider=MappingProxyType({"id": raw["id"], "plan": raw.get("plan", ""), "tag": raw.get("tag", "")}),
    )


def _pool_state(status: str, joined: int, count: int) -> PoolState:
    if status == "deleting":
        return "deleting"
    if joined >= count and status == "active":
        return "ready"
    return "creating" if joined == 0 else "updating"


def _resize(pool: Json, request: Mapping[str, Any]) -> dict[str, Any]:
    """The PATCH that brings the bounds, or a fixed pool's size, to the request; never an autoscaled pool's size."""
    wanted = {key: request[key] for key in ("auto_scaler", "min_nodes", "max_nodes") if key in request}
    if not request.get("auto_scaler"):
        wanted["node_quantity"] = request["node_quantity"]
    seen = {**pool, "auto_scaler": bool(pool.get("auto_scaler"))}
    differing = {key for key, value in wanted.items() if seen.get(key) != value}
    return wanted if differing else {}


def _instance_type(plan: Json) -> InstanceType:
    gpu = str(plan.get("gpu_type") or "")
    vendor = next((v for v in ("nvidia", "amd") if gpu.lower().startswith(v)), "")
    return InstanceType(plan["id"], int(plan["vcpu_count"]), int(plan["ram"]), 1 if gpu else 0, vendor)
