"""What a new cluster holds before anybody writes to it."""

from __future__ import annotations

from typing import Any

from resources.lab.api.store import Store

_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def _objects() -> list[tuple[str, dict[str, Any]]]:
    spaces = [("namespaces", {"metadata": {"name": name}}) for name in _NAMESPACES]
    priorities = [
        ("priorityclasses.scheduling.k8s.io", {"metadata": {"name": name}, "value": value})
        for name, value in _PRIORITIES.items()
    ]
    ports = [{"name": "https", "port": 443, "targetPort": 6443}]
    api = {
        "metadata": {"name": "kubernetes", "namespace": "default"},
        "spec": {"clusterIP": "10.96.0.1", "ports": ports},
    }
    return [*spaces, *priorities, ("services", api)]


def bootstrap(store: Store) -> None:
    """Creates what is missing; a cluster that has it is left alone."""
    for resource, obj in _objects():
        metadata = obj["metadata"]
        if store.find(resource, metadata["name"], metadata.get("namespace", "")) is None:
            store.create(resource, obj)
    store.lifecycle.drain()
