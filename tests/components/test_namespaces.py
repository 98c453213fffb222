"""The namespaces that stand before the charts."""

from __future__ import annotations

import pytest

from modelplane_dagster.components.join import join
from modelplane_dagster.components.lists import components_for
from tests.components.worlds import cpu, full, nvidia, view

QUOTA_SPEC = {
    "hard": {"pods": "1000"},
    "scopeSelector": {
        "matchExpressions": [
            {
                "operator": "In",
                "scopeName": "PriorityClass",
                "values": ["system-cluster-critical", "system-node-critical"],
            }
        ]
    },
}


def namespace(name):
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "privileged"}},
    }


def quota(name):
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "critical-pods", "namespace": name},
        "spec": QUOTA_SPEC,
    }


def prepares(source, key):
    return join(full(source), components_for(source)).get(key).prepares


@pytest.mark.parametrize(
    ("source", "key", "objects"),
    [
        ("GKE", "gpu-operator", (namespace("gpu-operator"), quota("gpu-operator"))),
        ("GKE", "dra-driver-cpu", (namespace("dra-driver-cpu"), quota("dra-driver-cpu"))),
        ("Existing", "amd-gpu-operator", (namespace("kube-amd-gpu"), quota("kube-amd-gpu"))),
        # Its pods have no priority class, but need the host's folders.
        ("GKE", "node-feature-discovery", (namespace("node-feature-discovery"),)),
        ("GKE", "kube-prometheus-stack", (namespace("monitoring"),)),
        ("GKE", "prometheus-adapter", (namespace("monitoring"),)),
        ("EKS", "aws-dranet", ()),
        ("EKS", "cert-manager", ()),
        # Its quota stands in a component that it depends on.
        ("EKS", "nvidia-dra-driver-gpu", ()),
        ("EKS", "trust-manager", ()),
    ],
)
def test_what_stands_before_a_chart(source, key, objects):
    assert prepares(source, key) == objects


def test_the_nvidia_quota_is_a_component_of_its_own():
    made = join(view("GKE", nvidia()), components_for("GKE")).get("dra-driver-critical-pods-quota")
    assert made.manifests == (namespace("nvidia-dra-driver"), quota("nvidia-dra-driver"))
    assert not join(view("GKE", cpu()), components_for("GKE")).get("dra-driver-critical-pods-quota").install


def test_the_gateways_namespace_keeps_its_label():
    made = join(view("Nebius"), components_for("Nebius")).get("gateway-namespace").manifests
    assert made == (
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": "modelplane-system",
                "labels": {"modelplane.ai/namespace": "modelplane-system"},
            },
        },
    )
