"""Vultr Kubernetes Engine, in the vocabulary of its REST API v2. Each request is the body of one POST, sent as it stands.

A cluster has no tag there, so the ownership mark is the tag of its pools; labels of clusters and pools may repeat.
"""

from __future__ import annotations

from typing import Any

from modelplane_dagster import drivers
from modelplane_dagster.cluster import ClusterView, PoolView
from modelplane_dagster.findings import Finding
from modelplane_dagster.sources.record import (
    OWNER,
    SYSTEM_POOL,
    Request,
    SourceModule,
    SourceRecord,
    SystemPool,
    bounds,
    common_checks,
    nvidia,
    own_name,
    seed,
    wrong_role,
)

_SYSTEM = SystemPool(machine="vc2-6c-16gb", minimum=1, maximum=2)

RECORD = SourceRecord(
    name="Vultr",
    default_version="v1.36.1+3",
    floor="",
    version_form="the exact version with its build suffix, such as v1.36.1+3",
    system_pool=_SYSTEM,
    driver_image="installed by the GPU operator that Vultr puts on every cluster with GPUs",
    min_nodes=1,
    wakes_from_zero=False,
    # Whether standing nodes receive later changes isn't documented, so the nodes are looked at.
    nodes_follow_labels=False,
)

NO_DEVICE_PLUGIN = ("nvidia.com/gpu.deploy.device-plugin", "false")
"""The GPU operator that Vultr preinstalls leaves its device plugin off nodes with this label; else two ledgers hand out one GPU."""


def control_plane_request(view: ClusterView) -> Request:
    """The cluster with its system pool inline."""
    return {
        "label": view.name,
        "region": view.location,
        "version": view.version or RECORD.default_version,
        "ha_controlplanes": False,
        "enable_firewall": False,
        "node_pools": [
            {
                "node_quantity": _SYSTEM.minimum,
                "label": SYSTEM_POOL,
                "plan": _SYSTEM.machine,
                "tag": OWNER,
                "auto_scaler": True,
                "min_nodes": _SYSTEM.minimum,
                "max_nodes": _SYSTEM.maximum,
                "labels": {drivers.POOL_LABEL: SYSTEM_POOL},
            }
        ],
    }


def pool_request(view: ClusterView, pool: PoolView) -> Request:
    """The node pool. GPU pools carry the label that keeps the preinstalled device plugin off."""
    del view
    labels = dict(pool.labels)
    if nvidia(pool):
        labels.update([NO_DEVICE_PLUGIN])
    return {
        "node_quantity": seed(pool),
        "label": pool_name(pool),
        "plan": pool.machine["plan"],
        "tag": OWNER,
        **_size(pool),
        "labels": labels,
        "taints": [t.as_dict() for t in pool.taints],
    }


def check_pool(view: ClusterView, pool: PoolView) -> tuple[Finding, ...]:
    """Beside the common checks: a plan of the other role (the families `vcg-` carry GPUs)."""
    other = wrong_role(view, pool, "plan", gpu=("vcg-",), cpu=("vc2-", "vhf-", "vhp-", "vdc-"))
    return (*common_checks(RECORD, view, pool), *other)


pool_name = own_name


def _size(pool: PoolView) -> dict[str, Any]:
    if not pool.autoscaled:
        return {"auto_scaler": False}
    low, high = bounds(pool)
    return {"auto_scaler": True, "min_nodes": low, "max_nodes": high}


SOURCE = SourceModule(
    record=RECORD,
    control_plane_request=control_plane_request,
    pool_request=pool_request,
    check_pool=check_pool,
    pool_name=pool_name,
)
