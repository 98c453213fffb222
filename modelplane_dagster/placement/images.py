"""Whether an engine's image is built for the devices that it is placed on, as far as public image names tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelplane_dagster.cluster import ClusterView, PoolView, Role
from modelplane_dagster.drivers import DRIVERS
from modelplane_dagster.findings import Finding, finding

if TYPE_CHECKING:
    from modelplane_dagster.manifests.deployments import Member, ModelDeployment
    from modelplane_dagster.placement.facts import ReplicaPlacement


@dataclass(frozen=True, slots=True)
class ImageFamily:
    """Images whose repository holds `mark` are built for `target`: a GPU vendor, or `cpu`. First match counts."""

    mark: str
    target: str
    source: str


# Checked 2026-11-30 against vLLM's installation pages and ROCm's list of images.
FAMILIES: tuple[ImageFamily, ...] = (
    ImageFamily("vllm-cpu-release-repo", "cpu", "vLLM, installation on CPU"),
    ImageFamily("vllm-openai-cpu", "cpu", "vLLM, installation on CPU"),
    ImageFamily("vllm-openai-rocm", "amd", "vLLM, installation on ROCm"),
    ImageFamily("rocm/vllm", "amd", "ROCm, vLLM images"),
    ImageFamily("vllm/vllm-openai", "nvidia", "vLLM, deployment with Docker"),
    ImageFamily("nvcr.io/", "nvidia", "NVIDIA's registry"),
)


def image_target(image: str) -> str | None:
    """`nvidia`, `amd` or `cpu`; None where the name doesn't tell."""
    repository = image.partition("@")[0]
    return next((f.target for f in FAMILIES if f.mark in repository), None)


def pool_targets(pool: PoolView) -> frozenset[str]:
    """What a pool runs: its GPU drivers' vendors, or `cpu`. A GPU pool that also claims `dra.cpu` runs both."""
    vendors = {DRIVERS[d].vendor for d in pool.drivers if d in DRIVERS and DRIVERS[d].vendor}
    return frozenset(vendors | ({"cpu"} if pool.role is Role.CPU or "dra.cpu" in pool.drivers else set()))


def image_findings(
    subject: str,
    deployment: ModelDeployment,
    replicas: tuple[ReplicaPlacement, ...],
    views: Mapping[str, ClusterView],
) -> list[Finding]:
    """One `ImageMismatch` for each image and pool that don't fit."""
    found: dict[tuple[str, str], Finding] = {}
    engines = {e.name: e for e in deployment.spec.template.spec.engines}
    for replica in replicas:
        for placed in replica.engines:
            members: Mapping[str, Member] = {m.role: m for m in engines[placed.name].members}
            for at in placed.members:
                spec = members[at.role].template.spec
                if spec is None:
                    continue
                image = spec.containers[0].image
                target = image_target(image)
                pool = views[replica.cluster].pool(at.pool)
                fits = pool_targets(pool)
                if target is None or not fits or target in fits:
                    continue
                found[(image, at.pool)] = finding(
                    "ImageMismatch",
                    subject,
                    f"Image {image} is built for {target}, and pool {at.pool} of {replica.cluster} runs {', '.join(sorted(fits))}.",
                )
    return list(found.values())
