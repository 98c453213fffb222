"""Fleets of any size for benchmarks: clusters of every source with three pools each, made as manifests."""

from __future__ import annotations

import io
from typing import Literal

Unlike = Literal["", "sizes", "names"]

_BLOCK = {
    "EKS": ("eks: {{region: us-east-1}}", "eks: {{instanceType: {m}, diskSizeGb: 100}}", "g6.xlarge", "m6i.2xlarge"),
    "GKE": ("gke: {{region: us-central1}}", "gke: {{machineType: {m}{a}}}", "g2-standard-8", "e2-standard-8"),
    "Vultr": ("vultr: {{region: ewr}}", "vultr: {{plan: {m}}}", "vcg-l40s-16c-180g-48vram", "vhf-8c-32gb"),
}
_ACCELERATOR = ", accelerator: {type: nvidia-l4, count: 1}"


def manifests(clusters: int, deployments: int, *, unlike: Unlike = "") -> list[tuple[str, bytes]]:
    """One file a hundred clusters, with three pools each: two NVIDIA, one CPU. `unlike` gives each cluster bounds of its
    own (`sizes`), or bounds, labels and pool names, so that no two share a shape (`names`)."""
    files = []
    out = io.StringIO()
    for source, (_, machine, gpu, cpu) in _BLOCK.items():
        for kind, m, a in (("gpu", gpu, _ACCELERATOR if source == "GKE" else ""), ("cpu", cpu, "")):
            block = machine.format(m=m, a=a)
            out.write(_class(f"{source.lower()}-{kind}", source, block, kind))
    files.append(("classes.yaml", out.getvalue().encode()))
    sources = list(_BLOCK)
    for start in range(0, clusters, 100):
        out = io.StringIO()
        for number in range(start, min(start + 100, clusters)):
            source = sources[number % len(sources)]
            out.write(_cluster(f"c{number:05d}", source, _BLOCK[source][0].format(), unlike=unlike))
        files.append((f"clusters-{start:05d}.yaml", out.getvalue().encode()))
    files.append(("deployments.yaml", "".join(_deployment(n) for n in range(deployments)).encode()))
    return files


def _class(name: str, source: str, block: str, kind: str) -> str:
    device = (
        "{name: gpu, driver: gpu.nvidia.com, deviceClassName: gpu.nvidia.com, capacity: {memory: {value: 23034Mi}}}"
        if kind == "gpu"
        else "{name: cpus, driver: dra.cpu, deviceClassName: dra.cpu, capacity: {cpu: {value: '4'}}}"
    )
    return (
        f"---\napiVersion: modelplane.ai/v1alpha1\nkind: InferenceClass\nmetadata: {{name: {name}}}\nspec:\n"
        f"  provisioning:\n    provider: {source}\n    {block}\n  devices:\n  - {device}\n"
    )


def _cluster(name: str, source: str, block: str, *, unlike: Unlike) -> str:
    low = source.lower()
    zones = ", zones: [us-central1-a]" if source == "GKE" else ""
    suffix, label = (f"-{name}", f", site: {name}") if unlike == "names" else ("", "")
    bounds = f", minNodeCount: 1, maxNodeCount: {2 + int(name[1:]) % 50}" if unlike else ""
    pools = "".join(
        f"  - {{name: {pool}{suffix}, className: {low}-{kind}, nodeCount: 1{bounds}{zones}}}\n"
        for pool, kind in (("gpu-a", "gpu"), ("gpu-b", "gpu"), ("cpu", "cpu"))
    )
    return (
        f"---\napiVersion: modelplane.ai/v1alpha1\nkind: InferenceCluster\nmetadata: {{name: {name}, labels: "
        f"{{fleet: bench{label}}}}}\nspec:\n  cluster:\n    source: {source}\n    {block}\n  nodePools:\n{pools}"
    )


def _deployment(number: int) -> str:
    selector = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("20Gi")) >= 0'
    return (
        "---\napiVersion: modelplane.ai/v1alpha1\nkind: ModelDeployment\n"
        f"metadata: {{name: model-{number:04d}, namespace: bench}}\nspec:\n  replicas: 10\n  template:\n    spec:\n"
        "      engines:\n      - name: engine\n        members:\n        - role: Standalone\n          nodeSelector:\n"
        f"            devices:\n            - name: gpu\n              selectors:\n              - cel: '{selector}'\n"
        "          template:\n            spec:\n              containers:\n              - {name: engine, image: "
        "'vllm/vllm-openai:v0.23.0'}\n"
    )
