"""A cluster's API as the lease and the probe use it: get, create, replace, with resource versions and conflicts."""

from __future__ import annotations

import copy
import threading
from typing import Any

from modelplane_dagster.errors import ConflictError, UnreadableError

Body = dict[str, Any]


class FakeApi:
    """Answers like an API server; several clients may share one. `down` makes every call fail."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Body] = {}
        self.writes: list[str] = []
        self.down = False
        self._version = 0
        self._lock = threading.Lock()

    def get(self, api_version: str, kind: str, name: str, *, namespace: str = "") -> Body | None:
        del api_version
        self._reach()
        with self._lock:
            found = self.objects.get((kind, namespace, name))
            return copy.deepcopy(found)

    def create(self, body: Body, *, dry_run: bool = False) -> Body:
        self._reach()
        key = self._key(body)
        with self._lock:
            if key in self.objects:
                raise ConflictError(f"{key[2]} exists")
            return self._store(key, body, dry_run=dry_run)

    def replace(self, body: Body) -> Body:
        self._reach()
        key = self._key(body)
        with self._lock:
            standing = self.objects.get(key)
            if standing is None or standing["metadata"]["resourceVersion"] != body["metadata"].get("resourceVersion"):
                raise ConflictError(f"{key[2]} was changed meanwhile")
            return self._store(key, body)

    def lease(self) -> Body:
        return self.objects["Lease", "kube-system", "modelplane-dagster"]

    def _reach(self) -> None:
        if self.down:
            raise UnreadableError("the API drops connections")

    def _store(self, key: tuple[str, str, str], body: Body, *, dry_run: bool = False) -> Body:
        made = copy.deepcopy(body)
        if not dry_run:
            self._version += 1
            made["metadata"]["resourceVersion"] = str(self._version)
            self.objects[key] = made
            self.writes.append(key[2])
        return copy.deepcopy(made)

    @staticmethod
    def _key(body: Body) -> tuple[str, str, str]:
        return body["kind"], body["metadata"].get("namespace", ""), body["metadata"]["name"]
