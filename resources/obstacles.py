"""What stands in the way of a change and belongs to others: a webhook that doesn't answer, a namespace that won't go, a
controller that may make no pods. Read where something waits, never on the straight way."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from modelplane_dagster.errors import ModelplaneError, NotReadyError
from modelplane_dagster.findings import Finding, finding

if TYPE_CHECKING:
    from resources.kubernetes import ClusterClient

_WEBHOOK = re.compile(r'failed calling webhook "([^"]+)"')
_HOLDS = ("NamespaceContentRemaining", "NamespaceFinalizersRemaining", "NamespaceDeletionContentFailure")


def webhook_finding(cluster: str, text: str) -> tuple[Finding, ...]:
    """For an error that a webhook made which doesn't answer; empty for any other."""
    return (finding("WebhookDown", f"cluster/{cluster}", text),) if _WEBHOOK.search(text) else ()


def terminating(client: ClusterClient, namespace: str) -> NotReadyError | None:
    """The namespace is being deleted, with what it still holds as the API says it; None where it isn't. Raises
    UnreadableError where that can't be read."""
    body = client.get("v1", "Namespace", namespace) if namespace else None
    if body is None or not body["metadata"].get("deletionTimestamp"):
        return None
    message = (
        f"Cluster {client.name}: namespace {namespace} is being deleted, and nothing can be made in it; {_held(body)}."
    )
    return NotReadyError(message, findings=(finding("NamespaceTerminating", f"cluster/{client.name}", message),))


def held_up(client: ClusterClient, namespace: str, error: NotReadyError) -> NotReadyError:
    """The error with what holds the namespace, where that can be read; else the error as it is."""
    try:
        return terminating(client, namespace) or error
    except ModelplaneError:
        return error


def _held(namespace: Mapping[str, Any]) -> str:
    conditions = (namespace.get("status") or {}).get("conditions") or ()
    told = [
        str(c["message"]).rstrip(". ")
        for kind in _HOLDS
        for c in conditions
        if c.get("type") == kind and c.get("status") == "True"
    ]
    own = [f for f in (namespace.get("spec") or {}).get("finalizers") or () if f != "kubernetes"]
    own += (namespace["metadata"].get("finalizers")) or []
    if own:
        told.append(f"its own finalizers are {', '.join(own)}")
    return "; ".join(told) or "nothing is known to hold it"


def refused_pods(client: ClusterClient, namespace: str) -> str:
    """Why a controller in the namespace could last not make a pod, in the API's words; empty where none failed, and where
    the events can't be read: they are a help and no evidence."""
    try:
        events = client.list("v1", "Event", namespace=namespace, fields="reason=FailedCreate")
    except ModelplaneError:
        return ""
    newest = max(events, key=_when, default=None)
    if newest is None:
        return ""
    about = newest.get("involvedObject") or {}
    return f"{about.get('kind')} {namespace}/{about.get('name')}: {str(newest.get('message') or '').rstrip('.')}"


def _when(event: Mapping[str, Any]) -> str:
    series = event.get("series") or {}
    return str(series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or "")
