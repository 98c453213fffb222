"""What only the running cluster can add to its plan's verdict: pools that would change their role, another account."""

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


def running_pools(source: str, record: Record | None, pools: Mapping[str, ObservedPool]) -> tuple[RunningPool, ...]:
    """The pools that exist, with the drivers they were made for: by the record, and on a cloud by labels and taints too.

    Without a record nothing was ever made here by us. A recorded pool that its cloud doesn't have isn't running: it was
    never made, or is gone. `pools` is ignored on an Existing cluster, whose pools no cloud lists.
    """
    if record is None:
        return ()
    recorded = {name: frozenset(drivers) for name, drivers in record.pools.items()}
    if source == "Existing":
        return tuple(RunningPool(name, drivers) for name, drivers in sorted(recorded.items()))
    found = []
    for name, pool in sorted(pools.items()):
        told = drivers_from_labels(pool.labels, (t.key for t in pool.taints))
        found.append(RunningPool(name, recorded.get(name, frozenset()) | told))
    return tuple(found)


def judged(
    plan: ClusterPlan, *, record: Record | None, pools: Mapping[str, ObservedPool], places: Fleet | None = None
) -> ClusterPlan:
    """The plan with what runs added to its verdict; the plan itself where nothing is added or the verdict is unknown."""
    if plan.view is None:
        return plan
    running = running_pools(plan.source, record, pools)
    more = judge_running(plan.view, running, recorded_account=record.account if record else None, places=places)
    if not more:
        return plan
    found = ordered([*plan.gate.findings, *more])
    return replace(plan, gate=GateResult("refused" if has_errors(found) else plan.gate.verdict, found))
