"""Machine types that the simulated EKS, GKE and AKS offer: enough of each catalogue to tell a GPU from none."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    vcpus: int
    memory_mib: int
    gpus: int = 0
    gpu_vendor: str = ""
    gpu_type: str = ""


_GIB = 1024

# Memory for each vCPU in GiB, by family.
_AWS_FAMILIES = {
    "m6i": 4,
    "m7i": 4,
    "m5": 4,
    "c6i": 2,
    "c7i": 2,
    "c5": 2,
    "r6i": 8,
    "r7i": 8,
    "g5": 4,
    "g6": 4,
    "g6e": 8,
}
_AWS_GPUS = {"12xlarge": 4, "24xlarge": 4, "48xlarge": 8}
_AWS_LARGE = {
    "p4d.24xlarge": Machine(96, 1152 * _GIB, 8, "nvidia"),
    "p4de.24xlarge": Machine(96, 1152 * _GIB, 8, "nvidia"),
    "p5.4xlarge": Machine(16, 256 * _GIB, 1, "nvidia"),
    "p5.48xlarge": Machine(192, 2048 * _GIB, 8, "nvidia"),
    "p5e.48xlarge": Machine(192, 2048 * _GIB, 8, "nvidia"),
    "p5en.48xlarge": Machine(192, 2048 * _GIB, 8, "nvidia"),
}

# Memory for each vCPU in GiB.
_GCP_FAMILIES = {
    "e2-standard": 4,
    "n2-standard": 4,
    "n1-standard": 3.75,
    "n2-highmem": 8,
    "c3-standard": 4,
    "c4-standard": 3.75,
}
_GCP_GPUS = {
    "g2-standard-4": (1, 16, "nvidia-l4"),
    "g2-standard-8": (1, 32, "nvidia-l4"),
    "g2-standard-12": (1, 48, "nvidia-l4"),
    "g2-standard-16": (1, 64, "nvidia-l4"),
    "g2-standard-24": (2, 96, "nvidia-l4"),
    "g2-standard-32": (1, 128, "nvidia-l4"),
    "g2-standard-48": (4, 192, "nvidia-l4"),
    "g2-standard-96": (8, 384, "nvidia-l4"),
    "a2-highgpu-1g": (1, 85, "nvidia-tesla-a100"),
    "a2-highgpu-8g": (8, 680, "nvidia-tesla-a100"),
    "a3-highgpu-1g": (1, 234, "nvidia-h100-80gb"),
    "a3-highgpu-8g": (8, 1872, "nvidia-h100-80gb"),
}
_GCP_GPU_VCPUS = {"a2-highgpu-1g": 12, "a2-highgpu-8g": 96, "a3-highgpu-1g": 26, "a3-highgpu-8g": 208}

_AZURE_CPU = {"D": 4, "E": 8, "F": 2}
_AZURE_GPUS = {
    "Standard_NC24ads_A100_v4": Machine(24, 220 * _GIB, 1, "nvidia"),
    "Standard_NC48ads_A100_v4": Machine(48, 440 * _GIB, 2, "nvidia"),
    "Standard_NC96ads_A100_v4": Machine(96, 880 * _GIB, 4, "nvidia"),
    "Standard_NC40ads_H100_v5": Machine(40, 320 * _GIB, 1, "nvidia"),
    "Standard_NC80adis_H100_v5": Machine(80, 640 * _GIB, 2, "nvidia"),
    "Standard_NC4as_T4_v3": Machine(4, 28 * _GIB, 1, "nvidia"),
    "Standard_ND96isr_H100_v5": Machine(96, 1900 * _GIB, 8, "nvidia"),
    "Standard_ND96isr_MI300X_v5": Machine(96, 1850 * _GIB, 8, "amd"),
}


def aws_type(name: str) -> Machine | None:
    """None for a type that isn't offered."""
    if name in _AWS_LARGE:
        return _AWS_LARGE[name]
    match = re.fullmatch(r"(?P<family>[a-z0-9]+)\.(?P<size>(?P<n>\d*)xlarge|large)", name)
    if match is None or match["family"] not in _AWS_FAMILIES:
        return None
    vcpus = 2 if match["size"] == "large" else 4 * int(match["n"] or 1)
    gpus = _AWS_GPUS.get(match["size"], 1) if match["family"].startswith("g") else 0
    return Machine(vcpus, vcpus * _AWS_FAMILIES[match["family"]] * _GIB, gpus, "nvidia" if gpus else "")


def gcp_type(name: str) -> Machine | None:
    if name in _GCP_GPUS:
        gpus, gib, kind = _GCP_GPUS[name]
        vcpus = _GCP_GPU_VCPUS.get(name) or int(name.rsplit("-", 1)[1])
        return Machine(vcpus, gib * _GIB, gpus, "nvidia", kind)
    family, _, size = name.rpartition("-")
    if family not in _GCP_FAMILIES or not size.isdigit():
        return None
    return Machine(int(size), int(int(size) * _GCP_FAMILIES[family] * _GIB))


def azure_size(name: str) -> Machine | None:
    if name in _AZURE_GPUS:
        return _AZURE_GPUS[name]
    match = re.fullmatch(r"Standard_(?P<family>[DEF])(?P<n>\d+)[a-z]*_v\d+", name)
    if match is None:
        return None
    return Machine(int(match["n"]), int(match["n"]) * _AZURE_CPU[match["family"]] * _GIB)


def azure_sizes() -> list[str]:
    """All the sizes on offer."""
    plain = [f"Standard_{f}{n}{s}_v5" for f in _AZURE_CPU for n in (2, 4, 8, 16, 32, 48, 64) for s in ("s", "as", "ds")]
    return [*plain, *_AZURE_GPUS]
