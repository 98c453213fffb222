"""Validation of built-in objects beyond their types: names, labels, taints, tolerations, selectors, what may not change."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from resources.lab.api.defaults import pod_template
from resources.lab.api.errors import Cause, invalid
from resources.lab.api.rules_data import data_rules
from resources.lab.api.rules_dra import claim_spec, selectors, slice_spec
from resources.lab.api.schema import Json
from resources.lab.api.table import Resource

Obj = Mapping[str, Any]

_LABEL_PART = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_DNS_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_SERVICE_NAME = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
_PATH_NAMED = {"rbac.authorization.k8s.io"}
_DNS_NAMED = {("", "namespaces"), ("", "services")}
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_ANNOTATION_LIMIT = 262144

SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
DNS_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
KEY_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def wrong(field: str, value: Json, why: str) -> Cause:
    shown = f'"{value}"' if isinstance(value, str) else _go(value)
    return Cause("FieldValueInvalid", f"Invalid value: {shown}: {why}", field)


def _go(value: Json) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value)


def required(field: str, why: str = "") -> Cause:
    return Cause("FieldValueRequired", f"Required value: {why}" if why else "Required value", field)


def unsupported(field: str, value: str, allowed: tuple[str, ...]) -> Cause:
    listed = ", ".join(f'"{a}"' for a in sorted(allowed))
    return Cause("FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {listed}', field)


def check(resource: Resource, obj: Obj, old: Obj | None) -> None:
    """Raises 422 with every cause; says nothing where the object may be stored."""
    causes = tuple(_causes(resource, obj, old))
    if causes:
        raise invalid(resource.kind, resource.group, obj["metadata"].get("name", ""), causes)


def _causes(resource: Resource, obj: Obj, old: Obj | None) -> Iterator[Cause]:
    yield from _metadata(resource, obj["metadata"])
    template = pod_template(resource.key, dict(obj))
    if template is not None:
        prefix = _template_path(resource.key)
        if resource.key != ("", "pods"):
            yield from _labels(template.get("metadata", {}).get("labels"), f"{prefix}metadata.labels")
        yield from _pod_spec(template.get("spec") or {}, f"{prefix}spec")
    if resource.group == "apps" and "template" in obj.get("spec", {}):
        yield from _workload(obj, old)
    if resource.key == ("", "nodes"):
        yield from _taints(obj.get("spec", {}).get("taints") or [])
    if resource.key == ("resource.k8s.io", "resourceclaims"):
        yield from claim_spec(obj.get("spec") or {}, "spec")
    elif resource.key == ("resource.k8s.io", "resourceclaimtemplates"):
        yield from claim_spec((obj.get("spec") or {}).get("spec") or {}, "spec.spec")
    elif resource.key == ("resource.k8s.io", "resourceslices"):
        yield from slice_spec(obj.get("spec") or {}, old)
    elif resource.key == ("resource.k8s.io", "deviceclasses"):
        yield from selectors((obj.get("spec") or {}).get("selectors") or (), "spec.selectors")
    if resource.key in {("", "configmaps"), ("", "secrets")}:
        yield from data_rules(obj)
    if resource.group == "apiextensions.k8s.io":
        yield from _crd(obj)
    yield from _immutable(resource, obj, old)


def _template_path(key: tuple[str, str]) -> str:
    return {("", "pods"): "", ("batch", "cronjobs"): "spec.jobTemplate.spec.template."}.get(key, "spec.template.")


def _metadata(resource: Resource, metadata: Obj) -> Iterator[Cause]:
    name = str(metadata.get("name", ""))
    if resource.group in _PATH_NAMED:
        if name in {".", ".."} or "/" in name or "%" in name:
            yield wrong("metadata.name", name, "may not contain '/'")
    elif resource.key in _DNS_NAMED:
        yield from _dns_label(name, "metadata.name", service=resource.kind == "Service")
    else:
        if len(name) > 253:
            yield wrong("metadata.name", name, "must be no more than 253 bytes")
        if not _SUBDOMAIN.match(name):
            yield wrong("metadata.name", name, SUBDOMAIN_RULE)
    yield from _labels(metadata.get("labels"), "metadata.labels")
    total = 0
    for key, value in (metadata.get("annotations") or {}).items():
        yield from _key(key.lower(), key, "metadata.annotations")
        total += len(key) + len(value)
    if total > _ANNOTATION_LIMIT:
        yield Cause("FieldValueTooLong", "Too long: may not be more than 262144 bytes", "metadata.annotations")


def _dns_label(name: str, field: str, *, service: bool = False) -> Iterator[Cause]:
    if len(name) > 63:
        yield wrong(field, name, "must be no more than 63 bytes")
    if not (_SERVICE_NAME if service else _DNS_LABEL).match(name):
        yield wrong(field, name, DNS_RULE)


def _key(key: str, shown: str, field: str) -> Iterator[Cause]:
    prefix, slash, name = key.rpartition("/")
    if slash and (not prefix or len(prefix) > 253 or not _SUBDOMAIN.match(prefix)):
        yield wrong(field, shown, f"prefix part {SUBDOMAIN_RULE}")
    if not name:
        yield wrong(field, shown, "name part must be non-empty")
    elif len(name) > 63:
        yield wrong(field, shown, "name part must be no more than 63 bytes")
    if name and not _LABEL_PART.match(name):
        yield wrong(field, shown, KEY_RULE)


def _value(value: str, field: str) -> Iterator[Cause]:
    if len(value) > 63:
        yield wrong(field, value, "must be no more than 63 bytes")
    if value and not _LABEL_PART.match(value):
        yield wrong(field, value, VALUE_RULE)


def _labels(labels: Obj | None, field: str) -> Iterator[Cause]:
    for key, value in (labels or {}).items():
        yield from _key(key, key, field)
        yield from _value(value, field)


def _pod_spec(spec: Obj, at: str) -> Iterator[Cause]:
    containers = spec.get("containers") or []
    if not containers:
        yield required(f"{at}.containers")
    seen: set[str] = set()
    for index, container in enumerate(containers):
        field = f"{at}.containers[{index}]"
        name = container.get("name", "")
        if not name:
            yield required(f"{field}.name")
        else:
            yield from _dns_label(name, f"{field}.name")
        if name in seen:
            yield Cause("FieldValueDuplicate", f'Duplicate value: "{name}"', f"{field}.name")
        seen.add(name)
        if not container.get("image"):
            yield required(f"{field}.image")
    yield from _labels(spec.get("nodeSelector"), f"{at}.nodeSelector")
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration(toleration, f"{at}.tolerations[{index}]")
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    affinity_at = f"{at}.affinity.nodeAffinity"
    terms = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if terms is not None:
        required_at = f"{affinity_at}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
        if not terms.get("nodeSelectorTerms"):
            yield required(required_at, "must have at least one node selector term")
        for index, term in enumerate(terms.get("nodeSelectorTerms") or ()):
            yield from _term(term, f"{required_at}[{index}]")
    for index, entry in enumerate(node_affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
        preferred_at = f"{affinity_at}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        if not 1 <= entry.get("weight", 0) <= 100:
            yield wrong(f"{preferred_at}.weight", entry.get("weight", 0), "must be in the range 1-100")
        yield from _term(entry.get("preference") or {}, f"{preferred_at}.preference")


def _toleration(toleration: Obj, at: str) -> Iterator[Cause]:
    key, operator = toleration.get("key") or "", toleration.get("operator") or "Equal"
    if key:
        yield from _key(key, key, f"{at}.key")
    elif operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield wrong(f"{at}.operator", toleration.get("operator") or "", why)
    if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
        yield wrong(
            f"{at}.effect", toleration.get("effect", ""), "effect must be 'NoExecute' when `tolerationSeconds` is set"
        )
    if operator == "Exists":
        if toleration.get("value"):
            yield wrong(f"{at}.operator", toleration["value"], "value must be empty when `operator` is 'Exists'")
    elif operator == "Equal":
        yield from _value(toleration.get("value") or "", f"{at}.operator")
    else:
        # Lt and Gt belong to a gate that is off by default (TaintTolerationComparisonOperators, 1.36).
        yield unsupported(f"{at}.operator", operator, ("Equal", "Exists"))
    if toleration.get("effect") and toleration["effect"] not in _EFFECTS:
        yield unsupported(f"{at}.effect", toleration["effect"], _EFFECTS)


def _term(term: Obj, at: str) -> Iterator[Cause]:
    for name in ("matchExpressions", "matchFields"):
        for index, requirement in enumerate(term.get(name) or ()):
            yield from _requirement(requirement, f"{at}.{name}[{index}]", fields=name == "matchFields")


def _requirement(requirement: Obj, at: str, *, fields: bool) -> Iterator[Cause]:
    operator, values = requirement.get("operator", ""), requirement.get("values") or []
    if operator in {"In", "NotIn"}:
        if fields and len(values) != 1:
            yield required(
                f"{at}.values", "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            )
        elif not values:
            yield required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in {"Exists", "DoesNotExist"} and not fields:
        if values:
            yield Cause(
                "FieldValueForbidden",
                "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                f"{at}.values",
            )
    elif operator in {"Gt", "Lt"} and not fields:
        if len(values) != 1:
            yield required(f"{at}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    else:
        yield wrong(f"{at}.operator", operator, "not a valid selector operator")
    if fields:
        if requirement.get("key") != "metadata.name":
            yield wrong(f"{at}.key", requirement.get("key", ""), "not a valid field selector key")
    else:
        yield from _key(requirement.get("key", ""), requirement.get("key", ""), f"{at}.key")
        for index, value in enumerate(values):
            yield from _value(value, f"{at}.values[{index}]")


def _taints(taints: list[Obj]) -> Iterator[Cause]:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        at = f"metadata.taints[{index}]"
        key, effect = taint.get("key", ""), taint.get("effect", "")
        yield from _key(key, key, f"{at}.key")
        yield from _value(taint.get("value") or "", f"{at}.value")
        if not effect:
            yield required(f"{at}.effect", "")
        elif effect not in _EFFECTS:
            yield unsupported(f"{at}.effect", effect, _EFFECTS)
        if (key, effect) in seen:
            yield Cause("FieldValueDuplicate", f"Duplicate value: {dict(taint)}", at)
        seen.add((key, effect))


def selects(selector: Obj, labels: Obj) -> bool:
    """Whether a LabelSelector matches; an empty one matches everything."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for term in selector.get("matchExpressions") or ():
        have, values = labels.get(term["key"]), term.get("values") or ()
        good = {
            "In": have in values,
            "NotIn": have not in values,
            "Exists": have is not None,
            "DoesNotExist": have is None,
        }.get(term["operator"], False)
        if not good:
            return False
    return True


