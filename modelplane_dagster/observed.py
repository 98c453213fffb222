"""What was seen of a cluster: on the cloud, in its releases, on its nodes. Facts only; every part may be unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from modelplane_dagster.known import Maybe, Unknown
from modelplane_dagster.kube.objects import EMPTY, Taint

if TYPE_CHECKING:
    from modelplane_dagster.audit.live import LiveCluster
    from modelplane_dagster.cluster import CpuMode
    from modelplane_dagster.components.join import Kept
    from modelplane_dagster.findings import Finding

NOT_LOOKED = Unknown("nobody looked")


@dataclass(frozen=True, slots=True)
class ObservedPool:
    """A pool on the cloud, under the name that the manifest gives it. `minimum` and `maximum` are None where the cloud
    doesn't scale it."""

    name: str
    state: Literal["creating", "ready", "updating", "degraded", "create-failed", "deleting"]
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    taints: tuple[Taint, ...] = ()
    count: int = 0
    joined: int = 0
    minimum: int | None = None
    maximum: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class ObservedControlPlane:
    state: Literal["creating", "ready", "updating", "failed", "deleting"]
    version: str
    ours: bool
    account: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class ObservedComponent:
    """What stands installed of a component, read from its release and its objects. `state` is Helm's word (`deployed`,
    `failed`, `pending-install`, ...), or `applied` for manifests alone. `values` is the digest of the values that the release
    was given. `objects` maps `Kind/namespace/name` of our own manifests to the digest that they were applied with."""

    key: str
    state: str
    chart: str = ""
    version: str = ""
    values: str = ""
    revision: int = 0
    namespace: str = ""
    release: str = ""
    objects: Mapping[str, str] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True)
class ObservedReplica:
    """A replica of a deployment on one cluster, read from the labels of its workloads. `pools` maps member (engine/role) to
    pool; `digest` is of what we applied; `waits` says, in the scheduler's words, why a pod of it has no node, empty where all
    have one or where the pods couldn't be read."""

    namespace: str
    deployment: str
    pools: Mapping[str, str]
    ready: int
    desired: int
    digest: str = ""
    waits: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """What we wrote down when we last changed the cluster: enough to find, list and prune it once its manifest is gone.
    `deployments` names (namespace, name) of which a replica was ever given to it and not seen to go; None where that was
    never written down."""

    name: str
    source: str
    location: str
    account: str
    digest: str
    pools: Mapping[str, tuple[str, ...]]
    credentials: tuple[str, str] = ("ClusterProviderConfig", "default")
    kubeconfig: str = ""
    deployments: tuple[tuple[str, str], ...] | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCluster:
    """`control_plane` is Known(None) when the cluster is known not to exist. `record` is None for a cluster never changed
    by us. `kept` maps a component to the pools and taint keys that its live release names in its values."""

    name: str
    control_plane: Maybe[ObservedControlPlane | None] = NOT_LOOKED
    pools: Maybe[Mapping[str, ObservedPool]] = NOT_LOOKED
    components: Maybe[Mapping[str, ObservedComponent]] = NOT_LOOKED
    replicas: Maybe[tuple[ObservedReplica, ...]] = NOT_LOOKED
    cpu_mode: Maybe[CpuMode | None] = NOT_LOOKED
    kept: Mapping[str, Kept] = field(default_factory=dict)
    live: LiveCluster | None = None
    record: Record | None = None

    def problems(self) -> tuple[Finding, ...]:
        """What to do about the parts that couldn't be read, where more than the sentence is known."""
        return tuple(dict.fromkeys(f for u in self.unknown() for f in u.findings))

    def unread(self) -> tuple[str, ...]:
        """Why each unknown part is unknown; empty when everything was read."""
        return tuple(dict.fromkeys(p.why for p in self.unknown()))

    def coming(self) -> str:
        """What is waited for where nothing failed and something isn't there yet; empty otherwise."""
        unknown = self.unknown()
        return unknown[0].why if unknown and all(p.coming for p in unknown) else ""

    def unknown(self) -> tuple[Unknown, ...]:
        """The parts that couldn't be read, or aren't there to be read yet."""
        parts = (self.control_plane, self.pools, self.components, self.replicas)
        return tuple(p for p in parts if isinstance(p, Unknown))
