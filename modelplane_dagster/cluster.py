"""A cluster as the rules see it: its manifests resolved against their classes. Facts only; `resolve` makes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from modelplane_dagster.kube.objects import EMPTY, Taint

if TYPE_CHECKING:
    from modelplane_dagster.manifests.classes import Device

Source = Literal["EKS", "GKE", "AKS", "Nebius", "Vultr", "Civo", "Existing"]
SOURCES: tuple[Source, ...] = ("EKS", "GKE", "AKS", "Nebius", "Vultr", "Civo", "Existing")
Fabric = Literal["None", "EFA", "InfiniBand"]
CpuMode = Literal["grouped", "individual"]


class Role(StrEnum):
    """What a pool is for, by the drivers that its class claims."""

    GPU = "GPU"
    CPU = "CPU"
    NONE = "None"


@dataclass(frozen=True, slots=True)
class Accelerator:
    """As the class's provisioning block names it: the cloud's or vendor's type, and how many a node has."""

    type: str
    count: int


@dataclass(frozen=True, slots=True)
class ExternalDriver:
    """A driver that the platform team runs itself on an Existing cluster; `taint` is a taint key, empty for none."""

    driver: str
    kind: Literal["GPU", "CPU", "Other"]
    taint: str = ""


@dataclass(frozen=True, slots=True)
class PoolView:
    """One node pool. `minimum` and `maximum` are None where the manifest gives none; `machine` holds the class's
    provisioning fields for the cluster's provider by their API names (empty on Existing); `drivers` is sorted."""

    cluster: str
    name: str
    class_name: str
    role: Role
    drivers: tuple[str, ...]
    devices: tuple[Device, ...] = ()
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    taints: tuple[Taint, ...] = ()
    count: int = 1
    minimum: int | None = None
    maximum: int | None = None
    zones: tuple[str, ...] = ()
    fabric: Fabric = "None"
    infiniband: str = ""
    capacity_block: str = ""
    accelerator: Accelerator | None = None
    machine: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def autoscaled(self) -> bool:
        """Bounds are given and differ, so the size is the autoscaler's to choose."""
        low = self.count if self.minimum is None else self.minimum
        high = self.count if self.maximum is None else self.maximum
        return (self.minimum is not None or self.maximum is not None) and low != high


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster whose classes are all known. `version` is the declared or default version as written, empty where
    neither is known; `claimed` is the set of claimed drivers, never a stand-in for "unknown"; `location` is the
    region or location, empty where the source has none; `account` is what the credentials resolve to, for people.

    `kept_pools` and `kept_taints` are set by the join while it makes one component's values: the pools and the taint
    keys that the component's live release names already. Pool lists and tolerations grow by reconcile and shrink only
    through prune, so they stay in."""

    name: str
    source: Source
    version: str
    pools: tuple[PoolView, ...]
    claimed: frozenset[str]
    location: str = ""
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    taints: tuple[Taint, ...] = ()
    credentials: tuple[str, str] = ("ClusterProviderConfig", "default")
    account: str = "default"
    external: tuple[ExternalDriver, ...] = ()
    cpu_mode: CpuMode | None = None
    kept_pools: frozenset[str] = frozenset()
    kept_taints: frozenset[str] = frozenset()

    def ours(self, drivers: Iterable[str]) -> frozenset[str]:
        """Those of `drivers` that the platform team doesn't run itself."""
        return frozenset(drivers) - {e.driver for e in self.external}

    def claiming(self, *drivers: str) -> tuple[PoolView, ...]:
        """The pools whose class claims one of `drivers`, in the manifest's order."""
        return tuple(p for p in self.pools if any(d in p.drivers for d in drivers))

    def pool(self, name: str) -> PoolView:
        """Raises KeyError for a pool that the manifest doesn't hold."""
        for pool in self.pools:
            if pool.name == name:
                return pool
        raise KeyError(name)
