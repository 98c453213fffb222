"""Nebius's objects in protobuf's JSON form: what a node group says, and the whole group as an update sends it back."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from modelplane_dagster import errors
from modelplane_dagster.kube.objects import Taint
from modelplane_dagster.sources.record import EFFECT_WORDS, EFFECTS
from resources.clouds import drift
from resources.clouds.seam import CloudPool, ClusterRef, InstanceType, PoolState

Json = dict[str, Any]
FRESH = timedelta(hours=1)
"""Creation is tried again, and its event renewed, far more often than that."""


def id_of(there: Json) -> str:
    return str(there["metadata"]["id"])


def is_ours(there: Json, ref: ClusterRef) -> bool:
    return drift.is_ours(there["metadata"].get("labels"), ref)


def version_of(cluster: Json) -> str:
    running = cluster.get("status", {}).get("control_plane", {}).get("version", "")
    return str(running or cluster.get("spec", {}).get("control_plane", {}).get("version", ""))


def labels_of(spec: Json) -> dict[str, str]:
    return dict(spec.get("template", {}).get("metadata", {}).get("labels", {}))


def taints_of(spec: Json) -> tuple[Taint, ...]:
    rows = spec.get("template", {}).get("taints", ())
    return tuple(
        sorted(Taint(r["key"], r.get("value", ""), EFFECTS.get(r.get("effect", ""), "NoSchedule")) for r in rows)
    )


def pool_of(group: Json, ref: ClusterRef) -> CloudPool:
    spec, status = group.get("spec", {}), group.get("status", {})
    scaling = spec.get("autoscaling")
    target = int(status.get("target_node_count", 0))
    count = target if scaling is not None else int(spec.get("fixed_node_count", 0))
    joined = int(status.get("ready_node_count", 0))
    resources = spec.get("template", {}).get("resources", {})
    provider = {
        "id": id_of(group),
        "platform": resources.get("platform", ""),
        "preset": resources.get("preset", ""),
        "dra": bool(spec.get("template", {}).get("gpu_settings", {}).get("dra")),
        "nodesFollow": False,
    }
    return CloudPool(
        name=str(group["metadata"].get("name", "")),
        state=pool_state(status, joined, max(count, target)),
        labels=MappingProxyType(labels_of(spec)),
        taints=taints_of(spec),
        count=count,
        joined=joined,
        minimum=None if scaling is None else int(scaling.get("min_node_count", 0)),
        maximum=None if scaling is None else int(scaling.get("max_node_count", 0)),
        message=trouble(status)[1] if joined < count else "",
        ours=is_ours(group, ref),
        provider=MappingProxyType(provider),
    )


def pool_state(status: Json, joined: int, target: int) -> PoolState:
    """Nebius has no failed state: a group without nodes goes on being created for as long as it stands."""
    if status.get("state") == "DELETING":
        return "deleting"
    if joined < target and trouble(status)[1]:
        return "degraded" if joined else "creating"
    if status.get("state") != "RUNNING" or (joined < target and joined == 0):
        return "creating"
    return "ready" if joined >= target and not status.get("reconciling") else "updating"


def trouble(status: Json, *, now: datetime | None = None) -> tuple[Json, str]:
    """The newest event of level ERROR with its words; empty where there is none of the last `FRESH`.

    Nebius keeps events after what they tell of is over, so an old one says nothing about now."""
    now = now or datetime.now(UTC)
    events = [e.get("last_occurrence", {}) for e in status.get("events", ())]
    bad = [e for e in events if e.get("level") == "ERROR" and _age(e, now) < FRESH]
    if not bad:
        return {}, ""
    newest = max(bad, key=lambda e: e.get("occurred_at", ""))
    return newest, str(newest.get("message", "") or newest.get("code", ""))


def _age(event: Json, now: datetime) -> timedelta:
    """Zero where the event doesn't say when it occurred."""
    when = event.get("occurred_at")
    return now - datetime.fromisoformat(when) if when else timedelta()


def demand_same_machine(what: str, seen: Json, wanted: Mapping[str, Any]) -> None:
    """Another machine would roll the whole group, with what runs on it."""
    have, want = seen.get("template", {}).get("resources", {}), wanted["template"]["resources"]
    if have != want:
        raise errors.CloudInvalidError(
            f"Nebius: {what} runs on {have.get('platform')} {have.get('preset')}, and changing it in place would "
            f"replace its nodes; make a new pool for {want['platform']} {want['preset']}.",
            code="resources-immutable",
        )


def changed_group(group: Json, pool: CloudPool, wanted: Mapping[str, Any]) -> tuple[Json | None, list[str]]:
    """The whole group with labels, taints and size as wanted, None for no drift; and the label and taint keys."""
    labels = drift.labels_to_set(wanted["template"]["metadata"]["labels"], pool.labels)
    taints = drift.taints_to_add(taints_of(dict(wanted)), pool.taints)
    size = size_changed(group["spec"], wanted)
    if not labels and not taints and not size:
        return None, []
    new = deepcopy(group)
    template = new["spec"].setdefault("template", {})
    template.setdefault("metadata", {})["labels"] = {**pool.labels, **labels}
    rows = [{"key": t.key, "value": t.value, "effect": EFFECT_WORDS[t.effect]} for t in taints]
    template["taints"] = [*template.get("taints", ()), *rows]
    if size:
        for key in ("fixed_node_count", "autoscaling"):
            new["spec"].pop(key, None)
        new["spec"].update(size)
    return new, sorted({*labels, *(t.key for t in taints)})


def size_changed(seen: Json, wanted: Mapping[str, Any]) -> Json:
    """The wanted bounds or fixed count where they differ; the size of an autoscaled group is in neither."""
    if "autoscaling" in wanted:
        have = seen.get("autoscaling") or {}
        same = "autoscaling" in seen and all(int(have.get(k, 0)) == v for k, v in wanted["autoscaling"].items())
        return {} if same else {"autoscaling": wanted["autoscaling"]}
    same = "autoscaling" not in seen and int(seen.get("fixed_node_count", 0)) == wanted["fixed_node_count"]
    return {} if same else {"fixed_node_count": wanted["fixed_node_count"]}


def instance_type(name: str, resources: Json) -> InstanceType:
    gpus = int(resources.get("gpu_count", 0))
    memory = int(resources["memory_gibibytes"]) * 1024
    return InstanceType(name, int(resources["vcpu_count"]), memory, gpus, "nvidia" if gpus else "")
