"""Reconciling in passes, in process: observe all, converge what differs, again, until converged or out of time.

The same job, steps and gate as the sensor's runs; results land in the same Dagster instance, so the UI shows them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import dagster as dg

from assets.build import build_defs
from assets.clusters import gate_checks
from assets.converge import JOB
from assets.evaluations import evaluation
from assets.history import History
from assets.keys import claimed, class_key, cluster_key, cluster_of, model_key, owner, pool_key
from assets.model_state import ModelState, model_state
from assets.results import READY, findings_in
from assets.run import execute
from assets.scratch import scratch_instance
from assets.standstill import Memory, standstill
from modelplane_dagster.findings import Finding, Severity
from modelplane_dagster.gate import refusal_sentence
from modelplane_dagster.plan import FleetPlan
from modelplane_dagster.summary import ClusterSummary
from resources.lease import LOST
from resources.session import open_session
from resources.steps.result import UNTOUCHED
from resources.tally import Tally

if TYPE_CHECKING:
    from modelplane_dagster.cluster_plan import ClusterPlan
    from modelplane_dagster.manifests.fleet import Fleet
    from resources.settings import Settings
    from resources.world import World

log = logging.getLogger("modelplane")
PAUSE = 0.3
LONGEST = 5.0
# Between two looks that found nothing to ask. What is waited for takes minutes on a cloud, and each look reads every cluster.
SLOWEST_LOOK = 2.0
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Look:
    """One observation of everything: the plan against it, a summary a cluster, a state a deployment."""

    plan: FleetPlan
    clusters: dict[str, ClusterSummary]
    models: Mapping[tuple[str, str], tuple[ModelState, str]]

    @property
    def refused(self) -> bool:
        return any(s.state == "refused" for s in self.clusters.values()) or any(
            state == "refused" for state, _ in self.models.values()
        )

    @property
    def settled(self) -> bool:
        """Everything that isn't refused or invalid stands as planned."""
        clusters = all(s.settled for s in self.clusters.values())
        return clusters and all(state in ("serving", "refused") for state, _ in self.models.values())

    def mark(self) -> tuple[object, ...]:
        """Changes when what a person would be told changes."""
        return (*((n, s.fingerprint()) for n, s in self.clusters.items()), *self.models.items())


@dataclass(slots=True)
class Idle:
    """How long to sleep after a look that found nothing to ask, in seconds: longer while the looks see the same."""

    seconds: float = PAUSE
    _seen: tuple[object, ...] | None = None

    def after(self, mark: tuple[object, ...]) -> float:
        self.seconds = min(self.seconds * 1.3, SLOWEST_LOOK) if mark == self._seen else PAUSE
        self._seen = mark
        return self.seconds


@dataclass(slots=True)
class Outcome:
    """`verdict` is the first that applies: invalid, refused, late, converged. Seconds are of wall time; `tally` holds what
    was asked of each cluster, by all passes and looks. `failures` are the sentences of what failed and hasn't been put
    right, `findings` what stands in the way of whatever isn't ready. `stuck`: it ended before its time, since waiting mends
    nothing of what is left."""

    look: Look
    verdict: Literal["converged", "refused", "late"]
    passes: int
    seconds: float
    dagster_seconds: float
    observe_seconds: float
    failures: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    tally: Tally = field(default_factory=Tally)
    stuck: bool = False


