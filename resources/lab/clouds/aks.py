"""A simulated AKS, with the bits of Azure Resource Manager that go with it.

Its traps: a long operation that fails answers 200 with a body that says Failed, an update with an old etag is 412, a
second operation on a busy pool is 409 OperationNotAllowed, pool names are short, and a failed pool stays failed until
it is put again.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from modelplane_dagster.kube.objects import Taint
from resources.lab.clouds.machines import azure_size, azure_sizes
from resources.lab.clouds.state import CloudState, Phase, SimCluster, SimNode, SimPool, plain_dress
from resources.lab.clouds.wire import Call, Reply, Wire

VERSIONS = {"1.36": ("1.36.1",), "1.35": ("1.35.3", "1.35.1"), "1.34": ("1.34.5", "1.34.2"), "1.33": ("1.33.8",)}

_NAME = re.compile(r"[a-z][a-z0-9]{0,11}")
_PHASES: dict[Phase, str] = {
    "creating": "Creating",
    "ready": "Succeeded",
    "updating": "Updating",
    "deleting": "Deleting",
    "failed": "Failed",
}
_WORDS = {
    "no-capacity": ("AllocationFailed", "The VM allocation failed due to insufficient capacity for {}."),
    "quota": ("ErrCode_InsufficientVCPUQuota", "Insufficient regional vcpu quota left for {}."),
}


def dress(cluster: SimCluster, pool: SimPool, index: int) -> SimNode:
    node = plain_dress(cluster, pool, index)
    labels = {
        **node.labels,
        "kubernetes.azure.com/agentpool": pool.name,
        "kubernetes.azure.com/mode": str(pool.body.get("mode", "User")).lower(),
        "kubernetes.azure.com/cluster": cluster.body.get("nodeResourceGroup", ""),
    }
    if pool.zones:
        zone = pool.zones[index % len(pool.zones)]
        labels["topology.kubernetes.io/zone"] = f"{cluster.location}-{zone}"
    taints = tuple(Taint.parse(t) for t in pool.taints)
    return SimNode(node.name, node.pool, labels, taints, node.machine, f"azure:///lab/{pool.name}/{index}")


class AksSim(Wire):
    """An ASGI app; give its state the function `dress` of this module. With `tell_errors` off a failed pool shows its
    error in the operation alone, as older API versions do."""

    def __init__(self, state: CloudState, *, tell_errors: bool = True) -> None:
        super().__init__(
            state,
            throttled=lambda: _error(429, "TooManyRequests", "The request is being throttled.", {"Retry-After": "0"}),
            missing=lambda call: _error(404, "NotFound", f"no such path {call.path}"),
        )
        self._tell_errors = tell_errors
        subscription = r"/subscriptions/(?P<s>[^/]+)"
        provider = subscription + "/providers/Microsoft.ContainerService/locations/(?P<l>[^/]+)"
        group = subscription + r"/resource[gG]roups/(?P<rg>[^/]+)"
        cluster = group + r"/providers/Microsoft.ContainerService/managedClusters/(?P<c>[^/]+)"
        pools, pool = cluster + "/agentPools", cluster + r"/agentPools/(?P<n>[^/]+)"
        self.route("GET", group, "read", "describe-group", self._get_group)
        self.route("PUT", group, "write", "create-group", self._put_group)
        self.route("GET", cluster, "read", "describe-cluster", self._get_cluster)
        self.route("PUT", cluster, "write", "put-cluster", self._put_cluster)
        self.route("DELETE", cluster, "delete", "delete-cluster", self._delete_cluster)
        self.route("POST", cluster + "/listClusterUserCredential", "read", "credentials", self._credentials)
        self.route("GET", pools, "read", "list-pools", self._list_pools)
        self.route("GET", pool, "read", "describe-pool", self._get_pool)
        self.route("PUT", pool, "write", "put-pool", self._put_pool)
        self.route("DELETE", pool, "delete", "delete-pool", self._delete_pool)
        self.route("GET", pool + "/machines", "read", "list-machines", self._machines)
        self.route("GET", provider + r"/operations/(?P<o>[^/]+)", "read", "operation", self._get_operation)
        self.route("GET", provider + "/kubernetesVersions", "read", "list-versions", self._versions)
        self.route("GET", subscription + "/providers/Microsoft.Compute/skus", "read", "list-sizes", self._sizes)

    # Groups and clusters

    def _get_group(self, call: Call) -> Reply:
        found = self.state.extra.get("groups", {}).get(call.parts["rg"])
        return Reply(200, found) if found else _error(404, "ResourceGroupNotFound", "no such resource group")

    def _put_group(self, call: Call) -> Reply:
        name, body = call.parts["rg"], call.json
        made = {"name": name, "location": body["location"], "tags": body.get("tags", {})}
        self.state.extra.setdefault("groups", {})[name] = made
        self.state.save()
        return Reply(201, made)

    def _find(self, call: Call) -> SimCluster | None:
        cluster = self.state.cluster(call.parts["c"])
        return cluster if cluster and cluster.body["group"] == call.parts["rg"] else None

    def _get_cluster(self, call: Call) -> Reply:
        cluster = self._find(call)
        return Reply(200, self._cluster(cluster)) if cluster else _absent(call)

    def _cluster(self, cluster: SimCluster) -> dict[str, Any]:
        return {
            "name": cluster.name,
            "location": cluster.location,
            "tags": cluster.tags,
            "eTag": str(cluster.revision),
            "properties": {
                "provisioningState": _PHASES[cluster.phase],
                "kubernetesVersion": cluster.body["kubernetesVersion"],
                "currentKubernetesVersion": cluster.version,
                "nodeResourceGroup": cluster.body.get("nodeResourceGroup", ""),
            },
        }

    def _put_cluster(self, call: Call) -> Reply:
        name, body = call.parts["c"], call.json
        if self._find(call):
            return _error(412, "PreconditionFailed", f"{name} exists")
        if call.parts["rg"] not in self.state.extra.get("groups", {}):
            return _error(404, "ResourceGroupNotFound", "no such resource group")
        properties = body["properties"]
        asked = properties["kubernetesVersion"]
        version = VERSIONS[asked][0] if asked in VERSIONS else asked
        if not any(version in patches for patches in VERSIONS.values()):
            return _error(400, "K8sVersionNotSupported", f"version {asked} isn't supported")
        kept = {k: properties[k] for k in ("kubernetesVersion", "nodeResourceGroup") if k in properties}
        cluster = self.state.add_cluster(
            name,
            version=version,
            location=body["location"],
            tags=body.get("tags", {}),
            body={"group": call.parts["rg"], "subscription": call.parts["s"], **kept},
        )
        for profile in properties["agentPoolProfiles"]:
            self.state.add_pool(name, _pool_of(profile["name"], profile))
        return self._accepted(call, 201, self._cluster(cluster), cluster, subject=f"cluster/{name}")

    def _delete_cluster(self, call: Call) -> Reply:
        cluster = self._find(call)
        if cluster is None:
            return Reply(204)
        self.state.remove_cluster(cluster.name)
        return self._accepted(call, 202, None, cluster, subject=f"cluster/{cluster.name}")

    def _credentials(self, call: Call) -> Reply:
        cluster = self._find(call)
        if cluster is None:
            return _absent(call)
        endpoint = self.state.hooks.endpoint(cluster.name)
        shown: dict[str, Any] = {"server": endpoint.server}
        if endpoint.ca_pem:
            shown["certificate-authority-data"] = base64.b64encode(endpoint.ca_pem.encode()).decode()
        user = f"clusterUser_{cluster.body['group']}_{cluster.name}"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": cluster.name, "cluster": shown}],
            "users": [{"name": user, "user": {"token": endpoint.token or "lab"}}],
            "contexts": [{"name": cluster.name, "context": {"cluster": cluster.name, "user": user}}],
            "current-context": cluster.name,
        }
        value = base64.b64encode(json.dumps(config).encode()).decode()
        return Reply(200, {"kubeconfigs": [{"name": "clusterUser", "value": value}]})

    # Pools

    def _list_pools(self, call: Call) -> Reply:
        cluster = self._find(call)
        if cluster is None:
            return _absent(call)
        return Reply(200, {"value": [self._pool(cluster, p) for p in cluster.pools.values()]})

    def _get_pool(self, call: Call) -> Reply:
        cluster = self._find(call)
        pool = cluster.pools.get(call.parts["n"]) if cluster else None
        return Reply(200, self._pool(cluster, pool)) if cluster and pool else _absent(call)

    def _pool(self, cluster: SimCluster, pool: SimPool) -> dict[str, Any]:
        properties = {
            **pool.body,
            "eTag": str(pool.revision),
            "provisioningState": _PHASES[pool.phase],
            "count": pool.size,
            "nodeLabels": pool.labels,
            "nodeTaints": [str(Taint.parse(t)) for t in pool.taints],
            "tags": pool.tags,
            "currentOrchestratorVersion": cluster.version,
        }
        if pool.failure and self._tell_errors:
            properties["status"] = {"provisioningError": _failure(pool)}
        return {"name": pool.name, "properties": properties}

    def _put_pool(self, call: Call) -> Reply:
        cluster, name, body = self._find(call), call.parts["n"], call.json
        if cluster is None:
            return _absent(call)
        if not _NAME.fullmatch(name):
            return _error(400, "InvalidParameter", f"agent pool name {name} isn't valid")
        pool, properties = cluster.pools.get(name), body["properties"]
        if cluster.phase != "ready" or (pool and pool.phase not in ("ready", "failed")):
            return _error(409, "OperationNotAllowed", "Another operation is in progress.")
        if pool is None:
            pool = self.state.add_pool(cluster.name, _pool_of(name, properties))
            return self._accepted(call, 201, self._pool(cluster, pool), cluster, pool, subject=_subject(cluster, pool))
        etag = call.headers.get("if-match", str(pool.revision)).strip('"')
        if "if-none-match" in call.headers or etag != str(pool.revision):
            return _error(412, "PreconditionFailed", "The etag doesn't match.")
        fresh = _pool_of(name, properties)
        pool.body, pool.tags = fresh.body, fresh.tags
        self.state.change_pool(cluster.name, name, labels=fresh.labels, taints=fresh.taints, size=fresh.size)
        return self._accepted(call, 200, self._pool(cluster, pool), cluster, pool, subject=_subject(cluster, pool))

    def _delete_pool(self, call: Call) -> Reply:
        cluster = self._find(call)
        pool = cluster.pools.get(call.parts["n"]) if cluster else None
        if cluster is None or pool is None:
            return Reply(204)
        if pool.phase in ("creating", "updating"):
            return _error(409, "OperationNotAllowed", "Another operation is in progress.")
        self.state.remove_pool(cluster.name, pool.name)
        return self._accepted(call, 202, None, cluster, pool, subject=_subject(cluster, pool))

    def _machines(self, call: Call) -> Reply:
        cluster = self._find(call)
        pool = cluster.pools.get(call.parts["n"]) if cluster else None
        if cluster is None or pool is None:
            return _absent(call)
        one = {"properties": {"provisioningState": "Succeeded"}}
        return Reply(200, {"value": [{"name": f"{pool.name}-{i}", **one} for i in range(pool.joined)]})

    # Operations and offers

    def _accepted(
        self,
        call: Call,
        status: int,
        body: dict[str, Any] | None,
        cluster: SimCluster,
        pool: SimPool | None = None,
        *,
        subject: str,
    ) -> Reply:
        name = self.state.new_id()
        operations = self.state.extra.setdefault("operations", {})
        operations[name] = {"cluster": cluster.name, "pool": pool.name if pool else ""}
        self.state.save()
        root = f"{call.base}/subscriptions/{call.parts['s']}/providers/Microsoft.ContainerService"
        url = f"{root}/locations/{cluster.location}/operations/{name}?api-version=2026-08-01"
        headers = {"Azure-AsyncOperation": url} | ({"Location": url} if status == 202 else {})
        return Reply(status, body, headers, subject)

    def _get_operation(self, call: Call) -> Reply:
        operation = self.state.extra.get("operations", {}).get(call.parts["o"])
        if operation is None:
            return _absent(call)
        cluster = self.state.cluster(operation["cluster"])
        thing = cluster.pools.get(operation["pool"]) if cluster and operation["pool"] else cluster
        if isinstance(thing, SimPool) and thing.failure:
            return Reply(200, {"name": call.parts["o"], "status": "Failed", "error": _failure(thing)})
        busy = thing is not None and thing.phase != "ready"
        return Reply(200, {"name": call.parts["o"], "status": "InProgress" if busy else "Succeeded"})

    def _versions(self, call: Call) -> Reply:
        del call
        values = [
            {"version": minor, "patchVersions": {patch: {"upgrades": []} for patch in patches}}
            for minor, patches in VERSIONS.items()
        ]
        return Reply(200, {"values": values})

    def _sizes(self, call: Call) -> Reply:
        location = call.query.get("$filter", "").split("'")[1]
        items = []
        for name in azure_sizes():
            size = azure_size(name)
            if size is None:
                continue
            capabilities = {"vCPUs": size.vcpus, "MemoryGB": size.memory_mib // 1024, "GPUs": size.gpus}
            items.append(
                {
                    "resourceType": "virtualMachines",
                    "name": name,
                    "locations": [location],
                    "restrictions": [],
                    "capabilities": [{"name": k, "value": str(v)} for k, v in capabilities.items() if v],
                }
            )
        return Reply(200, {"value": items})


def _pool_of(name: str, properties: dict[str, Any]) -> SimPool:
    computed = ("nodeLabels", "nodeTaints", "tags", "count", "eTag", "provisioningState", "status", "name")
    return SimPool(
        name=name,
        id="",
        labels=dict(properties.get("nodeLabels") or {}),
        taints=[_taint(t) for t in properties.get("nodeTaints") or ()],
        machine=properties["vmSize"],
        size=properties["count"],
        zones=list(properties.get("availabilityZones") or ()),
        tags=dict(properties.get("tags") or {}),
        body={k: v for k, v in properties.items() if k not in computed},
    )


def _taint(text: str) -> dict[str, str]:
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}


def _failure(pool: SimPool) -> dict[str, str]:
    code, text = _WORDS[pool.failure]
    return {"code": code, "message": text.format(pool.machine)}


def _subject(cluster: SimCluster, pool: SimPool) -> str:
    return f"pool/{cluster.name}/{pool.true_name}"


def _error(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Reply:
    return Reply(status, {"error": {"code": code, "message": message}}, headers or {})


def _absent(call: Call) -> Reply:
    return _error(404, "ResourceNotFound", f"The resource {call.path} was not found.")
