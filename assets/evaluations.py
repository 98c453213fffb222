"""Check evaluations from observations: what was seen of a cluster, on the checks that its assets have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from assets.clusters import gate_checks
from assets.keys import claimed, cluster_key, devices_key
from assets.results import DEVICE_CHECKS, READY, check, picked

if TYPE_CHECKING:
    from modelplane_dagster.cluster_plan import ClusterPlan
    from modelplane_dagster.summary import ClusterSummary


def evaluations(plan: ClusterPlan, summary: ClusterSummary) -> list[dg.AssetCheckEvaluation]:
    """The gate's verdict, the cluster's status, and every pool's devices. `plan` is the judged one: what runs is in its
    verdict."""
    found = [evaluation(c) for c in gate_checks(plan, claimed(plan.name))]
    if plan.view is None:
        return found
    found.append(ready(cluster_key(summary.name, "schedulable_pools"), summary.state == "converged", summary.why))
    for health in summary.health:
        key = devices_key(summary.name, health.pool)
        whole = health.state in ("ready", "idle")
        told = next((f.message for f in health.findings), f"{health.judged} nodes judged")
        found.append(ready(key, whole, f"{health.state}: {told}"))
        own = summary.by_pool.get(health.pool, ())
        found += [evaluation(check(name, key, picked(own, codes))) for name, (codes, _) in DEVICE_CHECKS.items()]
    return found


def ready(key: dg.AssetKey, passed: bool, text: str) -> dg.AssetCheckEvaluation:  # noqa: FBT001 - a verdict
    return dg.AssetCheckEvaluation(
        asset_key=key, check_name=READY, passed=passed, severity=dg.AssetCheckSeverity.WARN, description=text
    )


def evaluation(result: dg.AssetCheckResult | dg.AssetCheckEvaluation) -> dg.AssetCheckEvaluation:
    """A check's result, or what a run's event tells of it, as an event of its own."""
    if result.asset_key is None or result.check_name is None:
        msg = "a check of ours always names its asset and itself"
        raise ValueError(msg)
    return dg.AssetCheckEvaluation(
        asset_key=result.asset_key,
        check_name=result.check_name,
        passed=result.passed,
        severity=result.severity,
        description=result.description,
        metadata=result.metadata,
    )
