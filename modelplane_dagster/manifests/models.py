"""The kinds of `modelplane.ai/v1alpha1`, each a frozen model with the API's own nesting."""

from __future__ import annotations

from modelplane_dagster.manifests.classes import (
    Accelerator,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    InferenceClass,
    Provider,
    Provisioning,
)
from modelplane_dagster.manifests.clusters import (
    SYSTEM_POOL,
    Credentials,
    ExistingCluster,
    ExternalDriver,
    InferenceCluster,
    NodePool,
    SchedulablePool,
    Source,
)
from modelplane_dagster.manifests.deployments import (
    Container,
    DeviceRequest,
    DeviceSelector,
    Engine,
    Member,
    ModelDeployment,
    Toleration,
)
from modelplane_dagster.manifests.others import InferenceGateway, ModelCache, ModelEndpoint, ModelService

GROUP = "modelplane.ai"
API_VERSION = "modelplane.ai/v1alpha1"

__all__ = [
    "API_VERSION",
    "GROUP",
    "SYSTEM_POOL",
    "Accelerator",
    "Container",
    "Credentials",
    "Device",
    "DeviceAttribute",
    "DeviceCapacity",
    "DeviceRequest",
    "DeviceSelector",
    "Engine",
    "ExistingCluster",
    "ExternalDriver",
    "InferenceClass",
    "InferenceCluster",
    "InferenceGateway",
    "Member",
    "ModelCache",
    "ModelDeployment",
    "ModelEndpoint",
    "ModelService",
    "NodePool",
    "Provider",
    "Provisioning",
    "SchedulablePool",
    "Source",
    "Toleration",
]
