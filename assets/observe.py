"""`observe`: one read-only run for the whole location. It reads clusters in threads, writes one summary a cluster, and
check evaluations only for clusters that changed."""

import logging
import time
from dataclasses import dataclass

import dagster as dg

from assets.common import RUN_POD, Build
from assets.converge import Targets
from assets.evaluations import evaluation, evaluations, ready
from assets.fleet import loaded_check, readable_check
from assets.keys import MANIFESTS, claimed, model_key
from assets.model_state import model_state, ready_pools
from assets.reload import DIGEST_TAG, reload_when_changed
from assets.runs import OBSERVE, ended_since, in_progress
from assets.session import RESOURCE, of
from assets.summaries import Seen, lags, last_seen, observation
from modelplane_dagster.canonical import digest
from modelplane_dagster.plan import FleetPlan
from modelplane_dagster.summary import ClusterSummary

log = logging.getLogger("modelplane")


def observe_job(build: Build, known: Targets) -> dg.JobDefinition:
    @dg.op(
        name="observe_fleet",
        required_resource_keys={RESOURCE},
        description="Reads every cluster and records a summary of each. Writes to no cloud and no cluster.",
        out=dg.Out(dg.Nothing),
    )
    def observe_fleet(context: dg.OpExecutionContext) -> None:
        observe(context, build, known)

    @dg.job(
        name=OBSERVE,
        description="Reads the whole fleet once: a summary a cluster, checks of what changed. Changes nothing.",
        executor_def=dg.in_process_executor,
        tags={"dagster/max_runtime_seconds": "600", DIGEST_TAG: build.fleet.digest, **RUN_POD},
    )
    def job() -> None:
        observe_fleet()

    return job


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at everything. `at` is when its reading began; `busy` and `ended` are by owner (see `keys.owner`)."""

    context: dg.OpExecutionContext
    at: float
    busy: set[dg.AssetKey]
    ended: dict[dg.AssetKey, float]

    def before(self, key: dg.AssetKey) -> Seen | None:
        return last_seen(self.context.instance, key)

    def record(self, event: dg.AssetObservation | dg.AssetCheckEvaluation) -> None:
        # Dagster takes evaluations here (measured on 1.13.27) and shows them as the check's status; a failed one of a
        # blocking check is only shown. Its annotation is narrower.
        self.context.log_event(event)  # type: ignore[arg-type]

    def is_news(self, key: dg.AssetKey, before: Seen | None, fingerprint: str) -> bool:
        """What was seen differs, or a run of it ended since the last look."""
        return before is None or before.fingerprint != fingerprint or self.ended.get(key, 0.0) > before.at


def observe(context: dg.OpExecutionContext, build: Build, known: Targets) -> None:
    """One observation a known cluster and a deployment; evaluations for those that changed or whose run ended since,
    never for one with a run in progress: they would shadow its results."""
    session = of(context)
    at = time.time()
    instance = context.instance
    busy = in_progress(instance, known.keys)
    owners = [*(claimed(n) for n in known.clusters), *(model_key(*m) for m in known.models)]
    told = [seen.at for key in owners if (seen := last_seen(instance, key)) is not None]
    look = _Look(context, at, busy, ended_since(instance, min(told), known.keys) if told else {})
    plan = session.fleet_plan()
    summaries: dict[str, ClusterSummary] = {}
    for name in session.planner.names():
        observed = (plan.observed or {}).get(name)
        summaries[name] = session.summary(name, observed)
        if _cluster(look, summaries[name], known):
            for found in evaluations(session.judged_or_planned(name, observed), summaries[name]):
                look.record(found)
    _models(look, plan, summaries)
    said = reload_when_changed(context.run_tags.get(DIGEST_TAG, build.fleet.digest), build.settings)
    for line in said:
        log.warning("%s", line.message)
    before = look.before(MANIFESTS)
    mark = digest([build.fleet.digest, *(f.message for f in said)])
    body = {
        "state": "behind" if said else "loaded",
        "why": said[0].message if said else "the loaded graph is of the files",
    }
    look.record(observation(MANIFESTS, Seen(body, mark, at, lagging=False)))
    if before is None or before.fingerprint != mark:
        look.record(evaluation(readable_check(build.fleet.findings)))
        look.record(evaluation(loaded_check(said)))


def _cluster(look: _Look, summary: ClusterSummary, known: Targets) -> bool:
    """Records the summary; whether evaluations are due."""
    key = claimed(summary.name)
    before = look.before(key)
    fingerprint = summary.fingerprint()
    news = look.is_news(key, before, fingerprint)
    lagging = before.lagging if before is not None and not news else False
    if news and summary.state == "converged":
        lagging = lags(look.context.instance, known.clusters.get(summary.name, ()))
    look.record(observation(key, Seen(summary.as_dict(), fingerprint, look.at, lagging)))
    if news:
        log.info("cluster/%s: %s: %s", summary.name, summary.state, summary.why)
    return news and key not in look.busy


def _models(look: _Look, plan: FleetPlan, summaries: dict[str, ClusterSummary]) -> None:
    """One observation a deployment: whether it is placed and serves."""
    for placement in plan.placements:
        key = model_key(placement.namespace, placement.name)
        state, why = model_state(plan, placement)
        body = {"state": state, "why": why, "ready_pools": sorted(ready_pools(placement, summaries))}
        before = look.before(key)
        fingerprint = digest(body)
        news = look.is_news(key, before, fingerprint)
        lagging = before.lagging if before is not None and not news else False
        if news and state == "serving":
            lagging = lags(look.context.instance, [key])
        look.record(observation(key, Seen(body, fingerprint, look.at, lagging)))
        if news and key not in look.busy:
            look.record(ready(key, state == "serving", f"{state}: {why}"))
