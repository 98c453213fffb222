"""Every chart that we install: version, repository, the day the pin was reviewed, what was read for it.

The one place to change a version. A site changes one without touching this file through its component overlay.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from modelplane_dagster.components.types import Pin

CHECKED = "2026-11-30"
_ENVOY = "oci://docker.io/envoyproxy"
_PROMETHEUS = "https://prometheus-community.github.io/helm-charts"
_MATRIX = "the compatibility matrix of AI Gateway v1.1: Envoy Gateway v1.8 and Gateway API v1.5"
_AICR = "the recipe of AICR 0.20.0 for EKS, GKE and AKS"


def _pin(chart: str, repository: str, version: str, read: str) -> Pin:
    return Pin(chart, repository, version, CHECKED, read)


PINS: Mapping[str, Pin] = MappingProxyType(
    {
        "ai-gateway": _pin("ai-gateway-helm", _ENVOY, "v1.1.0", _MATRIX),
        "ai-gateway-crds": _pin("ai-gateway-crds-helm", _ENVOY, "v1.1.0", _MATRIX),
        "amd-gpu-operator": _pin(
            "gpu-operator-charts",
            "https://rocm.github.io/gpu-operator",
            "v1.5.1",
            "chart and operator sources at the tag; validated upstream in DRA mode on 8x MI325X bare metal",
        ),
        "aws-dranet": _pin(
            "aws-dranet",
            "https://aws.github.io/eks-charts",
            "1.0.0",
            "chart sources, rendered and installed; its README asks for Kubernetes 1.35, other examples for 1.34",
        ),
        "cert-manager": _pin("cert-manager", "https://charts.jetstack.io", "v1.20.2", "release notes; " + _AICR),
        "cluster-autoscaler": _pin(
            "cluster-autoscaler",
            "https://kubernetes.github.io/autoscaler",
            "9.57.0",
            "chart values for the providers aws and civo",
        ),
        "dra-driver-cpu": _pin(
            "dra-driver-cpu",
            "oci://registry.k8s.io/dra-driver-cpu/charts",
            "0.3.0",
            "chart sources at de98098 and the upgrade notes from 0.2.0; 0.2.0 has no nodeSelector and no driverConfig",
        ),
        "envoy-gateway": _pin("gateway-helm", _ENVOY, "v1.8.4", _MATRIX),
        "gpu-operator": _pin(
            "gpu-operator",
            "https://helm.ngc.nvidia.com/nvidia",
            "v26.3.3",
            "chart and assets at the tag, rendered and installed; 26.7.0 brings a DRA stack of its own",
        ),
        "k8s-ephemeral-storage-metrics": _pin(
            "k8s-ephemeral-storage-metrics",
            "https://jmcgrath207.github.io/k8s-ephemeral-storage-metrics/chart",
            "1.19.2",
            _AICR,
        ),
        "kube-prometheus-stack": _pin("kube-prometheus-stack", _PROMETHEUS, "84.4.0", "chart values and release notes"),
        "lws": _pin(
            "lws",
            "oci://registry.k8s.io/lws/charts",
            "v0.8.0",
            "chart templates; the v1 API that engines are made with",
        ),
        "network-operator": _pin(
            "network-operator",
            "https://helm.ngc.nvidia.com/nvidia",
            "26.4.0",
            "chart values and operator manifests; needs the AKS InfiniBand feature of the subscription",
        ),
        "node-feature-discovery": _pin(
            "node-feature-discovery",
            "https://kubernetes-sigs.github.io/node-feature-discovery/charts",
            "0.19.0",
            "chart sources at v0.19.0, rendered and installed",
        ),
        "nodewright-operator": _pin("nodewright", "oci://ghcr.io/nvidia/nodewright/charts", "v0.17.1", _AICR),
        "nvidia-dra-driver-gpu": _pin(
            "dra-driver-nvidia-gpu",
            "oci://registry.k8s.io/dra-driver-nvidia/charts",
            "0.4.1",
            "chart sources at v0.4.1, rendered and installed",
        ),
        "nvsentinel": _pin("nvsentinel", "oci://ghcr.io/nvidia", "v1.20.0", _AICR),
        "prometheus-adapter": _pin("prometheus-adapter", _PROMETHEUS, "5.3.0", _AICR),
        "prometheus-operator-crds": _pin(
            "prometheus-operator-crds",
            _PROMETHEUS,
            "28.0.1",
            "the operator version that kube-prometheus-stack 84.4.0 has",
        ),
        "trust-manager": _pin("trust-manager", "oci://quay.io/jetstack/charts", "v0.25.0", "chart values"),
    }
)
