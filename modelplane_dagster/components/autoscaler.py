"""The cluster-autoscaler, on the clouds whose bounds do nothing without one in the cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from modelplane_dagster.cluster import ClusterView, PoolView
from modelplane_dagster.components.pins import PINS
from modelplane_dagster.components.substrate import deployment
from modelplane_dagster.components.types import Component, Values, When

NAMESPACE = "kube-system"
RELEASE = "mp-cluster-autoscaler"
# EKS binds the account's permissions to this name by pod identity; Civo keeps its key in this Secret.
SERVICE_ACCOUNT = "cluster-autoscaler"
CIVO_SECRET = "civo-api-access"


def autoscaled(view: ClusterView) -> tuple[PoolView, ...]:
    return tuple(p for p in view.pools if p.autoscaled)


def _aws(view: ClusterView) -> Values:
    return {
        "cloudProvider": "aws",
        "awsRegion": view.location,
        "autoDiscovery": {"clusterName": view.name},
        "rbac": {"serviceAccount": {"name": SERVICE_ACCOUNT}},
    }


def _civo(view: ClusterView) -> Values:
    """Civo's groups are its pools by id, which is the pool's name; it has no pool without a node."""
    groups = [
        {"name": p.name, "minSize": max(1, _bound(p.minimum, p.count)), "maxSize": _bound(p.maximum, p.count)}
        for p in sorted(autoscaled(view), key=lambda p: p.name)
    ]
    return {"cloudProvider": "civo", "autoscalingGroups": groups, "secretKeyRefNameOverride": CIVO_SECRET}


def _bound(given: int | None, count: int) -> int:
    return count if given is None else given


def _component(provider: str, values: Callable[[ClusterView], Values]) -> Component:
    return Component(
        key="cluster-autoscaler",
        release=RELEASE,
        namespace=NAMESPACE,
        pin=PINS["cluster-autoscaler"],
        when=When("its bounds differ", autoscaled),
        values=values,
        settings={
            "cloudProvider": "string",
            "awsRegion": "string",
            "autoDiscovery.clusterName": "string",
            "autoscalingGroups": "array",
            "secretKeyRefNameOverride": "string",
            "rbac.serviceAccount.name": "string",
            "extraArgs": "object",
            "image.repository": "string",
            "image.tag": "string",
            "resources": "object",
        },
        workloads=(
            replace(
                deployment(f"{RELEASE}-{provider}-cluster-autoscaler"),
                pod_labels={"app.kubernetes.io/name": f"{provider}-cluster-autoscaler"},
                priority_class="system-cluster-critical",
            ),
        ),
    )


EKS_AUTOSCALER = _component("aws", _aws)
CIVO_AUTOSCALER = _component("civo", _civo)
