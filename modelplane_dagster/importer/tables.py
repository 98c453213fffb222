"""Every component that a recipe may hold, classified, and the values that must hold whatever a recipe says. Pure data.

A component that neither table names fails the import: someone decides on it first, and writes the reason down here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from modelplane_dagster.components.types import Json
from modelplane_dagster.drivers import AMD, NVIDIA


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """`key` is ours for it; `drivers` are its tags. `daemons` are the paths of its values under which the tolerations
    are those of untagged daemons that run on every node; an empty path stands for all of its values and manifests.
    `daemons_if` names a value that must stand at a path for that."""

    key: str
    reason: str
    drivers: frozenset[str] = frozenset()
    daemons: tuple[str, ...] = ()
    daemons_if: tuple[str, Json] | None = None


_GPU = frozenset({NVIDIA})

ALLOW: Mapping[str, Allowed] = MappingProxyType(
    {
        "nfd": Allowed(
            key="node-feature-discovery",
            drivers=frozenset({NVIDIA, AMD}),
            reason="labels the hardware that both vendors' stacks look for",
        ),
        "cert-manager": Allowed(key="cert-manager", reason="certificates of the gateway and of webhooks"),
        "kube-prometheus-stack": Allowed(
            key="kube-prometheus-stack",
            daemons=("prometheus-node-exporter",),
            reason="metrics; its node-exporter runs on every node",
        ),
        "prometheus-operator-crds": Allowed(
            key="prometheus-operator-crds", reason="the CRDs that monitors of other components need first"
        ),
        "prometheus-adapter": Allowed(key="prometheus-adapter", reason="scaling by GPU metrics"),
        "k8s-ephemeral-storage-metrics": Allowed(
            key="k8s-ephemeral-storage-metrics",
            daemons=("",),
            daemons_if=("deploy_type", "DaemonSet"),
            reason="shows which pod fills a node's disk with model weights",
        ),
        "gpu-operator": Allowed(
            key="gpu-operator", drivers=_GPU, reason="the daemons beside NVIDIA's driver: toolkit, DCGM, MIG"
        ),
        "nvidia-dra-driver-gpu": Allowed(
            key="nvidia-dra-driver-gpu", drivers=_GPU, reason="publishes NVIDIA GPUs as devices that claims ask for"
        ),
        "nvsentinel": Allowed(key="nvsentinel", drivers=_GPU, reason="finds and cordons nodes with failing GPUs"),
        "nodewright-operator": Allowed(key="nodewright-operator", reason="tunes nodes from custom resources"),
        "nodewright-customizations": Allowed(
            key="nodewright-customizations",
            daemons=("",),
            reason="what the operator tunes on each node; its pods run there",
        ),
    }
)

_GATEWAY = "the gateway is Envoy AI Gateway, from the common list"

DROP: Mapping[str, str] = MappingProxyType(
    {
        "agentgateway": _GATEWAY,
        "agentgateway-crds": _GATEWAY,
        "kgateway": _GATEWAY,
        "kgateway-crds": _GATEWAY,
        "aws-efa": "EFA comes as a DRA driver where a pool asks for the fabric",
        "aws-ebs-csi-driver": "storage is the cloud's own",
        "network-operator": "installed where an AKS pool asks for InfiniBand",
        "kai-scheduler": "a scheduler is the serving stack's choice",
    }
)

SUCCESSORS: Mapping[str, str] = MappingProxyType(
    {
        "skyhook-operator": "nodewright-operator",
        "skyhook-customizations": "nodewright-customizations",
    }
)
"""Names of recipes of 0.11, and what each is called since."""

KEYS = frozenset(row.key for row in ALLOW.values())
"""Our keys of everything that a recipe may bring; whatever else the shipped list holds is our own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Managed:
    """A value that must stand at a path of a component's hydrated values. `by_source` overrides it on a source;
    `except_on` are the sources where it isn't managed."""

    component: str
    path: str
    value: Json
    by_source: Mapping[str, Json] = field(default_factory=lambda: MappingProxyType({}))
    except_on: frozenset[str] = frozenset()

    def on(self, source: str) -> Json:
        return self.by_source.get(source, self.value)


_DRIVER, _OPERATOR = "nvidia-dra-driver-gpu", "gpu-operator"

MANAGED: tuple[Managed, ...] = (
    Managed(component=_DRIVER, path="gpuResourcesEnabledOverride", value=True),
    Managed(component=_DRIVER, path="resources.gpus.enabled", value=True),
    Managed(component=_DRIVER, path="resources.computeDomains.enabled", value=False),
    # Left alone it is the root of the operator's own driver, which no node of these sources has.
    Managed(
        component=_DRIVER,
        path="nvidiaDriverRoot",
        value="/",
        by_source=MappingProxyType({"GKE": "/home/kubernetes/bin/nvidia"}),
    ),
    Managed(component=_OPERATOR, path="driver.enabled", value=False),
    # The image of GKE's nodes has no NVIDIA runtime, so the shipped list turns the toolkit on there.
    Managed(component=_OPERATOR, path="toolkit.enabled", value=False, except_on=frozenset({"GKE"})),
    Managed(component=_OPERATOR, path="devicePlugin.enabled", value=False),
    Managed(component=_OPERATOR, path="gdrcopy.enabled", value=False),
    Managed(component="nvsentinel", path="labeler.assumeDriverInstalled", value=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forced:
    """A value that the importer sets itself."""

    component: str
    path: str
    value: Json
    reason: str


FORCED: tuple[Forced, ...] = (
    Forced(
        component=_OPERATOR,
        path="nfd.enabled",
        value=False,
        reason="Node Feature Discovery is a component of its own; two of them would contradict each other's labels",
    ),
)

KEPT = frozenset({"node-feature-discovery"})
"""Keys of components that stay in the list where a recipe has none: recipes of 0.11 leave Node Feature Discovery to the
GPU operator, and the importer turns that one off."""

SOURCES = ("EKS", "GKE", "AKS")
"""The sources that AICR has recipes for; `criteria.service` names them in lower case."""
