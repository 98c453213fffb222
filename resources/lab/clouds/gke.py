"""A simulated GKE (REST), with the bits of Compute Engine that tell a pool's real size and a machine type's hardware.

Its traps: counts are per zone, one mutation of a cluster at a time, a label or taint update replaces the set, enums
come in as integers, GKE taints GPU nodes itself once another pool is there, and a pool without capacity runs with an
error and goes on trying.
"""

from __future__ import annotations

import base64
from typing import Any

from modelplane_dagster.kube.objects import Taint
from resources.lab.clouds.machines import gcp_type
from resources.lab.clouds.state import CloudState, SimCluster, SimNode, SimPool, Traits, plain_dress
from resources.lab.clouds.wire import Call, Reply, Wire

VERSIONS = ("1.37.1-gke.100", "1.36.2-gke.300", "1.35.4-gke.200", "1.34.6-gke.500")
TRAITS = Traits(recovers=True)
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": 1}

_EFFECTS = {1: "NoSchedule", 2: "PreferNoSchedule", 3: "NoExecute"}
_NAMES = {"NO_SCHEDULE": 1, "PREFER_NO_SCHEDULE": 2, "NO_EXECUTE": 3}
_PHASES = {"creating": "PROVISIONING", "ready": "RUNNING", "updating": "RECONCILING", "deleting": "STOPPING"}
_WORDS = {
    "no-capacity": ("GCE_STOCKOUT", "The zone doesn't have enough {} available to fulfill the request."),
    "quota": ("GCE_QUOTA_EXCEEDED", "Quota of the region for {} exceeded."),
}
_KEEP_OPERATIONS = 50


def dress(cluster: SimCluster, pool: SimPool, index: int) -> SimNode:
    node = plain_dress(cluster, pool, index)
    labels = {**node.labels, "cloud.google.com/gke-nodepool": pool.name, "cloud.google.com/gke-os-distribution": "cos"}
    for accelerator in pool.body["config"].get("accelerators", []):
        labels["cloud.google.com/gke-accelerator"] = accelerator["acceleratorType"]
    taints = tuple(Taint(t["key"], t.get("value", ""), _EFFECTS[_effect(t)]) for t in pool.taints)
    zone = labels.get("topology.kubernetes.io/zone", "")
    return SimNode(node.name, node.pool, labels, taints, node.machine, f"gce://lab/{zone}/{node.name}")


