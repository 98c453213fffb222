"""EKS: the parameters of CreateCluster, CreateNodegroup and CreateLaunchTemplate.

The adapter adds what only the account holds: the roles, the subnets (of `zones`, where set) and the security groups of
an EFA pool. It takes `systemNodegroup`, `zones` and `launchTemplateData` out of the bodies and sends them where they
belong. NVIDIA pools run the AL2023 NVIDIA image, which holds driver and toolkit; there is no image with AMD's driver.
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

SYSTEM = SystemPool(machine="m6i.xlarge", minimum=1, maximum=2)

RECORD = SourceRecord(
    name="EKS",
    default_version="1.36",
    floor="1.32.4",
    version_form="major and minor, such as 1.36",
    system_pool=SYSTEM,
    driver_image="in the node image (AL2023_x86_64_NVIDIA)",
    fabrics=("None", "EFA"),
    has_capacity_blocks=True,
    wakes_from_zero=False,
    server_autoscaler=False,
)

STANDARD_IMAGE = "AL2023_x86_64_STANDARD"
NVIDIA_IMAGE = "AL2023_x86_64_NVIDIA"

EFA_CARDS = {"p5.48xlarge": 32, "p5e.48xlarge": 32, "p5en.48xlarge": 16, "p4d.24xlarge": 4, "p4de.24xlarge": 4}
"""Network cards by instance type; a type that isn't here has one."""
DEFAULT_DISK_GB = 100


def control_plane_request(view: ClusterView) -> Request:
    return {
        "name": view.name,
        "version": view.version or RECORD.default_version,
        "accessConfig": {"authenticationMode": "API_AND_CONFIG_MAP", "bootstrapClusterCreatorAdminPermissions": True},
        "resourcesVpcConfig": {"endpointPublicAccess": True, "endpointPrivateAccess": True},
        "tags": tags(view),
        "systemNodegroup": {
            "clusterName": view.name,
            "nodegroupName": SYSTEM_POOL,
            "amiType": STANDARD_IMAGE,
            "instanceTypes": [SYSTEM.machine],
            "capacityType": "ON_DEMAND",
            "scalingConfig": {"minSize": SYSTEM.minimum, "maxSize": SYSTEM.maximum, "desiredSize": SYSTEM.minimum},
            "labels": {POOL_LABEL: SYSTEM_POOL},
            "taints": [],
            "tags": system_tags(view),
        },
    }


def pool_request(view: ClusterView, pool: PoolView) -> Request:
    low, high = bounds(pool)
    body: Request = {
        "clusterName": view.name,
        "nodegroupName": pool_name(pool),
        "amiType": NVIDIA_IMAGE if nvidia(pool) else STANDARD_IMAGE,
        "capacityType": "CAPACITY_BLOCK" if pool.capacity_block else "ON_DEMAND",
        # maxSize 0 is refused, so a pool that is meant to be empty keeps room for one.
        "scalingConfig": {"minSize": low, "maxSize": max(1, high), "desiredSize": seed(pool)},
        "labels": dict(pool.labels),
        "taints": [_taint(t) for t in pool.taints],
        "tags": tags(view, pool),
    }
    machine, disk = pool.machine.get("instanceType", ""), pool.machine.get("diskSizeGb", DEFAULT_DISK_GB)
    if pool.zones:
        body["zones"] = list(pool.zones)
    if pool.fabric == "EFA" or pool.capacity_block:
        # A node group with a launch template takes its type and disk from there and refuses its own.
        body["launchTemplate"] = {"name": f"{view.name}-{pool_name(pool)}"}
        body["launchTemplateData"] = _template(pool, machine, disk)
    else:
        body["instanceTypes"] = [machine]
        body["diskSize"] = disk
    return body


def _template(pool: PoolView, machine: str, disk: int) -> dict[str, Any]:
    data: dict[str, Any] = {
        "InstanceType": machine,
        "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": disk}}],
    }
    if pool.capacity_block:
        data["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
        data["CapacityReservationSpecification"] = {
            "CapacityReservationPreference": "capacity-reservations-only",
            "CapacityReservationTarget": {"CapacityReservationId": pool.capacity_block},
        }
    if pool.fabric == "EFA":
        data["NetworkInterfaces"] = [_card(i) for i in range(EFA_CARDS.get(machine, 1))]
    return data


def _card(index: int) -> dict[str, Any]:
    return {
        "NetworkCardIndex": index,
        "DeviceIndex": 0 if index == 0 else 1,
        "InterfaceType": "efa" if index == 0 else "efa-only",
    }


def _taint(taint: Taint) -> dict[str, str]:
    return {"key": taint.key, "value": taint.value, "effect": EFFECT_WORDS[taint.effect]}


def check_pool(view: ClusterView, pool: PoolView) -> tuple[Finding, ...]:
    found = common_checks(RECORD, view, pool)
    if pool.capacity_block and len(pool.zones) != 1:
        found += (
            finding(
                "ZonesRequired",
                subject(view, pool),
                f"Pool {pool.name} uses the capacity block {pool.capacity_block}, which lies in one zone,"
                f" and the pool names {len(pool.zones)}.",
                fix="Set the pool's zones to the zone of the reservation.",
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
