"""From manifests to the view that every rule reads: pools with roles, labels, taints; claimed drivers; the account."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from modelplane_dagster.accounts import Account, resolve_account
from modelplane_dagster.cluster import Accelerator, ClusterView, ExternalDriver, PoolView
from modelplane_dagster.cpu import mode_for
from modelplane_dagster.findings import Finding, finding, has_errors
from modelplane_dagster.kube.objects import Taint
from modelplane_dagster.kube.versions import KubernetesVersion
from modelplane_dagster.roles import class_drivers, pool_labels, pool_taints, role_of

if TYPE_CHECKING:
    from modelplane_dagster.cluster import CpuMode
    from modelplane_dagster.manifests.fleet import Fleet
    from modelplane_dagster.manifests.models import InferenceClass, InferenceCluster, NodePool


@dataclass(frozen=True, slots=True)
class Resolution:
    """`view` is None where a class or the cluster itself is missing or invalid: then the claimed drivers are unknown
    and nothing may change. `findings` are those of the cluster's manifests, its account's included."""

    name: str
    source: str
    view: ClusterView | None
    account: Account
    findings: tuple[Finding, ...]


def resolve(fleet: Fleet, name: str, *, default_version: str = "", cpu_mode: CpuMode | None = None) -> Resolution:
    """The named cluster, resolved. `default_version` is the source's, for clusters that declare none; `cpu_mode` is what
    the cluster itself answered, and overrides what its version alone would say. Raises KeyError for an unknown cluster."""
    if name not in fleet.clusters:
        return _broken(fleet, name)
    cluster = fleet.clusters[name]
    account, account_findings = resolve_account(fleet, cluster)
    own = tuple(f for f in fleet.cluster_findings(name) if f not in account_findings)
    missing = [p for p in cluster.spec.node_pools if p.class_name not in fleet.classes]
    if missing or has_errors(own):
        return Resolution(name, cluster.spec.cluster.source, None, account, (*own, *account_findings))
    view = _view(fleet, cluster, default_version)
    mode = cpu_mode or mode_for(KubernetesVersion.parse(view.version) if view.version else None)
    view = replace(view, account=account.name, cpu_mode=mode if "dra.cpu" in view.claimed else None)
    return Resolution(name, view.source, view, account, (*own, *account_findings))


def _broken(fleet: Fleet, name: str) -> Resolution:
    reasons = fleet.broken[("InferenceCluster", name)]
    summary = finding(
        "ClusterInvalid",
        f"cluster/{name}",
        f"The manifest of cluster {name} is invalid ({', '.join(sorted({f.code for f in reasons}))}); nothing about it is changed.",
        place=next((f.place for f in reasons if f.place), None),
    )
    return Resolution(name, "", None, Account(""), (*reasons, summary))


def _view(fleet: Fleet, cluster: InferenceCluster, default_version: str) -> ClusterView:
    source = cluster.spec.cluster.source
    block: Any = getattr(cluster.spec.cluster, source.lower())
    external = tuple(
        ExternalDriver(row.driver, row.kind, row.taint or "") for row in getattr(block, "external_drivers", None) or ()
    )
    pools = tuple(_pool(cluster, pool, fleet.classes[pool.class_name], external) for pool in cluster.spec.node_pools)
    credentials = cluster.credentials
    return ClusterView(
        name=cluster.name,
        source=source,
        version=getattr(block, "kubernetes_version", None) or default_version,
        pools=pools,
        claimed=frozenset(d for p in pools for d in p.drivers),
        location=getattr(block, "region", None) or getattr(block, "location", None) or "",
        labels=MappingProxyType(dict(cluster.metadata.labels or {})),
        taints=tuple(Taint(t.key, t.value or "", t.effect) for t in cluster.spec.taints or ()),
        credentials=(credentials.type, credentials.name),
        external=external,
    )


def _pool(
    cluster: InferenceCluster, pool: NodePool, cls: InferenceClass, external: tuple[ExternalDriver, ...]
) -> PoolView:
    source = cluster.spec.cluster.source
    block: Any = getattr(cls.spec.provisioning, source.lower(), None) if cls.spec.provisioning else None
    accelerator = None
    if block is not None and block.accelerator is not None:
        accelerator = Accelerator(block.accelerator.type, block.accelerator.count)
    drivers = class_drivers(cls)
    fabric = pool.fabric
    return PoolView(
        cluster=cluster.name,
        name=pool.name,
        class_name=pool.class_name,
        role=role_of(drivers, external),
        drivers=drivers,
        devices=tuple(cls.spec.devices),
        labels=pool_labels(pool.name, drivers, accelerator, external),
        taints=pool_taints(drivers, external),
        count=pool.start_count,
        minimum=pool.min_node_count,
        maximum=pool.max_node_count,
        zones=tuple(pool.zones or ()),
        fabric=fabric.type if fabric else "None",
        infiniband=fabric.infiniband.fabric if fabric and fabric.infiniband else "",
        capacity_block=pool.capacity_block.capacity_reservation_id if pool.capacity_block else "",
        accelerator=accelerator,
        machine=MappingProxyType(block.model_dump(by_alias=True, exclude={"accelerator"}) if block is not None else {}),
    )
