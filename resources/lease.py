"""One writer a cluster: a locked file on this host, and a Lease in the cluster once its API exists.

The file answers at once: its lock goes with the process, and with every child (helm) that holds its descriptor, so a
dead writer is taken over as soon as the last of them ends. The Lease keeps other hosts away; it is renewed while the
run works, and taken over at once from a dead process of this host, and from another host when we have seen it unrenewed
for as long as it says it stands. That time is measured here alone, so no two hosts' clocks are ever compared.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelplane_dagster.errors import ClusterBusyError, ConflictError, ModelplaneError
from modelplane_dagster.findings import finding
from resources.dead_man import DeadMan
from resources.host import Host, place

if TYPE_CHECKING:
    from collections.abc import Callable

    from resources.kubernetes import ClusterClient

DURATION = 30.0
"""Seconds that a Lease stands without renewal."""
HOLD = DURATION * 2 / 3
"""Seconds after its last renewal that a holder still writes. What it sent by then has the rest of DURATION to arrive."""
ANSWER = DURATION / 3
"""Seconds that the API may take to answer about the Lease: a slow one is no lost one."""
KIND = ("coordination.k8s.io/v1", "Lease")
NAME = "modelplane-dagster"
NAMESPACE = "kube-system"
DIGEST_ANNOTATION = "modelplane.ai/plan-digest"


LOST = "LeaseLost"


def busy(cluster: str, message: str, *, code: str = "ClusterBusy") -> ClusterBusyError:
    return ClusterBusyError(message, findings=(finding(code, f"cluster/{cluster}", message),))


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
                    raise busy(self._path.stem, msg) from None
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
    """A held lease. `renewing` is the thread that keeps the cluster's Lease alive, None before the API exists; `renewed` is
    when the last renewal that came through was sent, by the host's clock; `leave` says that nothing of ours stands on the
    cluster any more, so that the Lease goes too. `lapse` is called once the lease stands no longer: it ends what still
    writes without asking us, which is helm; `dead_man` does so where this process is stopped."""

    cluster: str
    file: FileLock
    host: Host
    holder: str
    digest: str
    sightings: Sightings
    client: ClusterClient | None = None
    renewing: threading.Thread | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    lost: str = ""
    renewed: float = 0.0
    leave: bool = False
    lapse: Callable[[], None] = lambda: None
    dead_man: DeadMan = field(default_factory=DeadMan)
    asking: threading.Lock = field(default_factory=threading.Lock)

    def check(self) -> None:
        """Raises ClusterBusyError when another writer took the Lease meanwhile, or may do so soon: it wasn't renewed in
        time. Then the cluster is asked first, which a process that was stopped hasn't done yet: `LeaseLost` where another
        writer took it, and nothing raised where it is ours still."""
        if not self.lost and self.overdue():
            self.lapse()
            with suppress(ModelplaneError):
                _ask(self)
        if self.lost:
            raise busy(self.cluster, self.lost, code=LOST)
        if self.overdue():
            since = self.host.clock() - self.renewed
            msg = f"The lease of cluster {self.cluster} couldn't be renewed for {since:.0f} s, so another writer may take it."
            raise busy(self.cluster, msg)

    def overdue(self) -> bool:
        """It wasn't renewed for so long that another writer may take it soon."""
        return self.client is not None and self.host.clock() - self.renewed > HOLD

    def renew(self, asked: float) -> None:
        """It came through; it was sent at `asked`."""
        self.renewed = asked
        self.dead_man.stands(asked + HOLD)

    def release(self) -> None:
        self.stop.set()
        if self.renewing is not None:
            self.renewing.join(timeout=5)
        if self.client is not None and not self.lost:
            _let_go(self.client, self.holder, leave=self.leave)
        self.dead_man.close()
        self.file.release()


class Sightings:
    """When we first saw the Lease as it stands now, kept beside the lock: a run waits for seconds, and the next run goes on
    counting. Who reads or writes it holds the lock."""

    def __init__(self, path: Path, host: Host) -> None:
        self._path = path
        self._host = host

    def unchanged(self, version: str) -> float:
        """Seconds that the Lease has stood in this version, as far as this host has seen; 0 at the first look."""
        now = self._host.clock()
        kept = self._read()
        if kept.get("version") == version and kept.get("place") == place() and 0 <= float(kept.get("at", now)) <= now:
            return now - float(kept.get("at", now))
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps({"version": version, "place": place(), "at": now}), encoding="utf-8")
        fresh.replace(self._path)
        return 0.0

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            found = json.loads(self._path.read_text(encoding="utf-8"))
            return found if isinstance(found, dict) else {}
        return {}


def take(
    cluster: str,
    folder: Path,
    *,
    digest: str,
    wait: float,
    announce: Callable[[str], None],
    host: Host | None = None,
) -> ClusterLease:
    """The file's part of the lease; `extend` adds the cluster's part. Raises ClusterBusyError after `wait` seconds."""
    here = host or Host()
    holder = here.identity()
    lock = FileLock(folder / f"{cluster}.lock")
    try:
        lock.take(wait=wait, holder=holder, announce=announce)
    except ClusterBusyError:
        lock.release()
        raise
    return ClusterLease(cluster, lock, here, holder, digest, Sightings(folder / f"{cluster}.seen", here))


