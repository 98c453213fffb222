"""The plan of one cluster from manifests alone: resolved, joined, judged, audited. Every step executes these objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from modelplane_dagster.accounts import Account
from modelplane_dagster.audit.plan_audit import PlanAudit
from modelplane_dagster.canonical import digest
from modelplane_dagster.cluster import ClusterView, CpuMode
from modelplane_dagster.components.join import Join, Kept
from modelplane_dagster.components.lists import components_for, externals
from modelplane_dagster.components.support import supported
from modelplane_dagster.components.types import Component, JoinedComponent
from modelplane_dagster.findings import Finding, finding, ordered
from modelplane_dagster.gate import GateFacts, GateResult, judge
from modelplane_dagster.resolve import Resolution, resolve
from modelplane_dagster.shapes import Shapes
from modelplane_dagster.sources import SOURCES
from modelplane_dagster.sources.record import check_cluster

if TYPE_CHECKING:
    from modelplane_dagster.manifests.fleet import Fleet

Overlay = Mapping[str, Mapping[str, Any]]
Keep = Mapping[str, Kept]


@dataclass(frozen=True, kw_only=True)
class ClusterPlan:
    """`view`, `join` and `audit` are None where the verdict is unknown: a class or the cluster's manifest is missing or
    invalid, so nothing can be said of what it claims. `digest` binds an Admission to these manifests."""

    name: str
    source: str
    digest: str
    account: Account
    gate: GateResult
    supported: tuple[str, ...]
    view: ClusterView | None
    join: Join | None
    audit: PlanAudit | None

    @cached_property
    def installed(self) -> tuple[JoinedComponent, ...]:
        """The components that this cluster gets, dependencies first; empty where the verdict is unknown."""
        return tuple(c for c in self.join.components if c.install) if self.join else ()

    def component(self, key: str) -> JoinedComponent:
        """Raises KeyError for a key that this cluster doesn't get."""
        for component in self.installed:
            if component.key == key:
                return component
        raise KeyError(key)

    def serving(self, pool: str) -> tuple[JoinedComponent, ...]:
        """The tagged or conditional components that serve a pool, in order of installation."""
        return tuple(c for c in self.installed if pool in c.serves and (c.component.drivers or c.component.when))

    @cached_property
    def base(self) -> tuple[JoinedComponent, ...]:
        """The untagged components, in order of installation."""
        return tuple(c for c in self.installed if not c.component.drivers and not c.component.when)

    @cached_property
    def tagged(self) -> tuple[JoinedComponent, ...]:
        """The tagged and the conditional ones, in order of installation."""
        return tuple(c for c in self.installed if c.component.drivers or c.component.when)


def values_digest(joined: JoinedComponent) -> str:
    """What identifies the values that a release was given."""
    return digest(joined.values)


def object_ref(body: Mapping[str, Any]) -> str:
    """`Kind/namespace/name`; the namespace is empty for cluster-scoped kinds."""
    metadata = body["metadata"]
    return f"{body['kind']}/{metadata.get('namespace', '')}/{metadata['name']}"


def object_digests(joined: JoinedComponent) -> dict[str, str]:
    """The digest of each manifest of ours, as it is applied."""
    return {object_ref(body): digest(body) for body in (*joined.prepares, *joined.manifests)}


