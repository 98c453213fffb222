"""The gateway path that every cluster gets: Envoy Gateway, the AI gateway on it, and the keys of its trust."""

from __future__ import annotations

from typing import Any

from modelplane_dagster.components.inference_pool import INFERENCE_POOL, inference_pool_crd
from modelplane_dagster.components.pins import PINS
from modelplane_dagster.components.placing import LINUX
from modelplane_dagster.components.substrate import deployment, hook_job
from modelplane_dagster.components.types import Component, CustomResource, Same, Values

ENVOY_NAMESPACE = "envoy-gateway-system"
AI_NAMESPACE = "envoy-ai-gateway-system"
NAMESPACE = "modelplane-system"
# The label by which the gateways' listeners pick the namespaces whose routes may attach.
NAMESPACE_LABEL = "modelplane.ai/namespace"
ISSUER = "modelplane-selfsigned"
ENVOY_PROXY = "cluster-gateway"
# Where the AI gateway's controller answers Envoy Gateway's extension calls.
EXTENSION_PORT = 1063

_GATEWAY = "gateway.networking.k8s.io/v1"
_ENVOY = "gateway.envoyproxy.io/v1alpha1"
_AI = "aigateway.envoyproxy.io/v1alpha1"


def _envoy_values() -> Values:
    """Envoy Gateway asks the AI gateway's controller to translate routes, and takes an InferencePool for a backend.
    Without either, routes to pools stay without endpoints while everything looks healthy."""
    everything = {"includeAll": True}
    translation = {name: dict(everything) for name in ("listener", "route", "cluster", "secret")}
    group, version = INFERENCE_POOL.api_version.split("/")
    extension = {
        "hooks": {"xdsTranslator": {"translation": translation, "post": ["Translation", "Cluster", "Route"]}},
        "service": {
            "fqdn": {"hostname": f"ai-gateway-controller.{AI_NAMESPACE}.svc.cluster.local", "port": EXTENSION_PORT}
        },
        "backendResources": [{"group": group, "kind": INFERENCE_POOL.kind, "version": version}],
    }
    return {"config": {"envoyGateway": {"extensionApis": {"enableBackend": True}, "extensionManager": extension}}}


_EXTENSION = "config.envoyGateway.extensionManager"
_TRANSLATION = f"{_EXTENSION}.hooks.xdsTranslator.translation"

ENVOY_GATEWAY = Component(
    key="envoy-gateway",
    release="mp-gateway-helm",
    namespace=ENVOY_NAMESPACE,
    pin=PINS["envoy-gateway"],
    depends_on=("cert-manager",),
    values=Same(_envoy_values()),
    settings={
        "config.envoyGateway.extensionApis.enableBackend": "boolean",
        **{f"{_TRANSLATION}.{name}.includeAll": "boolean" for name in ("listener", "route", "cluster", "secret")},
        f"{_EXTENSION}.hooks.xdsTranslator.post": "array",
        f"{_EXTENSION}.service.fqdn.hostname": "string",
        f"{_EXTENSION}.service.fqdn.port": "integer",
        f"{_EXTENSION}.backendResources": "array",
        "deployment.replicas": "integer",
        "deployment.envoyGateway.resources": "object",
        "global.imagePullSecrets": "array",
        "global.images.envoyGateway.image": "string",
        "global.images.ratelimit.image": "string",
    },
    workloads=(
        deployment("envoy-gateway", "deployment.pod"),
        hook_job("mp-gateway-helm-certgen", "certgen.job", "pre-install, pre-upgrade"),
    ),
    crds=(
        CustomResource(_GATEWAY, "GatewayClass", "gatewayclasses", namespaced=False),
        CustomResource(_GATEWAY, "Gateway", "gateways", namespaced=True),
        CustomResource(_GATEWAY, "HTTPRoute", "httproutes", namespaced=True),
        CustomResource(_ENVOY, "EnvoyProxy", "envoyproxies", namespaced=True),
        CustomResource(_ENVOY, "Backend", "backends", namespaced=True),
        CustomResource(_ENVOY, "ClientTrafficPolicy", "clienttrafficpolicies", namespaced=True),
        CustomResource(_ENVOY, "BackendTrafficPolicy", "backendtrafficpolicies", namespaced=True),
        CustomResource(_ENVOY, "SecurityPolicy", "securitypolicies", namespaced=True),
    ),
    crds_need_apply=True,
)

