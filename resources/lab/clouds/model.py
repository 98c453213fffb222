"""What a simulated cloud is made of: clusters, pools and nodes, faults, delays, and how one cloud differs from another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from modelplane_dagster.drivers import POOL_LABEL
from modelplane_dagster.kube.objects import Taint
from resources.settings import lab_seconds

Phase = Literal["creating", "ready", "updating", "failed", "deleting"]
Kind = Literal["read", "write", "delete"]


class Fault(StrEnum):
    """The kinds of trouble that a cloud can be told to make. `throttling` is for `cloud/SOURCE`; the others for
    `pool/C/P` or, for `lost-reply`, `cluster/C` too. A slow pool stays in creation until the fault is cleared."""

    NO_CAPACITY = "no-capacity"
    QUOTA = "quota"
    THROTTLING = "throttling"
    SLOW_POOL = "slow-pool"
    LOST_REPLY = "lost-reply"


ONCE = frozenset({Fault.THROTTLING, Fault.LOST_REPLY})
"""Faults that are used up; the others last until they are cleared."""


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds that things take."""

    cluster: float = 0.3
    pool: float = 0.3
    update: float = 0.05
    delete: float = 0.1

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Delays:
        """Reads MODELPLANE_LAB_{CLUSTER,POOL,UPDATE,DELETE}_SECONDS; what isn't set keeps its default. Raises ConfigError
        for what isn't a number of seconds."""
        names = ("cluster", "pool", "update", "delete")
        given = lab_seconds(env)
        return cls(**{n: given[key] for n in names if (key := f"MODELPLANE_LAB_{n.upper()}_SECONDS") in given})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a cluster's API answers. Empty fields mean that the API doesn't ask for them."""

    server: str
    ca_pem: str = ""
    token: str = ""


@dataclass(frozen=True, slots=True)
class SimNode:
    """A node as the cloud would register it. `labels` and `taints` are the pool's and the cloud's own."""

    name: str
    pool: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    machine: str
    provider_id: str


@dataclass(slots=True)
class SimPool:
    """`size` is the total asked for, `joined` how many nodes stand. `body` is what the cloud's API shows, kept by its
    simulator. `failure` is the fault that broke it, empty for none. `born` holds, where nodes don't follow their pool,
    what each node had when it was made. `revision` grows with every change."""

    name: str
    id: str
    labels: dict[str, str]
    taints: list[dict[str, str]]
    machine: str
    size: int
    zones: list[str]
    tags: dict[str, str]
    body: dict[str, Any]
    phase: Phase = "creating"
    until: float = 0.0
    joined: int = 0
    failure: str = ""
    system: bool = False
    born: list[dict[str, Any]] = field(default_factory=list)
    revision: int = 1

    @property
    def true_name(self) -> str:
        """The pool's name in the manifest, which the label carries where the cloud's name is another."""
        return self.labels.get(POOL_LABEL) or self.name


@dataclass(slots=True)
class SimCluster:
    name: str
    id: str
    version: str
    location: str
    tags: dict[str, str]
    body: dict[str, Any]
    phase: Phase = "creating"
    until: float = 0.0
    pools: dict[str, SimPool] = field(default_factory=dict)
    revision: int = 1


@dataclass(frozen=True, slots=True)
class Traits:
    """How a cloud behaves. `recovers`: a failed pool goes on trying by itself. `nodes_follow`: existing nodes take
    over changed labels and taints."""

    recovers: bool = False
    nodes_follow: bool = True


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the lab's daemon gives. `ready` is called once a cluster and process, outside the lock."""

    ready: Callable[[str, str], None] = lambda _name, _version: None
    gone: Callable[[str], None] = lambda _name: None
    endpoint: Callable[[str], Endpoint] = lambda name: Endpoint(f"https://{name}.invalid")


Dress = Callable[[SimCluster, SimPool, int], SimNode]


def plain_dress(cluster: SimCluster, pool: SimPool, index: int) -> SimNode:
    """A node with the labels every cloud sets: zone, region, machine type, host name."""
    name = f"{cluster.name}-{pool.name}-{index}"
    zone = pool.zones[index % len(pool.zones)] if pool.zones else ""
    # Nebius's machines are a platform and a preset with a slash between, which no label's value may hold.
    machine = pool.machine.replace("/", ".")
    labels = {"kubernetes.io/hostname": name, "node.kubernetes.io/instance-type": machine, **pool.labels}
    if cluster.location:
        labels["topology.kubernetes.io/region"] = cluster.location
    if zone:
        labels["topology.kubernetes.io/zone"] = zone
    return SimNode(
        name,
        pool.true_name,
        labels,
        tuple(Taint.parse(t) for t in pool.taints),
        pool.machine,
        f"lab://{cluster.name}/{pool.name}/{index}",
    )
