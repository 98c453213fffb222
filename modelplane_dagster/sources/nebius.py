"""Nebius managed Kubernetes, in the vocabulary of its gRPC API (proto field names, enum values by name).

Both requests hold one body for each object, in the order in which the adapter makes them. Each body is sent as it
stands, with what only the account knows added: `metadata.parent_id` (the project, or the cluster for a node group),
the subnet's `network_id`, the control plane's `subnet_id` (its nodes follow it), and the id of the pool's `gpu_cluster`.
"""

from __future__ import annotations

from typing import Any

from modelplane_dagster import drivers
from modelplane_dagster.cluster import ClusterView, PoolView
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
    subject,
    tags,
    wrong_role,
)

_SYSTEM = SystemPool(machine="cpu-d3/4vcpu-16gb", minimum=1, maximum=2)

RECORD = SourceRecord(
    name="Nebius",
    default_version="1.34",
    floor="",
    version_form="<major>.<minor>, such as 1.34",
    system_pool=_SYSTEM,
    driver_image="preinstalled by the node image's drivers preset",
    fabrics=("None", "InfiniBand"),
    nodes_follow_labels=False,
)

# What the class's provisioning block defaults to; the drivers preset is the only one on the default Kubernetes.
_DISK_GB = 100
_DRIVERS_PRESET = "cuda13.0"

"""Kubernetes' words to the API's. The node group's taint enum knows no other."""


def control_plane_request(view: ClusterView) -> Request:
    """Bodies for `network`, `subnet`, `cluster` and the `node_group` that is the system pool.

    The network is made with the project's default pools (CreateDefault), so it has no spec.
    """
    marks = tags(view)
    return {
        "network": {"metadata": {"name": view.name, "labels": marks}},
        "subnet": {
            "metadata": {"name": view.name, "labels": marks},
            "spec": {"ipv4_private_pools": {"use_network_pools": True}},
        },
        "cluster": {
            "metadata": {"name": view.name, "labels": marks},
            "spec": {
                "control_plane": {
                    "version": view.version or RECORD.default_version,
                    "endpoints": {"public_endpoint": {}},
                }
            },
        },
        "node_group": _system_pool(view),
    }


def pool_request(view: ClusterView, pool: PoolView) -> Request:
    """The body of the `node_group`, and of the `gpu_cluster` that a pool on an InfiniBand fabric joins.

    `gpu_settings.dra` turns the preinstalled device plugin off: without it the plugin and the DRA driver hand out the
    same GPUs. A CPU pool carries neither GPU settings nor a GPU cluster.
    """
    marks = tags(view)
    template: dict[str, Any] = {
        "resources": {"platform": pool.machine["platform"], "preset": pool.machine["preset"]},
        "boot_disk": {"type": "NETWORK_SSD", "size_gibibytes": pool.machine.get("diskSizeGb", _DISK_GB)},
        "metadata": {"labels": dict(pool.labels)},
        "taints": [_taint(t) for t in pool.taints],
    }
    if nvidia(pool):
        template["gpu_settings"] = {
            "drivers_preset": pool.machine.get("driversPreset") or _DRIVERS_PRESET,
            "dra": True,
        }
    request: Request = {}
    if pool.fabric == "InfiniBand":
        request["gpu_cluster"] = {
            "metadata": {"name": f"{view.name}-{pool_name(pool)}", "labels": marks},
            "spec": {"infiniband_fabric": pool.infiniband},
        }
    request["node_group"] = {
        "metadata": {"name": pool_name(pool), "labels": marks},
        "spec": {"version": view.version or RECORD.default_version, **_size(pool), "template": template},
    }
    return request


def check_pool(view: ClusterView, pool: PoolView) -> tuple[Finding, ...]:
    """Beside the common checks: a platform of the other role, and InfiniBand without the fabric's identifier."""
    found = [*common_checks(RECORD, view, pool), *wrong_role(view, pool, "platform", gpu=("gpu-",), cpu=("cpu-",))]
    if pool.fabric == "InfiniBand" and not pool.infiniband:
        found.append(
            finding(
                "FabricRequired",
                subject(view, pool),
                f"Pool {pool.name} joins InfiniBand, and Nebius needs the identifier of the fabric: none is set.",
                fix="Set fabric.infiniband.fabric, such as fabric-2.",
            )
        )
    return tuple(found)


pool_name = own_name


def _system_pool(view: ClusterView) -> Request:
    platform, preset = _SYSTEM.machine.split("/")
    return {
        "metadata": {"name": SYSTEM_POOL, "labels": tags(view)},
        "spec": {
            "version": view.version or RECORD.default_version,
            "autoscaling": {"min_node_count": _SYSTEM.minimum, "max_node_count": _SYSTEM.maximum},
            "template": {
                "resources": {"platform": platform, "preset": preset},
                "boot_disk": {"type": "NETWORK_SSD", "size_gibibytes": _DISK_GB},
                "metadata": {"labels": {drivers.POOL_LABEL: SYSTEM_POOL}},
            },
        },
    }


def _size(pool: PoolView) -> dict[str, Any]:
    """One of two: the API refuses a fixed count beside autoscaling."""
    if not pool.autoscaled:
        return {"fixed_node_count": pool.count}
    low, high = bounds(pool)
    return {"autoscaling": {"min_node_count": low, "max_node_count": high}}


def _taint(taint: Taint) -> dict[str, str]:
    return {"key": taint.key, "value": taint.value, "effect": EFFECT_WORDS[taint.effect]}


SOURCE = SourceModule(
    record=RECORD,
    control_plane_request=control_plane_request,
    pool_request=pool_request,
    check_pool=check_pool,
    pool_name=pool_name,
)
