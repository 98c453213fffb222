"""A simulated Vultr: VKE over REST v2, mounted at `/clouds/vultr`.

Its traps: labels may repeat, nothing is idempotent, lists come in pages, labels of a pool are rows with ids, a sold-out
plan is a bad request, and errors have text but no code.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from resources.lab.clouds.kubeconfigs import kubeconfig_text
from resources.lab.clouds.state import CloudState, Fault, SimCluster, SimNode, SimPool, plain_dress
from resources.lab.clouds.wire import Call, Reply, Wire

ACCOUNT = "lab@vultr.invalid"
VERSIONS = ("v1.34.2+1", "v1.36.1+3", "v1.36.2+1", "v1.35.4+2")
REGIONS = ("ewr", "fra", "ord", "sgp")
NODE_POOL = "vke.vultr.com/node-pool"
_PAGE = 100
_PHASES = {
    "creating": "pending",
    "ready": "active",
    "updating": "active",
    "failed": "pending",
    "deleting": "deleting",
}
# id: vCPUs, RAM in MB, GPU type, GPU memory in GB.
PLANS: Mapping[str, tuple[int, int, str, int]] = {
    "vc2-4c-8gb": (4, 8192, "", 0),
    "vc2-6c-16gb": (6, 16384, "", 0),
    "vhf-4c-16gb": (4, 16384, "", 0),
    "vhf-8c-32gb": (8, 32768, "", 0),
    "vcg-a16-6c-64g-16vram": (6, 65536, "NVIDIA_A16", 16),
    "vcg-a40-12c-60g-24vram": (12, 61440, "NVIDIA_A40", 24),
    "vcg-a100-12c-120g-80vram": (12, 122880, "NVIDIA_A100", 80),
    "vcg-l40s-16c-180g-48vram": (16, 184320, "NVIDIA_L40S", 48),
    "vcg-b200-248c-2826g-1536vram": (248, 2893824, "NVIDIA_B200", 1536),
}
_CLUSTER = r"/v2/kubernetes/clusters/(?P<cluster>[^/]+)"
_POOL = _CLUSTER + r"/node-pools/(?P<pool>[^/]+)"


def dress(cluster: SimCluster, pool: SimPool, index: int) -> SimNode:
    """A node with its pool's name as the cloud labels it."""
    node = plain_dress(cluster, pool, index)
    return replace(node, labels={**node.labels, NODE_POOL: pool.body.get("label", pool.name)})


def _error(status: int, text: str) -> Reply:
    return Reply(status, {"error": text, "status": status})


