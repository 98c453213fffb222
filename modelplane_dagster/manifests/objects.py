"""Objects of a document: which kind each is, and the model it becomes or the findings that refuse it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pydantic import ValidationError

from modelplane_dagster.findings import Finding, finding
from modelplane_dagster.manifests.fields import Manifest, Path
from modelplane_dagster.manifests.models import (
    InferenceClass,
    InferenceCluster,
    InferenceGateway,
    ModelCache,
    ModelDeployment,
    ModelEndpoint,
    ModelService,
)
from modelplane_dagster.manifests.problems import MAX_ERRORS, Subjects, problems
from modelplane_dagster.manifests.reader import Value
from modelplane_dagster.manifests.source import Document, Origin
from modelplane_dagster.manifests.words import shown

KINDS: Mapping[str, type[Manifest]] = MappingProxyType(
    {
        "InferenceClass": InferenceClass,
        "InferenceCluster": InferenceCluster,
        "ModelDeployment": ModelDeployment,
        "ModelService": ModelService,
        "ModelCache": ModelCache,
        "ModelEndpoint": ModelEndpoint,
        "InferenceGateway": InferenceGateway,
    }
)
NAMESPACED = frozenset({"ModelDeployment", "ModelService", "ModelCache", "ModelEndpoint"})

_MAX_NULLS = 100

# Set by a server, or of no use without one.
_SERVER_METADATA = frozenset(
    {
        "generateName",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "ownerReferences",
        "finalizers",
        "managedFields",
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class RawObject:
    """An object as read. It isn't kept: the values of a whole fleet take ten times its text."""

    origin: Origin
    data: Mapping[str, Value]
    api_version: str
    kind: str

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def name(self) -> str | None:
        """`metadata.name`; None where it is missing or isn't a text."""
        metadata = self.data.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        return name if isinstance(name, str) and name else None

    @property
    def namespace(self) -> str:
        """Empty for kinds without one."""
        metadata = self.data.get("metadata")
        namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
        return (namespace if isinstance(namespace, str) else "default") if self.kind in NAMESPACED else ""


def raw_objects(document: Document, value: Value) -> Iterator[RawObject | Finding]:
    """The objects of a document: one, or the items of a List; a finding for what isn't an object."""
    yield from _raw(document, (), value)


def _raw(document: Document, base: Path, value: Value) -> Iterator[RawObject | Finding]:
    if not isinstance(value, dict):
        yield not_an_object(document, base, "expected a mapping with apiVersion, kind and metadata")
        return
    for key in ("apiVersion", "kind"):
        if key not in value:
            yield not_an_object(document, base, f"{key} is missing")
            return
        if not isinstance(value[key], str) or not value[key]:
            yield not_an_object(document, (*base, key), f"{key}: expected a text, and got {shown(value[key])}")
            return
    if value["kind"].endswith("List") and isinstance(value.get("items"), list):
        for index, item in enumerate(value["items"]):
            if len(base) < 2:
                yield from _raw(document, (*base, "items", index), item)
            else:
                yield not_an_object(document, (*base, "items", index), "a List stands in a List")
        return
    yield RawObject(Origin(document, base), value, value["apiVersion"], value["kind"])


def not_an_object(document: Document, path: Path, message: str) -> Finding:
    return finding("NotAnObject", document.subject, message, place=document.place(path))


@dataclass(frozen=True, slots=True, eq=False)
class ReadObject:
    """A named object of one of our kinds. `model` is None where `findings` refuse it; `digest` is over its content."""

    origin: Origin
    kind: str
    namespace: str
    name: str
    model: Manifest | None
    digest: str
    findings: tuple[Finding, ...]


def validate(raw: RawObject, name: str) -> ReadObject:
    """The model of an object of a kind in `KINDS`, or every reason why there is none."""
    model = KINDS[raw.kind]
    data = _without_server_fields(raw)
    read: Manifest | None = None
    refused: tuple[Finding, ...] = ()
    try:
        read = _validate(model, data)
    except ValidationError as error:
        subjects = Subjects(raw.kind, name, namespace=raw.namespace, data=data)
        refused = problems(error, model=model, origin=raw.origin, subjects=subjects)
    text = read.model_dump_json().encode() if read is not None else canonical(data)
    return ReadObject(raw.origin, raw.kind, raw.namespace, name, read, hashlib.sha256(text).hexdigest(), refused)


def _validate(model: type[Manifest], data: dict[str, Value]) -> Manifest:
    """As the API does, a null counts as absent, except where the kind has no such field."""
    try:
        return model.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as error:
        if error.error_count() > MAX_ERRORS:
            raise
        nulls = [
            detail["loc"]
            for detail in error.errors(include_url=False)
            if detail["input"] is None and detail["type"] not in ("extra_forbidden", "missing")
        ]
        if not 0 < len(nulls) <= _MAX_NULLS:
            raise
        for path in nulls:
            data = _without(data, path)
        return model.model_validate(data, by_alias=True, by_name=False)


def _without(value: Value, path: Path) -> Value:
    """A copy without the field at `path`; an entry of a list stays as it is."""
    part, *rest = path
    if isinstance(value, dict) and part in value:
        if rest:
            return {**value, part: _without(value[part], tuple(rest))}
        return {key: kept for key, kept in value.items() if key != part}
    if isinstance(value, list) and isinstance(part, int) and part < len(value) and rest:
        return [*value[:part], _without(value[part], tuple(rest)), *value[part + 1 :]]
    return value


def _without_server_fields(raw: RawObject) -> dict[str, Value]:
    """The object without what we don't read: its status, and what a server adds to its metadata."""
    data = {key: value for key, value in raw.data.items() if key not in ("apiVersion", "kind", "status")}
    metadata = data.get("metadata")
    if isinstance(metadata, dict):
        ignored = _SERVER_METADATA if raw.kind in NAMESPACED else _SERVER_METADATA | {"namespace"}
        if not ignored.isdisjoint(metadata):
            data["metadata"] = {key: value for key, value in metadata.items() if key not in ignored}
    return data


def canonical(data: Value) -> bytes:
    """The same bytes for the same content, however it is written."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
