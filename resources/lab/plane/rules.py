"""What some clouds' API servers refuse, as Kubernetes' own admission: GKE's quota of critical pods, AKS's keyless tolerations."""

from __future__ import annotations

from typing import Any

import yaml

from resources.kubernetes import ClusterClient
from resources.lab.api.switches import Switches

Json = dict[str, Any]
_CRITICAL = ["system-node-critical", "system-cluster-critical"]
_SCOPE = {"scopeName": "PriorityClass", "operator": "In", "values": _CRITICAL}

# Pods of these classes are refused where no quota of their namespace covers them.
ADMISSION = yaml.safe_dump(
    {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [
            {
                "name": "ResourceQuota",
                "configuration": {
                    "apiVersion": "apiserver.config.k8s.io/v1",
                    "kind": "ResourceQuotaConfiguration",
                    "limitedResources": [{"resource": "pods", "matchScopes": [_SCOPE]}],
                },
            }
        ],
    }
)


def prepare(client: ClusterClient, switches: Switches) -> None:
    """Writes what the switches ask for; the same again changes nothing."""
    if switches.critical_pods_quota:
        client.apply(_system_quota(), force=True)
    if switches.refuse_keyless_tolerations:
        for body in _keyless():
            client.apply(body, force=True)


def _system_quota() -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "lab-critical-pods", "namespace": "kube-system"},
        "spec": {"hard": {"pods": "1000"}, "scopeSelector": {"matchExpressions": [_SCOPE]}},
    }


def _keyless() -> list[Json]:
    """A policy on the templates of workloads and on pods, everywhere but in kube-system."""
    name = "lab-keyless-tolerations"
    spec = "(has(object.spec.template) ? object.spec.template.spec : object.spec)"
    rules = [
        {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["daemonsets", "deployments", "statefulsets"]},
        {"apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs"]},
        {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]},
    ]
    outside = {
        "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}]
    }
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": outside,
                "resourceRules": [{**rule, "operations": ["CREATE", "UPDATE"]} for rule in rules],
            },
            "validations": [
                {
                    "expression": f"!has({spec}.tolerations) || {spec}.tolerations.all(t, has(t.key) && t.key != '')",
                    "message": "a toleration without a key tolerates every taint, which is allowed in kube-system alone",
                }
            ],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    return [policy, binding]