def _workload(obj: Obj, old: Obj | None) -> Iterator[Cause]:
    spec = obj["spec"]
    selector = spec.get("selector")
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    if selector is None and obj["kind"] == "DaemonSet":
        # Upstream reads none as one that selects nothing.
        yield wrong("spec.template.metadata.labels", dict(labels), "`selector` does not match template `labels`")
    elif selector is None:
        yield required("spec.selector")
    elif not selector:
        yield wrong("spec.selector", {}, "empty selector is invalid for this kind")
    else:
        for index, term in enumerate(selector.get("matchExpressions") or ()):
            if term.get("operator") in {"In", "NotIn"} and not term.get("values"):
                why = "must be specified when `operator` is 'In' or 'NotIn'"
                yield required(f"spec.selector.matchExpressions[{index}].values", why)
        if not selects(selector, labels):
            yield wrong("spec.template.metadata.labels", dict(labels), "`selector` does not match template `labels`")
    if spec["template"].get("spec", {}).get("restartPolicy", "Always") != "Always":
        yield unsupported("spec.template.spec.restartPolicy", spec["template"]["spec"]["restartPolicy"], ("Always",))
    if old is not None and old["spec"].get("selector") != selector:
        yield wrong("spec.selector", selector, "field is immutable")


APPROVED = "api-approved.kubernetes.io"


