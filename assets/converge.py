"""The sensor `converge`: reads summaries alone and requests runs for what differs from its plan.

No run key: it would suppress a repeat for good. What makes no progress is asked again with growing pauses, and every run
has a maximum runtime, so that a dead one doesn't block its clusters for ever.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.keys import claimed, class_key, cluster_of, model_key
from assets.pauses import Pauses
from assets.runs import ended_since, in_progress
from assets.summaries import Seen, last_seen

if TYPE_CHECKING:
    from assets.common import Build
    from modelplane_dagster.manifests.fleet import Fleet

JOB = "converge"
MAX_RUNTIME = 1800
# Clusters of one run share its start, which costs more than their steps.
TOGETHER = 10


@dataclass(frozen=True, slots=True)
class Targets:
    """The assets of every cluster, the deployments by namespace and name, and the classes that each cluster's pools name."""

    clusters: Mapping[str, tuple[dg.AssetKey, ...]]
    models: tuple[tuple[str, str], ...]
    classes: Mapping[str, tuple[dg.AssetKey, ...]] = field(default_factory=dict)

    @property
    def keys(self) -> tuple[dg.AssetKey, ...]:
        clusters = (key for keys in self.clusters.values() for key in keys)
        return (*clusters, *(model_key(*m) for m in self.models))


def targets(keys: Iterable[dg.AssetKey], fleet: Fleet) -> Targets:
    clusters: dict[str, list[dg.AssetKey]] = {}
    models: list[tuple[str, str]] = []
    for key in keys:
        name = cluster_of(key)
        if name is not None:
            clusters.setdefault(name, []).append(key)
        elif key.path[0] == "model":
            models.append((key.path[1], key.path[2]))
    classes = {
        name: tuple(class_key(n) for n in dict.fromkeys(p.class_name for p in c.spec.node_pools) if n in fleet.classes)
        for name, c in fleet.clusters.items()
    }
    return Targets({name: tuple(clusters[name]) for name in sorted(clusters)}, tuple(sorted(models)), classes)


def converge_sensor(
    build: Build,
    job: Any,  # noqa: ANN401 - define_asset_job's type isn't public
    known: Targets,
) -> dg.SensorDefinition:
    running = dg.DefaultSensorStatus.RUNNING if build.settings.reconcile else dg.DefaultSensorStatus.STOPPED

    @dg.sensor(
        name="converge",
        job=job,
        minimum_interval_seconds=15,
        default_status=running,
        description="Requests a run for clusters that differ from their plan, by the summaries that `observe` writes.",
    )
    def converge(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return tick(context.instance, context.cursor, known, now=time.time())

    return converge


def tick(instance: dg.DagsterInstance, cursor: str | None, known: Targets, *, now: float) -> dg.SensorResult:
    """Run requests for what differs, isn't refused, isn't being worked on, and was observed since its last run ended."""
    pauses = Pauses(cursor)
    pauses.keep([*known.clusters, *("/".join(m) for m in known.models)])
    seen = {name: last_seen(instance, claimed(name)) for name in known.clusters}
    models = {m: last_seen(instance, model_key(*m)) for m in known.models}
    told = [s.at for s in (*seen.values(), *models.values()) if s is not None]
    busy = in_progress(instance, known.keys)
    ended = ended_since(instance, min(told), known.keys) if told else {}

    def due(name: str, key: dg.AssetKey, last: Seen | None, wants: bool) -> bool:  # noqa: FBT001 - a verdict
        if last is None or key in busy or ended.get(key, 0.0) > last.at:
            return False
        if not wants:
            if last.body["state"] in ("converged", "serving"):
                pauses.settle(name)
            return False
        if not pauses.due(name, last.mark, observed=last.at, now=now):
            return False
        pauses.note(name, last.mark, now=now)
        return True

    clusters = [n for n, s in seen.items() if due(n, claimed(n), s, s is not None and _wants(s))]
    ready = [m for m, s in models.items() if due("/".join(m), model_key(*m), s, s is not None and _model_wants(s))]
    requests = [_clusters_run(clusters[i : i + TOGETHER], known) for i in range(0, len(clusters), TOGETHER)]
    if ready:
        requests.append(_run([model_key(*m) for m in ready], "models", ["/".join(m) for m in ready]))
    if not requests:
        text = "Everything stands as planned, is refused, is being worked on, or waits out its pause."
        return dg.SensorResult(skip_reason=text, cursor=pauses.cursor())
    return dg.SensorResult(run_requests=requests, cursor=pauses.cursor())


def _wants(seen: Seen) -> bool:
    """It differs from its plan or isn't whole, or its records lag behind. What is refused or unknown is left alone."""
    state = seen.body["state"]
    return state in ("differs", "pending") or (state == "converged" and seen.lagging)


def _model_wants(seen: Seen) -> bool:
    """A deployment's own run, once pools that it was placed on are ready."""
    state = seen.body["state"]
    if state == "serving":
        return seen.lagging
    return state in ("differs", "waiting") and bool(seen.body["ready_pools"])


def _clusters_run(names: list[str], known: Targets) -> dg.RunRequest:
    """With the classes of their pools, which no run of their own would ever show."""
    keys = [key for name in names for key in (*known.clusters[name], *known.classes.get(name, ()))]
    return _run(list(dict.fromkeys(keys)), "clusters", names)


def _run(keys: list[dg.AssetKey], what: str, names: list[str]) -> dg.RunRequest:
    return dg.RunRequest(
        asset_selection=keys,
        tags={f"modelplane/{what}": ",".join(names)[:200], "dagster/max_runtime_seconds": str(MAX_RUNTIME)},
        run_config={"resources": {"fleet": {"config": {"wait": 0.0}}}},
    )
