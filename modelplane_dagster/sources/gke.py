"""GKE: the bodies of CreateCluster and CreateNodePool, as protobuf's JSON writes `Cluster` and `NodePool`.

Counts on GKE are per zone. Bounds go out as totals. A pool with zones starts with the count divided by them, rounded
up; one without lies in zones that only the cluster knows, so its body gives the total and the adapter divides it over
as many of the cluster's zones as divide it evenly. NVIDIA pools take Google's default driver and the label of Google's
DRA driver, which also lets the autoscaler start from zero; the way of a driver of one's own excludes this one.
"""

from __future__ import annotations

from typing import Any

from modelplane_dagster.cluster import ClusterView, PoolView
from modelplane_dagster.drivers import POOL_LABEL
from modelplane_dagster.findings import Finding, finding
from modelplane_dagster.kube.objects import Taint
from modelplane_dagster.sources.record import (
    EFFECT_WORDS,
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
    subject,
    system_tags,
    tags,
)

SYSTEM = SystemPool(machine="e2-standard-4", minimum=1, maximum=2)

RECORD = SourceRecord(
    name="GKE",
    default_version="1.35",
    floor="1.35",
    version_form="1.X, 1.X.Y, 1.X.Y-gke.N or latest",
    system_pool=SYSTEM,
    driver_image="by Google's installer (DEFAULT)",
    gpu_through_accelerator=True,
    needs_zones_for_gpu=True,
    pool_name_pattern=r"[a-z]([-a-z0-9]*[a-z0-9])?",
    pool_name_limit=40,
    cluster_name_limit=40,
)

DRA_LABEL = "cloud.google.com/gke-nvidia-gpu-dra-driver"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
DEFAULT_DISK_GB = 100


def control_plane_request(view: ClusterView) -> Request:
    return {
        "name": view.name,
        "initialClusterVersion": view.version or RECORD.default_version,
        "releaseChannel": {"channel": "REGULAR"},
        "ipAllocationPolicy": {"useIpAliases": True},
        "resourceLabels": tags(view),
        # The system pool comes first and with the cluster: GKE taints its GPU nodes only where another pool exists.
        "nodePools": [
            {
                "name": SYSTEM_POOL,
                # For each zone, as its bounds are: the cluster's zones aren't known yet, and each gets one node.
                "initialNodeCount": SYSTEM.minimum,
                "autoscaling": {"enabled": True, "minNodeCount": SYSTEM.minimum, "maxNodeCount": SYSTEM.maximum},
                "config": {
                    "machineType": SYSTEM.machine,
                    "diskSizeGb": DEFAULT_DISK_GB,
                    "oauthScopes": [SCOPE],
                    "labels": {POOL_LABEL: SYSTEM_POOL},
                    "resourceLabels": system_tags(view),
                },
            }
        ],
    }


def pool_request(view: ClusterView, pool: PoolView) -> Request:
    config: dict[str, Any] = {
        "machineType": pool.machine.get("machineType", ""),
        "diskSizeGb": pool.machine.get("diskSizeGb", DEFAULT_DISK_GB),
        "imageType": "COS_CONTAINERD",
        "oauthScopes": [SCOPE],
        "labels": dict(pool.labels),
        "taints": [_taint(t) for t in pool.taints],
        "resourceLabels": tags(view, pool),
    }
    if nvidia(pool):
        config["labels"][DRA_LABEL] = "true"
        if pool.accelerator is not None:
            config["accelerators"] = [
                {
                    "acceleratorType": pool.accelerator.type,
                    # protobuf's JSON writes 64-bit integers as strings.
                    "acceleratorCount": str(pool.accelerator.count),
                    "gpuDriverInstallationConfig": {"gpuDriverVersion": "DEFAULT"},
                }
            ]
    body: Request = {"name": pool_name(pool), "initialNodeCount": _per_zone(seed(pool), pool.zones), "config": config}
    if pool.zones:
        body["locations"] = list(pool.zones)
    if pool.autoscaled:
        body["autoscaling"] = _autoscaling(*bounds(pool))
    return body


def _per_zone(total: int, zones: tuple[str, ...]) -> int:
    return -(-total // len(zones)) if zones else total


def _autoscaling(low: int, high: int) -> dict[str, Any]:
    return {"enabled": True, "totalMinNodeCount": low, "totalMaxNodeCount": high, "locationPolicy": "ANY"}


def _taint(taint: Taint) -> dict[str, str]:
    return {"key": taint.key, "value": taint.value, "effect": EFFECT_WORDS[taint.effect]}


def check_pool(view: ClusterView, pool: PoolView) -> tuple[Finding, ...]:
    found = common_checks(RECORD, view, pool)
    if pool.autoscaled and bounds(pool)[0] == 0 and pool.drivers and not nvidia(pool):
        found += (
            finding(
                "ScaleFromZero",
                subject(view, pool),
                f"Pool {pool.name} may shrink to 0 nodes, and the autoscaler on GKE starts one for a DRA claim only where"
                " the pool's nodes run NVIDIA's driver.",
            ),
        )
    if len(pool.zones) > 1 and not pool.autoscaled and seed(pool) % len(pool.zones):
        found += (
            finding(
                "CountNotSpread",
                subject(view, pool),
                f"Pool {pool.name} asks for {seed(pool)} nodes in {len(pool.zones)} zones, and GKE counts nodes for each zone.",
            ),
        )
    return found


pool_name = own_name

SOURCE = SourceModule(
    record=RECORD,
    control_plane_request=control_plane_request,
    pool_request=pool_request,
    check_pool=check_pool,
    pool_name=pool_name,
)
