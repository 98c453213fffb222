"""The models against the public API's own definitions: every field, type, bound, default and requirement."""

from __future__ import annotations

import pytest
import yaml

from modelplane_dagster.manifests.objects import KINDS, NAMESPACED
from tests.shared import shared

FILES = {
    "InferenceClass": "inferenceclasses.yaml",
    "InferenceCluster": "inferenceclusters.yaml",
    "ModelDeployment": "modeldeployments.yaml",
    "ModelService": "modelservices.yaml",
    "ModelCache": "modelcaches.yaml",
    "ModelEndpoint": "modelendpoints.yaml",
    "InferenceGateway": "inferencegateways.yaml",
}
FACTS = (
    "type",
    "enum",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "maxProperties",
    "pattern",
    "default",
)
PROVIDERS = ["AKS", "Civo", "EKS", "GKE", "Nebius", "Vultr"]
SOURCES = ["AKS", "Civo", "EKS", "Existing", "GKE", "Nebius", "Vultr"]
SPEC = "spec.template.spec"
MEMBER = f"{SPEC}.engines[].members[]"
BLOCKS = ("aks", "eks", "gke", "nebius", "vultr")

# What differs on purpose: (path, fact) -> (the API's, ours).
OURS = {
    "InferenceClass": {
        ("spec.provisioning.provider", "enum"): ([p for p in PROVIDERS if p != "Civo"], PROVIDERS),
        **{(f"spec.provisioning.{block}.accelerator", "required"): (True, False) for block in BLOCKS},
    },
    "InferenceCluster": {
        ("spec.cluster.source", "enum"): ([s for s in SOURCES if s != "Civo"], SOURCES),
        # A taint without a value has the empty one.
        ("spec.taints[].value", "default"): (None, ""),
        # The bounds of names are checked with their characters, so that a person reads one sentence.
        ("spec.nodePools[].name", "maxLength"): (40, None),
    },
    "ModelDeployment": {
        (f"{SPEC}.engines[].name", "minLength"): (1, None),
        (f"{SPEC}.engines[].name", "maxLength"): (63, None),
        (f"{MEMBER}.nodeSelector.devices[].name", "minLength"): (1, None),
        (f"{MEMBER}.nodeSelector.devices[].name", "maxLength"): (63, None),
        ("spec.template.metadata.labels{}", "maxLength"): (63, None),
        (f"{MEMBER}.template.metadata.labels{{}}", "maxLength"): (63, None),
        (f"{MEMBER}.template.metadata.annotations{{}}", "maxLength"): (8192, None),
        # The API fills the default in before it asks for required fields.
        (f"{SPEC}.serving.mode", "required"): (True, False),
    },
}
ADDED = {
    "InferenceClass": ("spec.provisioning.civo",),
    "InferenceCluster": ("spec.cluster.civo", "spec.cluster.existing.externalDrivers"),
}


def facts(schema, defs, path="", out=None, required=True):
    """Flat facts of a JSON schema: path -> fact -> value."""
    out = {} if out is None else out
    schema = dict(schema)
    if "anyOf" in schema:
        (kept,) = [part for part in schema.pop("anyOf") if part.get("type") != "null"]
        schema = {**kept, **schema}
    if "$ref" in schema:
        schema = {**defs[schema.pop("$ref").rpartition("/")[2]], **schema}
    row = {fact: schema[fact] for fact in FACTS if schema.get(fact) is not None}
    if "const" in schema:
        row["enum"] = [schema["const"]]
    if "enum" in row:
        row["enum"] = sorted(row["enum"])
    if "exclusiveMaximum" in schema or row.get("maximum") == 2**63 - 1:
        row.pop("maximum", None)
    if row.get("minimum") == -(2**63):
        row.pop("minimum")
    # Behind a validator, pydantic writes the bounds of lists and mappings under the names for texts.
    for bound, of_list, of_mapping in (("minLength", "minItems", ""), ("maxLength", "maxItems", "maxProperties")):
        if row["type"] in ("array", "object") and bound in row:
            row[of_list if row["type"] == "array" else of_mapping] = row.pop(bound)
    # An empty list, mapping or object as default is how the models say "absent".
    if row["type"] in ("array", "object"):
        row.pop("default", None)
    row["required"] = required
    out[path] = row
    for name, part in schema.get("properties", {}).items():
        facts(part, defs, f"{path}.{name}".lstrip("."), out, name in schema.get("required", ()))
    if "items" in schema:
        facts(schema["items"], defs, f"{path}[]", out)
    if isinstance(schema.get("additionalProperties"), dict):
        facts(schema["additionalProperties"], defs, f"{path}{{}}", out)
    return out


def definition(kind):
    text = shared("apis", FILES[kind]).read_text()
    document = yaml.load(text, Loader=yaml.CSafeLoader)
    schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return document["spec"]["scope"], facts({"type": "object", **schema["properties"]["spec"]}, {}, "spec")


@pytest.mark.parametrize("kind", sorted(FILES))
def test_a_model_holds_what_the_api_defines(kind):
    scope, api = definition(kind)
    schema = KINDS[kind].model_json_schema(by_alias=True)
    defs = schema["$defs"]
    ours = facts(schema["properties"]["spec"], defs, "spec")

    added = {path for path in ours if path not in api}
    assert {path for path in added if not path.startswith(ADDED.get(kind, ("-",)))} == set()
    assert set(api) - set(ours) == set()

    different = {
        (path, fact): (api[path].get(fact), ours[path].get(fact))
        for path in api
        for fact in (*FACTS, "required")
        if api[path].get(fact) != ours[path].get(fact)
    }
    assert different == OURS.get(kind, {})
    assert (scope == "Namespaced") == (kind in NAMESPACED)
