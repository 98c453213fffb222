"""Label and field selectors of list, watch and deletecollection."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from resources.lab.api.errors import bad_request
from resources.lab.api.table import Resource

Match = Callable[[Mapping[str, Any]], bool]

_SET_TERM = re.compile(r"^\s*([^\s!=()]+)\s+(in|notin)\s*\(([^)]*)\)\s*$")
_EQUALS = re.compile(r"^\s*([^\s!=()]+)\s*(==|=|!=)\s*([^\s!=()]*)\s*$")
_ORDER = re.compile(r"^\s*([^\s!=()<>]+)\s*([<>])\s*(-?\d+)\s*$")
_EXISTS = re.compile(r"^\s*(!?)\s*([^\s!=()]+)\s*$")
_COMMA = re.compile(r",(?![^(]*\))")

_FIELDS: Mapping[tuple[str, str], frozenset[str]] = {
    ("", "pods"): frozenset(
        {
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        }
    ),
    ("", "events"): frozenset(
        {
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        }
    ),
    ("", "nodes"): frozenset({"spec.unschedulable"}),
    ("", "namespaces"): frozenset({"status.phase"}),
    ("", "secrets"): frozenset({"type"}),
    ("apps", "replicasets"): frozenset({"status.replicas"}),
    ("batch", "jobs"): frozenset({"status.successful"}),
    ("resource.k8s.io", "resourceslices"): frozenset({"spec.nodeName", "spec.driver"}),
    ("certificates.k8s.io", "certificatesigningrequests"): frozenset({"spec.signerName"}),
}


def _label_term(term: str) -> Match:
    if found := _SET_TERM.match(term):
        key, word, raw = found.groups()
        values = {value.strip() for value in raw.split(",")}
        if word == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if found := _EQUALS.match(term):
        key, word, value = found.groups()
        if word == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := _ORDER.match(term):
        key, word, raw = found.groups()
        return lambda labels: _ordered(labels.get(key), word, int(raw))
    if found := _EXISTS.match(term):
        absent, key = found.groups()
        return (lambda labels: key not in labels) if absent else (lambda labels: key in labels)
    raise bad_request(f'unable to parse requirement: found "{term}"')


def _ordered(value: str | None, word: str, bound: int) -> bool:
    try:
        number = int(value or "")
    except ValueError:
        return False
    return number > bound if word == ">" else number < bound


def label_match(selector: str) -> Match | None:
    """A test of a label map; None where everything matches."""
    terms = [_label_term(term) for term in _COMMA.split(selector) if term.strip()]
    return (lambda labels: all(term(labels) for term in terms)) if terms else None


def field_value(obj: Mapping[str, Any], path: str) -> str:
    if path == "source":
        return str((obj.get("source") or {}).get("component") or obj.get("reportingComponent") or "")
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if value is None:
        return "false" if path in {"spec.unschedulable", "spec.hostNetwork"} else ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def field_match(selector: str, resource: Resource) -> Match | None:
    """A test of an object; None where everything matches. A field that the API doesn't index is refused with 400."""
    terms: list[tuple[str, bool, str]] = []
    allowed = _FIELDS.get(resource.key, frozenset())
    for term in selector.split(","):
        if not term.strip():
            continue
        path, negated, value = _field_term(term)
        if path not in {"metadata.name", "metadata.namespace", *allowed, *resource.selectable}:
            raise bad_request(
                f'Unable to find "{resource.group or "/"}, Resource={resource.plural}" that match label selector "", '
                f'field selector "{selector}": field label not supported: {path}'
            )
        terms.append((path, negated, value))
    return (lambda obj: all((field_value(obj, p) == v) != n for p, n, v in terms)) if terms else None


def _field_term(term: str) -> tuple[str, bool, str]:
    for sign, negated in (("!=", True), ("==", False), ("=", False)):
        path, found, value = term.partition(sign)
        if found:
            return path.strip(), negated, value.strip()
    raise bad_request(f"invalid field selector: {term}")


def matcher(resource: Resource, labels: str, fields: str) -> Match | None:
    """Both selectors as one test of an object; None where neither restricts anything."""
    by_label, by_field = label_match(labels), field_match(fields, resource)
    if by_label is None:
        return by_field
    if by_field is None:
        return lambda obj: by_label(obj["metadata"].get("labels") or {})
    return lambda obj: by_label(obj["metadata"].get("labels") or {}) and by_field(obj)
