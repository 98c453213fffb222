"""Seven clusters, one of each source: a pool for NVIDIA's stack and one for the CPUs', and AMD's on the cluster of our own.

What must stand on them is written out here, from the charts' and clouds' own facts; nothing is asked of the product.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

GPU, CPU, AMD = "gpu", "cpu", "amd"
DRIVERS = {GPU: "gpu.nvidia.com", CPU: "dra.cpu", AMD: "gpu.amd.com"}
KEYS = {GPU: "nvidia.com/gpu", CPU: "modelplane.ai/cpu", AMD: "amd.com/gpu"}
IMAGES = {GPU: "vllm/vllm-openai:v0.27.1", AMD: "vllm/vllm-openai-rocm:v0.27.1"}
CPU_IMAGE = "public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo:v0.27.1"
NAMESPACE = "legs"


@dataclass(frozen=True, slots=True)
class Daemon:
    """A DaemonSet and the pools that it serves; `component` is what brings it."""

    component: str
    namespace: str
    name: str
    pools: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """A source's cluster. `where` is the cluster's block, `gpu` and `cpu` the provisioning of its two classes; `nodes`
    counts each pool's; `devices` and `memory` are of one GPU node, `cpus` what a claim of one group takes. `labels` are
    such as the cloud puts on every node of its own accord."""

    source: str
    where: Mapping[str, Any]
    gpu: Mapping[str, Any]
    cpu: Mapping[str, Any]
    cpus: int
    memory: str
    grouped: bool
    labels: tuple[str, ...]
    devices: int = 1
    groups: int = 1
    daemons: tuple[Daemon, ...] = ()
    nodes: Mapping[str, int] = field(default_factory=lambda: {GPU: 2, CPU: 1})

    @property
    def name(self) -> str:
        return f"leg-{self.source.lower()}"

    @property
    def pools(self) -> tuple[str, ...]:
        return tuple(self.nodes)


def _operator(*names: str) -> tuple[Daemon, ...]:
    return tuple(Daemon("gpu-operator", "gpu-operator", name, (GPU,)) for name in names)


def _sentinel(*names: str) -> tuple[Daemon, ...]:
    return tuple(Daemon("nvsentinel", "nvsentinel", name, (GPU,)) for name in names)


DRIVER = Daemon("nvidia-dra-driver-gpu", "nvidia-dra-driver", "dra-driver-nvidia-gpu-kubelet-plugin", (GPU,))
LABELLER = Daemon("node-feature-discovery", "node-feature-discovery", "mp-node-feature-discovery-worker", (GPU,))
CPUS = Daemon("dra-driver-cpu", "dra-driver-cpu", "mp-dra-driver-cpu", (CPU,))
OPERANDS = ("gpu-feature-discovery", "nvidia-dcgm-exporter", "nvidia-operator-validator")
MONITORS = (
    "platform-connectors",
    "syslog-health-monitor-regular",
    "metadata-collector",
    "gpu-health-monitor-dcgm-4.x",
)
# For other versions of DCGM, for Kata's nodes and for partitioned GPUs: no node here is such a one.
DORMANT = ("gpu-health-monitor-dcgm-3.x", "syslog-health-monitor-kata", "nvidia-mig-manager")
EVERYWHERE = "prometheus-node-exporter"

LEGS: tuple[Leg, ...] = (
    Leg(
        source="EKS",
        where={"region": "us-west-2", "kubernetesVersion": "1.36"},
        gpu={"instanceType": "g6.xlarge", "accelerator": {"type": "nvidia-l4", "count": 1}},
        cpu={"instanceType": "m6i.2xlarge"},
        cpus=6,
        memory="23034Mi",
        grouped=True,
        labels=("eks.amazonaws.com/nodegroup", "eks.amazonaws.com/capacityType"),
        daemons=(
            DRIVER,
            LABELLER,
            CPUS,
            *_operator(*OPERANDS, "nvidia-dcgm"),
            *_sentinel(*MONITORS),
        ),
    ),
    Leg(
        source="GKE",
        where={"region": "us-central1", "kubernetesVersion": "1.35"},
        gpu={"machineType": "g2-standard-8", "accelerator": {"type": "nvidia-l4", "count": 1}},
        cpu={"machineType": "n2-standard-8"},
        cpus=6,
        memory="23034Mi",
        grouped=False,
        labels=("cloud.google.com/gke-nodepool", "cloud.google.com/gke-os-distribution"),
        daemons=(
            DRIVER,
            LABELLER,
            CPUS,
            *_operator(*OPERANDS, "nvidia-dcgm", "nvidia-container-toolkit-daemonset"),
            *_sentinel(*MONITORS),
        ),
    ),
    Leg(
        source="AKS",
        where={"location": "westeurope", "kubernetesVersion": "1.34"},
        gpu={"vmSize": "Standard_NC24ads_A100_v4", "accelerator": {"type": "nvidia-a100", "count": 1}},
        cpu={"vmSize": "Standard_D8s_v5"},
        cpus=6,
        memory="81920Mi",
        grouped=False,
        labels=("kubernetes.azure.com/agentpool", "kubernetes.azure.com/mode"),
        daemons=(
            DRIVER,
            LABELLER,
            CPUS,
            *_operator(*OPERANDS, "nvidia-dcgm"),
            *_sentinel(*MONITORS),
            Daemon("gpu-operator-toolkit-hardening", "gpu-operator", "nvidia-toolkit-hardening", (GPU,)),
        ),
    ),
    Leg(
        source="Nebius",
        where={"kubernetesVersion": "1.34"},
        gpu={
            "platform": "gpu-h100-sxm",
            "preset": "1gpu-16vcpu-200gb",
            "accelerator": {"type": "nvidia-h100", "count": 1},
        },
        cpu={"platform": "cpu-d3", "preset": "16vcpu-64gb"},
        cpus=14,
        memory="81559Mi",
        grouped=False,
        labels=("node.kubernetes.io/instance-type",),
        daemons=(DRIVER, LABELLER, CPUS),
    ),
    Leg(
        source="Vultr",
        where={"region": "ewr", "kubernetesVersion": "v1.36.1+3"},
        gpu={"plan": "vcg-l40s-16c-180g-48vram", "accelerator": {"type": "nvidia-l40s", "count": 1}},
        cpu={"plan": "vhf-8c-32gb"},
        cpus=6,
        memory="46068Mi",
        grouped=True,
        labels=("vke.vultr.com/node-pool",),
        # Vultr's own operator labels the nodes.
        daemons=(DRIVER, CPUS),
    ),
    Leg(
        source="Civo",
        where={"region": "LON1", "kubernetesVersion": "1.34.1-k3s1"},
        gpu={"size": "an.g1.l40s.kube.x1", "accelerator": {"type": "nvidia-l40s", "count": 1}},
        cpu={"size": "g4p.kube.medium"},
        cpus=6,
        memory="46068Mi",
        grouped=False,
        labels=("kubernetes.civo.com/node-pool",),
        daemons=(DRIVER, LABELLER, CPUS, *_operator(*OPERANDS, "nvidia-driver-daemonset")),
    ),
    Leg(
        source="Existing",
        where={"secretRef": {"name": "leg-existing", "key": "kubeconfig"}},
        gpu={},
        cpu={},
        cpus=14,
        groups=2,
        memory="81559Mi",
        grouped=True,
        devices=8,
        labels=("owner.example/rack",),
        daemons=(
            DRIVER,
            Daemon(LABELLER.component, LABELLER.namespace, LABELLER.name, (GPU, AMD)),
            CPUS,
            *(
                Daemon("amd-gpu-operator", "kube-amd-gpu", f"mp-amd-{name}", (AMD,))
                for name in ("dra-driver", "node-labeller", "metrics-exporter")
            ),
        ),
        nodes={GPU: 2, CPU: 1, AMD: 1},
    ),
)
BY_SOURCE = {leg.source: leg for leg in LEGS}


def manifests(leg: Leg) -> str:
    """The leg's classes, its cluster, and an engine for each of its pools, as YAML."""
    return yaml.safe_dump_all(_objects(leg), sort_keys=False)


