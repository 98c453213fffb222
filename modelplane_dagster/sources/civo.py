"""Civo Kubernetes (k3s), in the vocabulary of its REST API v2.

Each request holds one body for each call, in the order in which the adapter makes them. Each body is sent as it
stands, with the ids of the network and the firewall added.
"""

from __future__ import annotations

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
    mismatch,
    own_name,
    seed,
    wrong_role,
)

_SYSTEM = SystemPool(machine="g4p.kube.small", minimum=2, maximum=2)

RECORD = SourceRecord(
    name="Civo",
    # Civo's current default, unless the manifest says.
    default_version="",
    floor="1.34",
    version_form="the exact version, such as 1.34.1-k3s1",
    system_pool=_SYSTEM,
    driver_image="installed by the GPU operator of the device stack; the image brings only the toolkit",
    min_nodes=1,
    wakes_from_zero=False,
    server_autoscaler=False,
)

GPU_FAMILIES = ("an.g1.", "g4g.")
CPU_FAMILIES = ("g4s.", "g4p.", "g4c.", "g4m.")


def owned_name(cluster: str) -> str:
    """The name of a cluster's network and firewall. Neither has tags, so the name itself is the ownership mark."""
    return f"{OWNER}-{cluster}"


def control_plane_request(view: ClusterView) -> Request:
    """Bodies for `network`, `firewall`, `cluster` with its system pool inline, and `system_pool`.

    The last is put on the system pool once the cluster is up: labels of pools inside the cluster's own POST are
    ignored. Traefik is left out, since the serving stack brings the gateway.
    """
    cluster: Request = {
        "name": view.name,
        "region": view.location,
        "cluster_type": "k3s",
        "cni_plugin": "cilium",
        "applications": "-traefik2-nodeport",
        "tags": OWNER,
        "pools": [{"id": SYSTEM_POOL, "count": _SYSTEM.minimum, "size": _SYSTEM.machine}],
    }
    if view.version:
        cluster["kubernetes_version"] = view.version
    return {
        "network": {"label": owned_name(view.name), "region": view.location},
        "firewall": {"name": owned_name(view.name), "region": view.location, "create_rules": True},
        "cluster": cluster,
        "system_pool": {
            "region": view.location,
            "count": _SYSTEM.minimum,
            "labels": {drivers.POOL_LABEL: SYSTEM_POOL},
            "taints": [],
        },
    }


def pool_request(view: ClusterView, pool: PoolView) -> Request:
    """The body of the `pool`, posted apart from the cluster; its `id` is ours to choose.

    `autoscaling` holds the bounds of an autoscaled pool for the autoscaler inside the cluster. Civo has none, so they
    aren't sent, and once the pool stands its count is never sent again.
    """
    low, high = bounds(pool)
    request: Request = {
        "pool": {
            "region": view.location,
            "id": pool_name(pool),
            "count": seed(pool),
            "size": pool.machine["size"],
            "labels": dict(pool.labels),
            "taints": [t.as_dict() for t in pool.taints],
        }
    }
    if pool.autoscaled:
        request["autoscaling"] = {"min": low, "max": high}
    return request


def check_pool(view: ClusterView, pool: PoolView) -> tuple[Finding, ...]:
    """Beside the common checks: a size of the other role, and one that isn't a Kubernetes size."""
    found = [*common_checks(RECORD, view, pool), *wrong_role(view, pool, "size", gpu=GPU_FAMILIES, cpu=CPU_FAMILIES)]
    size = str(pool.machine.get("size", ""))
    if size.startswith(GPU_FAMILIES + CPU_FAMILIES) and ".kube." not in size:
        found.append(mismatch(view, pool, f"names the size {size}, and clusters take the `.kube.` variants alone"))
    return tuple(found)


pool_name = own_name


SOURCE = SourceModule(
    record=RECORD,
    control_plane_request=control_plane_request,
    pool_request=pool_request,
    check_pool=check_pool,
    pool_name=pool_name,
)
