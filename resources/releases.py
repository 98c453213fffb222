"""Helm releases read from their own records: one list of Secrets, no helm process.

Helm keeps a release as base64 of gzipped JSON in a Secret's data, which the API gives as base64 once more.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from modelplane_dagster.errors import UnreadableError

if TYPE_CHECKING:
    from resources.reading import Lister

OURS = "mp-"
"""Every release of ours begins so, which no user's does."""


@dataclass(frozen=True, slots=True)
class ReleaseRecord:
    """The newest revision of a release; `values` are those that it was given, chart defaults left out."""

    name: str
    namespace: str
    revision: int
    status: str
    chart: str
    version: str
    values: Mapping[str, Any]


def read_releases(client: Lister) -> tuple[ReleaseRecord, ...]:
    """Our releases, by name; empty when there are none. Raises UnreadableError where the read or a record fails."""
    secrets = client.list("v1", "Secret", labels="owner=helm")
    newest: dict[tuple[str, str], Mapping[str, Any]] = {}
    for secret in secrets:
        labels = secret["metadata"].get("labels") or {}
        name = str(labels.get("name", ""))
        if not name.startswith(OURS):
            continue
        key = (str(secret["metadata"]["namespace"]), name)
        if key not in newest or _version(labels) > _version(newest[key]["metadata"]["labels"]):
            newest[key] = secret
    return tuple(sorted((_record(s) for s in newest.values()), key=lambda r: (r.name, r.namespace)))


def _version(labels: Mapping[str, Any]) -> int:
    return int(str(labels.get("version", "0")))


def _record(secret: Mapping[str, Any]) -> ReleaseRecord:
    where = f"{secret['metadata']['namespace']}/{secret['metadata']['name']}"
    try:
        packed = base64.b64decode(base64.b64decode(secret["data"]["release"]))
        body = json.loads(gzip.decompress(packed))
        chart = body["chart"]["metadata"]
        return ReleaseRecord(
            name=str(body["name"]),
            namespace=str(body["namespace"]),
            revision=int(body["version"]),
            status=str(body["info"]["status"]),
            chart=str(chart["name"]),
            version=str(chart["version"]),
            values=body.get("config") or {},
        )
    except (KeyError, ValueError, OSError, EOFError) as error:
        msg = f"Helm's record {where} can't be read ({type(error).__name__})."
        raise UnreadableError(msg) from error