def _objects(leg: Leg) -> Iterator[dict[str, Any]]:
    memory = {"capacity": {"memory": {"value": leg.memory}}}
    yield _class(leg, GPU, leg.gpu, {"count": leg.devices, **memory})
    yield _class(leg, CPU, leg.cpu, {"count": leg.groups, "capacity": {"cpu": {"value": str(leg.cpus)}}})
    if AMD in leg.pools:
        yield _class(leg, AMD, {}, {"count": 8, "capacity": {"memory": {"value": "262128Mi"}}})
    pools = [{"name": p, "className": f"{leg.name}-{p}", "nodeCount": n} for p, n in leg.nodes.items()]
    if leg.source in ("EKS", "GKE"):
        zone = {"EKS": "us-west-2a", "GKE": "us-central1-a"}[leg.source]
        pools = [{**p, "zones": [zone]} for p in pools]
    yield {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceCluster",
        "metadata": {"name": leg.name, "labels": {"leg": leg.name}},
        "spec": {"cluster": {"source": leg.source, leg.source.lower(): dict(leg.where)}, "nodePools": pools},
    }
    for pool in leg.pools:
        yield engine(leg, pool)


def _class(leg: Leg, pool: str, block: Mapping[str, Any], device: Mapping[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "devices": [
            {
                "name": "cpu" if pool == CPU else "gpu",
                "driver": DRIVERS[pool],
                "deviceClassName": DRIVERS[pool],
                **device,
            }
        ]
    }
    if block:
        spec["provisioning"] = {"provider": leg.source, leg.source.lower(): dict(block)}
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceClass",
        "metadata": {"name": f"{leg.name}-{pool}"},
        "spec": spec,
    }