class VultrSim(Wire):
    """The ASGI app. Any bearer passes, unless `api_key` is set."""

    def __init__(self, state: CloudState, *, api_key: str = "") -> None:
        super().__init__(
            state,
            throttled=lambda: Reply(429, {"error": "Rate limit exceeded", "status": 429}, {"Retry-After": "0"}),
            missing=lambda _call: _error(404, "Invalid API path"),
        )
        self.api_key = api_key
        # The plan that a create under a capacity fault asked for, by the fault's subject.
        self._refused: dict[str, str] = {}
        self._reads()
        self._writes()

    def _reads(self) -> None:
        add = self._add
        add("GET", "/v2/account", "account", lambda _c: Reply(200, {"account": {"name": "Lab", "email": ACCOUNT}}))
        add("GET", "/v2/kubernetes/versions", "versions", lambda _c: Reply(200, {"versions": list(VERSIONS)}))
        add("GET", "/v2/plans", "plans", self._plans)
        add("GET", r"/v2/regions/(?P<region>[^/]+)/availability", "availability", self._availability)
        add("GET", "/v2/kubernetes/clusters", "clusters", self._clusters)
        add("GET", _CLUSTER, "cluster", lambda c: Reply(200, {"vke_cluster": self._show(self._cluster(c))}))
        add("GET", _CLUSTER + "/config", "config", self._config)
        add("GET", _CLUSTER + "/node-pools", "pools", self._pools)
        add("GET", _POOL, "pool", lambda c: Reply(200, {"node_pool": _show_pool(self._pool(c))}))
        add("GET", _POOL + "/labels", "labels", lambda c: Reply(200, {"labels": _label_rows(self._pool(c))}))
        add("GET", _POOL + "/taints", "taints", lambda c: Reply(200, {"taints": _taint_rows(self._pool(c))}))

    def _writes(self) -> None:
        add = self._add
        add("POST", "/v2/kubernetes/clusters", "create-cluster", self._create_cluster)
        add("DELETE", _CLUSTER, "delete-cluster", self._delete_cluster)
        add("POST", _CLUSTER + "/node-pools", "create-pool", self._create_pool)
        add("PATCH", _POOL, "update-pool", self._patch_pool)
        add("DELETE", _POOL, "delete-pool", self._delete_pool)
        add("POST", _POOL + "/labels", "add-label", self._add_label)
        add("DELETE", _POOL + r"/labels/(?P<row>[^/]+)", "remove-label", self._remove_label)
        add("POST", _POOL + "/taints", "add-taint", self._add_taint)
        add("DELETE", _POOL + r"/taints/(?P<row>[^/]+)", "remove-taint", self._remove_taint)

    def _add(self, method: str, pattern: str, meaning: str, run: Any) -> None:  # noqa: ANN401 - a lambda or a method
        def guarded(call: Call) -> Reply:
            bearer = call.headers.get("authorization", "").removeprefix("Bearer ")
            if not bearer or (self.api_key and bearer != self.api_key):
                return _error(401, "Invalid API token.")
            try:
                return run(call)
            except _Absent as absent:
                return _error(404, str(absent))

        kind = {"GET": "read", "DELETE": "delete"}.get(method, "write")
        self.route(method, pattern, kind, meaning, guarded)  # type: ignore[arg-type]  # the three kinds above

    # Reads

    def _plans(self, call: Call) -> Reply:
        rows = [
            {
                "id": name,
                "vcpu_count": cpus,
                "ram": ram,
                "disk": 320,
                "type": name.split("-")[0],
                "gpu_type": gpu,
                "gpu_vram_gb": vram,
                "locations": list(REGIONS),
            }
            for name, (cpus, ram, gpu, vram) in PLANS.items()
        ]
        return _page("plans", rows, call)

    def _availability(self, call: Call) -> Reply:
        short = {subject for subject, kind in self.state.faults() if kind is Fault.NO_CAPACITY}
        out = {plan for subject, plan in self._refused.items() if subject in short}
        if call.parts["region"] not in REGIONS:
            return _error(404, "Invalid region")
        return Reply(200, {"available_plans": sorted(PLANS.keys() - out)})

    def _clusters(self, call: Call) -> Reply:
        return _page("vke_clusters", [self._show(c) for c in self.state.clusters()], call)

    def _pools(self, call: Call) -> Reply:
        return _page("node_pools", [_show_pool(p) for p in self._cluster(call).pools.values()], call)

    def _config(self, call: Call) -> Reply:
        cluster = self._cluster(call)
        if cluster.phase == "creating":
            return _error(400, "Cluster is not active yet")
        text = kubeconfig_text(cluster.name, self.state.hooks.endpoint(cluster.name))
        return Reply(200, {"kube_config": base64.b64encode(text.encode()).decode()})

    def _cluster(self, call: Call) -> SimCluster:
        found = self.state.cluster_by_id(call.parts["cluster"])
        if found is None:
            raise _Absent("Invalid resource ID")
        return found

    def _pool(self, call: Call) -> SimPool:
        for pool in self._cluster(call).pools.values():
            if pool.id == call.parts["pool"]:
                return pool
        raise _Absent("Invalid NodePool ID")

    def _show(self, cluster: SimCluster) -> dict[str, Any]:
        return {
            **cluster.body,
            "id": cluster.id,
            "status": _PHASES[cluster.phase],
            "node_pools": [_show_pool(p) for p in cluster.pools.values()],
        }

    # Writes

    def _create_cluster(self, call: Call) -> Reply:
        body = call.json
        if body.get("region") not in REGIONS:
            return _error(400, "Invalid region")
        if body.get("version") not in VERSIONS:
            return _error(400, "Invalid version")
        if not body.get("node_pools"):
            return _error(400, "At least one node pool is required")
        key = self._free(body["label"], (c.name for c in self.state.clusters()))
        shown = {k: body[k] for k in ("label", "region", "version", "ha_controlplanes") if k in body}
        shown["date_created"] = _stamp(self.state.clock())
        cluster = self.state.add_cluster(key, version=body["version"], location=body["region"], tags={}, body=shown)
        for pool in body["node_pools"]:
            self._put_pool(cluster, pool, system=True)
        return Reply(201, {"vke_cluster": self._show(cluster)}, subject=f"cluster/{body['label']}")

    def _create_pool(self, call: Call) -> Reply:
        cluster, body = self._cluster(call), call.json
        subject = f"pool/{cluster.body['label']}/{body.get('label')}"
        if body.get("plan") not in PLANS:
            return _error(400, "Invalid plan")
        if int(body.get("node_quantity", 0)) < 1:
            return _error(400, "node_quantity must be at least 1")
        refused = self._lacking(subject, body["plan"])
        if refused is not None:
            return refused
        pool = self._put_pool(cluster, body, system=False)
        return Reply(201, {"node_pool": _show_pool(pool)}, subject=subject)

    def _lacking(self, subject: str, plan: str) -> Reply | None:
        if self.state.has_fault(subject, Fault.NO_CAPACITY):
            self._refused[subject] = plan
            return _error(400, "Selected plan is not available in the selected region")
        if self.state.has_fault(subject, Fault.QUOTA):
            return _error(400, "You have reached the maximum monthly fee limit for this account.")
        return None

    def _put_pool(self, cluster: SimCluster, body: Mapping[str, Any], *, system: bool) -> SimPool:
        labels = {str(k): str(v) for k, v in (body.get("labels") or {}).items()}
        taints = [dict(t) for t in body.get("taints") or ()]
        shown = {k: body[k] for k in ("label", "tag", "plan", "auto_scaler", "min_nodes", "max_nodes") if k in body}
        shown["date_created"] = _stamp(self.state.clock())
        pool = SimPool(
            name=self._free(body["label"], cluster.pools),
            id="",
            labels=labels,
            taints=taints,
            machine=body["plan"],
            size=int(body["node_quantity"]),
            zones=[],
            tags={"tag": body.get("tag", "")},
            body=shown,
            system=system,
        )
        return self.state.add_pool(cluster.name, pool)

    def _patch_pool(self, call: Call) -> Reply:
        pool, body = self._pool(call), call.json
        if int(body.get("node_quantity") or 0) > pool.size:
            refused = self._lacking(f"pool/{self._cluster(call).body['label']}/{pool.body['label']}", pool.machine)
            if refused is not None:
                return refused
        for key in ("tag", "auto_scaler", "min_nodes", "max_nodes"):
            if key in body:
                pool.body[key] = body[key]
        self._change(call, pool, size=body.get("node_quantity"))
        return Reply(202, {"node_pool": _show_pool(pool)})

    def _delete_pool(self, call: Call) -> Reply:
        cluster, pool = self._cluster(call), self._pool(call)
        if pool.phase != "deleting":
            self.state.remove_pool(cluster.name, pool.name)
        return Reply(204)

    def _delete_cluster(self, call: Call) -> Reply:
        cluster = self._cluster(call)
        if cluster.phase != "deleting":
            self.state.remove_cluster(cluster.name)
        return Reply(204)

    def _add_label(self, call: Call) -> Reply:
        pool, body = self._pool(call), call.json
        if body["key"] in pool.labels:
            return _error(400, "Label key already exists")
        self._change(call, pool, labels={**pool.labels, body["key"]: body["value"]})
        return Reply(201, {"label": _label_rows(pool)[-1]})

    def _remove_label(self, call: Call) -> Reply:
        pool = self._pool(call)
        gone = self._row(call, _label_rows(pool))
        self._change(call, pool, labels={k: v for k, v in pool.labels.items() if k != gone["key"]})
        return Reply(204)

    def _add_taint(self, call: Call) -> Reply:
        pool, body = self._pool(call), call.json
        if body.get("effect") not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
            return _error(400, "Invalid taint effect")
        self._change(call, pool, taints=[*pool.taints, body])
        return Reply(201, {"taint": _taint_rows(pool)[-1]})

    def _remove_taint(self, call: Call) -> Reply:
        pool = self._pool(call)
        gone = self._row(call, _taint_rows(pool))
        left = [t for t in pool.taints if (t["key"], t["effect"]) != (gone["key"], gone["effect"])]
        self._change(call, pool, taints=left)
        return Reply(204)

    def _row(self, call: Call, rows: list[dict[str, Any]]) -> dict[str, Any]:
        for row in rows:
            if row["id"] == call.parts["row"]:
                return row
        raise _Absent("Invalid resource ID")

    def _change(self, call: Call, pool: SimPool, **changes: Any) -> None:  # noqa: ANN401 - change_pool's own keywords
        self.state.change_pool(self._cluster(call).name, pool.name, **changes)

    def _free(self, label: str, taken: Any) -> str:  # noqa: ANN401 - any iterable of names
        """The state needs one key each; a repeated label gets a suffix that no label can have."""
        return label if label not in set(taken) else f"{label}~{self.state.new_id()}"


