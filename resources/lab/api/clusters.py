"""The clusters of one lab: each with its users, faults and counts, kept in a folder of its own.

`ClusterSet` holds what every kind of lab cluster shares; `Clusters` are the embedded ones, whose objects are in a `Store`.
"""

from __future__ import annotations

import re
import secrets
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import orjson

from resources.clouds.kubeconfig import kubeconfig
from resources.lab.api.bootstrap import bootstrap
from resources.lab.api.counts import Meter
from resources.lab.api.errors import bad_request
from resources.lab.api.storage import Storage
from resources.lab.api.store import Store
from resources.lab.api.switches import Switches

META, OBJECTS = "cluster.json", "objects.jsonl"
_NAME = re.compile(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
USERS = ("product", "user", "agent", "controller")


@dataclass(slots=True)
class Faults:
    """How the API misbehaves: sockets closed without an answer, seconds of delay, 401 to everybody but the lab's users."""

    drop_connections: bool = False
    slow: float = 0.0
    unauthorized: bool = False


@dataclass(slots=True, kw_only=True)
class LabCluster:
    """One cluster as its users reach it. Until `ready`, requests get 503 as from a load balancer with nothing behind it."""

    name: str
    switches: Switches
    tokens: dict[str, str]
    ready: bool = True
    faults: Faults = field(default_factory=Faults)
    meter: Meter = field(default_factory=Meter)
    watches: set[Callable[[], None]] = field(default_factory=set)

    def close_watches(self) -> None:
        for close in tuple(self.watches):
            close()


@dataclass(slots=True, kw_only=True)
class Cluster(LabCluster):
    """An embedded one."""

    store: Store


C = TypeVar("C", bound=LabCluster)


class ClusterSet(ABC, Generic[C]):
    """All clusters under `folder`. `address` is where they are served, known once the port is, and `authority` its PEM certificate."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._all: dict[str, C] = {}
        self.address = ""
        self.authority = b""
        for meta in sorted(folder.glob(f"*/{META}")):
            self._open(meta.parent.name, orjson.loads(meta.read_bytes()))

    @abstractmethod
    def _opened(self, name: str, folder: Path, switches: Switches, tokens: dict[str, str]) -> C:
        """The cluster from what its folder holds; a new one where that is nothing."""

    @abstractmethod
    def _closed(self, cluster: C) -> None:
        """Ends what runs for the cluster; its files stay."""

    def __iter__(self) -> Iterator[C]:
        return iter(tuple(self._all.values()))

    def get(self, name: str) -> C | None:
        return self._all.get(name)

    def add_cluster(
        self,
        name: str,
        version: str,
        *,
        consumable_capacity: bool | None = None,
        critical_pods_quota: bool = False,
        refuse_keyless_tolerations: bool = False,
        ready: bool = True,
    ) -> C:
        """The cluster, made where it isn't there yet; one that is there is returned as it is, whatever the arguments."""
        found = self._all.get(name)
        if found is not None:
            return found
        if not _NAME.match(name):
            raise bad_request(f"{name!r} can't name a cluster: lower case letters, digits and dashes")
        switches = Switches(version, consumable_capacity, critical_pods_quota, refuse_keyless_tolerations)
        folder = self._folder / name
        # A folder without its `cluster.json` is what a killed daemon leaves of an addition or a removal.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        tokens = {secrets.token_urlsafe(24): user for user in USERS}
        meta = {"switches": asdict(switches), "tokens": tokens, "ready": ready}
        self._save(name, meta)
        return self._open(name, meta)

    def _save(self, name: str, meta: dict[str, Any]) -> None:
        path = self._folder / name / META
        fresh = path.with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_bytes(orjson.dumps(meta))
        fresh.replace(path)

    def _open(self, name: str, meta: dict[str, Any]) -> C:
        cluster = self._opened(name, self._folder / name, Switches(**meta["switches"]), meta["tokens"])
        cluster.ready = meta.get("ready", True)
        self._all[name] = cluster
        return cluster

    def set_ready(self, name: str, *, ready: bool) -> None:
        cluster = self._all[name]
        cluster.ready = ready
        self._save(name, {"switches": asdict(cluster.switches), "tokens": cluster.tokens, "ready": ready})

    def remove_cluster(self, name: str) -> None:
        """Takes the cluster and its state away; nothing happens where it isn't there."""
        cluster = self._all.pop(name, None)
        if cluster is not None:
            cluster.close_watches()
            self._closed(cluster)
            (self._folder / name / META).unlink(missing_ok=True)
            shutil.rmtree(self._folder / name, ignore_errors=True)

    def kubeconfig(self, name: str, user: str) -> dict[str, Any]:
        """For one of the cluster's users; KeyError where there is no such cluster or user."""
        token = next((token for token, owner in self._all[name].tokens.items() if owner == user), None)
        if token is None:
            raise KeyError(user)
        server = f"{self.address}/clusters/{name}"
        return kubeconfig(name, server, {"token": token}, ca_pem=self.authority.decode(), user_name=user)

    def close(self) -> None:
        for cluster in self:
            cluster.close_watches()
            self._closed(cluster)


class Clusters(ClusterSet[Cluster]):
    """The embedded ones."""

    def _opened(self, name: str, folder: Path, switches: Switches, tokens: dict[str, str]) -> Cluster:
        store = Store(switches, Storage(folder / OBJECTS))
        bootstrap(store)
        return Cluster(name=name, switches=switches, tokens=tokens, store=store)

    def _closed(self, cluster: Cluster) -> None:
        cluster.store.storage.close()