def engine(leg: Leg, pool: str) -> dict[str, Any]:
    """A deployment of one pod that claims one device, or one group of CPUs, of the leg's pool."""
    container = {"name": "engine", "image": IMAGES.get(pool, CPU_IMAGE), "args": ["--port=8000"]}
    request = {
        "name": "cpu" if pool == CPU else "gpu",
        "count": 1,
        "selectors": [{"cel": f'device.driver == "{DRIVERS[pool]}"'}],
    }
    member = {
        "role": "Standalone",
        "nodeSelector": {"devices": [request]},
        "template": {"spec": {"containers": [container]}},
    }
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": f"{leg.name}-{pool}", "namespace": NAMESPACE},
        "spec": {
            "replicas": 1,
            "template": {
                "spec": {
                    "clusterSelector": {"matchLabels": {"leg": leg.name}},
                    "engines": [{"name": "engine", "members": [member]}],
                }
            },
        },
    }


def seed() -> str:
    """The cluster of our own: what its owners built, with labels of theirs and a taint value of theirs."""
    rack = {"owner.example/rack": "r1"}
    nvidia = {"modelplane.ai/pool": GPU, "modelplane.ai/gpu": "nvidia", **rack}
    return json.dumps(
        {
            "clusters": {
                BY_SOURCE["Existing"].name: {
                    "version": "1.36.1",
                    "nodes": [
                        {"name": "room", "count": 1, "cpus": 16, "memoryGiB": 64, "labels": rack},
                        {
                            "name": "h100",
                            "count": 2,
                            "cpus": 128,
                            "memoryGiB": 2048,
                            "numaNodes": 2,
                            "labels": nvidia,
                            "taints": [{"key": "nvidia.com/gpu", "value": "true"}],
                            "devices": [{"card": "h100", "count": 8}],
                        },
                        {
                            "name": "mi325x",
                            "count": 1,
                            "cpus": 128,
                            "memoryGiB": 2304,
                            "numaNodes": 2,
                            "labels": {"modelplane.ai/pool": AMD, "modelplane.ai/gpu": "amd", **rack},
                            "taints": [{"key": "amd.com/gpu", "value": "present"}],
                            "devices": [{"card": "mi325x", "count": 8}],
                        },
                        {
                            "name": "plain",
                            "count": 1,
                            "cpus": 32,
                            "memoryGiB": 128,
                            "numaNodes": 2,
                            "labels": {"modelplane.ai/pool": CPU, "modelplane.ai/cpu": "true", **rack},
                            "taints": [{"key": "modelplane.ai/cpu", "value": "yes"}],
                        },
                    ],
                }
            }
        }
    )