class _Absent(Exception):
    """What the path names isn't there; the text is Vultr's."""


def _show_pool(pool: SimPool) -> dict[str, Any]:
    shown = dict(pool.body)
    shown.setdefault("auto_scaler", False)
    shown.setdefault("min_nodes", pool.size)
    shown.setdefault("max_nodes", pool.size)
    return {
        **shown,
        "id": pool.id,
        "status": _PHASES[pool.phase],
        "node_quantity": pool.size,
        "labels": pool.labels,
        "taints": pool.taints,
        "nodes": [
            {"id": f"{pool.id}-{i}", "label": f"{pool.name}-{i}", "status": "active" if i < pool.joined else "pending"}
            for i in range(max(pool.size, pool.joined))
        ],
    }


def _label_rows(pool: SimPool) -> list[dict[str, Any]]:
    """A label's row has an id of its own, which follows from the key here."""
    return [{"id": f"{pool.id}-{k.encode().hex()}", "key": k, "value": v} for k, v in pool.labels.items()]


def _taint_rows(pool: SimPool) -> list[dict[str, Any]]:
    return [{"id": f"{pool.id}-{t['key'].encode().hex()}-{t['effect']}", **t} for t in pool.taints]


def _page(key: str, rows: list[dict[str, Any]], call: Call) -> Reply:
    """One page. The cursor is opaque to callers; here it holds the next row's place."""
    size = min(int(call.query.get("per_page", _PAGE)), 500)
    cursor = call.query.get("cursor", "")
    start = int(base64.urlsafe_b64decode(cursor).decode()) if cursor else 0
    end = start + size
    following = base64.urlsafe_b64encode(str(end).encode()).decode() if end < len(rows) else ""
    return Reply(200, {key: rows[start:end], "meta": {"total": len(rows), "links": {"next": following, "prev": ""}}})


def _stamp(seconds: float) -> str:
    """Sortable, as the API's ISO dates are; with a fraction, so that order holds within a second."""
    return f"{seconds:020.6f}"
