"""The sensor `converge`: reads summaries alone and requests runs for clusters that differ from their plan.

No run key: it would suppress a repeat for good. What keeps failing is asked again with growing pauses, and every run has
a maximum runtime, so that a dead one doesn't block its clusters for ever.
"""

import json
import time
from collections.abc import Iterable
from typing import Any

import dagster as dg

from assets.common import Build
from assets.keys import claimed, cluster_key, cluster_of, model_key
from assets.observe import OBSERVED_AT, SUMMARY, keys_in_progress, last_summary

JOB = "converge"
MAX_RUNTIME = 1800
FIRST_PAUSE = 30.0
LONGEST_PAUSE = 1800.0
# Clusters of one run share its start, which costs more than their steps.
TOGETHER = 10


def converge_sensor(
    build: Build,
    job: Any,  # noqa: ANN401 - define_asset_job's type isn't public
    assets: Iterable[dg.AssetKey],
) -> dg.SensorDefinition:
    by_cluster: dict[str, list[dg.AssetKey]] = {}
    for key in assets:
        name = cluster_of(key)
        if name is not None:
            by_cluster.setdefault(name, []).append(key)
    models = sorted(build.fleet.deployments)
    running = dg.DefaultSensorStatus.RUNNING if build.settings.reconcile else dg.DefaultSensorStatus.STOPPED

    @dg.sensor(
        name="converge",
        job=job,
        minimum_interval_seconds=15,
        default_status=running,
        description="Requests a run for clusters that differ from their plan, by the summaries that `observe` writes.",
    )
    def converge(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        return tick(context, by_cluster, models)

    return converge


def tick(
    context: dg.SensorEvaluationContext, by_cluster: dict[str, list[dg.AssetKey]], models: list[tuple[str, str]]
) -> dg.SensorResult | dg.SkipReason:
    """Run requests for what differs, isn't refused, isn't being worked on, and was observed since its last run."""
    pauses: dict[str, dict[str, float]] = json.loads(context.cursor) if context.cursor else {}
    busy = keys_in_progress(context.instance)
    now = time.time()
    due = [
        name
        for name in sorted(by_cluster)
        if not any(cluster_of(k) == name for k in busy) and _wants_run(context.instance, name, pauses, now)
    ]
    requests = [_request(chunk, by_cluster) for chunk in _chunks(due)]
    ready_models = [
        key for key in models if model_key(*key) not in busy and _model_wants_run(context.instance, key, pauses, now)
    ]
    if ready_models:
        keys = [model_key(*k) for k in ready_models]
        requests.append(_run_request(keys, {"modelplane/models": ",".join("/".join(k) for k in ready_models)[:200]}))
    for name in [*due, *("/".join(k) for k in ready_models)]:
        before = pauses.get(name, {"pause": 0.0})["pause"]
        pauses[name] = {"at": now, "pause": min(max(before * 2, FIRST_PAUSE), LONGEST_PAUSE)}
    if not requests:
        return dg.SkipReason("Every cluster stands as planned, is refused, is being worked on, or waits out its pause.")
    return dg.SensorResult(run_requests=requests, cursor=json.dumps(pauses, sort_keys=True))


def _chunks(names: list[str]) -> Iterable[list[str]]:
    return (names[i : i + TOGETHER] for i in range(0, len(names), TOGETHER))


def _request(names: list[str], by_cluster: dict[str, list[dg.AssetKey]]) -> dg.RunRequest:
    keys = [key for name in names for key in by_cluster[name]]
    return _run_request(keys, {"modelplane/clusters": ",".join(names)[:200]})


def _run_request(keys: list[dg.AssetKey], tags: dict[str, str]) -> dg.RunRequest:
    return dg.RunRequest(
        asset_selection=keys,
        tags={**tags, "dagster/max_runtime_seconds": str(MAX_RUNTIME)},
        run_config={"resources": {"fleet": {"config": {"wait": 0.0}}}},
    )


def _wants_run(instance: dg.DagsterInstance, name: str, pauses: dict[str, dict[str, float]], now: float) -> bool:
    seen = last_summary(instance, claimed(name))
    if seen is None:
        return False
    state = seen[SUMMARY]["state"]
    if state == "converged":
        if not _lags(instance, cluster_key(name, "schedulable_pools")):
            pauses.pop(name, None)
            return False
    elif state in ("refused", "unknown"):
        return False
    return _due(seen, pauses.get(name), now)


def _due(seen: dict[str, Any], pause: dict[str, float] | None, now: float) -> bool:
    """Observed after the last request, and its pause is over. The first repeat needs no pause: a pass goes on from what
    the one before it asked for."""
    if pause is None:
        return True
    if float(seen[OBSERVED_AT]) <= pause["at"]:
        return False
    waited = now - pause["at"]
    return waited >= (0 if pause["pause"] <= FIRST_PAUSE * 4 else pause["pause"])


def _lags(instance: dg.DagsterInstance, key: dg.AssetKey) -> bool:
    """The last materialisation says something else than ready, though the cluster is."""
    event = instance.get_latest_materialization_event(key)
    if event is None or event.asset_materialization is None:
        return True
    state = event.asset_materialization.metadata.get("state")
    return state is None or state.value != "ready"


def _model_wants_run(
    instance: dg.DagsterInstance, key: tuple[str, str], pauses: dict[str, dict[str, float]], now: float
) -> bool:
    """A deployment's own run, once pools that it was placed on are ready."""
    seen = last_summary(instance, model_key(*key))
    if seen is None:
        return False
    body = seen[SUMMARY]
    name = "/".join(key)
    if body["state"] == "serving" and not _lags(instance, model_key(*key)):
        pauses.pop(name, None)
        return False
    if body["state"] in ("refused", "unplaced") or not body["ready_pools"]:
        return False
    return _due(seen, pauses.get(name), now)
