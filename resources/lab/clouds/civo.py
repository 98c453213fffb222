"""A simulated Civo: k3s over REST v2, mounted at `/clouds/civo`.

Its traps: the region is part of every call, labels and taints of pools inside a cluster's own POST are ignored, PUT
replaces both sets, a pool's size can't change, a network with instances can't go, and a sold-out size is refused at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from resources.lab.clouds.kubeconfigs import kubeconfig_text
from resources.lab.clouds.state import CloudState, Fault, SimCluster, SimNode, SimPool, plain_dress
from resources.lab.clouds.wire import Call, Reply, Wire

ACCOUNT = "lab-civo-account"
REGIONS = ("LON1", "FRA1", "NYC1", "PHX1")
NODE_POOL = "kubernetes.civo.com/node-pool"
# version: (type, is the default).
VERSIONS: Mapping[str, tuple[str, bool]] = {
    "1.36.1-k3s1": ("development", False),
    "1.35.2-k3s1": ("stable", False),
    "1.34.1-k3s1": ("stable", True),
    "1.32.5-k3s1": ("deprecated", False),
}
# name: cores, RAM in MB, GPUs, GPU type.
SIZES: Mapping[str, tuple[int, int, int, str]] = {
    "g4s.kube.medium": (2, 4096, 0, ""),
    "g4p.kube.small": (4, 16384, 0, ""),
    "g4p.kube.medium": (8, 32768, 0, ""),
    "g4p.kube.large": (16, 65536, 0, ""),
    "an.g1.l40s.kube.x1": (12, 131072, 1, "nvidia.com/AD102GL_L40S"),
    "an.g1.l40s.kube.x2": (24, 262144, 2, "nvidia.com/AD102GL_L40S"),
    "an.g1.h100.kube.x1": (28, 262144, 1, "nvidia.com/GH100_H100_PCIE"),
    "g4g.kube.small": (12, 131072, 1, "nvidia.com/GA100_A100_PCIE_80GB"),
}
_PHASES = {
    "creating": "BUILDING",
    "ready": "ACTIVE",
    "updating": "SCALING",
    "failed": "FAILED",
    "deleting": "DELETING",
}
_CLUSTER = r"/v2/kubernetes/clusters/(?P<cluster>[^/]+)"
_POOL = _CLUSTER + r"/pools/(?P<pool>[^/]+)"


class _Refused(Exception):
    """An answer of status 300 or more, with Civo's code."""

    def __init__(self, status: int, code: str, reason: str) -> None:
        super().__init__(reason)
        self.reply = Reply(status, {"result": "failed", "code": code, "reason": reason, "details": ""})


def dress(cluster: SimCluster, pool: SimPool, index: int) -> SimNode:
    """A node with its pool's name as the cloud labels it."""
    node = plain_dress(cluster, pool, index)
    return replace(node, labels={**node.labels, NODE_POOL: pool.name})


