"""The kinds that are validated and not acted on: ModelService, ModelCache, ModelEndpoint, InferenceGateway."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from modelplane_dagster.manifests.deployments import ClusterSelector
from modelplane_dagster.manifests.fields import (
    Manifest,
    Metadata,
    NamespacedMetadata,
    Seq,
    Text,
    Texts,
    Violation,
    refuse_any,
)


class EndpointSelector(Manifest):
    match_labels: Texts


class ServiceEndpoint(Manifest):
    weight: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    selector: EndpointSelector


class ServiceSpec(Manifest):
    endpoints: Annotated[Seq[ServiceEndpoint], Field(min_length=1)]


class ModelService(Manifest):
    metadata: NamespacedMetadata
    spec: ServiceSpec


class AuthSecret(Manifest):
    name: Text
    key: str = "HF_TOKEN"


class HuggingFace(Manifest):
    repo: Text
    revision: str | None = None
    auth_secret: AuthSecret | None = None
    size_gib: Annotated[int, Field(ge=1, le=100_000, alias="sizeGiB")]


class CacheSpec(Manifest):
    source: Literal["HuggingFace"]
    hugging_face: HuggingFace | None = None
    cluster_selector: ClusterSelector = ClusterSelector()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.hugging_face is None:
            refuse_any([Violation("RuleViolated", "source is HuggingFace, so huggingFace must be set")])
        return self


class ModelCache(Manifest):
    metadata: NamespacedMetadata
    spec: CacheSpec


class EndpointSpec(Manifest):
    url: Text
    rewrite_path: str | None = None


class ModelEndpoint(Manifest):
    metadata: NamespacedMetadata
    spec: EndpointSpec


class MetalLB(Manifest):
    address_pool: str


class Traefik(Manifest):
    version: str
    load_balancer: Literal["MetalLB"] | None = None
    metallb: MetalLB | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.load_balancer == "MetalLB" and self.metallb is None:
            refuse_any([Violation("RuleViolated", "loadBalancer is MetalLB, so metallb must be set")])
        return self


class GatewaySpec(Manifest):
    backend: Literal["Traefik"]
    traefik: Traefik | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.traefik is None:
            refuse_any([Violation("RuleViolated", "backend is Traefik, so traefik must be set")])
        return self


class InferenceGateway(Manifest):
    metadata: Metadata
    spec: GatewaySpec
