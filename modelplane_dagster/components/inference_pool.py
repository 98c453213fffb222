"""The InferencePool CRD: the group of endpoints that a route can send to. Written here from the fields of its v1 API,
because the extension ships it as a bare manifest and not as a chart."""

from __future__ import annotations

from typing import Any

from modelplane_dagster.components.types import CustomResource

GROUP = "inference.networking.k8s.io"
INFERENCE_POOL = CustomResource(f"{GROUP}/v1", "InferencePool", "inferencepools", namespaced=True)
# The API server refuses a CRD of a *.k8s.io group without the review that approved it.
APPROVED = "https://github.com/kubernetes-sigs/gateway-api-inference-extension/pull/1173"

_PORT = {"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535}


def inference_pool_crd() -> dict[str, Any]:
    """The definition, with the fields that a pool of engines sets; the status is kept as controllers write it."""
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _spec(),
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    names = {
        "kind": INFERENCE_POOL.kind,
        "listKind": f"{INFERENCE_POOL.kind}List",
        "plural": INFERENCE_POOL.plural,
        "singular": "inferencepool",
        "shortNames": ["infpool"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{INFERENCE_POOL.plural}.{GROUP}",
            "annotations": {"api-approved.kubernetes.io": APPROVED},
        },
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def _spec() -> dict[str, Any]:
    port = {"type": "object", "required": ["number"], "properties": {"number": _PORT}}
    text = {"type": "string"}
    picker = {
        "type": "object",
        "required": ["name"],
        "properties": {
            "group": {"type": "string", "default": ""},
            "kind": {"type": "string", "default": "Service"},
            "name": text,
            "port": port,
            "failureMode": {"type": "string", "enum": ["FailOpen", "FailClose"], "default": "FailClose"},
        },
    }
    labels = {"type": "object", "additionalProperties": text, "maxProperties": 64}
    return {
        "type": "object",
        "required": ["selector", "targetPorts", "endpointPickerRef"],
        "properties": {
            "appProtocol": text,
            "selector": {"type": "object", "required": ["matchLabels"], "properties": {"matchLabels": labels}},
            "targetPorts": {"type": "array", "minItems": 1, "maxItems": 8, "items": port},
            "endpointPickerRef": picker,
        },
    }
