"""Helm's record of an attempt that never ended: found, and cleared. Part of the closed list of what we clear of our own."""

from __future__ import annotations

from dataclasses import dataclass

from resources.kubernetes import ClusterClient


@dataclass(frozen=True, slots=True)
class PendingRecord:
    """A release revision whose process never recorded an end. Helm refuses every later upgrade while it stands."""

    release: str
    namespace: str
    revision: int
    status: str
    secret: str
    uid: str


def pending_record(client: ClusterClient, release: str, namespace: str) -> PendingRecord | None:
    """The newest revision's record when it is pending, else None. Raises UnreadableError where the read fails."""
    found = client.list("v1", "Secret", namespace=namespace, labels=f"owner=helm,name={release}")
    newest = max(found, key=lambda secret: _revision(secret["metadata"]), default=None)
    if newest is None:
        return None
    metadata = newest["metadata"]
    status = str((metadata.get("labels") or {}).get("status") or "")
    if not status.startswith("pending-"):
        return None
    return PendingRecord(release, namespace, _revision(metadata), status, str(metadata["name"]), str(metadata["uid"]))


def clear_pending(client: ClusterClient, record: PendingRecord) -> bool:
    """Deletes exactly that record; False when it was already gone. What the attempt applied stays and is taken over by the
    next one, for it carries the release's marks. The caller holds the cluster's lease, which a helm process that still
    ran would hold too: without it this would cut a live upgrade off from its own record."""
    return client.delete("v1", "Secret", record.secret, namespace=record.namespace, uid=record.uid)


def _revision(metadata: dict[str, object]) -> int:
    labels = metadata.get("labels")
    version = labels.get("version") if isinstance(labels, dict) else None
    return int(version) if isinstance(version, str) and version.isdigit() else 0
