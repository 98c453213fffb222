"""One run's view of the world: clients, one deadline, the leases it holds, and the gate that every writing step asks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modelplane_dagster.cluster_plan import ClusterPlan
from modelplane_dagster.components.join import Kept
from modelplane_dagster.components.types import Component, Same
from modelplane_dagster.errors import AccessError, KubernetesError, ModelplaneError, NotReadyError, UnreadableError
from modelplane_dagster.gate import Admission, admit
from modelplane_dagster.known import Known, Unknown
from modelplane_dagster.observed import ObservedCluster, ObservedComponent, ObservedPool, Record
from modelplane_dagster.plan import FleetPlan, plan_fleet
from modelplane_dagster.running import judged
from modelplane_dagster.summary import ClusterSummary, summarise
from resources import lease as leases
from resources.clouds.seam import CloudCluster
from resources.observe import (
    CORE_KINDS,
    WORKLOAD_KINDS,
    attempt,
    components_seen,
    kept_from,
    live_cpu_mode,
    observe_cluster,
    observed_pools,
    read_objects,
)
from resources.reach import Reach
from resources.reading import Reading
from resources.releases import read_releases
from resources.tally import Tally
from resources.world import World, open_world

if TYPE_CHECKING:
    from modelplane_dagster.cluster import CpuMode
    from modelplane_dagster.manifests.fleet import Fleet
    from resources.settings import Settings

log = logging.getLogger("modelplane")
THREADS = 8
# Seconds that a read of what stands may be shared by the steps of one run, which hold the cluster's lease when they write.
FRESH = 1.0
# The states of a control plane that answers.
STANDS = ("ready", "updating")
# How long a second writer waits for the first, where it has the time at all.
LEASE_WAIT = 10.0


@dataclass(frozen=True, slots=True)
class Standing:
    """What is installed on a cluster; `cpu_mode` is None where the CPU driver isn't."""

    components: Mapping[str, ObservedComponent]
    kept: Mapping[str, Kept]
    cpu_mode: CpuMode | None


