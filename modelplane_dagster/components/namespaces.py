"""The namespaces that components need before their charts: labelled for pods that need the host, with the quota that
GKE asks of pods of a system priority class. Derived from the declared workloads, so nothing says it twice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from modelplane_dagster.components.types import Component

# It exists on every cluster and isn't ours to label; GKE lets its own namespaces run critical pods.
SYSTEM = "kube-system"
Objects = tuple[dict[str, Any], ...]
CRITICAL = ("system-cluster-critical", "system-node-critical")
QUOTA_NAME = "critical-pods"
QUOTA_PODS = "1000"
PRIVILEGED_LABEL = "pod-security.kubernetes.io/enforce"


def namespace(name: str) -> dict[str, Any]:
    """A namespace whose pods may use the host: node plugins mount host paths, which `baseline` refuses already."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {PRIVILEGED_LABEL: "privileged"}},
    }


def critical_pods_quota(name: str) -> dict[str, Any]:
    """Room for pods of the two system priority classes. Without it GKE refuses them: FailedCreate, no daemon, no slices.
    It grants room and takes none, so it is harmless elsewhere."""
    scope = {"operator": "In", "scopeName": "PriorityClass", "values": list(CRITICAL)}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": QUOTA_NAME, "namespace": name},
        "spec": {"hard": {"pods": QUOTA_PODS}, "scopeSelector": {"matchExpressions": [scope]}},
    }


def namespace_objects(name: str, components: Iterable[Component]) -> Objects:
    """What must stand before any chart of `components` is installed into the namespace `name`; empty where nothing
    need. It depends on all components of that namespace, so that two of them never apply it differently."""
    if name in {"", SYSTEM}:
        return ()
    inside = [w for c in components for w in c.workloads if (w.namespace or c.namespace) == name]
    on_nodes = any(w.reach is not None for w in inside)
    critical = any(w.priority_class in CRITICAL for w in inside)
    if not on_nodes and not critical:
        return ()
    return (namespace(name), critical_pods_quota(name)) if critical else (namespace(name),)


def prepares(component: Component, components: Iterable[Component]) -> Objects:
    """The objects to apply before the component's chart; empty for manifests alone, and where a component that it
    depends on makes the namespace."""
    everything = tuple(components)
    if component.pin is None:
        return ()
    makers = {c.namespace for c in everything if c.pin is None and c.key in component.depends_on}
    return () if component.namespace in makers else namespace_objects(component.namespace, everything)
