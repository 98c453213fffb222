"""An API's Status as one of our errors, by what the caller can do about it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from modelplane_dagster.errors import AccessError, ConflictError, KubernetesError, NotReadyError
from modelplane_dagster.findings import finding
from resources.obstacles import webhook_finding

_MANAGER = re.compile(r'conflict(?:s)? with "([^"]+)"')
# A webhook's own no comes as 403 too, and no permission turns it.
_DENIED = "denied the request"
ApiError = KubernetesError | ConflictError | AccessError | NotReadyError


def api_error(name: str, status: int, text: str, *, what: str = "", write: bool = False) -> ApiError:
    """By the API's Status: a field conflict names the object, the manager and the fields. `what` is the object that was
    written, as `Kind namespace/name`; empty for reads."""
    where = f"Cluster {name}" if name else "The cluster"
    subject = f"cluster/{name}"
    try:
        answer = json.loads(text)
    except ValueError:
        answer = {}
    said = answer if isinstance(answer, dict) else {}
    message = f"{where}: {f'{what}: ' if what else ''}{said.get('message') or f'HTTP status {status}'}"
    reason = str(said.get("reason") or "")
    status = int(said.get("code") or status)
    if status == 401:
        message = f"{where}: the API refuses the kubeconfig's credentials (401 Unauthorized)."
        return AccessError(message, findings=(finding("CredentialsRefused", subject, message),))
    if status == 409:
        return _conflict(where, said, what)
    if status == 403 and "NamespaceTerminating" in _reasons(said):
        return NotReadyError(f"{message}; it is asked again once the namespace is gone")
    found = webhook_finding(name, message)
    if status == 403 and _DENIED not in message:
        found = (finding("PermissionMissing", subject, message),)
    return KubernetesError(message, status=status, reason=reason, findings=found, write=write)


def _reasons(said: Mapping[str, Any]) -> set[str]:
    return {str(c.get("reason")) for c in (said.get("details") or {}).get("causes") or ()}


def _conflict(where: str, said: Mapping[str, Any], what: str) -> ConflictError:
    details = said.get("details") or {}
    causes = [c for c in details.get("causes") or () if c.get("reason") == "FieldManagerConflict"]
    if not causes:
        return ConflictError(f"{where}: {said.get('message') or 'the object was changed meanwhile'}")
    owners: dict[str, list[str]] = {}
    for cause in causes:
        found = _MANAGER.search(str(cause.get("message")))
        owners.setdefault(found.group(1) if found else "another manager", []).append(str(cause.get("field")))
    parts = (f"{owner} owns {', '.join(sorted(fields))}" for owner, fields in sorted(owners.items()))
    thing = what or f"{details.get('kind') or 'the object'} {details.get('name') or ''}".strip()
    return ConflictError(f"{where}: {thing}: {'; '.join(parts)}.", owners=tuple(sorted(owners)))