def is_protected(group: str) -> bool:
    """Whether the group is Kubernetes' own, whose CRDs must say who approved them (apiextensions, since 1.16)."""
    return any(group == own or group.endswith(f".{own}") for own in ("k8s.io", "kubernetes.io"))


def _crd(obj: Obj) -> Iterator[Cause]:
    spec = obj.get("spec", {})
    approval = (obj["metadata"].get("annotations") or {}).get(APPROVED, "")
    if is_protected(spec.get("group", "")):
        field, see = f"metadata.annotations[{APPROVED}]", "see https://github.com/kubernetes/enhancements/pull/1111"
        if not approval:
            yield required(
                field, f"protected groups must have approval annotation {APPROVED!r}, {see}".replace("'", '"')
            )
        elif not approval.startswith(("unapproved", "https://", "http://")):
            yield wrong(field, approval, f"protected groups must have approval annotation, {see}")
    names = spec.get("names", {})
    expected = f"{names.get('plural', '')}.{spec.get('group', '')}"
    if obj["metadata"].get("name") != expected:
        yield wrong("metadata.name", obj["metadata"].get("name", ""), 'must be spec.names.plural+"."+spec.group')
    versions = spec.get("versions") or []
    if sum(bool(v.get("storage")) for v in versions) != 1:
        yield wrong("spec.versions", [], "must have exactly one version marked as storage version")
    for index, version in enumerate(versions):
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            yield required(f"spec.versions[{index}].schema.openAPIV3Schema", "schemas are required")


