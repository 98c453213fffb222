"""The init container of a pod that looks for its hardware: on a real control plane no kubelet runs it, so an agent does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from resources.kubernetes import ClusterClient
from resources.lab.agents.hardware import hardware_of
from resources.lab.plays import FOUND, NEEDS

Json = dict[str, Any]


def find_hardware(client: ClusterClient, nodes: Mapping[str, Json], pods: Iterable[Json]) -> bool:
    """Marks the pods whose node has what they wait for; True where one was marked. kwok starts the marked ones."""
    changed = False
    for pod in pods:
        metadata = pod["metadata"]
        notes = metadata.get("annotations") or {}
        node = nodes.get(pod["spec"].get("nodeName", ""))
        if not notes.get(NEEDS) or notes.get(FOUND) or node is None or "deletionTimestamp" in metadata:
            continue
        hardware = hardware_of(node)
        if hardware is not None and hardware.of(notes[NEEDS]):
            target = ("v1", "Pod", metadata["namespace"], metadata["name"])
            client.patch(target, {"metadata": {"annotations": {FOUND: "true"}}})
            changed = True
    return changed
