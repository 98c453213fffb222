"""What reconciling would do to a cluster: `plan(observed, desired)` as sorted actions, and what is left over.

Nothing here yields a delete: only prune does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from modelplane_dagster.cluster import ClusterView, PoolView
from modelplane_dagster.cluster_plan import ClusterPlan, object_digests, values_digest
from modelplane_dagster.components.types import JoinedComponent
from modelplane_dagster.gate import refusal_sentence
from modelplane_dagster.known import Known, Unknown
from modelplane_dagster.observed import ObservedCluster, ObservedComponent, ObservedPool

Op = Literal["create", "update", "install", "upgrade", "none", "delete"]
_ORDER = {"cluster": 0, "pool": 1, "component": 2, "deployment": 3}


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that reconciling would do; `none` says why nothing is done."""

    op: Op
    subject: str
    reason: str

    def as_dict(self) -> dict[str, str]:
        return {"op": self.op, "subject": self.subject, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Orphan:
    """Something of ours that still runs and that no manifest asks for."""

    subject: str
    reason: str

    @property
    def prune(self) -> str:
        return f"modelplane-dagster prune {self.subject}"

    def as_dict(self) -> dict[str, str]:
        return {"subject": self.subject, "reason": self.reason, "prune": self.prune}


def cluster_actions(plan: ClusterPlan, observed: ObservedCluster | None) -> tuple[Action, ...]:
    """Sorted. `observed` None means that nobody looked: then everything is listed as if nothing stood there."""
    if plan.view is None or plan.gate.verdict != "pass":
        return (Action("none", f"cluster/{plan.name}", refusal_sentence(plan.name, plan.gate)),)
    found = [_control_plane(plan.view, observed)]
    found += [_pool(plan.view, pool, observed) for pool in plan.view.pools]
    found += [_component(plan, index, observed) for index in range(len(plan.installed))]
    return tuple(sorted(found, key=lambda a: (_ORDER[a.subject.split("/", 1)[0]], a.subject)))


_BLIND = "nothing was observed; made if it isn't there"


def _control_plane(view: ClusterView, observed: ObservedCluster | None) -> Action:
    subject = f"cluster/{view.name}"
    existing = view.source == "Existing"
    if observed is None:
        return Action("none", subject, "the platform team's own") if existing else Action("create", subject, _BLIND)
    seen = observed.control_plane
    if isinstance(seen, Unknown):
        return Action("none", subject, f"unknown: {seen.why}")
    if seen.value is None:
        return Action("none", subject, "its API doesn't answer") if existing else Action("create", subject, "not there")
    if not seen.value.ours and not existing:
        return Action("none", subject, "the name exists and isn't ours")
    return Action("none", subject, f"{seen.value.state}, Kubernetes {seen.value.version}")


def _pool(view: ClusterView, pool: PoolView, observed: ObservedCluster | None) -> Action:
    subject = f"pool/{view.name}/{pool.name}"
    if view.source == "Existing":
        return Action("none", subject, "nodes of the platform team's own are never written to")
    if observed is None:
        return Action("create", subject, _BLIND)
    if isinstance(observed.pools, Unknown):
        return Action("none", subject, f"unknown: {observed.pools.why}")
    seen = observed.pools.value.get(pool.name)
    if seen is None:
        return Action("create", subject, "not there")
    drift = pool_drift(pool, seen)
    if drift:
        return Action("update", subject, "; ".join(drift))
    return Action("none", subject, f"{seen.state}, {seen.joined} of {seen.count} nodes")


def pool_drift(pool: PoolView, seen: ObservedPool) -> tuple[str, ...]:
    """What differs on the cloud, in words; empty when nothing that is ours does. Taints are compared by key and effect:
    a cloud may choose the value. An autoscaled pool's size is left alone."""
    found = [
        f"label {key} is {seen.labels.get(key, 'missing')}, not {value}"
        for key, value in sorted(pool.labels.items())
        if seen.labels.get(key) != value
    ]
    there = {(t.key, t.effect) for t in seen.taints}
    found += [f"taint {t} is missing" for t in pool.taints if (t.key, t.effect) not in there]
    if pool.autoscaled and (seen.minimum, seen.maximum) not in (_bounds(pool), (None, None)):
        found.append(f"bounds are {seen.minimum} to {seen.maximum}, not {pool.minimum} to {pool.maximum}")
    if not pool.autoscaled and seen.count != pool.count:
        found.append(f"count is {seen.count}, not {pool.count}")
    return tuple(found)


def _bounds(pool: PoolView) -> tuple[int, int]:
    return (
        pool.count if pool.minimum is None else pool.minimum,
        pool.count if pool.maximum is None else pool.maximum,
    )


def _component(plan: ClusterPlan, index: int, observed: ObservedCluster | None) -> Action:
    joined = plan.installed[index]
    subject = f"component/{plan.name}/{joined.key}"
    if observed is None:
        return Action("install", subject, f"{joined.reason}; {_BLIND}")
    if isinstance(observed.components, Unknown):
        # Before the control plane exists there is nothing to read, and that is known, not a failed read.
        if isinstance(observed.control_plane, Known) and observed.control_plane.value is None:
            return Action("install", subject, joined.reason)
        return Action("none", subject, f"unknown: {observed.components.why}")
    seen = observed.components.value.get(joined.key)
    if seen is None:
        return Action("install", subject, joined.reason)
    drift = component_drift(joined, seen)
    return (
        Action("upgrade", subject, drift) if drift else Action("none", subject, f"{seen.state} {seen.version}".strip())
    )


def component_drift(joined: JoinedComponent, seen: ObservedComponent) -> str:
    """Why an installed component isn't as planned; empty when it is."""
    if seen.state not in ("deployed", "applied"):
        return f"its release is {seen.state}"
    wanted = object_digests(joined)
    missing = sorted(ref for ref in wanted if ref not in seen.objects)
    if missing:
        return f"{missing[0]} isn't there" if len(missing) == 1 else f"{len(missing)} objects aren't there"
    if any(seen.objects[ref] != told for ref, told in wanted.items()):
        return "its manifests differ"
    return release_drift(joined, seen)


def release_drift(joined: JoinedComponent, seen: ObservedComponent) -> str:
    """Why helm is to run; empty where the release is as planned, whatever became of our own objects beside it: helm would
    make a second revision of the same chart and values. Empty for manifests alone too."""
    pin = joined.component.pin
    if pin is None:
        return ""
    if seen.state != "deployed":
        return "it has no release" if seen.state == "applied" else f"its release is {seen.state}"
    if (seen.chart, seen.version) != (pin.chart, pin.version):
        first = ", its CRDs first" if joined.component.crds_need_apply else ""
        return f"{seen.chart} {seen.version} to {pin.chart} {pin.version}{first}"
    return "" if seen.values == values_digest(joined) else "its values differ"


def cluster_orphans(plan: ClusterPlan, observed: ObservedCluster) -> tuple[Orphan, ...]:
    """Pools and components of a declared cluster that its manifests no longer ask for. Empty where the verdict is
    unknown: then nothing can be said to be left over."""
    if plan.view is None:
        return ()
    found = []
    if isinstance(observed.pools, Known) and plan.view.source != "Existing":
        wanted = {p.name for p in plan.view.pools}
        found += [
            Orphan(f"pool/{plan.name}/{name}", "no manifest names the pool")
            for name in sorted(set(observed.pools.value) - wanted)
        ]
    if isinstance(observed.components, Known):
        wanted = {c.key for c in plan.installed}
        dropped = {c.key: c.reason for c in plan.join.components if not c.install} if plan.join else {}
        found += [
            Orphan(f"component/{plan.name}/{key}", dropped.get(key, "no list holds the component any more"))
            for key in sorted(set(observed.components.value) - wanted)
        ]
    return tuple(found)


def fleet_orphans(named: Iterable[str], observed: Mapping[str, ObservedCluster]) -> tuple[Orphan, ...]:
    """Clusters that we made or changed, and that no manifest names, valid or not."""
    names = set(named)
    return tuple(
        Orphan(f"cluster/{name}", "no manifest names the cluster")
        for name, cluster in sorted(observed.items())
        if name not in names and cluster.record is not None
    )
