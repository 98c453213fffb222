"""The parts of a component's values that follow from a cluster's pools: their names, their affinity, their tolerations.

All of them keep what the component's live release names already (`ClusterView.kept_pools`, `kept_taints`): taking a
pool out of such a list removes the daemon from its nodes at once, and labels, plugin and slices follow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from modelplane_dagster.cluster import ClusterView, PoolView
from modelplane_dagster.components.types import Json
from modelplane_dagster.drivers import DRIVERS, POOL_LABEL

Entry = dict[str, str]

CONTROL_PLANE: Entry = {"key": "node-role.kubernetes.io/control-plane", "operator": "Equal", "effect": "NoSchedule"}
MASTER: Entry = {"key": "node-role.kubernetes.io/master", "operator": "Equal", "effect": "NoSchedule"}
LINUX = {"kubernetes.io/os": "linux"}


def tolerate(key: str, effect: str = "NoSchedule") -> Entry:
    """Any value of one taint key. Never the value: clouds and people set different ones for the same taint."""
    return {"key": key, "operator": "Exists", "effect": effect}


def pools_for(view: ClusterView, *drivers: str) -> tuple[PoolView, ...]:
    """The pools whose class claims one of `drivers` that the platform team doesn't run itself."""
    return view.claiming(*view.ours(drivers))


def pool_names(view: ClusterView, pools: Iterable[PoolView]) -> list[str]:
    """Sorted, with the pools kept."""
    return sorted({p.name for p in pools} | view.kept_pools)


def pool_affinity(names: Iterable[str]) -> dict[str, Any]:
    """The required node affinity that confines a pod to the pools named. The API server refuses an empty list, so a
    component without pools must not be installed."""
    term = {"matchExpressions": [{"key": POOL_LABEL, "operator": "In", "values": sorted(names)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def taint_tolerations(view: ClusterView, pools: Iterable[PoolView]) -> list[Entry]:
    """One toleration for each taint key of the pools, and for each key kept; sorted."""
    pairs = {(t.key, t.effect) for p in pools for t in p.taints}
    pairs |= {(key, "NoSchedule") for key in view.kept_taints}
    return [tolerate(key, effect) for key, effect in sorted(pairs)]


def driver_tolerations(view: ClusterView, *drivers: str) -> list[Entry]:
    """As `taint_tolerations` for the pools that claim one of `drivers`, and for the claimed drivers' own taints even
    where a pool of the platform team's doesn't carry them yet."""
    claimed = view.ours(drivers) & view.claimed
    own = {(t.key, t.effect) for d in claimed if d in DRIVERS and (t := DRIVERS[d].taint)}
    rest = {(e["key"], e["effect"]) for e in taint_tolerations(view, pools_for(view, *drivers))}
    return [tolerate(key, effect) for key, effect in sorted(own | rest)]


def kept(values: Json) -> tuple[frozenset[str], frozenset[str]]:
    """The pools and the taint keys that a live release's values name, for `join(keep=...)`.

    Pools are read from every requirement or list on the pool label, taint keys from every list named `tolerations`.
    """
    pools: set[str] = set()
    taints: set[str] = set()
    _collect(values, pools, taints)
    return frozenset(pools), frozenset(taints)


def _collect(node: Json, pools: set[str], taints: set[str]) -> None:
    if isinstance(node, list):
        for item in node:
            _collect(item, pools, taints)
        return
    if not isinstance(node, dict):
        return
    on_pool = node.get("key") == POOL_LABEL or node.get("keys") == [POOL_LABEL]
    if on_pool and isinstance(node.get("values"), list):
        pools.update(str(name) for name in node["values"])
    for name, child in node.items():
        if name.lower().endswith("tolerations") and isinstance(child, list):
            taints.update(str(t["key"]) for t in child if isinstance(t, dict) and t.get("key"))
        _collect(child, pools, taints)