class Planner:
    """Plans clusters of one fleet with one overlay; what depends on a source alone is worked out once a source."""

    def __init__(self, fleet: Fleet, overlay: Overlay | None = None) -> None:
        self.fleet = fleet
        self.overlay = overlay
        self._lists: dict[str, tuple[Component, ...]] = {}
        self._supported: dict[str, tuple[str, ...]] = {}
        self._shapes = Shapes()

    def components(self, source: str) -> tuple[Component, ...]:
        if source not in self._lists:
            self._lists[source] = components_for(source, self.overlay)
        return self._lists[source]

    def supported(self, source: str, view: ClusterView | None = None) -> tuple[str, ...]:
        """The drivers that the source supports, sorted, with what the cluster declares external."""
        if view is not None and view.external:
            return tuple(sorted(supported(source, self.components(source), view.external)))
        if source not in self._supported:
            self._supported[source] = tuple(sorted(supported(source, self.components(source))))
        return self._supported[source]

    def names(self) -> tuple[str, ...]:
        """Every cluster that a manifest names, valid or not."""
        broken = {name for kind, name in self.fleet.broken if kind == "InferenceCluster"}
        return tuple(sorted({*self.fleet.clusters, *broken}))

    def plan(self, name: str, *, cpu_mode: CpuMode | None = None, keep: Keep | None = None) -> ClusterPlan:
        """The plan of one cluster. `cpu_mode` is what the cluster itself answered; `keep` names the pools that live
        releases already hold in their values, which a reconcile never shrinks. Raises KeyError for an unknown name."""
        cluster = self.fleet.clusters.get(name)
        default = SOURCES[cluster.spec.cluster.source].record.default_version if cluster else ""
        resolution = resolve(self.fleet, name, default_version=default, cpu_mode=cpu_mode)
        if resolution.view is None:
            return self._unknown(resolution)
        view = resolution.view
        module = SOURCES[view.source]
        joined, audit = self._shapes.plan(view, self.components(view.source), keep or {})
        supports = self.supported(view.source, view)
        facts = GateFacts(supports, externals(view.source), module.record.floor, module.record.gpu_through_accelerator)
        checks = [f for pool in view.pools for f in module.check_pool(view, pool)]
        asked = _at_pools(self.fleet, view, [*check_cluster(module.record, view), *checks, *_autoscaler(view, joined)])
        extra: list[Finding] = [*resolution.findings, *joined.findings, *asked]
        # Placement errors refuse as well, and stand in the audit: reported once, counted in both.
        gate = judge(view, facts, places=self.fleet, extra=extra)
        if gate.verdict == "pass" and any(f.severity == "error" for f in audit.findings):
            gate = GateResult("refused", gate.findings)
        return ClusterPlan(
            name=name,
            source=view.source,
            digest=self.fleet.cluster_digest(name),
            account=resolution.account,
            gate=gate,
            supported=supports,
            view=view,
            join=joined,
            audit=audit,
        )

    def _unknown(self, resolution: Resolution) -> ClusterPlan:
        return ClusterPlan(
            name=resolution.name,
            source=resolution.source,
            digest="",
            account=resolution.account,
            gate=GateResult("unknown", ordered(resolution.findings)),
            supported=self.supported(resolution.source) if resolution.source else (),
            view=None,
            join=None,
            audit=None,
        )


def _at_pools(fleet: Fleet, view: ClusterView, findings: list[Finding]) -> list[Finding]:
    """With the place of the pool or the cluster in its manifest: a source's checks know no file."""
    if all(f.place for f in findings):
        # A place is looked up in the file's text, which is read again for it.
        return findings
    at = {
        f"pool/{view.name}/{p.name}": fleet.place("InferenceCluster", view.name, ("spec", "nodePools", i))
        for i, p in enumerate(view.pools)
    }
    at[f"cluster/{view.name}"] = fleet.place("InferenceCluster", view.name, ("metadata", "name"))
    return [f if f.place else replace(f, place=at.get(f.subject)) for f in findings]


def _autoscaler(view: ClusterView, joined: Join) -> list[Finding]:
    if SOURCES[view.source].record.server_autoscaler:
        return []
    if any(c.install and c.key == "cluster-autoscaler" for c in joined.components):
        return []
    return [
        finding(
            "AutoscalerMissing",
            f"pool/{view.name}/{pool.name}",
            f"Pool {pool.name} has the bounds {pool.minimum} to {pool.maximum}, and nothing on cluster {view.name} scales it.",
        )
        for pool in view.pools
        if pool.autoscaled
    ]
