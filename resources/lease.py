"""One writer a cluster: a locked file on this host, and a Lease in the cluster once its API exists.

The file answers at once: its lock goes with the process, and with every child (helm) that holds its descriptor, so a
dead writer is taken over as soon as the last of them ends. The Lease keeps other hosts away; it is renewed while the
run works, and taken over when it has expired or its holder is a dead process of this host.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelplane_dagster.errors import ClusterBusyError, ConflictError, ModelplaneError

if TYPE_CHECKING:
    from collections.abc import Callable

    from resources.kubernetes import ClusterClient

DURATION = 30
"""Seconds that a Lease stands without renewal; hosts' clocks may differ by a good part of it."""
SKEW = 10
"""Seconds that another host's clock may be ahead or behind."""
NAME = "modelplane-dagster"
NAMESPACE = "kube-system"
DIGEST_ANNOTATION = "modelplane.ai/plan-digest"


def holder_identity() -> str:
    """Host, process and the process's start, which together never come twice."""
    return f"{socket.gethostname()}/{os.getpid()}/{_started(os.getpid())}"


def _started(pid: int) -> str:
    try:
        # Field 22 of stat is the start in clock ticks since boot; the name in field 2 may hold spaces.
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return "0"


def dead_here(holder: str) -> bool:
    """The holder is a process of this host that no longer runs."""
    host, _, rest = holder.partition("/")
    pid, _, started = rest.partition("/")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    return not Path(f"/proc/{pid}").exists() or _started(int(pid)) != started


class FileLock:
    """An exclusive lock on a file that is never removed. `fd` is handed on to children that must finish first."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.set_inheritable(self.fd, False)  # noqa: FBT003 - the call's own form

    def take(self, *, wait: float, holder: str, announce: Callable[[str], None]) -> None:
        """Raises ClusterBusyError naming the holder after `wait` seconds."""
        deadline = time.monotonic() + wait
        told = False
        while True:
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                other = self._holder()
                if time.monotonic() >= deadline:
                    msg = f"Another writer works on cluster {self._path.stem}: {other} (a process on this host)."
                    raise ClusterBusyError(msg) from None
                if not told:
                    announce(f"cluster {self._path.stem} is held by {other}; waiting up to {wait:.0f} s")
                    told = True
                time.sleep(0.1)
            else:
                os.ftruncate(self.fd, 0)
                os.pwrite(self.fd, holder.encode(), 0)
                return

    def _holder(self) -> str:
        return os.pread(self.fd, 4096, 0).decode("utf-8", "replace") or "unknown"

    def release(self) -> None:
        """Closes our descriptor. It isn't unlocked by name: a child that still holds the descriptor shares the lock, and
        goes on writing. The holder's name stays for as long as such a child lives."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


@dataclass(slots=True)
class ClusterLease:
    """A held lease. `renewing` is the thread that keeps the cluster's Lease alive, None before the API exists;
    `renewed` is when it was last known to be ours, on the monotonic clock; `leave` says that nothing of ours stands on the
    cluster any more, so that the Lease goes too."""

    cluster: str
    file: FileLock
    holder: str
    digest: str
    client: ClusterClient | None = None
    renewing: threading.Thread | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    lost: str = ""
    renewed: float = 0.0
    leave: bool = False

    def check(self) -> None:
        """Raises ClusterBusyError when another writer took the Lease meanwhile, or may have: it wasn't renewed in time."""
        if self.lost:
            raise ClusterBusyError(self.lost)
        since = time.monotonic() - self.renewed
        if self.client is not None and since > DURATION:
            msg = f"The lease of cluster {self.cluster} couldn't be renewed for {since:.0f} s, so another writer may hold it."
            raise ClusterBusyError(msg)

    def release(self) -> None:
        self.stop.set()
        if self.renewing is not None:
            self.renewing.join(timeout=5)
        if self.client is not None and not self.lost:
            _let_go(self.client, self.holder, leave=self.leave)
        self.file.release()


