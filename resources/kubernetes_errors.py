"""An API's Status as one of our errors, by what the caller can do about it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from modelplane_dagster.errors import ConflictError, KubernetesError

_MANAGER = re.compile(r'conflict(?:s)? with "([^"]+)"')


def api_error(where: str, status: int, text: str) -> KubernetesError | ConflictError:
    """By the API's Status: a field conflict names the manager and the fields."""
    try:
        answer = json.loads(text)
    except ValueError:
        answer = {}
    said = answer if isinstance(answer, dict) else {}
    message = str(said.get("message") or f"HTTP status {status}")
    reason = str(said.get("reason") or "")
    status = int(said.get("code") or status)
    if status == 409:
        return ConflictError(f"{where}: {_conflict(said, message)}")
    return KubernetesError(f"{where}: {message}", status=status, reason=reason)


def _conflict(said: Mapping[str, Any], message: str) -> str:
    causes = [c for c in (said.get("details") or {}).get("causes") or () if c.get("reason") == "FieldManagerConflict"]
    if not causes:
        return message
    owners: dict[str, list[str]] = {}
    for cause in causes:
        found = _MANAGER.search(str(cause.get("message")))
        owners.setdefault(found.group(1) if found else "another manager", []).append(str(cause.get("field")))
    parts = (f"{owner} owns {', '.join(sorted(fields))}" for owner, fields in sorted(owners.items()))
    details = said.get("details") or {}
    return f"{details.get('kind') or 'the object'} {details.get('name') or ''}: {'; '.join(parts)}."
