"""The node agent: Node objects as the cloud or the seed wants them, hardware on record, status of a healthy kubelet."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from modelplane_dagster.drivers import POOL_LABEL
from resources.kubernetes import ClusterClient
from resources.lab.agents.faults import AgentFault, AgentFaults
from resources.lab.agents.hardware import DesiredNode
from resources.lab.plays import HARDWARE

Json = dict[str, Any]
DESIRED = "lab.modelplane.ai/desired"
_OURS = "modelplane.ai/"
_PODS = "110"
# What the kubelet keeps for itself and the system: CPU in thousandths, and a part of the memory.
_KEPT_CPU = 200
_KEPT_MEMORY = 0.06


def sync_nodes(client: ClusterClient, desired: Iterable[DesiredNode], nodes: Mapping[str, Json]) -> bool:
    """Makes, changes and removes Node objects; True where something was written. Nodes that aren't the lab's stay."""
    wanted = {node.name: node for node in desired}
    changed = False
    for name, node in wanted.items():
        mark = _mark(node)
        live = nodes.get(name)
        if live is None or _annotation(live, DESIRED) != mark:
            client.apply(_body(node, mark), force=True)
            changed = True
        if live is None or not (live.get("status") or {}).get("allocatable"):
            client.patch(("v1", "Node", "", name), {"status": _status(node, client.name)}, status=True)
            changed = True
    for name, live in nodes.items():
        if name not in wanted and _annotation(live, DESIRED):
            client.delete("v1", "Node", name)
            changed = True
    return changed


def with_faults(cluster: str, desired: Iterable[DesiredNode], faults: AgentFaults) -> list[DesiredNode]:
    """The nodes as they join where a pool's first node was told to come without our labels."""
    result, hit = [], set()
    for node in sorted(desired, key=lambda n: n.name):
        pool = node.labels.get(POOL_LABEL, "")
        if pool not in hit and faults.has(f"pool/{cluster}/{pool}", AgentFault.NODE_WITHOUT_LABEL):
            hit.add(pool)
            bare = {k: v for k, v in node.labels.items() if not k.startswith(_OURS)}
            result.append(replace(node, labels=bare))
        else:
            result.append(node)
    return result


def _annotation(node: Json, key: str) -> str:
    return str((node["metadata"].get("annotations") or {}).get(key, ""))


def _mark(node: DesiredNode) -> str:
    taints = [t.as_dict() for t in node.taints]
    parts = [dict(node.labels), taints, node.hardware.text(), node.provider_id]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _body(node: DesiredNode, mark: str) -> Json:
    labels = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": node.name}
    spec: Json = {"taints": [t.as_dict() for t in node.taints]}
    if node.provider_id:
        spec["providerID"] = node.provider_id
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "labels": {**labels, **node.labels},
            "annotations": {HARDWARE: node.hardware.text(), DESIRED: mark},
        },
        "spec": spec,
    }


def _status(node: DesiredNode, cluster: str) -> Json:
    hardware = node.hardware
    memory = hardware.memory_mib
    when = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    healthy = ("MemoryPressure", "DiskPressure", "PIDPressure")
    conditions = [{"type": kind, "status": "False", "reason": "KubeletHasEnough"} for kind in healthy]
    conditions.append({"type": "Ready", "status": "True", "reason": "KubeletReady"})
    return {
        "capacity": {"cpu": str(hardware.cpus), "memory": f"{memory}Mi", "pods": _PODS},
        "allocatable": {
            "cpu": f"{hardware.cpus * 1000 - _KEPT_CPU}m",
            "memory": f"{int(memory * (1 - _KEPT_MEMORY))}Mi",
            "pods": _PODS,
        },
        "conditions": [{**c, "lastHeartbeatTime": when, "lastTransitionTime": when} for c in conditions],
        "addresses": [{"type": "Hostname", "address": node.name}],
        "nodeInfo": _node_info(cluster, node.name),
    }


def _node_info(cluster: str, name: str) -> Json:
    return {
        "architecture": "amd64",
        "operatingSystem": "linux",
        "osImage": "lab",
        "kernelVersion": "lab",
        "kubeletVersion": "lab",
        "kubeProxyVersion": "",
        "containerRuntimeVersion": "lab",
        "bootID": "",
        "machineID": hashlib.sha256(f"{cluster}/{name}".encode()).hexdigest()[:32],
        "systemUUID": "",
    }
