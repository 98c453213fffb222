"""InferenceClass: the hardware of a node pool, nested as in the API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from modelplane_dagster.manifests.fields import (
    Int,
    Manifest,
    Metadata,
    NamedSeq,
    Quantity,
    Semver,
    SortedMap,
    Text,
    Text63,
    Text253,
    Violation,
    refuse_any,
)

Provider = Literal["GKE", "EKS", "AKS", "Nebius", "Vultr", "Civo"]
DiskSize = Annotated[int, Field(ge=10, lt=2**63)]


class Accelerator(Manifest):
    """What the cloud attaches. Placement reads `spec.devices`, never this."""

    type: Text63
    count: Annotated[int, Field(ge=1, le=16)]


class GkeProvisioning(Manifest):
    machine_type: Text
    disk_size_gb: DiskSize = 100
    accelerator: Accelerator | None = None


class EksProvisioning(Manifest):
    instance_type: Text
    disk_size_gb: DiskSize = 100
    accelerator: Accelerator | None = None


class AksProvisioning(Manifest):
    vm_size: Text
    disk_size_gb: DiskSize = 100
    accelerator: Accelerator | None = None


class NebiusProvisioning(Manifest):
    platform: Text63
    preset: Text63
    disk_size_gb: DiskSize = 100
    drivers_preset: Text63 = "cuda13.0"
    accelerator: Accelerator | None = None


class VultrProvisioning(Manifest):
    plan: Text63
    accelerator: Accelerator | None = None


class CivoProvisioning(Manifest):
    size: Text63
    accelerator: Accelerator | None = None


ProviderBlock = (
    GkeProvisioning | EksProvisioning | AksProvisioning | NebiusProvisioning | VultrProvisioning | CivoProvisioning
)


class Provisioning(Manifest):
    """How a cloud makes a pool of the class. The block named by `provider` is set; others may be and aren't used."""

    provider: Provider
    gke: GkeProvisioning | None = None
    eks: EksProvisioning | None = None
    aks: AksProvisioning | None = None
    nebius: NebiusProvisioning | None = None
    vultr: VultrProvisioning | None = None
    civo: CivoProvisioning | None = None

    @property
    def block(self) -> ProviderBlock:
        """The block of the class's own provider."""
        return getattr(self, self.provider.lower())

    @property
    def accelerator(self) -> Accelerator | None:
        return self.block.accelerator

    @model_validator(mode="after")
    def _block_is_there(self) -> Self:
        key = self.provider.lower()
        if getattr(self, key) is None:
            refuse_any([Violation("RuleViolated", f"provider is {self.provider}, so {key} must be set")])
        return self


class DeviceAttribute(Manifest):
    """Exactly one of the four is set. The manifest's names are string, version, bool and int."""

    string: Annotated[str, Field(max_length=253)] | None = None
    version: Semver | None = None
    boolean: Annotated[bool | None, Field(alias="bool")] = None
    integer: Annotated[Int | None, Field(alias="int")] = None

    @property
    def value(self) -> str | bool | int:
        """The one that is set; `version` is a text too."""
        return next(v for v in (self.string, self.version, self.boolean, self.integer) if v is not None)

    @model_validator(mode="after")
    def _one_type(self) -> Self:
        fields = {"string": self.string, "version": self.version, "bool": self.boolean, "int": self.integer}
        held = [name for name, value in fields.items() if value is not None]
        if len(held) != 1:
            what = " and ".join(held) if held else "none"
            refuse_any([Violation("RuleViolated", f"set exactly one of string, version, bool and int; {what} is set")])
        return self


class DeviceCapacity(Manifest):
    value: Quantity


class Device(Manifest):
    """One kind of device of a node, as its DRA driver publishes it. `Synthetic` devices are never claimed."""

    name: Text63
    claim: Literal["DRA", "Synthetic"] = "DRA"
    driver: Text253
    device_class_name: Text253 | None = None
    count: Annotated[int, Field(ge=1, le=64)] = 1
    attributes: Annotated[SortedMap[DeviceAttribute], Field(max_length=32)] = Field(default_factory=dict)
    capacity: Annotated[SortedMap[DeviceCapacity], Field(max_length=32)] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _claimed_by_class(self) -> Self:
        if self.claim == "DRA" and self.device_class_name is None:
            refuse_any(
                [Violation("RuleViolated", f"device {self.name!r} has claim DRA, so deviceClassName must be set")]
            )
        return self


class ClassSpec(Manifest):
    description: str | None = None
    provisioning: Provisioning | None = None
    devices: Annotated[NamedSeq[Device], Field(min_length=1, max_length=16)]


class InferenceClass(Manifest):
    metadata: Metadata
    spec: ClassSpec

    @property
    def name(self) -> str:
        return self.metadata.name

    def claimed(self) -> Iterator[Device]:
        """The devices that pods claim through DRA."""
        return (device for device in self.spec.devices if device.claim == "DRA")


def device_facts(device: Device) -> dict[str, Any]:
    """The device as the API writes it, defaults filled in."""
    return device.model_dump(by_alias=True, exclude_none=True)
