"""What placement reads and what it decides. Facts only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from modelplane_dagster.cluster import ClusterView
    from modelplane_dagster.findings import Finding
    from modelplane_dagster.observed import ObservedReplica


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOffer:
    """A cluster as placement sees it. `admitted` is False where the gate refuses it: it then takes no new replica and
    keeps those it has. `nodes` are the ready nodes by pool, None where nobody looked: then the manifest's counts hold.
    `unread` says why it isn't known which replicas run there: then it takes no new one, and may hold one of the deployments
    in `may_hold`, which counts; None means that it may be of any."""

    view: ClusterView
    admitted: bool
    nodes: Mapping[str, int] | None
    replicas: tuple[ObservedReplica, ...] = ()
    unread: str = ""
    may_hold: frozenset[tuple[str, str]] | None = None

    def could_hold(self, deployment: tuple[str, str]) -> bool:
        return bool(self.unread) and (self.may_hold is None or deployment in self.may_hold)


@dataclass(frozen=True, slots=True)
class HeldReplica:
    """A replica that runs on a cluster of which nothing may be changed now: its manifests are unknown."""

    cluster: str
    namespace: str
    deployment: str


@dataclass(frozen=True, slots=True)
class MemberPlacement:
    """`requests` are a ResourceClaim's requests as the API writes them, without those that claim nothing. `cpus` is how
    many CPUs the claim takes, 0 for none: the pod mirrors them, but where the scheduler charges the claim itself."""

    role: str
    pool: str
    requests: tuple[Mapping[str, Any], ...]
    cpus: int = 0


@dataclass(frozen=True, slots=True)
class EnginePlacement:
    name: str
    members: tuple[MemberPlacement, ...]


@dataclass(frozen=True, slots=True)
class ReplicaPlacement:
    cluster: str
    engines: tuple[EnginePlacement, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """`placed`: every replica has its cluster. `unplaced`: some have none now. `refused`: it can't be placed as written."""

    namespace: str
    name: str
    verdict: Literal["placed", "unplaced", "refused"]
    replicas: tuple[ReplicaPlacement, ...]
    findings: tuple[Finding, ...] = ()
