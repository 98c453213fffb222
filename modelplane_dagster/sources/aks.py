"""AKS: the bodies of the PUTs of a managed cluster and an agent pool, as they go over the wire.

Azure's agent pool names are short, so a pool has a name of its own on the cloud, derived from the true one, which its
label `modelplane.ai/pool` carries. NVIDIA pools let AKS install the driver, and leave the device plugin out: a managed
one hands out the same GPUs a second time.
"""

from __future__ import annotations

import hashlib
import re

from modelplane_dagster.cluster import ClusterView, PoolView, Role
from modelplane_dagster.drivers import POOL_LABEL
from modelplane_dagster.findings import Finding
from modelplane_dagster.sources.record import (
    SYSTEM_POOL,
    Request,
    SourceModule,
    SourceRecord,
    SystemPool,
    bounds,
    common_checks,
    nvidia,
    seed,
    system_tags,
    tags,
)

SYSTEM = SystemPool(machine="Standard_D4s_v5", minimum=1, maximum=2, disk_gb=100)

RECORD = SourceRecord(
    name="AKS",
    default_version="1.34",
    floor="1.32.4",
    version_form="1.X or 1.X.Y",
    system_pool=SYSTEM,
    driver_image="installed by AKS",
    fabrics=("None", "InfiniBand"),
    wakes_from_zero=False,
    pool_name_pattern=r"[a-z][a-z0-9]{0,11}",
)

DEFAULT_DISK_GB = 100
_DNS_PREFIX_LIMIT = 54


def control_plane_request(view: ClusterView) -> Request:
    return {
        "location": view.location,
        "identity": {"type": "SystemAssigned"},
        "tags": tags(view),
        "properties": {
            "kubernetesVersion": view.version or RECORD.default_version,
            "dnsPrefix": view.name[:_DNS_PREFIX_LIMIT].rstrip("-"),
            # Azure's own name for it joins group, cluster and region, and can pass the 80 characters it allows.
            "nodeResourceGroup": f"{resource_group(view.name)}-nodes",
            "disableLocalAccounts": False,
            "networkProfile": {
                "networkPlugin": "azure",
                "networkPluginMode": "overlay",
                "podCidr": "10.244.0.0/16",
                "serviceCidr": "10.96.0.0/16",
                "dnsServiceIP": "10.96.0.10",
            },
            "agentPoolProfiles": [
                {
                    "name": SYSTEM_POOL,
                    "mode": "System",
                    "osType": "Linux",
                    "vmSize": SYSTEM.machine,
                    "osDiskSizeGB": SYSTEM.disk_gb,
                    "count": SYSTEM.minimum,
                    "enableAutoScaling": True,
                    "minCount": SYSTEM.minimum,
                    "maxCount": SYSTEM.maximum,
                    "nodeLabels": {POOL_LABEL: SYSTEM_POOL},
                    "tags": system_tags(view),
                }
            ],
        },
    }


def pool_request(view: ClusterView, pool: PoolView) -> Request:
    low, high = bounds(pool)
    properties = {
        "mode": "User",
        "osType": "Linux",
        "vmSize": pool.machine.get("vmSize", ""),
        "osDiskSizeGB": pool.machine.get("diskSizeGb", DEFAULT_DISK_GB),
        "count": seed(pool),
        "enableAutoScaling": pool.autoscaled,
        "nodeLabels": dict(pool.labels),
        "nodeTaints": [str(t) for t in pool.taints],
        "tags": tags(view, pool),
    }
    if pool.autoscaled:
        properties |= {"minCount": low, "maxCount": high}
    if pool.zones:
        properties["availabilityZones"] = list(pool.zones)
    if pool.role is Role.GPU:
        # AKS installs NVIDIA's driver alone; on other hardware the install fails the node.
        properties["gpuProfile"] = (
            {"driver": "Install", "nvidia": {"managementMode": "Unmanaged"}} if nvidia(pool) else {"driver": "None"}
        )
    return {"properties": properties}


def resource_group(cluster: str) -> str:
    """The resource group that holds a cluster of ours; at most 74 characters for a cluster name of 63."""
    return f"modelplane-{cluster}"


def short_name(name: str) -> str:
    """A pool's name where Azure takes it, else its first letters and digits and six of its digest."""
    if re.fullmatch(RECORD.pool_name_pattern, name):
        return name
    plain = re.sub(r"[^a-z0-9]", "", name.lower()).lstrip("0123456789") or "p"
    return plain[:6] + hashlib.sha256(name.encode()).hexdigest()[:6]


def pool_name(pool: PoolView) -> str:
    return short_name(pool.name)


def check_pool(view: ClusterView, pool: PoolView) -> tuple[Finding, ...]:
    return common_checks(RECORD, view, pool)


SOURCE = SourceModule(
    record=RECORD,
    control_plane_request=control_plane_request,
    pool_request=pool_request,
    check_pool=check_pool,
    pool_name=pool_name,
)
