"""The plan of a fleet: pure, sorted, fingerprinted. A dry run prints the very objects that reconciling executes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from modelplane_dagster.actions import Action, Orphan, cluster_actions, cluster_orphans, fleet_orphans
from modelplane_dagster.canonical import digest
from modelplane_dagster.cluster_plan import ClusterPlan, Keep, Overlay, Planner
from modelplane_dagster.known import Known
from modelplane_dagster.observed import ObservedCluster
from modelplane_dagster.placement import ClusterOffer, HeldReplica, Placement, place_all
from modelplane_dagster.running import judged

if TYPE_CHECKING:
    from modelplane_dagster.findings import Finding
    from modelplane_dagster.manifests.fleet import Fleet

Observed = Mapping[str, ObservedCluster]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """`observed` is None where nobody looked. `clusters` and `placements` are sorted by name. `live` holds what the audits
    say of the clusters themselves, by name; empty where nobody audited."""

    fleet: Fleet
    clusters: tuple[ClusterPlan, ...]
    placements: tuple[Placement, ...]
    actions: tuple[Action, ...]
    orphans: tuple[Orphan, ...]
    observed: Observed | None = None
    live: Mapping[str, tuple[Finding, ...]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The fleet's own: what its files gave."""
        return self.fleet.findings

    @property
    def refused(self) -> bool:
        """A cluster or a deployment is refused by the gate."""
        return any(c.gate.verdict == "refused" for c in self.clusters) or any(
            p.verdict == "refused" for p in self.placements
        )

    def cluster(self, name: str) -> ClusterPlan:
        """Raises KeyError for a name that no manifest gives."""
        for plan in self.clusters:
            if plan.name == name:
                return plan
        raise KeyError(name)


def plan_fleet(fleet: Fleet, *, overlay: Overlay | None = None, observed: Observed | None = None) -> FleetPlan:
    """`plan(observed, desired)`. Reads nothing; the same input gives the same plan."""
    planner = Planner(fleet, overlay)
    clusters = tuple(_plan_one(planner, name, observed) for name in planner.names())
    offers = [offer(c, observed.get(c.name) if observed is not None else None) for c in clusters]
    held = [h for c in clusters for h in _held(c, (observed or {}).get(c.name))]
    placements = place_all(fleet, [o for o in offers if o is not None], held=held)
    actions: list[Action] = []
    orphans: list[Orphan] = []
    for cluster in clusters:
        seen = observed.get(cluster.name) if observed is not None else None
        actions += cluster_actions(cluster, seen)
        orphans += cluster_orphans(cluster, seen) if seen else ()
    actions += [_deployment_action(p, observed) for p in placements]
    if observed is not None:
        orphans += fleet_orphans(planner.names(), observed)
        orphans += _lost_deployments(fleet, observed)
    return FleetPlan(
        fleet=fleet,
        clusters=clusters,
        placements=placements,
        actions=tuple(actions),
        orphans=tuple(sorted(orphans, key=lambda o: o.subject)),
        observed=observed,
    )


def keep_from(observed: ObservedCluster | None) -> Keep:
    """The pools that live releases hold in their values; reconciling never takes one out."""
    return observed.kept if observed is not None else {}


def _plan_one(planner: Planner, name: str, observed: Observed | None) -> ClusterPlan:
    seen = observed.get(name) if observed is not None else None
    if seen is None:
        return planner.plan(name)
    mode = seen.cpu_mode.value if isinstance(seen.cpu_mode, Known) else None
    plan = planner.plan(name, cpu_mode=mode, keep=keep_from(seen))
    # Where the pools couldn't be read their actions say so; what the record alone tells refuses all the same.
    pools = seen.pools.value if isinstance(seen.pools, Known) else {}
    return judged(plan, record=seen.record, pools=pools, places=planner.fleet)


