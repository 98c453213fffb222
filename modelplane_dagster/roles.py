"""Roles, labels and taints of pools, all derived from the drivers that a class claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from modelplane_dagster.cluster import Accelerator, ExternalDriver, Role
from modelplane_dagster.drivers import CPU, CPU_LABEL, DRIVERS, GPU_LABEL, POOL_LABEL, PRESENT, Driver, DriverKind
from modelplane_dagster.kube.objects import Taint

if TYPE_CHECKING:
    from modelplane_dagster.manifests.models import InferenceClass


def class_drivers(cls: InferenceClass) -> tuple[str, ...]:
    """The drivers that the class claims, sorted: those of its devices with `claim: DRA`. Empty means none."""
    return tuple(sorted({d.driver for d in cls.spec.devices if d.claim == "DRA"}))


def driver_facts(name: str, external: Iterable[ExternalDriver] = ()) -> Driver | None:
    """What is known of a driver: the table's row, else what the cluster declares of it; None for a driver that is
    neither, which has no kind and so gives no role."""
    if name in DRIVERS:
        return DRIVERS[name]
    for row in external:
        if row.driver == name:
            taint = Taint(row.taint, PRESENT) if row.taint else None
            return Driver(name, DriverKind(row.kind), "", taint)
    return None


def gpu_drivers(drivers: Iterable[str], external: Iterable[ExternalDriver] = ()) -> tuple[Driver, ...]:
    """The GPU drivers among `drivers`, by name."""
    facts = (driver_facts(d, tuple(external)) for d in sorted(drivers))
    return tuple(f for f in facts if f is not None and f.kind is DriverKind.GPU)


def role_of(drivers: Iterable[str], external: Iterable[ExternalDriver] = ()) -> Role:
    """GPU with any GPU driver; else CPU with `dra.cpu` or another CPU driver; else None."""
    facts = [driver_facts(d, tuple(external)) for d in drivers]
    kinds = {f.kind for f in facts if f is not None}
    if DriverKind.GPU in kinds:
        return Role.GPU
    return Role.CPU if DriverKind.CPU in kinds else Role.NONE


def pool_labels(
    name: str,
    drivers: tuple[str, ...],
    accelerator: Accelerator | None,
    external: tuple[ExternalDriver, ...] = (),
) -> Mapping[str, str]:
    """The labels that every node of the pool carries. The GPU label is the accelerator's type, else the driver's vendor,
    else, for a driver of the platform team's own, its whole name."""
    labels = {POOL_LABEL: name}
    gpus = gpu_drivers(drivers, external)
    if gpus:
        labels[GPU_LABEL] = accelerator.type if accelerator else gpus[0].vendor or gpus[0].name
    if CPU in drivers:
        labels[CPU_LABEL] = "true"
    return MappingProxyType(labels)


def pool_taints(drivers: tuple[str, ...], external: tuple[ExternalDriver, ...] = ()) -> tuple[Taint, ...]:
    """The GPU drivers' taints; without a GPU driver the CPU driver's; else none. A GPU pool that also claims `dra.cpu`
    carries the GPU's taint alone, since two would keep each stack's daemons out of the other's pods' way for nothing."""
    facts = [f for f in (driver_facts(d, external) for d in drivers) if f is not None]
    kind = DriverKind.GPU if any(f.kind is DriverKind.GPU for f in facts) else DriverKind.CPU
    return tuple(sorted({f.taint for f in facts if f.kind is kind and f.taint is not None}))