class CivoSim(Wire):
    """The ASGI app. Any bearer passes, unless `api_key` is set. Networks and firewalls are kept in memory: a restarted
    lab has none, and its clusters stand."""

    def __init__(self, state: CloudState, *, api_key: str = "") -> None:
        limited = Reply(429, {"code": "rate_limited", "reason": "Too many requests"}, {"Retry-After": "0"})
        gone = Reply(404, {"code": "not_found", "reason": "No such path"})
        super().__init__(state, throttled=lambda: limited, missing=lambda _call: gone)
        self.api_key = api_key
        self.networks: dict[str, dict[str, Any]] = {}
        self.firewalls: dict[str, dict[str, Any]] = {}
        self._reads()
        self._writes()

    def _reads(self) -> None:
        add = self._add
        add("GET", "/v2/accounts", "accounts", lambda _c: _paged([{"id": ACCOUNT}]))
        add("GET", "/v2/kubernetes/versions", "versions", self._versions)
        add("GET", "/v2/sizes", "sizes", self._sizes)
        add("GET", "/v2/networks", "networks", lambda c: Reply(200, self._here(self.networks, c)))
        add("GET", "/v2/firewalls", "firewalls", lambda c: Reply(200, self._here(self.firewalls, c)))
        add("GET", "/v2/kubernetes/clusters", "clusters", self._clusters)
        add("GET", _CLUSTER, "cluster", lambda c: Reply(200, self._show(self._cluster(c))))
        add("GET", _POOL, "pool", lambda c: Reply(200, _show_pool(self._pool(c))))

    def _writes(self) -> None:
        add = self._add
        add("POST", "/v2/networks", "create-network", self._create_network)
        add("POST", "/v2/firewalls", "create-firewall", self._create_firewall)
        add("POST", "/v2/kubernetes/clusters", "create-cluster", self._create_cluster)
        add("POST", _CLUSTER + "/pools", "create-pool", self._create_pool)
        add("PUT", _POOL, "update-pool", self._put_pool)
        add("DELETE", _POOL, "delete-pool", self._delete_pool)
        add("DELETE", _CLUSTER, "delete-cluster", self._delete_cluster)
        add("DELETE", r"/v2/networks/(?P<id>[^/]+)", "delete-network", self._delete_network)
        add("DELETE", r"/v2/firewalls/(?P<id>[^/]+)", "delete-firewall", self._delete_firewall)

    def _add(self, method: str, pattern: str, meaning: str, run: Any) -> None:  # noqa: ANN401 - a lambda or a method
        def guarded(call: Call) -> Reply:
            bearer = call.headers.get("authorization", "").removeprefix("bearer ")
            try:
                if not bearer or (self.api_key and bearer != self.api_key):
                    raise _Refused(401, "authentication_invalid_key", "The API key is invalid")
                if meaning != "accounts" and _region(call) not in REGIONS:
                    raise _Refused(400, "region_unknown", "The region is missing or unknown")
                return run(call)
            except _Refused as refused:
                return refused.reply

        kind = {"GET": "read", "DELETE": "delete"}.get(method, "write")
        self.route(method, pattern, kind, meaning, guarded)  # type: ignore[arg-type]  # the three kinds above

    # Reads

    def _versions(self, _call: Call) -> Reply:
        rows = [
            {"label": f"v{v}", "version": v, "type": kind, "default": default, "clusterType": "k3s"}
            for v, (kind, default) in VERSIONS.items()
        ]
        return Reply(200, rows)

    def _sizes(self, _call: Call) -> Reply:
        rows = [
            {
                "type": "Kubernetes",
                "name": name,
                "cpu_cores": cores,
                "ram_mb": ram,
                "disk_gb": 60,
                "gpu_count": gpus,
                "gpu_type": gpu,
                "selectable": True,
            }
            for name, (cores, ram, gpus, gpu) in SIZES.items()
        ]
        return Reply(200, rows)

    def _here(self, house: dict[str, dict[str, Any]], call: Call) -> list[dict[str, Any]]:
        return [row for row in house.values() if row["region"] == _region(call)]

    def _clusters(self, call: Call) -> Reply:
        rows = [self._show(c) for c in self.state.clusters() if c.location == _region(call)]
        return _paged(rows, int(call.query.get("page", 1)), int(call.query.get("per_page", 20)))

    def _cluster(self, call: Call) -> SimCluster:
        found = self.state.cluster_by_id(call.parts["cluster"])
        if found is None or found.location != _region(call):
            raise _Refused(404, "database_kubernetes_cluster_not_found", "The cluster wasn't found")
        return found

    def _pool(self, call: Call) -> SimPool:
        found = self._cluster(call).pools.get(call.parts["pool"])
        if found is None or found.phase == "deleting":
            raise _Refused(404, "database_cluster_pool_not_found", "The pool wasn't found")
        return found

    def _show(self, cluster: SimCluster) -> dict[str, Any]:
        ready = cluster.phase in ("ready", "updating")
        config = kubeconfig_text(cluster.name, self.state.hooks.endpoint(cluster.name)) if ready else ""
        return {
            **cluster.body,
            "id": cluster.id,
            "status": _PHASES[cluster.phase],
            "ready": ready,
            "kubeconfig": config,
            "required_pools": [
                {"id": p.name, "count": p.size, "size": p.machine}
                for p in cluster.pools.values()
                if p.phase != "deleting"
            ],
            "pools": [_show_pool(p) for p in cluster.pools.values()],
        }

    # Writes

    def _create_network(self, call: Call) -> Reply:
        row = {"id": self.state.new_id(), "label": call.json["label"], "region": call.json["region"]}
        if any(n["label"] == row["label"] for n in self._here(self.networks, call)):
            raise _Refused(409, "database_network_exists", "The network exists")
        self.networks[row["id"]] = row
        return Reply(201, {"id": row["id"], "label": row["label"], "result": "success"})

    def _create_firewall(self, call: Call) -> Reply:
        body = call.json
        row = {k: body.get(k, "") for k in ("name", "region", "network_id")} | {"id": self.state.new_id()}
        if any(n["name"] == row["name"] for n in self._here(self.firewalls, call)):
            raise _Refused(409, "database_firewall_duplicate", "The firewall exists")
        self.firewalls[row["id"]] = row
        return Reply(201, {"id": row["id"], "name": row["name"], "result": "success"})

    def _create_cluster(self, call: Call) -> Reply:
        body = call.json
        if any(c.body["name"] == body["name"] and c.location == body["region"] for c in self.state.clusters()):
            raise _Refused(409, "database_kubernetes_cluster_duplicate", "The name is in use")
        version = body.get("kubernetes_version") or next(v for v, (_, default) in VERSIONS.items() if default)
        if version not in VERSIONS:
            raise _Refused(400, "database_kubernetes_cluster_invalid_version", "The version isn't offered")
        if not body.get("pools"):
            raise _Refused(400, "database_kubernetes_cluster_no_pools", "The cluster has no pools")
        shown = {"name": body["name"], "kubernetes_version": version, "tags": (body.get("tags") or "").split()}
        shown["network_id"], shown["firewall_id"] = body.get("network_id", ""), body.get("firewall_id", "")
        cluster = self.state.add_cluster(body["name"], version=version, location=body["region"], tags={}, body=shown)
        for pool in body["pools"]:
            # Labels and taints given here never arrive.
            self._place(cluster, {**pool, "labels": {}, "taints": []}, system=True)
        return Reply(200, self._show(cluster), subject=f"cluster/{cluster.name}")

    def _create_pool(self, call: Call) -> Reply:
        cluster, body = self._cluster(call), call.json
        subject = f"pool/{cluster.name}/{body['id']}"
        if body["id"] in cluster.pools:
            raise _Refused(409, "database_cluster_pool_duplicate", "The pool exists")
        if int(body.get("count", 0)) < 1:
            raise _Refused(400, "parameter_validation_error", "A pool needs at least one node")
        self._demand_machines(subject, body["size"])
        self._place(cluster, body, system=False)
        return Reply(201, {"id": body["id"], "result": "success"}, subject=subject)

    def _demand_machines(self, subject: str, size: str) -> None:
        if self.state.has_fault(subject, Fault.NO_CAPACITY):
            raise _Refused(503, "out_of_capacity", f"There is no capacity for {size} in this region")
        if self.state.has_fault(subject, Fault.QUOTA):
            raise _Refused(403, "quota_limit_reached", "The RAM quota would be exceeded")

    def _place(self, cluster: SimCluster, body: Mapping[str, Any], *, system: bool) -> SimPool:
        if body.get("size") not in SIZES:
            raise _Refused(404, "database_size_not_found", "The size wasn't found")
        pool = SimPool(
            name=body["id"],
            id="",
            labels=dict(body.get("labels") or {}),
            taints=[dict(t) for t in body.get("taints") or ()],
            machine=body["size"],
            size=int(body["count"]),
            zones=[],
            tags={},
            body={},
            system=system,
        )
        return self.state.add_pool(cluster.name, pool)

    def _put_pool(self, call: Call) -> Reply:
        cluster, pool, body = self._cluster(call), self._pool(call), call.json
        if body.get("size") not in (None, pool.machine):
            raise _Refused(400, "parameter_validation_error", "The size of a pool can't change")
        if int(body.get("count") or 0) > pool.size:
            self._demand_machines(f"pool/{cluster.name}/{pool.name}", pool.machine)
        self.state.change_pool(
            cluster.name,
            pool.name,
            labels=body.get("labels") or {},
            taints=body.get("taints") or [],
            size=body.get("count"),
        )
        return Reply(200, _show_pool(pool))

    def _delete_pool(self, call: Call) -> Reply:
        pool = self._pool(call)
        self.state.remove_pool(self._cluster(call).name, pool.name)
        return Reply(200, {"result": "success"})

    def _delete_cluster(self, call: Call) -> Reply:
        cluster = self._cluster(call)
        if cluster.phase != "deleting":
            self.state.remove_cluster(cluster.name)
        return Reply(200, {"result": "success"})

    def _delete_network(self, call: Call) -> Reply:
        identifier = call.parts["id"]
        if any(c.body["network_id"] == identifier for c in self.state.clusters()):
            raise _Refused(400, "database_network_delete_with_instance", "The network has instances")
        return self._drop(self.networks, identifier, "database_network_not_found")

    def _delete_firewall(self, call: Call) -> Reply:
        return self._drop(self.firewalls, call.parts["id"], "database_firewall_not_found")

    def _drop(self, house: dict[str, dict[str, Any]], identifier: str, absent: str) -> Reply:
        if identifier not in house:
            raise _Refused(404, absent, "Not found")
        del house[identifier]
        return Reply(200, {"result": "success"})


def _region(call: Call) -> str:
    """In the query for GET and DELETE, in the body for POST and PUT."""
    if call.method in ("GET", "DELETE"):
        return call.query.get("region", "")
    return str(call.json.get("region", ""))


def _show_pool(pool: SimPool) -> dict[str, Any]:
    return {
        "id": pool.name,
        "count": pool.joined,
        "size": pool.machine,
        "labels": {**pool.labels, NODE_POOL: pool.name},
        "taints": pool.taints,
        "instances": [
            {"id": f"{pool.id}-{i}", "hostname": f"{pool.name}-{i}", "size": pool.machine, "status": "ACTIVE"}
            for i in range(pool.joined)
        ],
    }


def _paged(rows: list[dict[str, Any]], page: int = 1, size: int = 20) -> Reply:
    pages = max(1, -(-len(rows) // size))
    items = rows[(page - 1) * size : page * size]
    return Reply(200, {"page": page, "per_page": size, "pages": pages, "items": items})
