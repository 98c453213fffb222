"""One request to a cluster's API, taken apart: the path, the query, the body, the form of the answer."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

import orjson
import yaml

from resources.lab.api.errors import ApiError, bad_request, no_such_path
from resources.lab.api.protobuf import CONTENT_TYPE as PROTOBUF
from resources.lab.api.protobuf import MAGIC
from resources.lab.api.protobuf import decode as decode_protobuf
from resources.lab.api.schema import Json
from resources.lab.api.table import Resource, Table
from resources.lab.api.writes import Write

_GO_AGENT = re.compile(r"^([^/ ]+)")


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names. An empty `name` means the collection."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def target(table: Table, parts: list[str]) -> Target:
    """From the path's parts below the cluster, such as ["api", "v1", "namespaces", "x", "pods"]; 404 for any other path."""
    group, version, rest = ("", parts[1], parts[2:]) if parts[0] == "api" else (parts[1], parts[2], parts[3:])
    namespace = ""
    if (
        rest[0] == "namespaces"
        and len(rest) > 2
        and not (len(rest) == 3 and rest[2] in {"status", "finalize"} and not group)
    ):
        namespace, rest = rest[1], rest[2:]
    resource = table.find(group, version, rest[0])
    if resource is None or len(rest) > 3:
        raise no_such_path()
    name = rest[1] if len(rest) > 1 else ""
    sub = rest[2] if len(rest) > 2 else ""
    if (sub and sub not in resource.subresources) or (namespace and not resource.namespaced):
        raise no_such_path()
    if name and resource.namespaced and not namespace:
        raise no_such_path()
    return Target(resource, namespace, name, sub)


@dataclass(slots=True)
class Request:
    method: str
    path: str
    raw_query: bytes
    headers: dict[bytes, bytes]
    body: bytes = b""
    user: str = ""
    parts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.parts = [unquote(part) for part in self.path.strip("/").split("/")]

    def header(self, name: str) -> str:
        return self.headers.get(name.encode(), b"").decode("latin-1")

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(self.raw_query.decode(), keep_blank_values=True)) if self.raw_query else {}

    @property
    def content_type(self) -> str:
        return self.header("content-type").partition(";")[0].strip().lower()

    def json(self) -> dict[str, Any]:
        """The body as an object: JSON, YAML or client-go's protobuf; empty where there is none."""
        value = self.value()
        if not isinstance(value, dict):
            raise bad_request("the body of the request is no object")
        return value

    def value(self) -> Json:
        if not self.body:
            return {}
        if self.body.startswith(MAGIC) or self.content_type == PROTOBUF:
            return decode_protobuf(self.body)
        try:
            if "yaml" in self.content_type:
                # JSON is YAML, and what helm and kubectl send as "yaml" is JSON.
                return orjson.loads(self.body) if self.body[:1] in b"{[" else yaml.safe_load(self.body)
            return orjson.loads(self.body)
        except (orjson.JSONDecodeError, yaml.YAMLError) as error:
            raise bad_request(f"the object provided is unrecognized: {error}") from error

    def write(self, subresource: str) -> Write:
        """How the query wants a write done."""
        query = self.query
        dry = query.get("dryRun", "")
        if dry not in {"", "All"}:
            raise ApiError(422, f'Invalid value: "{dry}": supported values: "All"', reason="Invalid")
        validation = query.get("fieldValidation") or "Warn"
        if validation not in {"Strict", "Warn", "Ignore"}:
            raise bad_request(f"invalid fieldValidation {validation!r}")
        manager = query.get("fieldManager") or self._agent()
        return Write(manager, dry == "All", validation, subresource, is_true(query.get("force", "")))

    def _agent(self) -> str:
        found = _GO_AGENT.match(self.header("user-agent"))
        return found.group(1) if found else "unknown"


def is_true(text: str) -> bool:
    return text.lower() in {"1", "true"}
