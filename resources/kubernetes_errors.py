"""An API's Status as one of our errors, by what the caller can do about it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from modelplane_dagster.errors import ConflictError, KubernetesError

_MANAGER = re.compile(r'conflict(?:s)? with "([^"]+)"')


def api_error(where: str, status: int, text: str, *, what: str = "the object") -> KubernetesError | ConflictError:
    """By the API's Status: a field conflict names the manager and the fields. `what` names the object, which the API leaves
    out of a field conflict."""
    try:
        answer = json.loads(text)
    except ValueError:
        answer = {}
    said = answer if isinstance(answer, dict) else {}
    message = str(said.get("message") or f"HTTP status {status}")
    reason = str(said.get("reason") or "")
    status = int(said.get("code") or status)
    if status == 409:
        owners = _owners(said)
        told = _conflict(said, owners, what) if owners else message
        return ConflictError(f"{where}: {told}", owners=tuple(sorted(owners)))
    return KubernetesError(f"{where}: {message}", status=status, reason=reason)


def _owners(said: Mapping[str, Any]) -> Mapping[str, list[str]]:
    """The fields in conflict by their manager; empty for another kind of conflict."""
    causes = [c for c in (said.get("details") or {}).get("causes") or () if c.get("reason") == "FieldManagerConflict"]
    owners: dict[str, list[str]] = {}
    for cause in causes:
        found = _MANAGER.search(str(cause.get("message")))
        owners.setdefault(found.group(1) if found else "another manager", []).append(str(cause.get("field")))
    return owners


def _conflict(said: Mapping[str, Any], owners: Mapping[str, list[str]], what: str) -> str:
    parts = (f"{owner} owns {', '.join(sorted(fields))}" for owner, fields in sorted(owners.items()))
    details = said.get("details") or {}
    named = f"{details['kind']} {details['name']}" if details.get("kind") and details.get("name") else what
    return f"{named}: {'; '.join(parts)}."
