"""The component lists: what each source's clusters can get. The join picks from them by claimed drivers.

A source's list is its own, then what every cluster gets, then the serving stack's. To support a driver on a source, add
the component that publishes it to the source's list; nothing else says what is supported.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from modelplane_dagster.components.amd import AMD_GPU_OPERATOR
from modelplane_dagster.components.autoscaler import CIVO_AUTOSCALER, EKS_AUTOSCALER
from modelplane_dagster.components.cpu import DRA_DRIVER_CPU
from modelplane_dagster.components.fabric import AWS_DRANET, NETWORK_OPERATOR
from modelplane_dagster.components.gateway import GATEWAY
from modelplane_dagster.components.monitoring import (
    EPHEMERAL_STORAGE_METRICS,
    PROMETHEUS_ADAPTER,
    PROMETHEUS_OPERATOR_CRDS,
    kube_prometheus_stack,
)
from modelplane_dagster.components.nfd import NODE_FEATURE_DISCOVERY
from modelplane_dagster.components.nvidia import CRITICAL_PODS_QUOTA, OperatorParts, dra_driver, gpu_operator
from modelplane_dagster.components.nvidia_clouds import NODEWRIGHT_OPERATOR, TOOLKIT_HARDENING, nvsentinel
from modelplane_dagster.components.overlay import overlaid
from modelplane_dagster.components.standard import STANDARD
from modelplane_dagster.components.substrate import CERT_MANAGER
from modelplane_dagster.components.types import Component
from modelplane_dagster.drivers import NETWORK
from modelplane_dagster.errors import ConfigError
from modelplane_dagster.findings import finding

IMAGE_ROOT = "/"
GKE_ROOT = "/home/kubernetes/bin/nvidia"
OPERATOR_ROOT = "/run/nvidia/driver"
AKS_RUNTIME_CLASS = "nvidia-container-runtime"

COMMON: tuple[Component, ...] = (*GATEWAY, CRITICAL_PODS_QUOTA, DRA_DRIVER_CPU)
STACKS: Mapping[str, tuple[Component, ...]] = MappingProxyType({"Standard": STANDARD})

_BASE = (CERT_MANAGER, kube_prometheus_stack(own_crds=True))
_SUBSTRATE = (*_BASE, NODE_FEATURE_DISCOVERY)
_RECIPE_BASE = (
    CERT_MANAGER,
    PROMETHEUS_OPERATOR_CRDS,
    kube_prometheus_stack(own_crds=False),
    PROMETHEUS_ADAPTER,
    EPHEMERAL_STORAGE_METRICS,
    NODE_FEATURE_DISCOVERY,
    NODEWRIGHT_OPERATOR,
)
_OPERATOR_NEEDS = ("node-feature-discovery", "cert-manager", "kube-prometheus-stack")


def _recipe(parts: OperatorParts, root: str) -> tuple[Component, ...]:
    """The list of a cloud that has an NVIDIA recipe."""
    return (
        *_RECIPE_BASE,
        gpu_operator(parts, after=_OPERATOR_NEEDS),
        dra_driver(root, after=("gpu-operator",)),
        nvsentinel(runtime_class=parts.runtime_class),
    )


CLOUD: Mapping[str, tuple[Component, ...]] = MappingProxyType(
    {
        "EKS": (*_recipe(OperatorParts(dcgm=True), IMAGE_ROOT), AWS_DRANET, EKS_AUTOSCALER),
        # Google installs the driver; its image has no NVIDIA runtime, so the operator brings the toolkit.
        "GKE": _recipe(OperatorParts(toolkit=True, dcgm=True, install_dir=GKE_ROOT), GKE_ROOT),
        "AKS": (
            *_recipe(OperatorParts(dcgm=True, runtime_class=AKS_RUNTIME_CLASS), IMAGE_ROOT),
            TOOLKIT_HARDENING,
            NETWORK_OPERATOR,
        ),
        "Nebius": (*_SUBSTRATE, dra_driver(IMAGE_ROOT)),
        # Vultr preinstalls a GPU operator with a Node Feature Discovery of its own; a second would contradict it.
        "Vultr": (*_BASE, dra_driver(IMAGE_ROOT)),
        "Civo": (
            *_SUBSTRATE,
            gpu_operator(OperatorParts(driver=True), after=("node-feature-discovery",)),
            dra_driver(OPERATOR_ROOT, after=("gpu-operator",)),
            CIVO_AUTOSCALER,
        ),
        "Existing": (*_SUBSTRATE, dra_driver(IMAGE_ROOT), AMD_GPU_OPERATOR),
    }
)

# One tuple a list, the same at each call: what follows from a list is remembered by it.
_LISTS = {(source, stack): (*own, *COMMON, *more) for source, own in CLOUD.items() for stack, more in STACKS.items()}
EVERY = tuple({id(c): c for components in _LISTS.values() for c in components}.values())
"""The components of every list; a key stands in it once for each pin or form that lists give it."""
ALL_KEYS = frozenset(c.key for c in EVERY)
"""The keys of every list: one overlay serves all sources, so a key that one of them lacks isn't a mistake."""

_EXTERNALS: Mapping[str, Mapping[str, str]] = MappingProxyType({"EKS": MappingProxyType({NETWORK: "EFA"})})


def externals(source: str) -> Mapping[str, str]:
    """The drivers that a source serves only with a fabric, by the fabric that brings each; empty for most sources."""
    return _EXTERNALS.get(source, MappingProxyType({}))


def components_for(
    source: str, overlay: Mapping[str, Mapping[str, Any]] | None = None, *, stack: str = "Standard"
) -> tuple[Component, ...]:
    """Everything that a cluster of `source` can get, with the site's overlay applied: the source's own list, the common
    one, the serving stack's.

    Raises ConfigError with the findings `UnknownSource`, `UnknownStack` or `OverlayInvalid`.
    """
    if source not in CLOUD:
        known = ", ".join(CLOUD)
        problem = finding(
            "UnknownSource", f"source/{source}", f"There is no component list for {source}; there is {known}."
        )
        raise ConfigError(problem.message, findings=(problem,))
    if stack not in STACKS:
        known = ", ".join(STACKS)
        problem = finding("UnknownStack", f"stack/{stack}", f"There is no serving stack {stack}; there is {known}.")
        raise ConfigError(problem.message, findings=(problem,))
    shipped = _LISTS[source, stack]
    return overlaid(shipped, overlay, known=ALL_KEYS) if overlay else shipped
