"""Vultr Kubernetes Engine through its REST API v2.

Vultr has no request tokens and allows labels twice, so every create is preceded by a look-up of label and mark. A
cluster can't be tagged: it is ours when one of its pools carries our tag. Deleting a cluster leaves its block storage
and load balancers, which may hold data or addresses that outlive it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import yaml

from modelplane_dagster.errors import (
    CloudBusyError,
    CloudCapacityError,
    CloudCredentialsError,
    CloudError,
    CloudInvalidError,
    CloudNameTakenError,
    CloudQuotaError,
    CloudRetryableError,
    NotReadyError,
)
from modelplane_dagster.kube.objects import Taint
from modelplane_dagster.sources.record import SYSTEM_POOL
from resources.clouds.drift import demand_account, labels_to_set, taints_to_add
from resources.clouds.rest import Json, Limits, NotThereError, Reply, Rest, about, api_key, by_status
from resources.clouds.seam import CloudCluster, CloudPool, ClusterRef, ClusterState, InstanceType, PoolState, Progress

ENDPOINT = "https://api.vultr.com"
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


class VultrCloud:
    """`endpoint` None is the real cloud, with the API key of `secrets` or else VULTR_API_KEY; a simulated cloud takes
    any key. `account` is what the key must lead to, None to accept its own."""

    source = "Vultr"

    def __init__(
        self,
        *,
        endpoint: str | None = None,
        account: str | None = None,
        secrets: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._expected = account or ""
        self._key = api_key(secrets, env="VULTR_API_KEY", simulated=endpoint is not None)
        self._limits = limits or Limits()
        self._rest: Rest | None = None
        self._account = ""

    def whoami(self) -> str:
        """The account's e-mail address, or its name where the key may not see that."""
        if not self._account:
            account = self._api.get("/v2/account")["account"]
            self._account = str(account.get("email") or account.get("name") or "")
        return self._account

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
            state=_CLUSTER_STATES.get(cluster.get("status", ""), "updating"),
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
            with about(f"create cluster {ref.name}"):
                self._create(ref, _CLUSTERS, request, made=lambda: self._own_cluster(ref) is not None)
            return Progress("pending", f"cluster {ref.name}, just asked for", changed=True)
        if cluster.get("status") != "active":
            return Progress("pending", f"cluster {ref.name}, which is {cluster.get('status')}")
        for pool in self._pools(cluster["id"]):
            if pool.get("label") == SYSTEM_POOL and pool.get("tag") == ref.owner:
                return self._settle(ref, cluster, pool, request["node_pools"][0])
        return self._ensure_pool_in(ref, cluster, SYSTEM_POOL, request["node_pools"][0])

    def ensure_pool(self, ref: ClusterRef, name: str, request: Mapping[str, Any]) -> Progress:
        """Pending while the cluster isn't active. A pool's plan can't change in place: another one is refused."""
        self._check_account(ref)
        cluster = self._own_cluster(ref)
        if cluster is None:
            return Progress("pending", f"cluster {ref.name}, which isn't there yet")
        if cluster.get("status") != "active":
            return Progress("pending", f"cluster {ref.name}, which is {cluster.get('status')}")
        return self._ensure_pool_in(ref, cluster, name, request)

    def credentials(self, ref: ClusterRef) -> dict[str, Any]:
        """Holds client certificates, which need no refreshing."""
        cluster = self._own_cluster(ref)
        if cluster is None or cluster.get("status") != "active":
            raise NotReadyError(f"Vultr: cluster {ref.name} isn't active, so it has no kubeconfig yet.")
        encoded = self._api.get(f"{_CLUSTERS}/{cluster['id']}/config")["kube_config"]
        config = yaml.safe_load(base64.b64decode(encoded))
        if not isinstance(config, dict):
            raise NotReadyError(f"Vultr: the kubeconfig of cluster {ref.name} is empty.")
        return config

    def delete_pool(self, ref: ClusterRef, name: str) -> Progress:
        self._check_account(ref)
        cluster = self._own_cluster(ref)
        pool = None if cluster is None else self._own_pool(ref, cluster["id"], name)
        if cluster is None or pool is None:
            return Progress("ready")
        if pool.get("status") == "deleting":
            return Progress("pending", f"the end of pool {name}")
        return self._delete(f"{_CLUSTERS}/{cluster['id']}/node-pools/{pool['id']}", f"the end of pool {name}")

    def delete_cluster(self, ref: ClusterRef) -> Progress:
        """The pools go with the cluster."""
        self._check_account(ref)
        cluster = self._own_cluster(ref)
        if cluster is None:
            return Progress("ready")
        if cluster.get("status") == "deleting":
            return Progress("pending", f"the end of cluster {ref.name}")
        return self._delete(f"{_CLUSTERS}/{cluster['id']}", f"the end of cluster {ref.name}")

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
        return tuple(sorted((str(v) for v in listed), key=_version_key, reverse=True))

    @property
    def _api(self) -> Rest:
        if self._rest is None:
            if not self._key:
                raise CloudCredentialsError("Vultr: no API key; set VULTR_API_KEY or map the credentials.")
            self._rest = Rest(
                "Vultr",
                base_url=self._endpoint or ENDPOINT,
                authorization=f"Bearer {self._key}",
                read_error=lambda body: ("", str(body["error"])),
                classify=_classify,
                limits=self._limits,
            )
        return self._rest

    def _check_account(self, ref: ClusterRef) -> None:
        """Before every write; the answer is kept for the adapter's life."""
        wanted = ref if ref.account else replace(ref, account=self._expected)
        if wanted.account:
            demand_account(wanted, self.whoami())

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
            raise CloudNameTakenError(
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
            raise CloudNameTakenError(f"Vultr: pool {name} of cluster {ref.name} exists and isn't ours.")
        return ours[0] if ours else None

    def _ensure_pool_in(self, ref: ClusterRef, cluster: Json, name: str, request: Mapping[str, Any]) -> Progress:
        pool = self._own_pool(ref, cluster["id"], name)
        if pool is None:
            path = f"{_CLUSTERS}/{cluster['id']}/node-pools"
            with about(f"create pool {name} of cluster {ref.name}"):
                self._create(ref, path, request, made=lambda: self._own_pool(ref, cluster["id"], name) is not None)
            return Progress("pending", f"pool {name}, just asked for", changed=True)
        if pool.get("plan") != request["plan"]:
            raise CloudInvalidError(
                f"Vultr: pool {name} of cluster {ref.name} has plan {pool.get('plan')}, and a plan can't change in place; "
                f"make a new pool for {request['plan']}.",
                code="plan-immutable",
            )
        return self._settle(ref, cluster, pool, request)

    def _settle(self, ref: ClusterRef, cluster: Json, pool: Json, request: Mapping[str, Any]) -> Progress:
        """Brings labels, taints and bounds of a standing pool to the request, and says how far its nodes are."""
        if pool.get("status") == "deleting":
            return Progress("pending", f"the end of the old pool {pool.get('label')}")
        path = f"{_CLUSTERS}/{cluster['id']}/node-pools/{pool['id']}"
        changed = self._relabel(path, pool, request)
        changed = self._retaint(path, pool, request) or changed
        resize = _resize(pool, request)
        if resize:
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

    def _create(self, ref: ClusterRef, path: str, body: Mapping[str, Any], *, made: Callable[[], bool]) -> None:
        """After a lost reply `made` looks whether the request arrived all the same. Vultr refuses a sold-out plan as a
        bad request, so the region's availability tells the two apart."""
        try:
            self._api.call("POST", path, body=body)
        except CloudRetryableError:
            if not made():
                raise
        except CloudInvalidError as error:
            plans = {pool["plan"] for pool in body.get("node_pools", [body])}
            location = ref.location or str(body.get("region", ""))
            available = set(self._api.get(f"/v2/regions/{location}/availability")["available_plans"])
            gone = sorted(plans - available)
            if not gone:
                raise
            raise CloudCapacityError(
                f"Vultr: plan {', '.join(gone)} isn't available in {location} now; another region or plan may be.",
                code=error.code,
            ) from error

    def _delete(self, path: str, what: str) -> Progress:
        try:
            self._api.call("DELETE", path)
        except NotThereError:
            return Progress("ready")
        return Progress("pending", what, changed=True)


def _classify(reply: Reply) -> CloudError:
    message = f"Vultr: {reply.text}"
    if reply.status in (400, 403, 422) and any(words in reply.text.lower() for words in _QUOTA_WORDS):
        return CloudQuotaError(message, code=str(reply.status))
    if reply.status == 409:
        return CloudBusyError(message, code="409")
    return by_status("Vultr", reply)


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


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
