"""The cloud seam: nine methods at most, implemented once a cloud, against its real SDK.

The lab puts simulated endpoints behind the same SDKs; nothing here knows which it talks to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, Protocol

from modelplane_dagster.kube.objects import Taint

PoolState = Literal["creating", "ready", "updating", "degraded", "create-failed", "deleting"]
ClusterState = Literal["creating", "ready", "updating", "failed", "deleting"]


@dataclass(frozen=True, slots=True)
class ClusterRef:
    """Which cluster: `location` is the region or location (empty on Nebius), `account` what `whoami` must answer, or
    empty to accept the default chain's. `owner` is the ownership mark that we put on everything we make."""

    name: str
    source: str
    location: str = ""
    account: str = ""
    owner: str = "modelplane-dagster"


@dataclass(frozen=True, slots=True)
class CloudPool:
    """A pool as the cloud tells it. `count` is the pool's total as asked for, `joined` how many nodes ever joined and
    stand now; `minimum`/`maximum` None where the pool isn't autoscaled by the cloud. `message` is the cloud's own word
    on what is wrong, empty when nothing is. `unfixable` names labels and taints that can't change in place."""

    name: str
    state: PoolState
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    count: int
    joined: int
    minimum: int | None = None
    maximum: int | None = None
    message: str = ""
    ours: bool = True
    provider: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class CloudCluster:
    """A control plane with its pools, our system pool left out. `ours` is by tag or label, never by name alone."""

    name: str
    state: ClusterState
    version: str
    ours: bool
    account: str
    pools: tuple[CloudPool, ...] = ()
    system_pool: CloudPool | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """What an ensure call found or did: `ready`, or `pending` with what it waits for. `changed` says whether it wrote."""

    state: Literal["ready", "pending"]
    waits_for: str = ""
    changed: bool = False


def not_there(ref: ClusterRef) -> Progress:
    """The answer for a pool whose cluster isn't made yet."""
    return Progress("pending", f"cluster {ref.name}, which isn't there yet")


def not_usable(ref: ClusterRef, status: str) -> Progress:
    """The answer for whatever needs a cluster in another state than `status`, the cloud's own word."""
    return Progress("pending", f"cluster {ref.name}, which is {status}")


def asked_for(what: str) -> Progress:
    """The answer of the pass that made it."""
    return Progress("pending", f"{what}, just asked for", changed=True)


def end_of(what: str, *, changed: bool = False) -> Progress:
    """The answer of a deletion that was asked for, in this pass (`changed`) or before."""
    return Progress("pending", f"the end of {what}", changed=changed)


@dataclass(frozen=True, slots=True)
class InstanceType:
    """What a machine type carries; `gpu_vendor` is empty for none."""

    name: str
    vcpus: int
    memory_mib: int
    gpus: int = 0
    gpu_vendor: str = ""


class Cloud(Protocol):
    """Every method raises a subclass of CloudError by what the caller can do, with the SDK's error chained. None
    waits: a method asks once and tells what it saw."""

    source: str

    def whoami(self) -> str:
        """The account (AWS account id, project, subscription, ...) that the credentials lead to. Read-only."""
        ...

    def observe(self, ref: ClusterRef) -> CloudCluster | None:
        """The cluster with its pools; None when it is known not to exist. Read-only; a failed read raises."""
        ...

    def ensure_control_plane(self, ref: ClusterRef, request: Mapping[str, Any]) -> Progress:
        """Idempotent. Creates the control plane with its untainted system pool, or adopts it when it is ours; raises
        CloudNameTakenError when the name isn't ours. A reply lost after acting is found again by name and tag."""
        ...

    def ensure_pool(self, ref: ClusterRef, name: str, request: Mapping[str, Any]) -> Progress:
        """Idempotent. Creates the pool, or brings its labels, taints and bounds to the request where the cloud can in
        place; never touches keys that aren't ours, nor an autoscaled pool's size. Clears our own create-failed pool
        that no node ever joined, and nothing else."""
        ...

    def credentials(self, ref: ClusterRef) -> dict[str, Any]:
        """A kubeconfig as a mapping, one that refreshes its own tokens where the cloud's are short-lived. Raises
        NotReadyError while the API has no endpoint."""
        ...

    def delete_pool(self, ref: ClusterRef, name: str) -> Progress:
        """Requests deletion; already gone is ready. Reachable from prune alone."""
        ...

    def delete_cluster(self, ref: ClusterRef) -> Progress:
        """Requests deletion of the cluster, its pools first where the cloud wants that; already gone is ready.
        Reachable from prune alone."""
        ...

    def instance_types(self, ref: ClusterRef, names: tuple[str, ...]) -> Mapping[str, InstanceType]:
        """The offered ones among `names`; one that isn't in the answer isn't offered there. Read-only."""
        ...

    def versions(self, ref: ClusterRef) -> tuple[str, ...]:
        """Kubernetes versions on offer, newest first, as the cloud writes them. Read-only."""
        ...
