"""What a simulated cloud holds: clusters and pools that live by the clock, faults, and counts of what was asked.

One `CloudState` a cloud, kept as one JSON file. Lifecycles follow the clock and nothing else: `settle` brings the
state to now. The lab's node agent makes Kubernetes nodes from `desired_nodes`.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from resources.lab.clouds.model import (
    ONCE,
    Delays,
    Dress,
    Endpoint,
    Fault,
    Hooks,
    Kind,
    Phase,
    SimCluster,
    SimNode,
    SimPool,
    Traits,
    plain_dress,
)

__all__ = [
    "CloudState",
    "Delays",
    "Dress",
    "Endpoint",
    "Fault",
    "Hooks",
    "Kind",
    "Phase",
    "SimCluster",
    "SimNode",
    "SimPool",
    "Traits",
    "plain_dress",
]


class CloudState:
    """The state of one simulated cloud. Thread-safe; a change is on disk before the method returns."""

    def __init__(
        self,
        source: str,
        folder: Path,
        *,
        clock: Callable[[], float] = time.time,
        delays: Delays | None = None,
        traits: Traits | None = None,
        hooks: Hooks | None = None,
        dress: Dress = plain_dress,
    ) -> None:
        self.source = source
        self.clock = clock
        self.delays = delays or Delays()
        self.traits = traits or Traits()
        self.hooks = hooks or Hooks()
        self.dress = dress
        self.counts: Counter[tuple[Kind, str]] = Counter()
        self.lock = threading.RLock()
        # What only one cloud has (launch templates, operations, networks), by kind and name; `save` after a change.
        self.extra: dict[str, dict[str, Any]] = {}
        self._path = folder / f"{source.lower()}.json"
        self._clusters: dict[str, SimCluster] = {}
        self._faults: dict[tuple[str, Fault], int | None] = {}
        self._serial = 0
        self._announced: set[str] = set()
        self._load()

    # Clusters

    def clusters(self) -> list[SimCluster]:
        self._advance()
        return list(self._clusters.values())

    def cluster(self, name: str) -> SimCluster | None:
        self._advance()
        return self._clusters.get(name)

    def cluster_by_id(self, identifier: str) -> SimCluster | None:
        return next((c for c in self.clusters() if c.id == identifier), None)

    def add_cluster(
        self, name: str, *, version: str, location: str, tags: Mapping[str, str], body: dict[str, Any]
    ) -> SimCluster:
        with self.lock:
            cluster = SimCluster(name, self.new_id(), version, location, dict(tags), body)
            cluster.until = self.clock() + self.delays.cluster
            self._clusters[name] = cluster
            self.save()
            return cluster

    def remove_cluster(self, name: str) -> None:
        """Begins the deletion of the cluster with everything in it."""
        with self.lock:
            cluster = self._clusters[name]
            end = self.clock() + self.delays.delete
            cluster.phase, cluster.until = "deleting", end
            for pool in cluster.pools.values():
                pool.phase, pool.until = "deleting", end
            self.save()

    # Pools

    def pool(self, cluster: str, name: str) -> SimPool | None:
        found = self.cluster(cluster)
        return found.pools.get(name) if found else None

    def add_pool(self, cluster: str, pool: SimPool) -> SimPool:
        """Begins the creation. A pool that comes with its cluster is ready no sooner than that."""
        with self.lock:
            owner = self._clusters[cluster]
            pool.id = pool.id or self.new_id()
            start = owner.until if owner.phase == "creating" else self.clock()
            pool.phase, pool.until = "creating", start + self.delays.pool
            owner.pools[pool.name] = pool
            self.save()
            return pool

    def change_pool(
        self,
        cluster: str,
        name: str,
        *,
        labels: Mapping[str, str] | None = None,
        taints: list[dict[str, str]] | None = None,
        size: int | None = None,
    ) -> SimPool:
        """Begins an update; None leaves a part as it is. A failed pool is tried anew."""
        with self.lock:
            pool = self._clusters[cluster].pools[name]
            if labels is not None:
                pool.labels = dict(labels)
            if taints is not None:
                pool.taints = [dict(t) for t in taints]
            if size is not None:
                pool.size = size
            failed = pool.phase == "failed"
            pool.phase = "creating" if failed or pool.phase == "creating" else "updating"
            pool.until = max(pool.until, self.clock() + (self.delays.pool if failed else self.delays.update))
            pool.failure = ""
            pool.revision += 1
            self.save()
            return pool

    def remove_pool(self, cluster: str, name: str) -> None:
        with self.lock:
            pool = self._clusters[cluster].pools[name]
            pool.phase, pool.until = "deleting", self.clock() + self.delays.delete
            self.save()

    # Faults

    def set_fault(self, subject: str, kind: Fault, times: int | None = None) -> None:
        """`times` counts faults that are used up (once when None); the others last until cleared."""
        with self.lock:
            self._faults[(subject, kind)] = (times or 1) if kind in ONCE else None
            self.save()

    def clear_fault(self, subject: str, kind: Fault) -> None:
        """One that isn't set is no error."""
        with self.lock:
            self._faults.pop((subject, kind), None)
            self.save()

    def faults(self) -> dict[tuple[str, Fault], int | None]:
        return dict(self._faults)

    def has_fault(self, subject: str, kind: Fault) -> bool:
        return (subject, kind) in self._faults

    def take_fault(self, subject: str, kind: Fault) -> bool:
        """Whether the fault is set, using it up once."""
        with self.lock:
            left = self._faults.get((subject, kind), 0)
            if left == 0:
                return False
            if left is not None:
                if left == 1:
                    del self._faults[(subject, kind)]
                else:
                    self._faults[(subject, kind)] = left - 1
                self.save()
            return True

    # Nodes and counts

    def desired_nodes(self, cluster: str) -> list[SimNode]:
        """The nodes that stand now, the system pool's among them; empty where the cluster isn't ready."""
        self.settle()
        found = self.cluster(cluster)
        if found is None or found.phase in ("creating", "deleting"):
            return []
        nodes = []
        for pool in found.pools.values():
            if pool.phase == "deleting":
                continue
            for index in range(pool.joined):
                nodes.append(self.dress(found, self._as_born(pool, index), index))
        return nodes

    def count(self, kind: Kind, what: str) -> None:
        """`what` is the HTTP method and the meaning, such as `POST create-pool`."""
        with self.lock:
            self.counts[(kind, what)] += 1

    def totals(self) -> dict[str, int]:
        """Reads, writes and deletes since the process began."""
        return {k: sum(n for (kind, _), n in self.counts.items() if kind == k) for k in ("read", "write", "delete")}

    def new_id(self) -> str:
        """A new id, the same on every run of the same calls."""
        with self.lock:
            self._serial += 1
            return f"{self.source.lower()}{self._serial:08x}"

    # Time

    def settle(self) -> None:
        """Brings everything to now, and tells the daemon about clusters that became ready or went away.

        The daemon calls it while nothing is asked; a request calls it first. The hooks run outside the lock.
        """
        with self.lock:
            self._advance()
            ready = [c for c in self._clusters.values() if c.phase == "ready" and c.name not in self._announced]
            gone = sorted(self._announced - self._clusters.keys())
            self._announced = (self._announced & self._clusters.keys()) | {c.name for c in ready}
        for cluster in ready:
            self.hooks.ready(cluster.name, cluster.version)
        for name in gone:
            self.hooks.gone(name)

    def _advance(self) -> None:
        with self.lock:
            now = self.clock()
            changed = [self._settle_cluster(c, now) for c in list(self._clusters.values())]
            if any(changed):
                self.save()

    def _settle_cluster(self, cluster: SimCluster, now: float) -> bool:
        changed = False
        for pool in list(cluster.pools.values()):
            changed |= self._settle_pool(cluster, pool, now)
        if now < cluster.until or cluster.phase in ("ready", "failed"):
            return changed
        if cluster.phase == "deleting":
            del self._clusters[cluster.name]
        else:
            cluster.phase = "ready"
        return True

    def _settle_pool(self, cluster: SimCluster, pool: SimPool, now: float) -> bool:
        subject = f"pool/{cluster.name}/{pool.true_name}"
        if now < pool.until or (pool.phase == "creating" and self.has_fault(subject, Fault.SLOW_POOL)):
            return False
        if pool.phase == "deleting":
            del cluster.pools[pool.name]
            return True
        broken = next((f.value for f in (Fault.NO_CAPACITY, Fault.QUOTA) if self.has_fault(subject, f)), "")
        if pool.phase == "failed" and (broken or not self.traits.recovers):
            return False
        if pool.phase == "ready" and pool.joined == pool.size:
            return False
        if broken and pool.size > pool.joined:
            was, pool.phase, pool.failure = (pool.phase, pool.failure), "failed", broken
            return was != (pool.phase, pool.failure)
        pool.phase, pool.failure, pool.joined = "ready", "", pool.size
        self._bear(pool)
        return True

    def _bear(self, pool: SimPool) -> None:
        if self.traits.nodes_follow:
            return
        del pool.born[pool.joined :]
        while len(pool.born) < pool.joined:
            pool.born.append({"labels": dict(pool.labels), "taints": [dict(t) for t in pool.taints]})

    def _as_born(self, pool: SimPool, index: int) -> SimPool:
        if self.traits.nodes_follow or index >= len(pool.born):
            return pool
        then = pool.born[index]
        return SimPool(
            pool.name,
            pool.id,
            then["labels"],
            then["taints"],
            pool.machine,
            pool.size,
            pool.zones,
            pool.tags,
            pool.body,
        )

    # Disk

    def save(self) -> None:
        """Writes the whole state, in one step that a killed process leaves either done or undone. A simulator that
        changes a `body` calls it."""
        with self.lock:
            data = {
                "serial": self._serial,
                "extra": self.extra,
                "clusters": [asdict(c) for c in self._clusters.values()],
                "faults": [[subject, kind.value, left] for (subject, kind), left in self._faults.items()],
            }
            self._path.parent.mkdir(parents=True, exist_ok=True)
            new = self._path.with_suffix(".new")
            new.write_text(json.dumps(data))
            os.replace(new, self._path)  # noqa: PTH105 - Path.replace is the same call; this one says it is atomic

    def _load(self) -> None:
        if not self._path.exists():
            return
        data = json.loads(self._path.read_text())
        self._serial, self.extra = data["serial"], data["extra"]
        for raw in data["clusters"]:
            raw["pools"] = {name: SimPool(**pool) for name, pool in raw["pools"].items()}
            self._clusters[raw["name"]] = SimCluster(**raw)
        self._faults = {(subject, Fault(kind)): left for subject, kind, left in data["faults"]}