def extend(lease: ClusterLease, client: ClusterClient, *, wait: float, announce: Callable[[str], None]) -> None:
    """Takes the Lease in the cluster too, once. Raises ClusterBusyError naming the holder after `wait` seconds."""
    if lease.client is not None:
        return
    deadline = time.monotonic() + wait
    told = False
    while True:
        asked = lease.host.clock()
        other = _try_take(client, lease)
        if not other:
            break
        if time.monotonic() >= deadline:
            msg = (
                f"Another writer works on cluster {lease.cluster}: {other}. It is taken over once it hasn't renewed its "
                f"lease for {DURATION:.0f} s."
            )
            raise busy(lease.cluster, msg)
        if not told:
            announce(f"cluster {lease.cluster} is held by {other}; waiting up to {wait:.0f} s")
            told = True
        time.sleep(random.uniform(0.2, 0.5))
    lease.sightings.forget()
    lease.renew(asked)
    lease.client = client
    lease.renewing = threading.Thread(target=_renew, args=(lease,), name=f"lease-{lease.cluster}", daemon=True)
    lease.renewing.start()


def _spec(lease: ClusterLease) -> dict[str, Any]:
    now = lease.host.wall().isoformat(timespec="microseconds").replace("+00:00", "Z")
    return {"holderIdentity": lease.holder, "leaseDurationSeconds": round(DURATION) or 1, "renewTime": now}


def _try_take(client: ClusterClient, lease: ClusterLease) -> str:
    """Empty when taken, else the holder."""
    found = client.get(*KIND, NAME, namespace=NAMESPACE)
    annotations = {DIGEST_ANNOTATION: lease.digest}
    spec = _spec(lease)
    try:
        if found is None:
            metadata = {"name": NAME, "namespace": NAMESPACE, "annotations": annotations}
            body = {"apiVersion": KIND[0], "kind": KIND[1], "metadata": metadata}
            client.create({**body, "spec": {**spec, "acquireTime": spec["renewTime"]}})
            return ""
        standing = found.get("spec") or {}
        other = str(standing.get("holderIdentity") or "")
        if other and other != lease.holder and not lease.host.knows_dead(other) and not _expired(lease, found):
            return other
        found["spec"] = {**standing, **spec, "acquireTime": spec["renewTime"]}
        found["metadata"].setdefault("annotations", {}).update(annotations)
        # At the version that was judged: a holder that renews after all, or a third writer, makes this a conflict.
        client.replace(found)
    except ConflictError:
        # Another writer was faster: the next look tells who.
        return "another writer"
    return ""


def _expired(lease: ClusterLease, found: dict[str, Any]) -> bool:
    """We have watched the Lease stand unrenewed for as long as it says. Its times are its holder's clock's and tell us
    nothing: every renewal changes the version, and that we see by ourselves."""
    metadata = found["metadata"]
    version = f"{metadata.get('uid', '')}/{metadata.get('resourceVersion', '')}"
    stands = float((found.get("spec") or {}).get("leaseDurationSeconds") or DURATION)
    return lease.sightings.unchanged(version) > stands


def _renew(lease: ClusterLease) -> None:
    pause = DURATION / 3
    while not lease.lost and not lease.stop.wait(pause):
        if lease.overdue():
            # Before the cluster is asked, which may take long: this process may have been stopped, and helm with it.
            lease.lapse()
        try:
            _ask(lease)
            pause = DURATION / 3
        except ModelplaneError:
            # Asked again soon: an API server that comes back must find the Lease renewed before it runs out.
            pause = DURATION / 30
        if lease.lost or lease.overdue():
            lease.lapse()


def _ask(lease: ClusterLease) -> None:
    """Renews the cluster's Lease, or notes that it is lost. Raises where the cluster can't be asked."""
    with lease.asking:
        client, asked = lease.client, lease.host.clock()
        if client is None or lease.lost:
            return
        found = client.get(*KIND, NAME, namespace=NAMESPACE)
        holder = str(((found or {}).get("spec") or {}).get("holderIdentity") or "")
        if found is None or holder != lease.holder:
            who = holder or ("its Lease is gone" if found is None else "it has let go again")
            lease.lost = f"Another writer took cluster {lease.cluster} over: {who}."
            return
        found["spec"].update(_spec(lease))
        client.replace(found)
        lease.renew(asked)


def _let_go(client: ClusterClient, holder: str, *, leave: bool) -> None:
    try:
        found = client.get(*KIND, NAME, namespace=NAMESPACE)
        if found is None or (found.get("spec") or {}).get("holderIdentity") != holder:
            return
        if leave:
            uid = str(found["metadata"].get("uid") or "")
            client.delete(*KIND, NAME, namespace=NAMESPACE, uid=uid)
            return
        found["spec"].update({"holderIdentity": "", "renewTime": None, "acquireTime": None})
        client.replace(found)
    except ModelplaneError:
        # It expires by itself, and on this host its dead holder is recognised at once.
        return
