"""InferenceCluster: where a cluster comes from and the pools it has, nested as in the API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from modelplane_dagster.manifests.classes import Device
from modelplane_dagster.manifests.fields import (
    Count,
    Manifest,
    NamedSeq,
    PoolName,
    Positive,
    Seq,
    ShortMetadata,
    Subdomain,
    TaintKey,
    Text,
    Text32,
    Text63,
    Text253,
    Violation,
    refuse_any,
    version_of,
)

Source = Literal["GKE", "EKS", "AKS", "Nebius", "Vultr", "Civo", "Existing"]
SYSTEM_POOL = "system"


class Credentials(Manifest):
    """Which provider config the cluster is made with."""

    type: Literal["ProviderConfig", "ClusterProviderConfig"] = "ClusterProviderConfig"
    name: Text253 = "default"


class GkeCluster(Manifest):
    region: Text32
    kubernetes_version: Annotated[str, version_of("GKE")] = "1.35"
    credentials: Credentials = Credentials()


class EksCluster(Manifest):
    region: Text32
    kubernetes_version: Annotated[str, version_of("EKS")] = "1.36"
    credentials: Credentials = Credentials()


class AksCluster(Manifest):
    location: Text32
    kubernetes_version: Annotated[str, version_of("AKS")] = "1.34"
    credentials: Credentials = Credentials()


class NebiusCluster(Manifest):
    """The project, and so the region, comes from the provider config."""

    kubernetes_version: Annotated[str, version_of("Nebius")] = "1.34"
    credentials: Credentials = Credentials()


class VultrCluster(Manifest):
    region: Text32
    kubernetes_version: Annotated[str, version_of("Vultr")] = "v1.36.1+3"
    credentials: Credentials = Credentials()


class CivoCluster(Manifest):
    """`kubernetes_version` None means Civo's current default."""

    region: Text32
    kubernetes_version: Annotated[str, version_of("Civo")] | None = None
    credentials: Credentials = Credentials()


class KubeconfigRef(Manifest):
    """A Secret of the namespace modelplane-system that holds the kubeconfig."""

    name: Text253
    key: Text253 = "kubeconfig"


class IdentitySecretRef(Manifest):
    name: Text253
    key: Text253 = "private_key"
    type: Literal["GoogleApplicationCredentials", "AWSWebIdentityCredentials", "NebiusServiceAccountCredentials"] = (
        "GoogleApplicationCredentials"
    )


class ExistingCache(Manifest):
    storage_class_name: Text253 | None = None


class ExternalDriver(Manifest):
    """A DRA driver that the platform team runs itself. `taint` is the key of its pools' taint, None where they have none."""

    driver: Annotated[Subdomain, Field(min_length=1, max_length=253)]
    kind: Literal["GPU", "CPU", "Other"]
    taint: TaintKey | None = None


def _drivers_once(drivers: tuple[ExternalDriver, ...]) -> tuple[ExternalDriver, ...]:
    names = [entry.driver for entry in drivers]
    refuse_any(
        Violation("ExternalDriverClash", f"the driver {name!r} is declared external twice", (index, "driver"))
        for index, name in enumerate(names)
        if name in names[:index]
    )
    return drivers


class ExistingCluster(Manifest):
    """A cluster of the platform team's own: its nodes are read and never written to."""

    secret_ref: KubeconfigRef
    identity_secret_ref: IdentitySecretRef | None = None
    cache: ExistingCache | None = None
    external_drivers: Annotated[Seq[ExternalDriver], AfterValidator(_drivers_once)] = ()


ProvisionedBlock = GkeCluster | EksCluster | AksCluster | NebiusCluster | VultrCluster | CivoCluster


class ClusterSource(Manifest):
    """The block named by `source` is set; others may be and aren't used."""

    source: Source
    existing: ExistingCluster | None = None
    gke: GkeCluster | None = None
    eks: EksCluster | None = None
    aks: AksCluster | None = None
    nebius: NebiusCluster | None = None
    vultr: VultrCluster | None = None
    civo: CivoCluster | None = None

    @property
    def block(self) -> ProvisionedBlock | ExistingCluster:
        """The block of the cluster's own source."""
        return getattr(self, self.source.lower())

    @model_validator(mode="after")
    def _block_is_there(self) -> Self:
        key = self.source.lower()
        if getattr(self, key) is None:
            refuse_any([Violation("RuleViolated", f"source is {self.source}, so {key} must be set")])
        return self