def offer(plan: ClusterPlan, observed: ObservedCluster | None) -> ClusterOffer | None:
    """What a cluster offers to placement; None where its claimed drivers are unknown."""
    if plan.view is None:
        return None
    existing = observed.replicas.value if observed is not None and isinstance(observed.replicas, Known) else ()
    nodes = None
    if observed is not None and observed.live is not None and isinstance(observed.live.nodes, Known):
        nodes = {p.name: 0 for p in plan.view.pools}
        for node in (n.facts for n in observed.live.nodes.value):
            if node.pool in nodes and node.ready and not node.unschedulable and not node.terminating:
                nodes[node.pool] += 1
    return ClusterOffer(
        view=plan.view,
        admitted=plan.gate.verdict == "pass",
        nodes=nodes,
        replicas=tuple(existing),
        unread=_unread(observed) if observed is not None else "",
        may_hold=_recorded(observed),
    )


def _recorded(observed: ObservedCluster | None) -> frozenset[tuple[str, str]] | None:
    """The deployments that were ever given to the cluster, by its record; None where it doesn't say."""
    record = observed.record if observed is not None else None
    return None if record is None or record.deployments is None else frozenset(record.deployments)


def _unread(observed: ObservedCluster) -> str:
    """Why it isn't known which replicas run there; empty where it is, or where none of ours can."""
    if isinstance(observed.replicas, Known) or observed.record is None:
        return ""
    plane = observed.control_plane
    if isinstance(plane, Known) and (plane.value is None or plane.value.state == "creating"):
        return ""
    return observed.replicas.why


def _held(plan: ClusterPlan, observed: ObservedCluster | None) -> list[HeldReplica]:
    """The replicas that run on a cluster whose manifests are unknown: nobody may touch them, and they count."""
    if plan.view is not None or observed is None or not isinstance(observed.replicas, Known):
        return []
    return [HeldReplica(plan.name, r.namespace, r.deployment) for r in observed.replicas.value]


def _deployment_action(placement: Placement, observed: Observed | None) -> Action:
    """What is placed is made, also where not every replica is."""
    subject = f"deployment/{placement.namespace}/{placement.name}"
    if not placement.replicas:
        first = placement.findings[0].message if placement.findings else placement.verdict
        return Action("none", subject, first)
    wanted = Counter(r.cluster for r in placement.replicas)
    if observed is None:
        return Action("create", subject, f"on {_names(wanted)}; nothing was observed")
    missing = wanted - _there(placement, observed)
    if missing:
        return Action("create", subject, f"on {_names(missing)}")
    return Action("none", subject, f"runs on {_names(wanted)}")


def _there(placement: Placement, observed: Observed) -> Counter[str]:
    """How many replicas of the deployment were seen on each cluster."""
    return Counter(
        name
        for name, cluster in observed.items()
        if isinstance(cluster.replicas, Known)
        for r in cluster.replicas.value
        if (r.namespace, r.deployment) == (placement.namespace, placement.name)
    )


def _names(clusters: Counter[str]) -> str:
    return ", ".join(sorted(clusters.elements()))


def _lost_deployments(fleet: Fleet, observed: Observed) -> list[Orphan]:
    known = {*fleet.deployments, *_broken_deployments(fleet)}
    found = {
        (r.namespace, r.deployment): name
        for name, cluster in sorted(observed.items())
        if isinstance(cluster.replicas, Known)
        for r in cluster.replicas.value
        if (r.namespace, r.deployment) not in known
    }
    return [
        Orphan(f"deployment/{namespace}/{name}", f"it runs on {cluster} and no manifest names it")
        for (namespace, name), cluster in found.items()
    ]


def _broken_deployments(fleet: Fleet) -> set[tuple[str, str]]:
    """A deployment whose manifest is invalid is still asked for."""
    names = (name for kind, name in fleet.broken if kind == "ModelDeployment")
    return {(ns or "default", rest) for ns, _, rest in (n.rpartition("/") for n in names)}


def fingerprint(document: Mapping[str, Any]) -> str:
    """Over the plan's own JSON, the fingerprint left out."""
    return digest({k: v for k, v in document.items() if k != "fingerprint"})
