"""What a source is, as data, and the one shape that every source module has.

A source module holds a `SourceRecord` and pure functions that make the body that its adapter sends: the plan prints
that very object. The adapter adds what only the account holds (roles, subnets, ids), as each source's docstring says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from modelplane_dagster import drivers
from modelplane_dagster.cluster import ClusterView, Fabric, PoolView, Role, Source
from modelplane_dagster.findings import Finding, finding

OWNER = "modelplane-dagster"
OWNER_TAG = "modelplane-owner"
"""The key of the ownership mark. Lower case and dashes alone: GKE's resource labels and Azure's tags refuse `/` and `.`."""
CLUSTER_TAG = "modelplane-cluster"
POOL_TAG = "modelplane-pool"
"""The key of a pool's true name, where the cloud's name for it is another or its label was taken away."""
SYSTEM_POOL = "system"
"""The untainted pool that every provisioned cluster gets and no manifest names."""

Request = dict[str, Any]

EFFECT_WORDS = {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}
"""A taint's effect as EKS, GKE and Nebius write it."""
EFFECTS = {word: effect for effect, word in EFFECT_WORDS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemPool:
    """The machines of the system pool. `minimum` equals `maximum` where the source doesn't scale it; `disk_gb` is None
    where the machine decides."""

    machine: str
    minimum: int
    maximum: int
    disk_gb: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """Facts about a source. `default_version` and `floor` are empty for none; `floor` is the lowest Kubernetes that its
    component lists accept; `version_form` completes "a version is written as ...".

    `min_nodes` is the smallest pool. `wakes_from_zero` is False where a pool at zero never wakes for a DRA claim.
    `server_autoscaler` is True where the cloud itself acts on a pool's bounds. `nodes_follow_labels` is False where
    existing nodes keep their labels and taints after the pool's change. `driver_image` says how the nodes' GPU driver
    comes. `pool_name_pattern` is what the cloud accepts for a pool's name, empty where the name is free. No name of the API
    is longer than 63 characters, so a limit speaks where the cloud's is lower."""

    name: Source
    default_version: str
    floor: str
    version_form: str
    system_pool: SystemPool | None
    driver_image: str
    fabrics: tuple[Fabric, ...] = ("None",)
    gpu_through_accelerator: bool = False
    needs_zones_for_gpu: bool = False
    has_capacity_blocks: bool = False
    min_nodes: int = 0
    wakes_from_zero: bool = True
    server_autoscaler: bool = True
    nodes_follow_labels: bool = True
    pool_name_pattern: str = ""
    pool_name_limit: int = 63
    cluster_name_limit: int = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceModule:
    """A source's record with its functions, all pure.

    `control_plane_request` and `pool_request` give a JSON-able body in the cloud's own vocabulary. `check_pool` gives
    what the cloud can't do of what the pool asks. `pool_name` is the name on the cloud, a stable function of the
    pool's; the true one stands in the label `modelplane.ai/pool`."""

    record: SourceRecord
    control_plane_request: Callable[[ClusterView], Request]
    pool_request: Callable[[ClusterView, PoolView], Request]
    check_pool: Callable[[ClusterView, PoolView], tuple[Finding, ...]]
    pool_name: Callable[[PoolView], str]


def own_name(pool: PoolView) -> str:
    """The pool's own name, for clouds that take it as it is."""
    return pool.name


def tags(view: ClusterView, pool: PoolView | None = None) -> dict[str, str]:
    """The ownership marks of what we make: of the control plane, or of a pool. The system pool's say `system`."""
    marks = {OWNER_TAG: OWNER, CLUSTER_TAG: view.name}
    return marks if pool is None else {**marks, POOL_TAG: pool.name}


def system_tags(view: ClusterView) -> dict[str, str]:
    return {**tags(view), POOL_TAG: SYSTEM_POOL}


def bounds(pool: PoolView) -> tuple[int, int]:
    """The least and the greatest size; a bound that isn't given is the count's."""
    low = pool.count if pool.minimum is None else pool.minimum
    high = pool.count if pool.maximum is None else pool.maximum
    return min(low, high), max(low, high)


def seed(pool: PoolView) -> int:
    """The size to ask for on creation: the count, kept within the bounds."""
    low, high = bounds(pool)
    return max(low, min(pool.count, high))


def nvidia(pool: PoolView) -> bool:
    return pool.role is Role.GPU and drivers.NVIDIA in pool.drivers


def common_checks(record: SourceRecord, view: ClusterView, pool: PoolView) -> tuple[Finding, ...]:
    """The checks that follow from the record alone: zones, fabric, size, waking from zero, names."""
    found = (
        _zones(record, view, pool),
        _fabric(record, view, pool),
        _size(record, view, pool),
        _wake(record, view, pool),
        _name(record, view, pool),
        _capacity_block(record, view, pool),
    )
    return tuple(f for f in found if f is not None)


def check_cluster(record: SourceRecord, view: ClusterView) -> tuple[Finding, ...]:
    """What the cloud can't do of the cluster itself: a name that is too long for it."""
    if len(view.name) <= record.cluster_name_limit:
        return ()
    text = f"Cluster name {view.name} has {len(view.name)} characters, and {record.name} takes {record.cluster_name_limit}."
    return (finding("InvalidName", f"cluster/{view.name}", text),)


def wrong_role(
    view: ClusterView, pool: PoolView, kind: str, *, gpu: tuple[str, ...], cpu: tuple[str, ...]
) -> list[Finding]:
    """A machine of the other role. `kind` is the machine's field that names it, such as `plan`; `gpu` and `cpu` are how
    the names of machines with GPUs and without begin."""
    name = str(pool.machine.get(kind, ""))
    if pool.role is Role.GPU and name.startswith(cpu):
        return [mismatch(view, pool, f"claims a GPU driver, and the {kind} {name} has no GPU")]
    if pool.role is not Role.GPU and name.startswith(gpu):
        return [mismatch(view, pool, f"claims no GPU driver, and the {kind} {name} has GPUs")]
    return []


def mismatch(view: ClusterView, pool: PoolView, why: str) -> Finding:
    return finding("InstanceMismatch", subject(view, pool), f"Pool {pool.name} {why}.")


def subject(view: ClusterView, pool: PoolView) -> str:
    return f"pool/{view.name}/{pool.name}"


def _zones(record: SourceRecord, view: ClusterView, pool: PoolView) -> Finding | None:
    if not record.needs_zones_for_gpu or pool.role is not Role.GPU or pool.zones:
        return None
    return finding(
        "ZonesRequired",
        subject(view, pool),
        f"Pool {pool.name} has GPUs, and {record.name} offers a GPU type in some zones only: it needs zones, and none are set.",
    )


def _fabric(record: SourceRecord, view: ClusterView, pool: PoolView) -> Finding | None:
    if pool.fabric in record.fabrics:
        return None
    there = ", ".join(f for f in record.fabrics if f != "None") or "none"
    return finding(
        "FabricUnsupported",
        subject(view, pool),
        f"Pool {pool.name} asks for the fabric {pool.fabric}, which {record.name} doesn't have; it has {there}.",
    )


def _size(record: SourceRecord, view: ClusterView, pool: PoolView) -> Finding | None:
    low, _ = bounds(pool)
    if low >= record.min_nodes:
        return None
    return finding(
        "MinNodesUnsupported",
        subject(view, pool),
        f"Pool {pool.name} may shrink to {low} nodes, and {record.name} holds no pool under {record.min_nodes}.",
    )


def _wake(record: SourceRecord, view: ClusterView, pool: PoolView) -> Finding | None:
    low, _ = bounds(pool)
    if record.wakes_from_zero or low > 0 or not (pool.drivers and pool.autoscaled) or low < record.min_nodes:
        return None
    return finding(
        "ScaleFromZero",
        subject(view, pool),
        f"Pool {pool.name} may shrink to 0 nodes, and the autoscaler on {record.name} doesn't start one for a DRA claim.",
    )


def _name(record: SourceRecord, view: ClusterView, pool: PoolView) -> Finding | None:
    if record.system_pool is not None and pool.name == SYSTEM_POOL:
        return finding(
            "InvalidName",
            subject(view, pool),
            f"Pool name {pool.name} is that of the pool which every provisioned cluster gets for its controllers.",
            fix="Choose another name.",
        )
    if len(pool.name) > record.pool_name_limit:
        return finding(
            "InvalidName",
            subject(view, pool),
            f"Pool name {pool.name} has {len(pool.name)} characters, and {record.name} takes {record.pool_name_limit}.",
        )
    return None


def _capacity_block(record: SourceRecord, view: ClusterView, pool: PoolView) -> Finding | None:
    if not pool.capacity_block or record.has_capacity_blocks:
        return None
    return finding(
        "CapacityBlockUnsupported",
        subject(view, pool),
        f"Pool {pool.name} names the capacity block {pool.capacity_block}, which {record.name} doesn't have.",
    )