def take(
    cluster: str,
    folder: Path,
    *,
    digest: str,
    wait: float,
    announce: Callable[[str], None],
) -> ClusterLease:
    """The file's part of the lease; `extend` adds the cluster's part. Raises ClusterBusyError after `wait` seconds."""
    holder = holder_identity()
    lock = FileLock(folder / f"{cluster}.lock")
    try:
        lock.take(wait=wait, holder=holder, announce=announce)
    except ClusterBusyError:
        os.close(lock.fd)
        raise
    return ClusterLease(cluster, lock, holder, digest)


def extend(lease: ClusterLease, client: ClusterClient, *, wait: float, announce: Callable[[str], None]) -> None:
    """Takes the Lease in the cluster too, once. Raises ClusterBusyError naming the holder after `wait` seconds."""
    if lease.client is not None:
        return
    deadline = time.monotonic() + wait
    told = False
    while True:
        other = _try_take(client, lease)
        if not other:
            break
        if time.monotonic() >= deadline:
            msg = f"Another writer works on cluster {lease.cluster}: {other}."
            raise ClusterBusyError(msg)
        if not told:
            announce(f"cluster {lease.cluster} is held by {other}; waiting up to {wait:.0f} s")
            told = True
        time.sleep(random.uniform(0.2, 0.5))
    lease.renewed = time.monotonic()
    lease.client = client
    lease.renewing = threading.Thread(target=_renew, args=(lease,), name=f"lease-{lease.cluster}", daemon=True)
    lease.renewing.start()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _spec(holder: str) -> dict[str, Any]:
    return {"holderIdentity": holder, "leaseDurationSeconds": DURATION, "renewTime": _now()}


def _try_take(client: ClusterClient, lease: ClusterLease) -> str:
    """Empty when taken, else the holder."""
    found = client.get("coordination.k8s.io/v1", "Lease", NAME, namespace=NAMESPACE)
    annotations = {DIGEST_ANNOTATION: lease.digest}
    try:
        if found is None:
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": NAME, "namespace": NAMESPACE, "annotations": annotations},
                "spec": {**_spec(lease.holder), "acquireTime": _now()},
            }
            client.create(body)
            return ""
        spec = found.get("spec") or {}
        other = str(spec.get("holderIdentity") or "")
        if other and other != lease.holder and not dead_here(other) and not _expired(spec):
            return other
        found["spec"] = {**spec, **_spec(lease.holder), "acquireTime": _now()}
        found["metadata"].setdefault("annotations", {}).update(annotations)
        client.replace(found)
    except ConflictError:
        # Another writer was faster: the next look tells who.
        return "another writer"
    return ""


def _expired(spec: dict[str, Any]) -> bool:
    """Skew counts for the holder: a Lease is only free once every clock within bounds says so."""
    renewed = str(spec.get("renewTime") or "")
    try:
        at = datetime.fromisoformat(renewed)
    except ValueError:
        return True
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    lasts = int(spec.get("leaseDurationSeconds") or DURATION) + SKEW
    return datetime.now(UTC) > at + timedelta(seconds=lasts)


def _renew(lease: ClusterLease) -> None:
    client = lease.client
    while client is not None and not lease.stop.wait(DURATION / 3):
        try:
            found = client.get("coordination.k8s.io/v1", "Lease", NAME, namespace=NAMESPACE)
            holder = str(((found or {}).get("spec") or {}).get("holderIdentity") or "")
            if found is None or holder != lease.holder:
                lease.lost = f"Another writer took cluster {lease.cluster} over: {holder or 'its Lease is gone'}."
                return
            found["spec"].update(_spec(lease.holder))
            asked = time.monotonic()
            client.replace(found)
            lease.renewed = asked
        except ModelplaneError:
            # A renewal that fails is tried again; the Lease stands for two more of them.
            continue


def _let_go(client: ClusterClient, holder: str, *, leave: bool) -> None:
    try:
        found = client.get("coordination.k8s.io/v1", "Lease", NAME, namespace=NAMESPACE)
        if found is None or (found.get("spec") or {}).get("holderIdentity") != holder:
            return
        if leave:
            uid = str(found["metadata"].get("uid") or "")
            client.delete("coordination.k8s.io/v1", "Lease", NAME, namespace=NAMESPACE, uid=uid)
            return
        found["spec"].update({"holderIdentity": "", "renewTime": None, "acquireTime": None})
        client.replace(found)
    except ModelplaneError:
        # It expires by itself, and on this host its dead holder is recognised at once.
        return
