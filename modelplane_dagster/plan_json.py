"""The plan as the public JSON document: `plan --format json`. Shapes are a contract; tools read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from modelplane_dagster.plan import FleetPlan, fingerprint
from modelplane_dagster.sources import SOURCES

if TYPE_CHECKING:
    from modelplane_dagster.audit.plan_audit import PlanAudit
    from modelplane_dagster.cluster import ClusterView, PoolView
    from modelplane_dagster.cluster_plan import ClusterPlan
    from modelplane_dagster.components.join import Join
    from modelplane_dagster.components.types import JoinedComponent
    from modelplane_dagster.findings import Finding
    from modelplane_dagster.manifests.classes import Device
    from modelplane_dagster.placement import Placement

T = TypeVar("T")


def plan_document(plan: FleetPlan) -> dict[str, Any]:
    """JSON-able; its own fingerprint first. `findings`, those of the files that no cluster's gate and no deployment can
    show, stands in it only where there are some: of clean manifests the document has the contract's keys alone, and of
    others nothing is dropped."""
    memo: dict[int, Any] = {}
    document: dict[str, Any] = {
        "clusters": [_cluster(c, plan.live.get(c.name, ()), memo) for c in plan.clusters],
        "deployments": [_deployment(p) for p in plan.placements],
        "actions": [a.as_dict() for a in plan.actions],
        "orphans": [o.as_dict() for o in plan.orphans],
    }
    if plan.findings:
        document["findings"] = [f.as_dict() for f in plan.findings]
    return {"fingerprint": fingerprint(document), **document}


def _shared(memo: dict[int, Any], key: T, make: Callable[[T], Any]) -> Any:  # noqa: ANN401 - any JSON value
    """Clusters of one shape share the very objects of their join and audit, which are written out once. The plan holds
    those objects for as long as `memo` is used, so no identity comes twice."""
    found = memo.get(id(key))
    if found is None:
        found = memo[id(key)] = make(key)
    return found


def _cluster(plan: ClusterPlan, live: tuple[Finding, ...], memo: dict[int, Any]) -> dict[str, Any]:
    """The audits' findings on the plan and, where the cluster was looked at, on what runs stand in one list."""
    view = plan.view
    placement = _shared(memo, plan.audit, _audit) if plan.audit else {"workloads": [], "findings": []}
    if live:
        placement = {**placement, "findings": [*placement["findings"], *(f.as_dict() for f in live)]}
    return {
        "name": plan.name,
        "source": plan.source,
        "kubernetesVersion": (view.version if view else "") or None,
        "account": plan.account.name,
        "claimedDrivers": sorted(view.claimed) if view else None,
        "supportedDrivers": list(plan.supported),
        "gate": {"verdict": plan.gate.verdict, "findings": [f.as_dict() for f in plan.gate.findings]},
        "pools": [_pool(plan, view, p) for p in view.pools] if view else [],
        "components": _shared(memo, plan.join, _components) if plan.join else [],
        "placement": placement,
        "schedulablePools": [_schedulable(p, memo) for p in view.pools] if view else [],
        "cpuMode": view.cpu_mode if view else None,
    }


def _pool(plan: ClusterPlan, view: ClusterView, pool: PoolView) -> dict[str, Any]:
    return {
        "name": pool.name,
        "className": pool.class_name,
        "role": pool.role.value,
        "drivers": list(pool.drivers),
        "labels": dict(pool.labels),
        "taints": [t.as_dict() for t in pool.taints],
        "nodes": {"count": pool.count, "min": pool.minimum, "max": pool.maximum},
        "provider": SOURCES[view.source].pool_request(view, pool),
        "servedBy": [c.key for c in plan.serving(pool.name)],
    }


def _components(joined: Join) -> list[dict[str, Any]]:
    return [_component(c) for c in joined.components]


def _component(joined: JoinedComponent) -> dict[str, Any]:
    component = joined.component
    return {
        "key": component.key,
        "release": component.release or None,
        "namespace": component.namespace or None,
        "chart": component.pin.chart if component.pin else None,
        "version": component.pin.version if component.pin else None,
        "drivers": sorted(component.drivers),
        "install": joined.install,
        "reason": joined.reason,
        "dependsOn": list(component.depends_on),
        "values": joined.values,
    }


def _audit(audit: PlanAudit) -> dict[str, Any]:
    return {
        "workloads": [
            {"component": r.component, "kind": r.kind, "name": r.name, "reaches": list(r.reaches)} for r in audit.rows
        ],
        "findings": [f.as_dict() for f in audit.findings],
    }


def _schedulable(pool: PoolView, memo: dict[int, Any]) -> dict[str, Any]:
    devices = [_shared(memo, d, device_document) for d in pool.devices]
    return {"name": pool.name, "nodes": pool.count, "devices": devices}


def schedulable(view: ClusterView) -> list[dict[str, Any]]:
    """`status.schedulablePools`: every pool with its devices and node count."""
    return [_schedulable(pool, {}) for pool in view.pools]


def device_document(device: Device) -> dict[str, Any]:
    return device.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=False)


def _deployment(placement: Placement) -> dict[str, Any]:
    return {
        "name": placement.name,
        "namespace": placement.namespace,
        "verdict": placement.verdict,
        "replicas": [
            {
                "cluster": replica.cluster,
                "engines": [
                    {
                        "name": engine.name,
                        "members": [
                            {"role": m.role, "pool": m.pool, "requests": [dict(r) for r in m.requests]}
                            for m in engine.members
                        ],
                    }
                    for engine in replica.engines
                ],
            }
            for replica in placement.replicas
        ],
        "findings": [f.as_dict() for f in placement.findings],
    }
