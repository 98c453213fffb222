"""The component lists: what each source's clusters can get. The join picks from them by claimed drivers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from modelplane_dagster.cluster import Source
from modelplane_dagster.components.amd import AMD_GPU_OPERATOR
from modelplane_dagster.components.cpu import DRA_DRIVER_CPU
from modelplane_dagster.components.nfd import NODE_FEATURE_DISCOVERY
from modelplane_dagster.components.nvidia import CRITICAL_PODS_QUOTA, OperatorParts, dra_driver, gpu_operator
from modelplane_dagster.components.substrate import CERT_MANAGER
from modelplane_dagster.components.types import Component

COMMON: tuple[Component, ...] = (CRITICAL_PODS_QUOTA, DRA_DRIVER_CPU)
SUBSTRATE: tuple[Component, ...] = (CERT_MANAGER,)
CLOUD: Mapping[str, tuple[Component, ...]] = MappingProxyType(
    {
        "EKS": (*SUBSTRATE, NODE_FEATURE_DISCOVERY, gpu_operator(OperatorParts(dcgm=True)), dra_driver("/")),
        "Existing": (*SUBSTRATE, NODE_FEATURE_DISCOVERY, dra_driver("/"), AMD_GPU_OPERATOR),
    }
)


def components_for(source: Source) -> tuple[Component, ...]:
    """The source's own list, then the common one."""
    return (*CLOUD[source], *COMMON)
