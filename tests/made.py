"""Fleets made of few words for tests: manifests as mappings, read by the real reader."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from modelplane_dagster.manifests.fleet import Fleet, build_fleet

API = "modelplane.ai/v1alpha1"
NV, AMD, CPU, NET = "gpu.nvidia.com", "gpu.amd.com", "dra.cpu", "dra.net"
Body = dict[str, Any]

# A GPU machine and a plain one of each provider, in the words of its provisioning block.
MACHINES: Mapping[str, tuple[Body, Body]] = {
    "EKS": ({"instanceType": "g6.xlarge", "diskSizeGb": 100}, {"instanceType": "m6i.2xlarge", "diskSizeGb": 100}),
    "GKE": ({"machineType": "g2-standard-8"}, {"machineType": "e2-standard-8"}),
    "AKS": ({"vmSize": "Standard_NC24ads_A100_v4"}, {"vmSize": "Standard_D8s_v5"}),
    "Nebius": (
        {"platform": "gpu-h100-sxm", "preset": "1gpu-16vcpu-200gb"},
        {"platform": "cpu-d3", "preset": "8vcpu-32gb"},
    ),
    "Vultr": ({"plan": "vcg-l40s-16c-180g-48vram"}, {"plan": "vhf-8c-32gb"}),
    "Civo": ({"size": "an.g1.l40s.kube.x1"}, {"size": "g4p.kube.medium"}),
}
PLACES: Mapping[str, Body] = {
    "EKS": {"region": "us-east-1"},
    "GKE": {"region": "us-central1"},
    "AKS": {"location": "westeurope"},
    "Nebius": {},
    "Vultr": {"region": "ewr"},
    "Civo": {"region": "LON1"},
    "Existing": {"secretRef": {"name": "kubeconfig"}},
}


def device(driver: str, count: int = 1, *, name: str = "", **more: Any) -> Body:
    own = name or {NV: "gpu", AMD: "gpu", CPU: "cpus", NET: "nic"}.get(driver, "device")
    return {"name": own, "driver": driver, "deviceClassName": driver, "count": count, **more}


def nvidia(count: int = 1, memory: str = "23034Mi", **more: Any) -> Body:
    return device(NV, count, capacity={"memory": {"value": memory}}, **more)


def cpus(groups: int = 1, each: int | str = 6, **more: Any) -> Body:
    return device(CPU, groups, capacity={"cpu": {"value": str(each)}}, **more)


def cls(
    name: str, *devices: Body, source: str = "", accelerator: Body | None = None, machine: Body | None = None
) -> Body:
    """Without a source the class has no provisioning, as for clusters of one's own."""
    spec: Body = {"devices": list(devices)}
    if source:
        gpus = any(d["driver"] in (NV, AMD) for d in devices)
        block = dict(machine or MACHINES[source][0 if gpus else 1])
        if accelerator:
            block["accelerator"] = accelerator
        spec["provisioning"] = {"provider": source, source.lower(): block}
    return {"apiVersion": API, "kind": "InferenceClass", "metadata": {"name": name}, "spec": spec}


def pool(name: str, class_name: str, nodes: int = 1, **more: Any) -> Body:
    return {"name": name, "className": class_name, "nodeCount": nodes, **more}


def cluster(
    name: str,
    source: str,
    *pools: Body,
    labels: Mapping[str, str] | None = None,
    taints: list[Body] | None = None,
    **place: Any,
) -> Body:
    spec: Body = {
        "cluster": {"source": source, source.lower(): {**PLACES[source], **place}},
        "nodePools": list(pools),
    }
    if taints:
        spec["taints"] = taints
    metadata = {"name": name, "labels": dict(labels or {})}
    return {"apiVersion": API, "kind": "InferenceCluster", "metadata": metadata, "spec": spec}


def request(cel: str = "true", count: int = 1, name: str = "devices") -> Body:
    return {"name": name, "count": count, "selectors": [{"cel": cel}]}


def member(*requests: Body, role: str = "Standalone", image: str = "example.com/engine:v1", **more: Any) -> Body:
    body: Body = {"role": role, "template": {"spec": {"containers": [{"name": "engine", "image": image}]}}, **more}
    if requests:
        body["nodeSelector"] = {"devices": list(requests)}
    return body


def engine(*members: Body, name: str = "engine", **more: Any) -> Body:
    return {"name": name, "members": list(members), **more}


def deployment(
    name: str,
    *engines: Body,
    replicas: int = 1,
    select: Mapping[str, str] | None = None,
    tolerations: list[Body] | None = None,
    mode: str = "Unified",
) -> Body:
    spec: Body = {"engines": list(engines), "serving": {"mode": mode}}
    if select:
        spec["clusterSelector"] = {"matchLabels": dict(select)}
    if tolerations:
        spec["tolerations"] = tolerations
    return {
        "apiVersion": API,
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": "models"},
        "spec": {"replicas": replicas, "template": {"spec": spec}},
    }


def provider_config(source: str, name: str, **spec: Any) -> Body:
    group = {"EKS": "aws", "GKE": "gcp", "AKS": "azure", "Nebius": "nebius"}[source]
    return {
        "apiVersion": f"{group}.m.upbound.io/v1beta1",
        "kind": "ClusterProviderConfig",
        "metadata": {"name": name},
        "spec": spec,
    }


def text(*objects: Body) -> bytes:
    """One YAML stream, a document a line."""
    return "".join(f"---\n{json.dumps(o)}\n" for o in objects).encode()


def fleet(*objects: Body) -> Fleet:
    return build_fleet([("fleet.yaml", text(*objects))])
