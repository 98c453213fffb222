"""What every cluster gets whatever its hardware: certificates and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from modelplane_dagster.components.pins import PINS
from modelplane_dagster.components.placing import LINUX
from modelplane_dagster.components.types import NOTHING, Component, CustomResource, DeclaredWorkload, Knob, Same

_CERTS = "cert-manager.io/v1"


def deployment(name: str, root: str = "", *, selector: Mapping[str, str] = NOTHING) -> DeclaredWorkload:
    """A controller whose chart takes nodeSelector, affinity and tolerations under one path of its values; `selector`
    is what the chart selects by default."""
    at = f"{root}." if root else ""
    return DeclaredWorkload(
        kind="Deployment",
        name=name,
        node_selector=Knob(f"{at}nodeSelector", dict(selector)),
        affinity=Knob(f"{at}affinity", {}),
        tolerations=Knob(f"{at}tolerations", []),
    )


def hook_job(name: str, root: str, hook: str, *, selector: Mapping[str, str] = NOTHING) -> DeclaredWorkload:
    """A Job of a chart's hook, with the same three parts."""
    return replace(deployment(name, root, selector=selector), kind="Job", hook=hook)


CERT_MANAGER = Component(
    key="cert-manager",
    release="mp-cert-manager",
    namespace="cert-manager",
    pin=PINS["cert-manager"],
    values=Same({"crds": {"enabled": True}}),
    settings={
        "crds.enabled": "boolean",
        "crds.keep": "boolean",
        "image.repository": "string",
        "image.tag": "string",
        "global.imagePullSecrets": "array",
        "replicaCount": "integer",
        "resources": "object",
        "webhook.resources": "object",
        "cainjector.resources": "object",
        "prometheus.servicemonitor.enabled": "boolean",
    },
    workloads=(
        deployment("mp-cert-manager", selector=LINUX),
        deployment("mp-cert-manager-webhook", "webhook", selector=LINUX),
        replace(
            deployment("mp-cert-manager-cainjector", "cainjector", selector=LINUX),
            enabled="cainjector.enabled",
        ),
        replace(
            hook_job("mp-cert-manager-startupapicheck", "startupapicheck", "post-install", selector=LINUX),
            enabled="startupapicheck.enabled",
        ),
    ),
    crds=(
        CustomResource(_CERTS, "Certificate", "certificates", namespaced=True),
        CustomResource(_CERTS, "CertificateRequest", "certificaterequests", namespaced=True),
        CustomResource(_CERTS, "Issuer", "issuers", namespaced=True),
        CustomResource(_CERTS, "ClusterIssuer", "clusterissuers", namespaced=False),
        CustomResource("acme.cert-manager.io/v1", "Challenge", "challenges", namespaced=True),
        CustomResource("acme.cert-manager.io/v1", "Order", "orders", namespaced=True),
    ),
)
