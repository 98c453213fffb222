"""`observe`: one read-only run for the whole location. It reads clusters in threads, writes one summary a cluster, and
check evaluations only for clusters that changed."""

import json
import time
from collections import Counter
from typing import Any

import dagster as dg

from assets.common import Build
from assets.keys import claimed, cluster_key, cluster_of, devices_key, model_key
from assets.reload import reload_when_changed
from assets.results import DOUBLE_LEDGER, REACH, READY, STAY_OFF, TOLERATIONS, check, picked
from assets.session import of
from modelplane_dagster.placement import Placement
from modelplane_dagster.plan import FleetPlan
from modelplane_dagster.summary import ClusterSummary
from resources.session import Session

SUMMARY = "summary"
FINGERPRINT = "fingerprint"
OBSERVED_AT = "observed at"
# Runs that may still write: their results must not be shadowed by an evaluation of ours.
IN_PROGRESS = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def observe_job(build: Build) -> dg.JobDefinition:
    @dg.op(
        name="observe_fleet",
        required_resource_keys={"fleet"},
        description="Reads every cluster and records a summary of each. Writes to no cloud and no cluster.",
        out=dg.Out(dg.Nothing),
    )
    def observe_fleet(context: dg.OpExecutionContext) -> None:
        observe(context, build)

    @dg.job(
        name="observe",
        description="Reads the whole fleet once: a summary a cluster, checks of what changed. Changes nothing.",
        executor_def=dg.in_process_executor,
        tags={"dagster/max_runtime_seconds": "600"},
    )
    def job() -> None:
        observe_fleet()

    return job


def observe(context: dg.OpExecutionContext, build: Build) -> None:
    """One observation a known cluster; evaluations for those that changed or whose run ended since, never for one with a
    run in progress."""
    session = of(context)
    plan = session.fleet_plan()
    busy = keys_in_progress(context.instance, ours=context.run_id)
    for name in session.planner.names():
        observed = (plan.observed or {}).get(name)
        summary = session.summary(name, observed)
        key = claimed(name)
        before = last_summary(context.instance, key)
        context.log_event(_observation(key, summary))
        changed = before is None or before[FINGERPRINT] != summary.fingerprint()
        ended = before is not None and _run_ended_since(context.instance, name, float(before[OBSERVED_AT]))
        if (changed or ended) and not any(cluster_of(k) == name for k in busy):
            for evaluation in evaluations(build, summary):
                _record(context, evaluation)
    _models(context, plan, busy)
    reload_when_changed(context, build)


def _record(context: dg.OpExecutionContext, evaluation: dg.AssetCheckEvaluation) -> None:
    # Dagster takes evaluations here (measured on 1.13.27) and shows them as the check's status; its annotation is narrower.
    context.log_event(evaluation)  # type: ignore[arg-type]


def _observation(key: dg.AssetKey, summary: ClusterSummary) -> dg.AssetObservation:
    return dg.AssetObservation(
        asset_key=key,
        description=f"{summary.state}: {summary.why}",
        metadata={
            SUMMARY: dg.MetadataValue.json(summary.as_dict()),
            FINGERPRINT: summary.fingerprint(),
            OBSERVED_AT: time.time(),
        },
    )


def last_summary(instance: dg.DagsterInstance, key: dg.AssetKey) -> dict[str, Any] | None:
    """The newest observation's metadata as plain values; None before the first."""
    records = instance.fetch_observations(key, limit=1).records
    for record in records:
        observation = record.asset_observation
        if observation is not None and SUMMARY in observation.metadata:
            return {
                SUMMARY: observation.metadata[SUMMARY].value,
                FINGERPRINT: observation.metadata[FINGERPRINT].value,
                OBSERVED_AT: observation.metadata[OBSERVED_AT].value,
            }
    return None


def keys_in_progress(instance: dg.DagsterInstance, *, ours: str = "") -> set[dg.AssetKey]:
    """The assets that a run in progress may still write, our own run left out."""
    found: set[dg.AssetKey] = set()
    for record in instance.get_run_records(dg.RunsFilter(statuses=IN_PROGRESS)):
        run = record.dagster_run
        if run.run_id != ours:
            found |= set(run.asset_selection or ())
    return found


def _run_ended_since(instance: dg.DagsterInstance, cluster: str, since: float) -> bool:
    records = instance.get_run_records(dg.RunsFilter(), limit=50)
    return any(
        (r.end_time or 0) > since and any(cluster_of(k) == cluster for k in r.dagster_run.asset_selection or ())
        for r in records
    )