class ClusterTaint(Manifest):
    """Repels deployments from the whole cluster; `value` is empty where none is given."""

    key: Text
    value: str = ""
    effect: Literal["NoSchedule", "NoExecute"]


class CapacityBlock(Manifest):
    capacity_reservation_id: Annotated[str, Field(pattern=r"^cr-[0-9a-f]+$", min_length=4, max_length=64)]


class InfiniBand(Manifest):
    fabric: Text63


class Fabric(Manifest):
    type: Literal["None", "EFA", "InfiniBand"] = "None"
    infiniband: InfiniBand | None = None

    @model_validator(mode="after")
    def _infiniband_only(self) -> Self:
        if self.infiniband is not None and self.type != "InfiniBand":
            refuse_any(
                [Violation("RuleViolated", f"infiniband goes with type InfiniBand only, and type is {self.type}")]
            )
        return self


class NodePool(Manifest):
    """A pool. It scales by itself when `max_node_count` is set; `node_count` then is where it starts."""

    name: PoolName
    class_name: Text253
    node_count: Count = 1
    min_node_count: Count | None = None
    max_node_count: Positive | None = None
    zones: Seq[str] = ()
    capacity_block: CapacityBlock | None = None
    fabric: Fabric | None = None

    @property
    def start_count(self) -> int:
        """How many nodes the pool starts with: `node_count`, or the bound it would cross where it isn't given."""
        low, high = self.min_node_count or 0, self.max_node_count
        count = max(self.node_count, low)
        return count if high is None else min(count, high)

    @property
    def fabric_type(self) -> Literal["None", "EFA", "InfiniBand"]:
        return self.fabric.type if self.fabric else "None"


def _taints_once(taints: tuple[ClusterTaint, ...]) -> tuple[ClusterTaint, ...]:
    keys = [(taint.key, taint.effect) for taint in taints]
    refuse_any(
        Violation("RuleViolated", f"the taint {key}:{effect} stands in the list twice", (index, "key"))
        for index, (key, effect) in enumerate(keys)
        if (key, effect) in keys[:index]
    )
    return taints


class ClusterSpec(Manifest):
    cluster: ClusterSource
    taints: Annotated[Seq[ClusterTaint], AfterValidator(_taints_once)] = ()
    node_pools: Annotated[NamedSeq[NodePool], Field(min_length=1, max_length=8)] = ()

    def _rules(self) -> Iterator[Violation]:
        source = self.cluster.source
        for index, pool in enumerate(self.node_pools):
            at = ("nodePools", index)
            if source == "Nebius" and pool.fabric_type == "InfiniBand" and pool.fabric and not pool.fabric.infiniband:
                message = "on Nebius, a fabric of type InfiniBand needs infiniband.fabric, the fabric to join"
                yield Violation("RuleViolated", message, (*at, "fabric"), "Add fabric.infiniband.fabric.")
            if source != "Existing" and pool.name == SYSTEM_POOL:
                message = f"{SYSTEM_POOL!r} is the name of the pool that every provisioned cluster gets by itself"
                yield Violation("InvalidName", message, (*at, "name"))

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse_any(self._rules())
        return self


class InferenceCluster(Manifest):
    metadata: ShortMetadata
    spec: ClusterSpec

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def source(self) -> Source:
        return self.spec.cluster.source

    @property
    def kubernetes_version(self) -> str | None:
        """As declared, or the source's default; None where it isn't known before the cluster is read."""
        block = self.spec.cluster.block
        return None if isinstance(block, ExistingCluster) else block.kubernetes_version

    @property
    def credentials(self) -> Credentials:
        """The defaults on an Existing cluster, which is reached by its kubeconfig and uses none."""
        block = self.spec.cluster.block
        return Credentials() if isinstance(block, ExistingCluster) else block.credentials

    @property
    def external_drivers(self) -> tuple[ExternalDriver, ...]:
        block = self.spec.cluster.block
        return block.external_drivers if isinstance(block, ExistingCluster) else ()

    @property
    def location(self) -> str | None:
        """The region as the cloud names it; None on Nebius, whose project decides, and on an Existing cluster."""
        block = self.spec.cluster.block
        if isinstance(block, AksCluster):
            return block.location
        return None if isinstance(block, NebiusCluster | ExistingCluster) else block.region

    def pool(self, name: str) -> NodePool | None:
        return next((pool for pool in self.spec.node_pools if pool.name == name), None)


class SchedulablePool(Manifest):
    """An entry of `status.schedulablePools`, which recipes are placed against."""

    name: str
    nodes: Count
    devices: Seq[Device] = ()
