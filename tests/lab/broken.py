"""Charts that no longer do what their declaration says: one mutation of the description for each way to go wrong.

Each is for `write_chart(component, folder, mutate=...)`; `name` is the workload's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

Plan = dict[str, Any]
Mutation = Callable[[Plan], Plan]


def _fixed(name: str, part: str, value: Any) -> Mutation:
    """The part is `value` whatever the values say."""

    def mutated(plan: Plan) -> Plan:
        result = copy.deepcopy(plan)
        for workload in result["workloads"]:
            if workload["name"] == name:
                knob = {"path": [], "default": value, "fixed": [] if part == "affinity" else None}
                workload[part] |= knob
        return result

    return mutated


def no_toleration(name: str) -> Mutation:
    return _fixed(name, "tolerations", [])


def wrong_value(name: str, key: str, value: str) -> Mutation:
    """Tolerates the key with another value than the taint's."""
    return _fixed(name, "tolerations", [{"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}])


def keyless(name: str) -> Mutation:
    return _fixed(name, "tolerations", [{"operator": "Exists"}])


def widened(name: str, *keys: str) -> Mutation:
    """Tolerates more keys than it needs."""
    return _fixed(name, "tolerations", [{"key": k, "operator": "Exists", "effect": "NoSchedule"} for k in keys])


def lost_selector(name: str) -> Mutation:
    def mutated(plan: Plan) -> Plan:
        return _fixed(name, "affinity", {})(_fixed(name, "node_selector", {})(plan))

    return mutated


def extra_daemon(name: str, labels: dict[str, str] | None = None) -> Mutation:
    """A second DaemonSet beside `name` that nothing declares, on every node with `labels` and no taint."""

    def mutated(plan: Plan) -> Plan:
        result = copy.deepcopy(plan)
        model = next(w for w in result["workloads"] if w["name"] == name)
        extra = copy.deepcopy(model) | {"name": "undeclared", "annotations": {}, "ports": [], "host_network": False}
        extra["selector"] = extra["labels"] = {"app": "undeclared"}
        bare = {"path": [], "fixed": None, "default": None}
        extra["tolerations"] |= bare
        extra["affinity"] |= bare | {"fixed": []}
        extra["node_selector"] |= bare | {"default": labels or {}}
        result["workloads"].append(extra)
        return result

    return mutated