class GkeSim(Wire):
    """An ASGI app; give its state the `dress` and `TRAITS` of this module."""

    def __init__(self, state: CloudState) -> None:
        super().__init__(
            state,
            throttled=lambda: _error(429, "RESOURCE_EXHAUSTED", "Quota exceeded for quota metric 'Requests'"),
            missing=lambda call: _error(404, "NOT_FOUND", f"no such path {call.path}"),
        )
        place = r"/v1/projects/(?P<p>[^/]+)/locations/(?P<l>[^/]+)"
        clusters, one = place + "/clusters", place + r"/clusters/(?P<c>[^/:]+)"
        pools, pool = one + "/nodePools", one + r"/nodePools/(?P<n>[^/:]+)"
        self.route("POST", clusters, "write", "create-cluster", self._create_cluster)
        self.route("GET", one, "read", "describe-cluster", self._get_cluster)
        self.route("DELETE", one, "delete", "delete-cluster", self._delete_cluster)
        self.route("POST", pools, "write", "create-pool", self._create_pool)
        self.route("GET", pool, "read", "describe-pool", self._get_pool)
        self.route("PUT", pool, "write", "update-pool", self._update_pool)
        self.route("POST", pool + ":setSize", "write", "resize-pool", self._set_size)
        self.route("POST", pool + ":setAutoscaling", "write", "rebound-pool", self._set_autoscaling)
        self.route("DELETE", pool, "delete", "delete-pool", self._delete_pool)
        self.route("GET", place + "/operations", "read", "list-operations", self._operations)
        self.route("GET", place + "/serverConfig", "read", "list-versions", self._server_config)
        compute = r"/compute/v1/projects/(?P<p>[^/]+)"
        group = compute + r"/zones/(?P<z>[^/]+)/instanceGroupManagers/(?P<i>[^/]+)"
        self.route("GET", group, "read", "instance-group", self._instance_group)
        self.route("GET", compute + "/aggregated/machineTypes", "read", "list-machine-types", self._machine_types)

    # Clusters

    def _create_cluster(self, call: Call) -> Reply:
        body = call.json["cluster"]
        name = body["name"]
        if self.state.cluster(name):
            return _error(409, "ALREADY_EXISTS", f"Already exists: projects/lab/clusters/{name}.")
        asked = body.get("initialClusterVersion", "1.35")
        version = next((v for v in VERSIONS if asked in (v, "latest") or v.startswith(f"{asked}.")), "")
        if not version:
            return _error(400, "INVALID_ARGUMENT", f"Master version {asked} is unsupported.")
        region = call.parts["l"]
        cluster = self.state.add_cluster(
            name,
            version=version,
            location=region,
            tags=body.get("resourceLabels", {}),
            body={"project": call.parts["p"], "locations": body.get("locations") or [f"{region}-{z}" for z in "abc"]},
        )
        for pool in body.get("nodePools", []):
            self.state.add_pool(name, self._pool_of(cluster, pool))
        return self._operation(cluster, "CREATE_CLUSTER", cluster.until, subject=f"cluster/{name}")

    def _get_cluster(self, call: Call) -> Reply:
        cluster = self._find(call)
        return Reply(200, self._cluster(call, cluster)) if cluster else _absent(call)

    def _find(self, call: Call) -> SimCluster | None:
        cluster = self.state.cluster(call.parts["c"])
        return cluster if cluster and cluster.location == call.parts["l"] else None

    def _cluster(self, call: Call, cluster: SimCluster) -> dict[str, Any]:
        shown = {
            "name": cluster.name,
            "location": cluster.location,
            "locations": cluster.body["locations"],
            "currentMasterVersion": cluster.version,
            "status": _PHASES.get(cluster.phase, "ERROR"),
            "resourceLabels": cluster.tags,
            "nodePools": [self._pool(call, cluster, p) for p in cluster.pools.values()],
        }
        if cluster.phase not in ("creating", "deleting"):
            endpoint = self.state.hooks.endpoint(cluster.name)
            # Real endpoints are bare addresses behind TLS; a scheme shows where the lab's answers.
            shown["endpoint"] = endpoint.server
            shown["masterAuth"] = {"clusterCaCertificate": base64.b64encode(endpoint.ca_pem.encode()).decode()}
        return shown

    def _delete_cluster(self, call: Call) -> Reply:
        cluster = self._find(call)
        if cluster is None:
            return _absent(call)
        if busy := self._busy(cluster):
            return busy
        self.state.remove_cluster(cluster.name)
        return self._operation(cluster, "DELETE_CLUSTER", cluster.until, subject=f"cluster/{cluster.name}")

    # Pools

    def _pool_of(self, cluster: SimCluster, body: dict[str, Any]) -> SimPool:
        config = body["config"]
        zones = body.get("locations") or cluster.body["locations"]
        taints = list(config.get("taints", []))
        others = any(not p.body["config"].get("accelerators") for p in cluster.pools.values())
        same = any(t["key"] == GPU_TAINT["key"] and _effect(t) == GPU_TAINT["effect"] for t in taints)
        if config.get("accelerators") and others and not same:
            taints.append(dict(GPU_TAINT))
        return SimPool(
            name=body["name"],
            id="",
            labels=dict(config.get("labels", {})),
            taints=taints,
            machine=config["machineType"],
            size=body.get("initialNodeCount", 0) * len(zones),
            zones=list(zones),
            tags=dict(config.get("resourceLabels", {})),
            body={**body, "locations": list(zones), "config": {**config, "labels": {}, "taints": []}},
        )

    def _create_pool(self, call: Call) -> Reply:
        cluster, body = self._find(call), call.json["nodePool"]
        if cluster is None:
            return _absent(call)
        if body["name"] in cluster.pools:
            return _error(409, "ALREADY_EXISTS", f"Already exists: node pool {body['name']}.")
        if busy := self._busy(cluster):
            return busy
        pool = self.state.add_pool(cluster.name, self._pool_of(cluster, body))
        return self._operation(cluster, "CREATE_NODE_POOL", pool.until, subject=_subject(cluster, pool))

    def _pool(self, call: Call, cluster: SimCluster, pool: SimPool) -> dict[str, Any]:
        shown = {
            **pool.body,
            "config": {**pool.body["config"], "labels": pool.labels, "taints": pool.taints},
            "status": _PHASES.get(pool.phase, "RUNNING_WITH_ERROR"),
            "version": cluster.version,
            "etag": str(pool.revision),
        }
        if pool.phase not in ("creating", "deleting"):
            root = f"{call.base}/compute/v1/projects/{cluster.body['project']}/zones"
            groups = [f"{root}/{zone}/instanceGroupManagers/gke-{pool.id}-{i}" for i, zone in enumerate(pool.zones)]
            shown["instanceGroupUrls"] = groups
        if pool.failure:
            code, text = _WORDS[pool.failure]
            shown["conditions"] = [{"code": code, "message": text.format(pool.machine)}]
        return shown

    def _target(self, call: Call) -> tuple[SimCluster, SimPool] | Reply:
        """The pool that a mutation is for, or why it may not run now."""
        cluster = self._find(call)
        pool = cluster.pools.get(call.parts["n"]) if cluster else None
        if cluster is None or pool is None:
            return _absent(call)
        return self._busy(cluster) or (cluster, pool)

    def _get_pool(self, call: Call) -> Reply:
        cluster = self._find(call)
        pool = cluster.pools.get(call.parts["n"]) if cluster else None
        return Reply(200, self._pool(call, cluster, pool)) if cluster and pool else _absent(call)

    def _update_pool(self, call: Call) -> Reply:
        target, body = self._target(call), call.json
        if isinstance(target, Reply):
            return target
        cluster, pool = target
        if "labels" in body and "taints" in body:
            return _error(400, "INVALID_ARGUMENT", "Only one of labels and taints can be updated at a time.")
        labels = body["labels"].get("labels", {}) if "labels" in body else None
        taints = body["taints"].get("taints", []) if "taints" in body else None
        self.state.change_pool(cluster.name, pool.name, labels=labels, taints=taints)
        return self._operation(cluster, "UPDATE_CLUSTER", pool.until, subject=_subject(cluster, pool))

    def _set_size(self, call: Call) -> Reply:
        target = self._target(call)
        if isinstance(target, Reply):
            return target
        cluster, pool = target
        # A count of zero goes out as an empty body.
        self.state.change_pool(cluster.name, pool.name, size=call.json.get("nodeCount", 0) * len(pool.zones))
        return self._operation(cluster, "SET_NODE_POOL_SIZE", pool.until, subject=_subject(cluster, pool))

    def _set_autoscaling(self, call: Call) -> Reply:
        target = self._target(call)
        if isinstance(target, Reply):
            return target
        cluster, pool = target
        pool.body["autoscaling"] = call.json.get("autoscaling", {})
        self.state.change_pool(cluster.name, pool.name)
        return self._operation(cluster, "UPDATE_CLUSTER", pool.until, subject=_subject(cluster, pool))

    def _delete_pool(self, call: Call) -> Reply:
        target = self._target(call)
        if isinstance(target, Reply):
            return target
        cluster, pool = target
        self.state.remove_pool(cluster.name, pool.name)
        return self._operation(cluster, "DELETE_NODE_POOL", pool.until, subject=_subject(cluster, pool))

    # Operations

    def _operation(self, cluster: SimCluster, kind: str, until: float, *, subject: str) -> Reply:
        operations = self.state.extra.setdefault("operations", {})
        name = f"operation-{self.state.new_id()}"
        operations[name] = {"cluster": cluster.name, "kind": kind, "until": until}
        for old in list(operations)[:-_KEEP_OPERATIONS]:
            del operations[old]
        self.state.save()
        return Reply(200, self._shown(name), subject=subject)

    def _shown(self, name: str) -> dict[str, Any]:
        operation = self.state.extra["operations"][name]
        done = self.state.clock() >= operation["until"]
        return {
            "name": name,
            "operationType": operation["kind"],
            "status": "DONE" if done else "RUNNING",
            "targetLink": f"https://container.googleapis.com/v1/projects/lab/clusters/{operation['cluster']}",
        }

    def _operations(self, call: Call) -> Reply:
        del call
        return Reply(200, {"operations": [self._shown(name) for name in self.state.extra.get("operations", {})]})

    def _busy(self, cluster: SimCluster) -> Reply | None:
        for name, operation in self.state.extra.get("operations", {}).items():
            if operation["cluster"] == cluster.name and self.state.clock() < operation["until"]:
                return _error(400, "FAILED_PRECONDITION", f"Cluster is running incompatible operation {name}.")
        return None

    # Offers and Compute Engine

    def _server_config(self, call: Call) -> Reply:
        del call
        return Reply(200, {"validMasterVersions": list(VERSIONS), "defaultClusterVersion": VERSIONS[2]})

    def _instance_group(self, call: Call) -> Reply:
        _, identifier, index = call.parts["i"].split("-")
        pools = (p for c in self.state.clusters() for p in c.pools.values())
        pool = next((p for p in pools if p.id == identifier), None)
        if pool is None:
            return _error(404, "NOT_FOUND", "no such instance group manager")
        want, have = (_share(n, int(index), len(pool.zones)) for n in (pool.size, pool.joined))
        return Reply(200, {"targetSize": want, "currentActions": {"none": have, "creating": max(0, want - have)}})

    def _machine_types(self, call: Call) -> Reply:
        names = [word for word in call.query.get("filter", "").replace(")", " ").split() if "-" in word]
        items = []
        for name in names:
            machine = gcp_type(name.strip('"'))
            if machine is None:
                continue
            item: dict[str, Any] = {"name": name.strip('"'), "guestCpus": machine.vcpus, "memoryMb": machine.memory_mib}
            if machine.gpus:
                item["accelerators"] = [
                    {"guestAcceleratorType": machine.gpu_type, "guestAcceleratorCount": machine.gpus}
                ]
            items.append(item)
        places = sorted({zone for c in self.state.clusters() for zone in c.body["locations"]})
        return Reply(200, {"items": {f"zones/{zone}": {"machineTypes": items} for zone in places or ["lab-a"]}})


def _share(total: int, index: int, zones: int) -> int:
    """How many of `total` lie in the zone at `index`, dealt out in turn."""
    return total // zones + (1 if index < total % zones else 0)


def _effect(taint: dict[str, Any]) -> int:
    return _NAMES.get(taint["effect"], taint["effect"])


def _subject(cluster: SimCluster, pool: SimPool) -> str:
    return f"pool/{cluster.name}/{pool.true_name}"


def _error(code: int, status: str, message: str) -> Reply:
    return Reply(code, {"error": {"code": code, "message": message, "status": status}})


def _absent(call: Call) -> Reply:
    return _error(404, "NOT_FOUND", f"Not found: {call.path}.")
