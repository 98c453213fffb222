"""The Table form of lists, which `kubectl get` prints: columns a kind, cells an object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from resources.lab.api import jsonpath
from resources.lab.api.schema import Json
from resources.lab.api.table import Resource

Obj = Mapping[str, Any]
Cells = Callable[[Obj], list[Any]]


def age(stamp: str | None) -> str:
    """As kubectl prints a duration: 45s, 5m, 3h20m, 4d."""
    if not stamp:
        return "<unknown>"
    then = datetime.fromisoformat(stamp)
    return duration(int((datetime.now(UTC) - then).total_seconds()))


def duration(seconds: int) -> str:
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 0:
        return "0s"
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    return f"{days}d" if days < 365 * 2 else f"{days // 365}y{days % 365}d"


def _age(obj: Obj) -> str:
    return age(obj["metadata"].get("creationTimestamp"))


def _name(obj: Obj) -> str:
    return str(obj["metadata"]["name"])


def _at(obj: Obj, path: str, default: Json = "") -> Json:
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return default if value is None else value


def _join(pairs: Obj | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((pairs or {}).items())) or "<none>"


def _selector(obj: Obj) -> str:
    return _join(_at(obj, "spec.selector.matchLabels", {}))


def _containers(obj: Obj, path: str = "spec.template.spec.containers") -> tuple[str, str]:
    found = _at(obj, path, [])
    return ",".join(c.get("name", "") for c in found), ",".join(c.get("image", "") for c in found)


def _node(obj: Obj) -> list[Any]:
    conditions = {c["type"]: c["status"] for c in _at(obj, "status.conditions", [])}
    status = {"True": "Ready"}.get(conditions.get("Ready", ""), "NotReady" if "Ready" in conditions else "Unknown")
    if _at(obj, "spec.unschedulable"):
        status += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    labels = obj["metadata"].get("labels") or {}
    roles = {key.removeprefix(prefix) for key in labels if key.startswith(prefix)} - {""}
    addresses = {a["type"]: a["address"] for a in _at(obj, "status.addresses", [])}
    info = _at(obj, "status.nodeInfo", {})
    return [
        _name(obj),
        status,
        ",".join(sorted(roles)) or "<none>",
        _age(obj),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", "<none>"),
        addresses.get("ExternalIP", "<none>"),
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _pod_status(obj: Obj) -> str:
    reason = _at(obj, "status.reason") or _at(obj, "status.phase", "Unknown")
    for state in (s.get("state") or {} for s in _at(obj, "status.containerStatuses", [])):
        for name in ("waiting", "terminated"):
            if (state.get(name) or {}).get("reason"):
                reason = state[name]["reason"]
    if obj["metadata"].get("deletionTimestamp"):
        return "Unknown" if _at(obj, "status.reason") == "NodeLost" else "Terminating"
    return str(reason)


def _pod(obj: Obj) -> list[Any]:
    statuses = _at(obj, "status.containerStatuses", [])
    total = len(_at(obj, "spec.containers", []))
    gates = _at(obj, "spec.readinessGates", [])
    return [
        _name(obj),
        f"{sum(bool(s.get('ready')) for s in statuses)}/{total}",
        _pod_status(obj),
        str(sum(s.get("restartCount", 0) for s in statuses)),
        _age(obj),
        _at(obj, "status.podIP", "<none>") or "<none>",
        _at(obj, "spec.nodeName", "<none>") or "<none>",
        _at(obj, "status.nominatedNodeName", "<none>") or "<none>",
        f"0/{len(gates)}" if gates else "<none>",
    ]


def _daemon_set(obj: Obj) -> list[Any]:
    status = _at(obj, "status", {})
    counts = [
        status.get(name, 0)
        for name in (
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "numberReady",
            "updatedNumberScheduled",
            "numberAvailable",
        )
    ]
    node_selector = _join(_at(obj, "spec.template.spec.nodeSelector", {}))
    return [_name(obj), *counts, node_selector, _age(obj), *_containers(obj), _selector(obj)]


def _deployment(obj: Obj) -> list[Any]:
    ready, wanted = _at(obj, "status.readyReplicas", 0), _at(obj, "spec.replicas", 1)
    counts = [_at(obj, "status.updatedReplicas", 0), _at(obj, "status.availableReplicas", 0)]
    return [_name(obj), f"{ready}/{wanted}", *counts, _age(obj), *_containers(obj), _selector(obj)]


def _replica_set(obj: Obj) -> list[Any]:
    counts = [_at(obj, "spec.replicas", 1), _at(obj, "status.replicas", 0), _at(obj, "status.readyReplicas", 0)]
    return [_name(obj), *counts, _age(obj), *_containers(obj), _selector(obj)]


def _stateful_set(obj: Obj) -> list[Any]:
    ready = f"{_at(obj, 'status.readyReplicas', 0)}/{_at(obj, 'spec.replicas', 1)}"
    return [_name(obj), ready, _age(obj), *_containers(obj)]


def _job(obj: Obj) -> list[Any]:
    done = f"{_at(obj, 'status.succeeded', 0)}/{_at(obj, 'spec.completions', 1)}"
    conditions = {c["type"] for c in _at(obj, "status.conditions", []) if c.get("status") == "True"}
    status = "Complete" if "Complete" in conditions else "Failed" if "Failed" in conditions else "Running"
    start, end = _at(obj, "status.startTime"), _at(obj, "status.completionTime")
    took = ""
    if start:
        until = datetime.fromisoformat(end) if end else datetime.now(UTC)
        took = duration(int((until - datetime.fromisoformat(start)).total_seconds()))
    return [_name(obj), status, done, took, _age(obj), *_containers(obj), _selector(obj)]


def _service(obj: Obj) -> list[Any]:
    ports = [f"{p.get('port')}/{p.get('protocol', 'TCP')}" for p in _at(obj, "spec.ports", [])]
    kind, address = _at(obj, "spec.type", "ClusterIP"), _at(obj, "spec.clusterIP", "<none>")
    external = "<pending>" if kind == "LoadBalancer" else "<none>"
    ingress = [i.get("ip") or i.get("hostname", "") for i in _at(obj, "status.loadBalancer.ingress", [])]
    return [
        _name(obj),
        kind,
        address,
        ",".join(ingress) or external,
        ",".join(ports) or "<none>",
        _age(obj),
        _join(_at(obj, "spec.selector", {})),
    ]


def _slice(obj: Obj) -> list[Any]:
    spec = obj["spec"]
    node = spec.get("nodeName") or ("<all>" if spec.get("allNodes") else "<unset>")
    return [_name(obj), node, spec.get("driver", ""), _at(spec, "pool.name"), _age(obj)]


def _claim(obj: Obj) -> list[Any]:
    states = []
    if "deletionTimestamp" in obj["metadata"]:
        states.append("deleted")
    states.append("allocated" if _at(obj, "status.allocation", None) else "pending")
    if _at(obj, "status.reservedFor", []):
        states.append("reserved")
    return [_name(obj), ",".join(states), _age(obj)]


def _event(obj: Obj) -> list[Any]:
    about = obj.get("involvedObject") or {}
    where = f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"
    last = obj.get("lastTimestamp") or obj.get("eventTime") or obj["metadata"].get("creationTimestamp")
    message = str(obj.get("message", "")).strip()
    source = _at(obj, "source.component") or obj.get("reportingComponent", "")
    first = obj.get("firstTimestamp") or last
    count = obj.get("count", 1)
    return [
        age(last),
        obj.get("type", ""),
        obj.get("reason", ""),
        where,
        "",
        source,
        message,
        age(first),
        count,
        _name(obj),
    ]


def _crd(obj: Obj) -> list[Any]:
    return [_name(obj), obj["metadata"].get("creationTimestamp", "")]


def _data(obj: Obj) -> list[Any]:
    return [_name(obj), len(obj.get("data") or {}) + len(obj.get("binaryData") or {}), _age(obj)]


def _secret(obj: Obj) -> list[Any]:
    return [_name(obj), obj.get("type", "Opaque"), len(obj.get("data") or {}), _age(obj)]


def _namespace(obj: Obj) -> list[Any]:
    return [_name(obj), _at(obj, "status.phase", "Active"), _age(obj)]


def _lease(obj: Obj) -> list[Any]:
    return [_name(obj), _at(obj, "spec.holderIdentity"), _age(obj)]


def _priority(obj: Obj) -> list[Any]:
    default = str(bool(obj.get("globalDefault"))).lower()
    return [_name(obj), obj.get("value", 0), default, _age(obj), obj.get("preemptionPolicy", "")]


def _account(obj: Obj) -> list[Any]:
    return [_name(obj), len(obj.get("secrets") or ()), _age(obj)]


# Column heads; a leading "-" marks those that only -o wide shows.
_KINDS: Mapping[tuple[str, str], tuple[str, Cells]] = {
    ("", "configmaps"): ("Name Data Age", _data),
    ("", "events"): (
        "Last_Seen Type Reason Object -Subobject -Source Message -First_Seen -Count -Name",
        _event,
    ),
    ("", "namespaces"): ("Name Status Age", _namespace),
    ("", "nodes"): (
        "Name Status Roles Age Version -Internal-IP -External-IP -OS-Image -Kernel-Version -Container-Runtime",
        _node,
    ),
    ("", "pods"): ("Name Ready Status Restarts Age -IP -Node -Nominated_Node -Readiness_Gates", _pod),
    ("", "secrets"): ("Name Type Data Age", _secret),
    ("", "serviceaccounts"): ("Name Secrets Age", _account),
    ("", "services"): ("Name Type Cluster-IP External-IP Port(s) Age -Selector", _service),
    ("apiextensions.k8s.io", "customresourcedefinitions"): ("Name Created_At", _crd),
    ("apps", "daemonsets"): (
        "Name Desired Current Ready Up-to-date Available Node_Selector Age -Containers -Images -Selector",
        _daemon_set,
    ),
    ("apps", "deployments"): ("Name Ready Up-to-date Available Age -Containers -Images -Selector", _deployment),
    ("apps", "replicasets"): ("Name Desired Current Ready Age -Containers -Images -Selector", _replica_set),
    ("apps", "statefulsets"): ("Name Ready Age -Containers -Images", _stateful_set),
    ("batch", "jobs"): ("Name Status Completions Duration Age -Containers -Images -Selector", _job),
    ("coordination.k8s.io", "leases"): ("Name Holder Age", _lease),
    ("resource.k8s.io", "resourceclaims"): ("Name State Age", _claim),
    ("resource.k8s.io", "resourceslices"): ("Name Node Driver Pool Age", _slice),
    ("scheduling.k8s.io", "priorityclasses"): ("Name Value Global-Default Age -PreemptionPolicy", _priority),
}


def _plain(obj: Obj) -> list[Any]:
    return [_name(obj), _age(obj)]


def _column(head: str) -> dict[str, Any]:
    wide = head.startswith("-")
    name = head.removeprefix("-").replace("_", " ")
    form = {"Name": "name"}.get(name, "")
    number = {"Desired", "Current", "Ready", "Up-to-date", "Available", "Data"}
    kind = "integer" if name in number and not wide else "string"
    return {"name": name, "type": kind, "format": form, "description": name, "priority": int(wide)}


def _custom(resource: Resource) -> tuple[list[dict[str, Any]], Cells]:
    columns = [_column("Name")]
    for extra in resource.columns:
        column = {"name": extra["name"], "type": extra["type"], "format": extra.get("format", "")}
        columns.append({**column, "description": extra.get("description", ""), "priority": extra.get("priority", 0)})

    def cells(obj: Obj) -> list[Any]:
        out: list[Any] = [_name(obj)]
        for extra in resource.columns:
            found = jsonpath.find(obj, extra["jsonPath"])
            value = found[0] if len(found) == 1 else ",".join(str(v) for v in found) or None
            out.append(age(value) if extra["type"] == "date" and value else value)
        return out

    return columns, cells


def columns_of(resource: Resource) -> tuple[list[dict[str, Any]], Cells]:
    if resource.custom and resource.columns:
        return _custom(resource)
    heads, cells = _KINDS.get(resource.key, ("Name Age", _plain))
    columns = [_column(head) for head in heads.split()]
    if resource.key == ("", "pods"):
        columns[1]["type"] = "string"
    if resource.key in {("apps", "deployments"), ("apps", "statefulsets")}:
        columns[1]["type"] = "string"
    return columns, cells


def partial(obj: Obj) -> dict[str, Any]:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def render(
    resource: Resource, objs: Iterable[Obj], metadata: dict[str, Any], *, include: str = "Metadata", heads: bool = True
) -> dict[str, Any]:
    """A Table of the objects. `include` says what each row carries beside its cells: Metadata, Object or None."""
    columns, cells = columns_of(resource)
    rows = []
    for obj in objs:
        row: dict[str, Any] = {"cells": cells(obj)}
        if include != "None":
            row["object"] = obj if include == "Object" else partial(obj)
        rows.append(row)
    out: dict[str, Any] = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
    out["columnDefinitions"] = columns if heads else []
    out["rows"] = rows
    return out