class Session(Reach):
    """`wait` is how long steps of this run may wait, in all, for what they need. Safe to share between threads."""

    def __init__(
        self, settings: Settings, fleet: Fleet, world: World, *, wait: float = 0.0, tally: Tally | None = None
    ) -> None:
        super().__init__(settings, fleet, world, tally=tally)
        self.deadline = time.monotonic() + wait
        self._modes: dict[str, CpuMode] = {}
        self._recent: dict[str, tuple[float, ObservedCluster]] = {}
        self._standing: dict[str, tuple[float, Standing]] = {}
        self._seen: dict[str, tuple[float, CloudCluster | None]] = {}

    # What is asked for

    def plan(self, name: str, observed: ObservedCluster | None = None) -> ClusterPlan:
        """The cluster's plan, with the CPU mode that was probed or read and the pools that live releases hold."""
        mode = self._modes.get(name)
        if mode is None and observed is not None and isinstance(observed.cpu_mode, Known):
            mode = observed.cpu_mode.value
        return self.planner.plan(name, cpu_mode=mode, keep=observed.kept if observed is not None else None)

    def remember_mode(self, name: str, mode: CpuMode) -> None:
        self._modes[name] = mode

    def admit(self, name: str, observed: ObservedCluster | None = None) -> tuple[Admission, ClusterPlan]:
        """The gate, evaluated anew: the manifests, what runs, and the account on record. Raises RefusedError, and
        UnreadableError where what runs can't be read: a gate that can't see doesn't open."""
        plan = self.judged(name, observed)
        return admit(name, plan.digest, plan.gate), plan

    def judged(self, name: str, observed: ObservedCluster | None = None) -> ClusterPlan:
        """The plan with what only the running cluster can add to its verdict."""
        plan = self.plan(name, observed)
        if plan.view is None:
            return plan
        record = self.records.read(name)
        pools = self._pools(plan, observed) if plan.source != "Existing" and record is not None else {}
        return judged(plan, record=record, pools=pools, places=self.fleet)

    def judged_or_planned(self, name: str, observed: ObservedCluster | None = None) -> ClusterPlan:
        """For those who only tell: where what runs can't be read, the manifests' own verdict stands. What writes asks
        `admit`, which then refuses."""
        try:
            return self.judged(name, observed)
        except ModelplaneError:
            return self.plan(name, observed)

    def _pools(self, plan: ClusterPlan, observed: ObservedCluster | None) -> Mapping[str, ObservedPool]:
        if observed is not None:
            if isinstance(observed.pools, Unknown):
                raise UnreadableError(observed.pools.why)
            return observed.pools.value
        seen = self._recent_cloud(plan.name)
        return observed_pools(seen) if seen is not None else {}

    def _recent_cloud(self, name: str) -> CloudCluster | None:
        """For the gate, which every step asks, and for whether the control plane stands: what runs changes its role in no
        second, nor does a control plane go."""
        with self._lock:
            kept_at = self._seen.get(name)
        if kept_at is not None and time.monotonic() - kept_at[0] <= FRESH:
            return kept_at[1]
        found = self.cloud_cluster(name)
        with self._lock:
            self._seen[name] = (time.monotonic(), found)
        return found

    def standing(self, name: str) -> Standing:
        """What is installed, read anew after every write of this session and at most a second old otherwise. Raises
        UnreadableError where it can't be read: unknown isn't "nothing"."""
        with self._lock:
            kept_at = self._standing.get(name)
        if kept_at is not None and time.monotonic() - kept_at[0] <= FRESH:
            return kept_at[1]
        found = self._read_standing(name)
        with self._lock:
            self._standing[name] = (time.monotonic(), found)
        return found

    def forget(self, name: str) -> None:
        """Something was written: what was read before it no longer holds."""
        with self._lock:
            self._standing.pop(name, None)
            self._recent.pop(name, None)

    def _read_standing(self, name: str) -> Standing:
        client = Reading(self.client(name))
        lists = self.planner.components(self.ref(name).source)
        releases = read_releases(client)
        objects = read_objects(client, self._kinds(name, lists))
        return Standing(
            components_seen(lists, releases, objects), kept_from(lists, releases), live_cpu_mode(lists, releases)
        )

    def plan_standing(self, name: str) -> ClusterPlan:
        """The plan with the CPU mode of the live release, else the probed one, and the pools that live values hold."""
        standing = self.standing(name)
        mode = standing.cpu_mode or self._modes.get(name)
        return self.planner.plan(name, cpu_mode=mode, keep=standing.kept)

    def api_waits(self, name: str) -> str:
        """Empty once the control plane stands, its system pool included, and its API answers; else what it waits for."""
        try:
            if self.ref(name).source != "Existing":
                seen = self._recent_cloud(name)
                if seen is None or seen.state not in STANDS:
                    # It may stand since.
                    seen = self.cloud_cluster(name)
                state = "not there" if seen is None else seen.state
                if state not in STANDS:
                    return f"the control plane of {name}, which is {state}"
            self.client(name).server_version()
        except (NotReadyError, UnreadableError) as error:
            if isinstance(error, AccessError) and self.ref(name).source == "Existing":
                # Waiting doesn't mend a kubeconfig; a new cluster on a cloud may take a while to know us.
                raise
            return error.message
        return ""

    # Writing

    def write(self, admission: Admission, *, gone: bool = False) -> None:
        """To be called before each write: takes the cluster's lease at the first, and checks at each that it still
        stands. `gone` says that its API will never answer again. Raises ClusterBusyError, and UnreadableError or
        KubernetesError where an API that should be there doesn't say who writes."""
        name = admission.cluster
        with self.alone(name, "lease"):
            held = self._leases.get(name)
            if held is None:
                held = leases.take(
                    name,
                    self.settings.home / "locks",
                    digest=admission.digest,
                    wait=self._lease_wait(),
                    announce=lambda text: log.info("%s", text),
                )
                self._leases[name] = held
                self._record(admission)
            if held.client is None and not gone:
                self._extend(name, held)
        held.check()
        self.forget(name)

    def holds(self, name: str) -> bool:
        """Whether this session has the cluster's lease, its part in the cluster included."""
        held = self._leases.get(name)
        return held is not None and held.client is not None

    def _extend(self, name: str, held: leases.ClusterLease) -> None:
        """The cluster's own Lease, as soon as its API is there; before that the file alone holds. An API that is there and
        doesn't answer may answer another writer."""
        try:
            keeper = self.keeper(name)
            keeper.server_version()
        except NotReadyError:
            return
        except (UnreadableError, KubernetesError):
            if self.has_api(name):
                raise
            return
        held.lapse = lambda: self.end_helm(name)
        leases.extend(held, keeper, wait=self._lease_wait(), announce=lambda text: log.info("%s", text))
        self.client(name).guard(held.check)

    def _lease_wait(self) -> float:
        return max(2.0, min(LEASE_WAIT, self.deadline - time.monotonic()))

    def _record(self, admission: Admission) -> None:
        """Written before the first write, so that whatever is made can be found again. Pools only ever gain drivers."""
        plan = self.plan(admission.cluster) if admission.cluster in self.fleet.clusters else None
        if plan is None or plan.view is None:
            # Prune works on what no manifest names any more; its record stands until it is gone.
            return
        before = self.records.read(plan.name)
        pools = {p.name: tuple(p.drivers) for p in plan.view.pools}
        for pool, drivers in (before.pools if before else {}).items():
            pools[pool] = tuple(sorted({*pools.get(pool, ()), *drivers}))
        secret = "/".join(self._secret(plan.name)) if plan.source == "Existing" else ""
        record = Record(
            name=plan.name,
            source=plan.source,
            location=plan.view.location,
            account=plan.account.name,
            digest=admission.digest,
            pools=pools,
            credentials=plan.view.credentials,
            kubeconfig=secret,
            deployments=before.deployments if before else (),
        )
        if record != before:
            self.records.write(record)

    def leave(self, name: str) -> None:
        """After its prune: nothing of ours stands on the cluster, so our Lease there goes with the session."""
        held = self._leases.get(name)
        if held is not None:
            held.leave = True

    def forget_pool(self, name: str, pool: str) -> None:
        """After its prune: the record no longer holds what the pool was made for."""
        record = self.records.read(name)
        if record is not None:
            self.records.write(replace(record, pools={k: v for k, v in record.pools.items() if k != pool}))

    def note_replica(self, name: str, deployment: tuple[str, str], *, there: bool) -> None:
        """Before a deployment's first replica is given to the cluster, and after its last one went: what may run there while
        it can't be read."""
        with self._lock:
            record = self.records.read(name)
            if record is None or record.deployments is None:
                return
            left = {d for d in record.deployments if d != deployment}
            new = tuple(sorted({*left, deployment} if there else left))
            if new != record.deployments:
                self.records.write(replace(record, deployments=new))

    # Reading everything

    def observe(self, name: str) -> ObservedCluster:
        """Reads the cluster; never raises for what can't be read, and never writes."""
        record = attempt(lambda: self.records.read(name))
        if isinstance(record, Unknown):
            return ObservedCluster(name=name, control_plane=record, pools=record, components=record, replicas=record)
        source = self._source(name, record.value)
        if source is None:
            why = Unknown(
                f"Nothing says where cluster {name} is: its manifest is invalid and it was never changed by us."
            )
            return ObservedCluster(name=name, control_plane=why, pools=why, components=why, replicas=why)
        lists = self.planner.components(source)
        return observe_cluster(
            name,
            cloud=None if source == "Existing" else lambda: self.cloud_cluster(name),
            client=lambda: self.client(name),
            components=lists,
            kinds=self._kinds(name, lists),
            record=record.value,
        )

    def _source(self, name: str, record: Record | None) -> str | None:
        cluster = self.fleet.clusters.get(name)
        if cluster is not None:
            return cluster.spec.cluster.source
        return record.source if record is not None else None

    def own_kinds(self, name: str) -> tuple[tuple[str, str], ...]:
        """The kinds (apiVersion, kind) that our own manifests on this cluster hold."""
        return (*CORE_KINDS, *self._kinds(name, self.planner.components(self.ref(name).source)))

    def _kinds(self, name: str, lists: tuple[Component, ...]) -> tuple[tuple[str, str], ...]:
        """The kinds of our own manifests on this source, those of CRDs included."""
        found = [kind for component in lists for kind in sorted(_own_kinds(component))]
        if name in self.fleet.clusters:
            plan = self.plan(name)
            found += [(b["apiVersion"], b["kind"]) for c in plan.installed for b in (*c.prepares, *c.manifests)]
        return tuple(dict.fromkeys(found))

    def known_names(self) -> tuple[str, ...]:
        """Every cluster that a manifest names or a record holds."""
        return tuple(sorted({*self.planner.names(), *self.records.names()}))

    def observe_all(self, names: tuple[str, ...] | None = None) -> dict[str, ObservedCluster]:
        """Clusters in threads; the slowest one's reads bound the time, not their sum."""
        chosen = self.known_names() if names is None else names
        with ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="observe") as pool:
            return dict(zip(chosen, pool.map(self.observe, chosen), strict=True))

    def recent(self, name: str, *, age: float = 1.0) -> ObservedCluster:
        """An observation at most `age` seconds old: steps of one run that only read share it."""
        with self._lock:
            kept_at = self._recent.get(name)
        if kept_at is not None and time.monotonic() - kept_at[0] <= age:
            return kept_at[1]
        seen = self.observe(name)
        with self._lock:
            self._recent[name] = (time.monotonic(), seen)
        return seen

    def summary(self, name: str, observed: ObservedCluster | None = None) -> ClusterSummary:
        """Does the cluster stand as planned. Raises KeyError for a name that no manifest gives."""
        seen = observed or self.recent(name)
        try:
            plan = self.judged(name, seen)
        except UnreadableError as error:
            return ClusterSummary(name=name, state="unknown", why=error.message)
        return summarise(plan, seen, grace=self.settings.grace)

    def fleet_plan(self) -> FleetPlan:
        """The whole fleet's plan against recent observations."""
        names = self.known_names()
        with ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="observe") as pool:
            observed = dict(zip(names, pool.map(self.recent, names), strict=True))
        return plan_fleet(self.fleet, overlay=self.settings.overlay(), observed=observed)

    # Waiting

    def left(self) -> float:
        """Seconds until the run's one deadline; 0 when it has passed."""
        return max(0.0, self.deadline - time.monotonic())

    def until(self, ready: Callable[[], str], *, pause: float = 0.2) -> str:
        """Asks `ready` until it answers the empty text or the deadline passes; its last answer is what is waited for."""
        while True:
            waiting = ready()
            if not waiting or self.left() <= 0:
                return waiting
            time.sleep(min(pause, self.left()))
            pause = min(pause * 1.5, 5.0)


def _own_kinds(component: Component) -> set[tuple[str, str]]:
    """The kinds of the component's own manifests, whatever cluster they are made for. It doesn't ask a plan: what is
    left over of a cluster that no manifest names any more must be found too."""
    found = {
        (w.resource.api_version, w.resource.kind)
        for w in component.workloads
        if w.resource is not None and w.resource.values_root is None
    }
    if isinstance(component.manifests, Same):
        found |= {(str(b["apiVersion"]), str(b["kind"])) for b in component.manifests.value}
    elif component.manifests is not None and component.pin is None:
        found |= {("apps/v1", w.kind) for w in component.workloads if w.kind in WORKLOAD_KINDS}
    return found


@contextmanager
def open_session(
    settings: Settings, fleet: Fleet, *, wait: float = 0.0, world: World | None = None, tally: Tally | None = None
) -> Iterator[Session]:
    """A session on the configured world, closed whatever happens."""
    session = Session(settings, fleet, world or open_world(settings), wait=wait, tally=tally)
    try:
        yield session
    finally:
        session.close()
