"""The gate's verdict with what already runs taken into account: the same for a plan, a summary and a step that writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from modelplane_dagster.findings import has_errors, ordered
from modelplane_dagster.gate import GateResult, RunningPool, drivers_from_labels, judge_running

if TYPE_CHECKING:
    from modelplane_dagster.cluster_plan import ClusterPlan
    from modelplane_dagster.manifests.fleet import Fleet
    from modelplane_dagster.observed import ObservedPool, Record


def judged_against(
    plan: ClusterPlan, record: Record | None, pools: Mapping[str, ObservedPool], fleet: Fleet
) -> ClusterPlan:
    """The plan with the reasons that only the running cluster can give. `record` is None for a cluster never changed by
    us; `pools` are those on the cloud, empty on an Existing cluster."""
    if plan.view is None:
        return plan
    running = running_pools(record, pools)
    more = judge_running(plan.view, running, recorded_account=record.account if record else None, places=fleet)
    if not more:
        return plan
    found = ordered([*plan.gate.findings, *more])
    return replace(plan, gate=GateResult("refused" if has_errors(found) else plan.gate.verdict, found))


def running_pools(record: Record | None, pools: Mapping[str, ObservedPool]) -> tuple[RunningPool, ...]:
    """Each pool with the drivers it was made for: on record, and what its labels and taints tell. Without a record nothing
    is ours to compare with."""
    if record is None:
        return ()
    drivers = {name: frozenset(found) for name, found in record.pools.items()}
    for name, pool in pools.items():
        told = drivers_from_labels(pool.labels, (t.key for t in pool.taints))
        drivers[name] = drivers.get(name, frozenset()) | told
    return tuple(RunningPool(name, found) for name, found in sorted(drivers.items()))
