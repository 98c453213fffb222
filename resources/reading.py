"""One reading of a cluster: each kind is listed once, however many ask for it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Protocol

from modelplane_dagster.errors import ModelplaneError

if TYPE_CHECKING:
    from resources.kubernetes import ClusterClient

# Kinds that one look needs whole, and may need by our labels too: they are listed whole, and our part is taken from that.
_WHOLE = frozenset(
    {("v1", "Namespace"), ("v1", "ResourceQuota")}
    | {("apps/v1", k) for k in ("DaemonSet", "Deployment", "StatefulSet")}
)


class Lister(Protocol):
    """What reads lists: a client, or one reading through it."""

    def list(self, api_version: str, kind: str, *, labels: str = "") -> list[dict[str, Any]]:
        """Raises UnreadableError or KubernetesError where the read fails."""
        ...

    def serves(self, api_version: str, kind: str) -> bool:
        """Whether the API serves the kind."""
        ...


class Reading:
    """Short-lived: what it has read it doesn't read again, failures included. Safe to share between threads."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._lists: dict[tuple[str, str, str], list[dict[str, Any]] | ModelplaneError] = {}
        self._served: dict[str, frozenset[str] | ModelplaneError] = {}
        self._lock = threading.Lock()

    def list(self, api_version: str, kind: str, *, labels: str = "") -> list[dict[str, Any]]:
        """As the client's, of all namespaces. `labels` of a kind that is listed whole must be a bare key."""
        if (api_version, kind) in _WHOLE and labels:
            return [i for i in self.list(api_version, kind) if labels in (i["metadata"].get("labels") or {})]
        key = (api_version, kind, labels)
        with self._lock:
            if key not in self._lists:
                try:
                    self._lists[key] = self._client.list(api_version, kind, labels=labels)
                except ModelplaneError as error:
                    self._lists[key] = error
            found = self._lists[key]
        if isinstance(found, ModelplaneError):
            raise found
        return found

    def serves(self, api_version: str, kind: str) -> bool:
        with self._lock:
            if api_version not in self._served:
                try:
                    self._served[api_version] = self._client.kinds_served(api_version)
                except ModelplaneError as error:
                    self._served[api_version] = error
            found = self._served[api_version]
        if isinstance(found, ModelplaneError):
            raise found
        return kind in found
