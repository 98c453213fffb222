"""Where an imported component's pods go once it is joined: as the shipped component of its key says.

A bundle knows no pools. It names the taint key of a component's tag for each of its pods, node daemons and controllers
alike, and confines its daemons by hardware labels alone. A controller needs one node, and with that key it could land on
a pool that it serves nothing on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.components.effective import MISSING, at, values_path
from modelplane_dagster.components.types import Component, DeclaredWorkload, Json, Values
from modelplane_dagster.drivers import DRIVER_TAINT_KEYS


def placed(values: Values, ours: Component | None, view: ClusterView) -> Values:
    """`values` with what the shipped component sets of its workloads' selectors, affinity and tolerations on this cluster,
    and without the pools' taint keys in the tolerations of its controllers. Unchanged where nothing is shipped."""
    if ours is None:
        return values
    given = ours.values(view) if ours.values else {}
    for path in placement_paths(ours):
        value = at(given, path)
        if value is not MISSING:
            _put(values, path, value)
    for path, _ in controller_paths(ours):
        value = at(values, path)
        if isinstance(value, list):
            _put(values, path, [t for t in value if t.get("key") not in DRIVER_TAINT_KEYS])
    return values


def taken(values: Values, ours: Component) -> Iterator[tuple[str, DeclaredWorkload, tuple[str, ...]]]:
    """The tolerations of controllers that `placed` takes keys out of: path, first workload, the keys."""
    for path, workload in controller_paths(ours):
        value = at(values, path)
        keys = sorted({t["key"] for t in value if t.get("key") in DRIVER_TAINT_KEYS}) if isinstance(value, list) else []
        if keys:
            yield path, workload, tuple(keys)


def placement_paths(component: Component) -> tuple[str, ...]:
    """The paths of values that say where a declared workload goes, each once."""
    return tuple(dict.fromkeys(path for w in component.workloads for path in _paths(w)))


def controller_paths(component: Component) -> Iterator[tuple[str, DeclaredWorkload]]:
    """The paths of tolerations that none but controllers and hooks take, with the first of them."""
    daemons = {values_path(w, w.tolerations.path) for w in component.workloads if w.reach and w.tolerations.path}
    seen: set[str] = set()
    for workload in component.workloads:
        path = values_path(workload, workload.tolerations.path) if workload.tolerations.path else ""
        if path and path not in daemons | seen and workload.reach is None:
            seen.add(path)
            yield path, workload


def _paths(workload: DeclaredWorkload) -> Iterator[str]:
    for knob in (workload.node_selector, workload.affinity, workload.tolerations):
        if knob.path:
            yield values_path(workload, knob.path)


def _put(values: Values, path: str, value: Json) -> None:
    *above, last = path.split(".")
    node: dict[str, Any] = values
    for part in above:
        if not isinstance(node.get(part), dict):
            node[part] = {}
        node = node[part]
    node[last] = value