_FIXED_SPECS = {("resource.k8s.io", "resourceclaims"), ("resource.k8s.io", "resourceclaimtemplates")}


def _immutable(resource: Resource, obj: Obj, old: Obj | None) -> Iterator[Cause]:
    if old is None:
        return
    if "deletionTimestamp" in old["metadata"]:
        new = [f for f in obj["metadata"].get("finalizers") or () if f not in (old["metadata"].get("finalizers") or ())]
        if new:
            found = ", ".join(f'"{name}"' for name in new)
            why = "no new finalizers can be added if the object is being deleted, found new finalizers"
            yield Cause("FieldValueForbidden", f"Forbidden: {why} []string{{{found}}}", "metadata.finalizers")
    if resource.key in _FIXED_SPECS and obj.get("spec") != old.get("spec"):
        yield wrong("spec", "", "field is immutable")
    sealed = resource.key in {("", "configmaps"), ("", "secrets")} and bool(old.get("immutable"))
    if sealed and (obj.get("data") != old.get("data") or not obj.get("immutable")):
        yield Cause("FieldValueForbidden", "Forbidden: field is immutable when `immutable` is set", "data")
    if resource.key == ("", "secrets") and obj.get("type") != old.get("type"):
        yield wrong("type", obj.get("type", ""), "field is immutable")
    if resource.kind in {"RoleBinding", "ClusterRoleBinding"} and obj.get("roleRef") != old.get("roleRef"):
        yield wrong("roleRef", dict(obj.get("roleRef") or {}), "cannot change roleRef")
    if resource.key == ("batch", "jobs") and obj["spec"].get("template") != old["spec"].get("template"):
        yield wrong("spec.template", "", "field is immutable")
    if resource.key == ("", "pods"):
        yield from _pod_update(obj, old)


_MUTABLE_POD = {"activeDeadlineSeconds", "terminationGracePeriodSeconds", "schedulingGates", "nodeName"}


def _pod_update(obj: Obj, old: Obj) -> Iterator[Cause]:
    """A pod's spec is fixed but for images, deadlines, added tolerations and the binding."""
    new_spec, old_spec = obj["spec"], old["spec"]
    if old_spec.get("nodeName") and new_spec.get("nodeName") != old_spec["nodeName"]:
        yield Cause("FieldValueForbidden", _POD_RULE, "spec")
        return
    kept = new_spec.get("tolerations") or []
    if any(toleration not in kept for toleration in old_spec.get("tolerations") or ()):
        why = "Forbidden: existing toleration can not be modified except its tolerationSeconds"
        yield Cause("FieldValueForbidden", why, "spec.tolerations")
    if _fixed_part(new_spec) != _fixed_part(old_spec):
        yield Cause("FieldValueForbidden", _POD_RULE, "spec")


_POD_RULE = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def _fixed_part(spec: Obj) -> Obj:
    fixed = {key: value for key, value in spec.items() if key not in _MUTABLE_POD | {"tolerations"}}
    for name in ("containers", "initContainers"):
        if name in fixed:
            fixed[name] = [{k: v for k, v in c.items() if k != "image"} for c in fixed[name]]
    return fixed