AI_GATEWAY_CRDS = Component(
    key="ai-gateway-crds",
    release="mp-ai-gateway-crds-helm",
    namespace=AI_NAMESPACE,
    pin=PINS["ai-gateway-crds"],
    crds=(
        CustomResource(_AI, "AIGatewayRoute", "aigatewayroutes", namespaced=True),
        CustomResource(_AI, "AIServiceBackend", "aiservicebackends", namespaced=True),
        CustomResource(_AI, "BackendSecurityPolicy", "backendsecuritypolicies", namespaced=True),
    ),
)

AI_GATEWAY = Component(
    key="ai-gateway",
    release="mp-ai-gateway-helm",
    namespace=AI_NAMESPACE,
    pin=PINS["ai-gateway"],
    depends_on=("ai-gateway-crds",),
    settings={
        "controller.logRequestHeaderAttributes": "string",
        "controller.replicaCount": "integer",
        "controller.resources": "object",
        "controller.image.repository": "string",
        "controller.image.tag": "string",
        "extProc.image.repository": "string",
        "extProc.image.tag": "string",
    },
    workloads=(deployment("ai-gateway-controller", "controller"),),
)


def _crds() -> tuple[dict[str, Any], ...]:
    return (inference_pool_crd(),)


GAIE_CRDS = Component(key="gaie-crds", manifests=Same(_crds()), crds=(INFERENCE_POOL,))


def _namespace() -> tuple[dict[str, Any], ...]:
    return (
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": NAMESPACE, "labels": {NAMESPACE_LABEL: NAMESPACE}},
        },
    )


GATEWAY_NAMESPACE = Component(key="gateway-namespace", namespace=NAMESPACE, manifests=Same(_namespace()))


def _proxy() -> tuple[dict[str, Any], ...]:
    """Envoy Gateway's own default, `Local`, makes the load balancers of some clouds (Nebius) fail and never get an
    address; no rule here needs the client's own address."""
    kubernetes = {"envoyService": {"externalTrafficPolicy": "Cluster"}}
    return (
        {
            "apiVersion": _ENVOY,
            "kind": "EnvoyProxy",
            "metadata": {"name": ENVOY_PROXY, "namespace": NAMESPACE},
            "spec": {"provider": {"type": "Kubernetes", "kubernetes": kubernetes}},
        },
    )


GATEWAY_PROXY = Component(
    key="gateway-proxy",
    namespace=NAMESPACE,
    depends_on=("gateway-namespace", "envoy-gateway"),
    manifests=Same(_proxy()),
)


def _issuer() -> tuple[dict[str, Any], ...]:
    return (
        {
            "apiVersion": "cert-manager.io/v1",
            "kind": "Issuer",
            "metadata": {"name": ISSUER, "namespace": NAMESPACE},
            "spec": {"selfSigned": {}},
        },
    )


GATEWAY_SELFSIGNED_ISSUER = Component(
    key="gateway-selfsigned-issuer",
    namespace=NAMESPACE,
    depends_on=("cert-manager", "gateway-namespace"),
    manifests=Same(_issuer()),
)


def _trust_values() -> Values:
    """No public roots: its bundles hold the cluster's own authority alone."""
    return {
        "crds": {"enabled": True, "keep": True},
        "app": {"trust": {"namespace": NAMESPACE}},
        "defaultPackage": {"enabled": False},
    }


TRUST_MANAGER = Component(
    key="trust-manager",
    release="mp-trust-manager",
    namespace=NAMESPACE,
    pin=PINS["trust-manager"],
    # Installed beside cert-manager it loses a race with its webhook; an Issuer of ours that is ready proves that the
    # webhook answers.
    depends_on=("gateway-selfsigned-issuer",),
    values=Same(_trust_values()),
    settings={
        "crds.enabled": "boolean",
        "crds.keep": "boolean",
        "app.trust.namespace": "string",
        "defaultPackage.enabled": "boolean",
        "image.repository": "string",
        "image.tag": "string",
        "imagePullSecrets": "array",
        "resources": "object",
    },
    workloads=(deployment("trust-manager", selector=LINUX),),
    crds=(CustomResource("trust.cert-manager.io/v1alpha1", "Bundle", "bundles", namespaced=False),),
)

GATEWAY: tuple[Component, ...] = (
    ENVOY_GATEWAY,
    AI_GATEWAY_CRDS,
    AI_GATEWAY,
    GAIE_CRDS,
    GATEWAY_NAMESPACE,
    GATEWAY_PROXY,
    GATEWAY_SELFSIGNED_ISSUER,
    TRUST_MANAGER,
)
