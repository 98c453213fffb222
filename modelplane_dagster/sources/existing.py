"""Existing: a cluster that the platform team runs. Nothing is provisioned, and nodes are never written to."""

from __future__ import annotations

from modelplane_dagster.cluster import ClusterView, PoolView
from modelplane_dagster.findings import Finding
from modelplane_dagster.sources.record import Request, SourceModule, SourceRecord, common_checks, own_name

RECORD = SourceRecord(
    name="Existing",
    default_version="",
    floor="",
    version_form="the cluster's own, read from its API",
    system_pool=None,
    driver_image="on the nodes already, put there by the platform team",
    fabrics=("None", "EFA", "InfiniBand"),
    server_autoscaler=False,
)


def control_plane_request(view: ClusterView) -> Request:
    """Empty: the cluster is there."""
    del view
    return {}


def pool_request(view: ClusterView, pool: PoolView) -> Request:
    """What the pool's nodes are expected to carry; nobody sends it."""
    del view
    return {"labels": dict(pool.labels), "taints": [t.as_dict() for t in pool.taints]}


def check_pool(view: ClusterView, pool: PoolView) -> tuple[Finding, ...]:
    return common_checks(RECORD, view, pool)


SOURCE = SourceModule(
    record=RECORD,
    control_plane_request=control_plane_request,
    pool_request=pool_request,
    check_pool=check_pool,
    pool_name=own_name,
)
