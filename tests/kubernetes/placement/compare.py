"""Where the three decisions differ, and the smallest report that shows it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.kubernetes.placement.world import Case, Decision, Forecast, World


def differs(case: Case, decided: Decision, forecast: Forecast) -> str:
    """What is wrong with a decision by the forecast; empty where they agree."""
    if decided.refused:
        return f"an object was refused: {decided.refused}"
    if case.kind == "DaemonSet":
        more, less = sorted(decided.nodes - forecast.nodes), sorted(forecast.nodes - decided.nodes)
        return f"runs on {more} too and not on {less}" if more or less else ""
    if case.match is not None and bool(decided.nodes) != bool(case.match):
        return f"runs on {sorted(decided.nodes)}, and placement matches {sorted(case.match)}"
    if not decided.nodes:
        return f"is unschedulable, and may run on {sorted(forecast.nodes)}" if forecast.nodes else ""
    if strays := sorted(decided.nodes - forecast.nodes):
        return f"runs on {strays} and may run on {sorted(forecast.nodes)}"
    for node in decided.nodes if case.claims else ():
        if dict(decided.devices) != dict(forecast.devices[node]):
            return f"holds {dict(decided.devices)} on {node} and would hold {dict(forecast.devices[node])}"
    return ""


def report(world: World, case: Case, real: Decision, lab: Decision, plan: Forecast) -> str:
    """One case as JSON: what it takes to see it again, and the three answers."""
    support = list(case.support)
    if case.claims:
        # Another driver's incomplete pool can decide as well.
        support += [s for c in world.cases if c is not case for s in c.support if _unsound(s)]
    told: dict[str, Any] = {
        "case": case.name,
        "real": _spell(real),
        "lab": _spell(lab),
        "plan": {"nodes": sorted(plan.nodes), "devices": {k: dict(v) for k, v in plan.devices.items()}},
        "workload": case.body,
        "nodes": [{"name": n["metadata"]["name"], "labels": n["metadata"]["labels"], **n["spec"]} for n in world.nodes],
        "support": support,
    }
    return json.dumps(told, indent=1)


def _unsound(body: Mapping[str, Any]) -> bool:
    return body["kind"] == "ResourceSlice" and body["spec"]["pool"]["resourceSliceCount"] > 1


def _spell(decision: Decision) -> Mapping[str, Any]:
    return {"nodes": sorted(decision.nodes), "devices": dict(decision.devices), "refused": decision.refused}