class Passes:
    """Runs the passes of one fleet."""

    def __init__(
        self, settings: Settings, fleet: Fleet, world: Callable[[], World], instance: dg.DagsterInstance, *, tell: Tell
    ) -> None:
        self.settings = settings
        self.fleet = fleet
        self.world = world
        self.instance = instance
        self.tell = tell
        self.tally = Tally()
        self.state = Memory()
        self.history = History()

    # A fleet that stands as planned needs neither graph nor run.
    @cached_property
    def job(self) -> dg.JobDefinition:
        return build_defs(self.fleet, self.settings, self.world, self.tally).resolve_job_def(JOB)

    @cached_property
    def keys(self) -> list[dg.AssetKey]:
        return sorted(self.job.asset_layer.executable_asset_keys, key=lambda k: tuple(k.path))

    @cached_property
    def scratch(self) -> dg.DagsterInstance:
        return scratch_instance()

    def run(self, timeout: float) -> Outcome:
        """Until everything is converged, or refused, or `timeout` seconds are over. What the passes saw last is kept in the
        instance whichever way this ends."""
        try:
            return self._run(timeout)
        finally:
            self.history.keep(self.instance)
            if "scratch" in vars(self):
                self.scratch.dispose()

    def _run(self, timeout: float) -> Outcome:
        start = time.monotonic()
        passes, spent, looked = 0, 0.0, 0.0
        failures: dict[str, None] = {}
        idle = Idle()
        while True:
            before = time.monotonic()
            look = self.look()
            looked += time.monotonic() - before
            stuck = not look.settled and self._stuck(look)
            due = self._due(look)
            over = time.monotonic() - start >= timeout
            ends = look.settled or stuck
            if ends and not over and (late := self._lagging(look)):
                passes += 1
                failures |= dict.fromkeys(self._converge(late, passes))
            if ends or over:
                break
            if not due and self._all_lost(look):
                break
            if not due:
                time.sleep(idle.after(look.mark()))
                continue
            passes += 1
            before = time.monotonic()
            failures |= dict.fromkeys(self._converge(due, passes))
            spent += time.monotonic() - before
        if not look.settled:
            failures |= dict.fromkeys(self.state.failed.values())
        verdict: Literal["converged", "refused", "late"] = "converged" if look.settled else "late"
        if look.refused:
            verdict = "refused"
        told = () if look.settled else tuple(dict.fromkeys(f for rows in self.state.told.values() for f in rows))
        seconds = time.monotonic() - start
        return Outcome(look, verdict, passes, seconds, spent, looked, tuple(failures), told, self.tally, stuck)

    def _stuck(self, look: Look) -> bool:
        return standstill(
            look,
            self.state,
            self.keys,
            key_of=self._key_of,
            pools_ready=lambda model: self._pools_ready(look, model),
        )

    def look(self) -> Look:
        with open_session(self.settings, self.fleet, world=self.world(), tally=self.tally) as session:
            plan = session.fleet_plan()
            observed = plan.observed or {}
            clusters = {name: session.summary(name, observed.get(name)) for name in session.planner.names()}
            for name, summary in clusters.items():
                if summary.state == "refused" or summary.invalid:
                    self._show(session.judged_or_planned(name, observed.get(name)))
        models = {(p.namespace, p.name): model_state(plan, p) for p in plan.placements}
        return Look(plan, clusters, models)

    def _show(self, plan: ClusterPlan) -> None:
        """The gate's verdict on the cluster's checks, once: a refused cluster has no run that could show it."""
        if plan.name in self.state.shown:
            return
        self.state.shown.add(plan.name)
        for result in gate_checks(plan, claimed(plan.name)):
            self.instance.report_runless_asset_event(evaluation(result))
        log.info("cluster/%s: %s: %s", plan.name, plan.gate.verdict, refusal_sentence(plan.name, plan.gate))

    def _due(self, look: Look) -> list[dg.AssetKey]:
        """The assets to ask again: of clusters that aren't settled and of models that don't serve, those that weren't ready
        the last time or that something changed of. What makes no progress waits a growing pause."""
        now, lost = time.monotonic(), self._lost()
        keys: list[dg.AssetKey] = []
        for name, summary in look.clusters.items():
            if not summary.settled and name not in lost and self._may_ask(name, summary.fingerprint(), now):
                keys += self._of_cluster(name, summary)
        for model, (state, why) in look.models.items():
            name = "/".join(model)
            if state in ("serving", "refused") or not self._pools_ready(look, model):
                continue
            if lost.isdisjoint(_clusters_of(look, model)) and self._may_ask(name, f"{state} {why}", now):
                keys.append(model_key(*model))
        return keys

    def _lost(self) -> frozenset[str]:
        """The clusters that another writer took over from these passes. What it did may come from newer manifests than
        theirs, so they only look on."""
        told = (f for rows in self.state.told.values() for f in rows if f.code == LOST)
        return frozenset(f.subject.removeprefix("cluster/") for f in told)

    def _all_lost(self, look: Look) -> bool:
        """Nothing that isn't settled is these passes' to change any more."""
        lost = self._lost()
        clusters = {name for name, summary in look.clusters.items() if not summary.settled}
        models = [_clusters_of(look, m) for m, (state, _) in look.models.items() if state not in ("serving", "refused")]
        return bool(lost) and clusters <= lost and not any(lost.isdisjoint(names) for names in models)

    def _lagging(self, look: Look) -> list[dg.AssetKey]:
        """What now stands as planned and was last materialised by these passes as something else than ready."""
        done = {claimed(name) for name, s in look.clusters.items() if s.state == "converged"}
        done |= {model_key(*m) for m, (state, _) in look.models.items() if state == "serving"}
        return [k for k, state in self.state.assets.items() if state != "ready" and owner(k) in done]

    def _may_ask(self, name: str, mark: str, now: float) -> bool:
        if self.state.marks.get(name) != mark:
            self.state.marks[name] = mark
            self.state.pause[name] = PAUSE
        elif now < self.state.at.get(name, 0.0) + self.state.pause[name]:
            return False
        else:
            self.state.pause[name] = min(self.state.pause[name] * 1.6, LONGEST)
        self.state.at[name] = now
        return True

    def _of_cluster(self, name: str, summary: ClusterSummary) -> list[dg.AssetKey]:
        mine = [k for k in self.keys if cluster_of(k) == name]
        touched = {self._key_of(change) for change in summary.changes}
        wanted = [k for k in mine if self.state.assets.get(k) != "ready" or k in touched]
        if len(wanted) == len(mine):
            return [*mine, *self._classes(name)]
        return [k for k in wanted if k != claimed(name)] or [cluster_key(name, "schedulable_pools")]

    def _classes(self, name: str) -> list[dg.AssetKey]:
        """The cluster's classes that these passes haven't shown yet: they cost a step each and read nothing."""
        pools = self.fleet.clusters[name].spec.node_pools if name in self.fleet.clusters else ()
        keys = dict.fromkeys(class_key(p.class_name) for p in pools)
        new = [k for k in keys if k in self.keys and self.state.shown.isdisjoint({k.to_user_string()})]
        self.state.shown |= {k.to_user_string() for k in new}
        return new

    def _key_of(self, change: str) -> dg.AssetKey | None:
        subject = change.split(" ", 1)[1].split(":", 1)[0]
        kind, _, rest = subject.partition("/")
        name, _, leaf = rest.partition("/")
        if kind == "pool":
            return pool_key(name, leaf)
        if kind == "cluster":
            return cluster_key(name, "control_plane")
        key = cluster_key(name, leaf)
        return key if key in self.keys else cluster_key(name, "serving_base")

    def _pools_ready(self, look: Look, model: tuple[str, str]) -> bool:
        """One placed replica whose pools are ready is enough to ask; without a placement there is nothing to ask, but to
        drain."""
        placement = next(p for p in look.plan.placements if (p.namespace, p.name) == model)
        if placement.drains:
            return True
        for replica in placement.replicas:
            summary = look.clusters.get(replica.cluster)
            health = {h.pool: h.state for h in summary.health} if summary else {}
            pools = {m.pool for e in replica.engines for m in e.members}
            if pools and all(health.get(p) in ("ready", "idle") for p in pools):
                return True
        return False

    def _converge(self, keys: list[dg.AssetKey], number: int) -> list[str]:
        """One run of the job over the selection; the sentences of steps that raised."""
        clusters = sorted({c for k in keys if (c := cluster_of(k))})
        self.tell(f"pass {number}: {len(keys)} assets of {len(clusters)} clusters")
        result = execute(self.job, self.scratch, keys, tags={"modelplane/pass": str(number)})
        self.state.wrote = False
        for event in result.get_asset_materialization_events():
            made = event.step_materialization_data.materialization
            changed = made.metadata.get("changed")
            self.state.wrote |= changed is not None and bool(changed.value)
            state = made.metadata.get("state")
            self.state.assets[made.asset_key] = str(state.value) if state is not None else "ready"
            self.state.failed.pop(made.asset_key, None)
            if self.state.assets[made.asset_key] == "failed":
                self.state.failed[made.asset_key] = str(made.metadata["says"].value)
            self._keep(event, made.metadata, ready=self.state.assets[made.asset_key] == READY)
        self.history.take(result.all_events)
        broken = [e for e in result.all_events if e.is_step_failure]
        self.state.raised = {e.step_key for e in broken}
        for event in broken:
            failure = event.step_failure_data.user_failure_data
            self._keep(event, failure.metadata if failure is not None else {}, ready=False)
        return [self._said(e) for e in broken]

    def _keep(self, event: dg.DagsterEvent, metadata: Mapping[str, Any], *, ready: bool) -> None:
        """What a step's last attempt found to be in the way; a step that is ready has nothing in its way, and one that
        waits for another isn't told of beside it."""
        found = () if ready else findings_in(metadata)
        loud = tuple(f for f in found if f.severity is not Severity.INFO and not f.message.endswith(UNTOUCHED))
        self.state.told[event.step_key] = loud

    @staticmethod
    def _said(event: dg.DagsterEvent) -> str:
        data = event.step_failure_data
        failure = data.user_failure_data
        if failure is not None and failure.description:
            return failure.description
        return str(data.error.message).strip() if data.error else "a step failed"


def _clusters_of(look: Look, model: tuple[str, str]) -> frozenset[str]:
    """Where the deployment is placed, and where it is drained from."""
    placement = next(p for p in look.plan.placements if (p.namespace, p.name) == model)
    return frozenset({*(r.cluster for r in placement.replicas), *placement.drains})