def evaluations(build: Build, summary: ClusterSummary) -> list[dg.AssetCheckEvaluation]:
    """What the summary says of a cluster's checks: its status, and every pool's devices."""
    plan = build.planner.plan(summary.name)
    if plan.view is None:
        return []
    found = [_ready(cluster_key(summary.name, "schedulable_pools"), summary.state == "converged", summary.why)]
    by_check = {"reach": REACH, "stay_off": STAY_OFF, "tolerations": TOLERATIONS, "double_ledger": DOUBLE_LEDGER}
    for health in summary.health:
        key = devices_key(summary.name, health.pool)
        whole = health.state in ("ready", "idle")
        told = next((f.message for f in health.findings), f"{health.judged} nodes judged")
        found.append(_ready(key, whole, f"{health.state}: {told}"))
        subject = f"pool/{summary.name}/{health.pool}"
        own = [f for f in summary.findings if f.subject == subject or f.subject.startswith("component/")]
        for name, codes in by_check.items():
            found.append(_evaluation(check(name, key, picked(own, codes))))
    return found


def _ready(key: dg.AssetKey, passed: bool, text: str) -> dg.AssetCheckEvaluation:  # noqa: FBT001 - a verdict
    return dg.AssetCheckEvaluation(
        asset_key=key, check_name=READY, passed=passed, severity=dg.AssetCheckSeverity.WARN, description=text
    )


def _evaluation(result: dg.AssetCheckResult) -> dg.AssetCheckEvaluation:
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


def _models(context: dg.OpExecutionContext, plan: FleetPlan, busy: set[dg.AssetKey]) -> None:
    """One observation a deployment: whether it is placed and serves."""
    for placement in plan.placements:
        key = model_key(placement.namespace, placement.name)
        state, why = model_state(plan, placement)
        body = {"state": state, "why": why, "ready_pools": sorted(_ready_pools(of(context), placement))}
        before = last_summary(context.instance, key)
        mark = json.dumps(body, sort_keys=True)
        context.log_event(
            dg.AssetObservation(
                asset_key=key,
                description=f"{state}: {why}",
                metadata={SUMMARY: dg.MetadataValue.json(body), FINGERPRINT: mark, OBSERVED_AT: time.time()},
            )
        )
        if key not in busy and (before is None or before[FINGERPRINT] != mark):
            _record(context, _ready(key, state == "serving", f"{state}: {why}"))


def model_state(plan: FleetPlan, placement: Placement) -> tuple[str, str]:
    """`serving`, `differs` (something would be applied), `waiting`, `unplaced` or `refused`, with a sentence."""
    if placement.verdict != "placed":
        why = placement.findings[0].message if placement.findings else placement.verdict
        return ("refused" if placement.verdict == "refused" else "unplaced"), why
    observed, live = plan.observed or {}, []
    for cluster, placed in Counter(r.cluster for r in placement.replicas).items():
        # What runs on a cluster that no manifest names any more is that cluster's orphan, and stands in for nothing.
        live += [r for r in _replicas(observed.get(cluster)) if _is(r, placement)][:placed]
    if len(live) < len(placement.replicas):
        return "differs", f"{len(live)} of {len(placement.replicas)} replicas are there"
    short = [r for r in live if r.ready < r.desired]
    if short:
        return "waiting", f"{sum(r.ready for r in live)} of {sum(r.desired for r in live)} engine pods are ready"
    return "serving", f"{len(live)} replicas serve" if len(live) > 1 else "1 replica serves"


def _replicas(observed: Any) -> tuple[Any, ...]:  # noqa: ANN401 - an ObservedCluster or None
    return getattr(getattr(observed, "replicas", None), "value", ())


def _is(replica: Any, placement: Placement) -> bool:  # noqa: ANN401 - an ObservedReplica
    return (replica.namespace, replica.deployment) == (placement.namespace, placement.name)


def _ready_pools(session: Session, placement: Placement) -> set[str]:
    found = set()
    for replica in placement.replicas:
        health = {h.pool: h.state for h in session.summary(replica.cluster).health}
        for engine in replica.engines:
            found |= {f"{replica.cluster}/{m.pool}" for m in engine.members if health.get(m.pool) in ("ready", "idle")}
    return found
