"""How a deployment stands against its placement: what the sensor and the passes go by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from modelplane_dagster.audit.cpu_room import charges
from modelplane_dagster.known import Known
from modelplane_dagster.placement.workloads import replica_variants

if TYPE_CHECKING:
    from modelplane_dagster.observed import ObservedReplica
    from modelplane_dagster.placement import Placement
    from modelplane_dagster.plan import FleetPlan
    from modelplane_dagster.summary import ClusterSummary

ModelState = Literal["serving", "differs", "waiting", "unplaced", "refused"]


def model_state(plan: FleetPlan, placement: Placement) -> tuple[ModelState, str]:
    """`serving`, `differs` (something would be applied or retired), `waiting`, `unplaced` or `refused`, with a sentence."""
    if placement.verdict != "placed":
        why = placement.findings[0].message if placement.findings else placement.verdict
        return ("refused" if placement.verdict == "refused" else "unplaced"), why
    live = _live(plan, placement)
    there = sum(len(found) for found in live.values())
    wanted = len(placement.replicas)
    if there < wanted:
        return "differs", f"{there} of {wanted} replicas are there"
    if there > plan.fleet.deployments[(placement.namespace, placement.name)].spec.replicas:
        return "differs", f"{there} replicas are there, and {wanted} are asked for"
    stale = _stale(plan, placement, live)
    if stale:
        return "differs", f"what runs on {stale} isn't what the manifest asks for"
    replicas = [r for found in live.values() for r in found]
    if any(r.ready < r.desired for r in replicas):
        return (
            "waiting",
            f"{sum(r.ready for r in replicas)} of {sum(r.desired for r in replicas)} engine pods are ready",
        )
    return "serving", f"{wanted} replicas serve" if wanted > 1 else "1 replica serves"


def _live(plan: FleetPlan, placement: Placement) -> dict[str, list[ObservedReplica]]:
    """By cluster, the replicas of the deployment; a cluster that couldn't be read shows none. What runs on a cluster that
    no manifest names any more is that cluster's orphan, and stands in for nothing."""
    name = (placement.namespace, placement.name)
    named = {c.name for c in plan.clusters}
    return {
        cluster: [r for r in seen.replicas.value if (r.namespace, r.deployment) == name]
        for cluster, seen in (plan.observed or {}).items()
        if cluster in named and isinstance(seen.replicas, Known)
    }


def _stale(plan: FleetPlan, placement: Placement, live: Mapping[str, list[ObservedReplica]]) -> str:
    """The first cluster where a replica differs from what would be applied; empty where none does."""
    key = (placement.namespace, placement.name)
    count: Counter[str] = Counter()
    for replica in placement.replicas:
        view = plan.cluster(replica.cluster).view
        ordinal = count[replica.cluster]
        count[replica.cluster] += 1
        if view is None:
            continue
        seen = (plan.observed or {}).get(replica.cluster)
        charged = charges(view, seen.live if seen is not None else None)
        may = replica_variants(key, plan.fleet.deployments[key], replica, view, ordinal=ordinal, charges=charged)
        if all(r.digest not in {o.digest for o in may} for r in live.get(replica.cluster, ())):
            return replica.cluster
    return ""


def ready_pools(placement: Placement, summaries: Mapping[str, ClusterSummary]) -> set[str]:
    """`cluster/pool` of every pool that a replica was placed on and that is ready, or wakes for its pods."""
    found = set()
    for replica in placement.replicas:
        summary = summaries.get(replica.cluster)
        health = {h.pool: h.state for h in summary.health} if summary else {}
        pools = {m.pool for engine in replica.engines for m in engine.members}
        found |= {f"{replica.cluster}/{p}" for p in pools if health.get(p) in ("ready", "idle")}
    return found
