"""One cluster's API through the official client, as JSON: every call has a timeout, every failed read raises.

The official client's typed parsing costs ten times what the JSON costs on large lists, so bodies stay JSON objects here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal
from urllib.parse import quote

import urllib3

from modelplane_dagster.errors import ConfigError, KubernetesError, NotReadyError, UnreadableError
from resources.kubernetes_errors import api_error
from resources.kubernetes_kinds import KNOWN, ResourceType
from resources.kubernetes_requests import Body, Calls, Method, Reload, Requests
from resources.obstacles import held_up

__all__ = ["Bodies", "Body", "Calls", "ClusterClient"]
FIELD_MANAGER = "modelplane-dagster"
Bodies = list[Body]
PatchType = Literal["merge", "json", "strategic"]

_PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
_APPLY = "application/apply-patch+yaml"
_RESTARTS = 2


class ClusterClient:
    """`kubeconfig` is a kubeconfig as a mapping; its credential plugins and token files keep working, and `reload` gives it
    anew after the API refused it. `timeout` is in seconds and holds for each attempt. Safe to share between threads."""

    def __init__(
        self,
        kubeconfig: Mapping[str, Any],
        *,
        name: str = "",
        timeout: float = 20.0,
        manager: str = FIELD_MANAGER,
        retries: int = 3,
        reload: Reload | None = None,
    ) -> None:
        self.name = name
        self.manager = manager
        self._requests = Requests(kubeconfig, name=name, timeout=timeout, retries=retries, reload=reload)
        self._kinds: dict[tuple[str, str], ResourceType] = {}

    @property
    def calls(self) -> Calls:
        return self._requests.calls

    @property
    def lists(self) -> Mapping[tuple[str, str], int]:
        """How often each kind was listed, by (kind, namespace); an empty namespace is the whole cluster."""
        return self._requests.lists

    def guard(self, check: Callable[[], None]) -> None:
        """Calls `check` before every write that leaves, repeated ones included: one that was held up for long must not
        arrive when the cluster is another writer's. What it raises is raised in the write's place."""
        self._requests.guard = check

    def close(self) -> None:
        self._requests.close()

    # Reads

    def list(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        page: int = 500,
    ) -> Bodies:
        """Every matching object, in the API's order; empty means that there is none. An empty namespace means all.

        Each item carries apiVersion and kind, which lists leave out. Raises UnreadableError where the read fails and
        where the API doesn't serve the kind: that isn't "none".
        """
        return self.list_versioned(api_version, kind, namespace=namespace, labels=labels, fields=fields, page=page)[0]

    def list_versioned(
        self, api_version: str, kind: str, *, namespace: str = "", labels: str = "", fields: str = "", page: int = 500
    ) -> tuple[Bodies, str]:
        """As `list`, with the list's resourceVersion, from which `watch` goes on."""
        path = self._path(self.resolve(api_version, kind), namespace)
        query: dict[str, str] = {"limit": str(page)}
        if labels:
            query["labelSelector"] = labels
        if fields:
            query["fieldSelector"] = fields
        self._requests.count_list(kind, namespace)
        for _ in range(_RESTARTS):
            try:
                return self._pages(path, query, api_version, kind)
            except KubernetesError as error:
                if error.status != 410:
                    raise
                # The pages' common version is gone, and what was read of it can't be finished: from the start, in one page.
                query.pop("limit", None)
        raise UnreadableError(f"{self._requests.where}: a list of {kind} expired again and again while it was read.")

    def _pages(self, path: str, query: Mapping[str, str], api_version: str, kind: str) -> tuple[Bodies, str]:
        items: Bodies = []
        asked = dict(query)
        while True:
            answer = self._requests.read(path, asked)
            if not isinstance(answer.get("items"), list):
                raise UnreadableError(f"{self._requests.where}: the answer to a list of {kind} holds no items.")
            items.extend({"apiVersion": api_version, "kind": kind, **item} for item in answer["items"])
            metadata = answer.get("metadata") or {}
            if not metadata.get("continue"):
                return items, str(metadata.get("resourceVersion") or "")
            asked["continue"] = str(metadata["continue"])

    def get(self, api_version: str, kind: str, name: str, *, namespace: str = "") -> Body | None:
        """The object; None when the API says that it doesn't exist. Raises UnreadableError where the read fails."""
        path = self._path(self.resolve(api_version, kind), namespace, name)
        try:
            return self._requests.read(path, {})
        except KubernetesError as error:
            if error.status == 404:
                return None
            raise

    def watch(
        self, api_version: str, kind: str, *, version: str = "", labels: str = "", seconds: int = 60
    ) -> Iterator[tuple[str, Body]]:
        """Events (type, object) of all namespaces until the server ends the watch after about `seconds`. Raises
        UnreadableError where the connection breaks, and KubernetesError 410 where `version` is too old: list again."""
        query = {"watch": "1", "timeoutSeconds": str(seconds)}
        if version:
            query["resourceVersion"] = version
        if labels:
            query["labelSelector"] = labels
        path = self._path(self.resolve(api_version, kind), "")
        response = self._requests.attempts("GET", path, query=query, stream=seconds + 15.0)
        try:
            for line in _lines(response):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise api_error(self.name, 410, json.dumps(event["object"]))
                yield str(event["type"]), event["object"]
        except (urllib3.exceptions.HTTPError, ValueError, OSError) as error:
            raise UnreadableError(
                f"{self._requests.where}: a watch of {kind} broke off ({type(error).__name__})."
            ) from error
        finally:
            response.close()

    def server_version(self) -> str:
        """The server's version as it writes it, such as v1.36.3."""
        found = self._requests.read("/version", {}).get("gitVersion")
        if not isinstance(found, str):
            raise UnreadableError(
                f"{self._requests.where}: what answers at the kubeconfig's server is no Kubernetes API."
            )
        return found

    def serves(self, api_version: str, kind: str) -> bool:
        """Whether the API serves the kind now; asks the cluster, so that a kind that was just added is seen."""
        return kind in self.kinds_served(api_version)

    def kinds_served(self, api_version: str) -> frozenset[str]:
        """The kinds of a group and version that the API serves now; empty where it serves none of it."""
        return frozenset(t.kind for t in self._discover(api_version) or ())

    def resolve(self, api_version: str, kind: str) -> ResourceType:
        """Where the kind stands. Raises UnreadableError where the API doesn't serve it."""
        known = KNOWN.get((api_version, kind)) or self._kinds.get((api_version, kind))
        if known is not None:
            return known
        for found in self._discover(api_version) or ():
            self._kinds[(api_version, found.kind)] = found
        if (api_version, kind) not in self._kinds:
            raise UnreadableError(f"{self._requests.where}: the API serves no {kind} in {api_version}.")
        return self._kinds[(api_version, kind)]

    # Writes

    def apply(self, body: Body, *, dry_run: bool = False, force: bool = False) -> Body:
        """Server-side apply as this client's field manager; returns the object as the server holds it.

        Idempotent. Raises ConflictError where another manager owns a field that we would change, naming it and the fields.
        """
        path, what = self._path_of(body), _named(body)
        return self._write("PATCH", path, body, content=_APPLY, dry_run=dry_run, repeat=True, what=what, force=force)

    def create(self, body: Body, *, dry_run: bool = False) -> Body:
        """Raises ConflictError where the object exists. Repeated only where the request can't have arrived."""
        path = self._path_of(body, item=False)
        return self._write("POST", path, body, dry_run=dry_run, what=_named(body))

    def replace(self, body: Body, *, status: bool = False) -> Body:
        """PUT of an object as it was read: raises ConflictError where it has changed since."""
        path = self._path_of(body) + ("/status" if status else "")
        return self._write("PUT", path, body, what=_named(body))

    def patch(
        self,
        target: tuple[str, str, str, str],
        changes: Body | Bodies,
        *,
        how: PatchType = "merge",
        status: bool = False,
        dry_run: bool = False,
    ) -> Body:
        """`target` is (apiVersion, kind, namespace, name). A merge patch is repeated after a lost reply, a JSON patch isn't."""
        api_version, kind, namespace, name = target
        path = self._path(self.resolve(api_version, kind), namespace, name) + ("/status" if status else "")
        return self._write("PATCH", path, changes, content=_PATCH_TYPES[how], dry_run=dry_run, repeat=how != "json")

    def delete(
        self, api_version: str, kind: str, name: str, *, namespace: str = "", uid: str = "", grace: int | None = None
    ) -> bool:
        """True when the API took the deletion, False when the object was already gone. `uid` makes it refuse (ConflictError)
        an object that was made anew under the same name."""
        path = self._path(self.resolve(api_version, kind), namespace, name)
        body: Body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        try:
            self._write("DELETE", path, body, repeat=True)
        except KubernetesError as error:
            if error.status == 404:
                return False
            raise
        return True

    def _write(
        self,
        method: Method,
        path: str,
        body: Any,  # noqa: ANN401 - a JSON body: an object, or the list of a JSON patch
        *,
        content: str = "application/json",
        dry_run: bool = False,
        repeat: bool = False,
        what: str = "",
        force: bool | None = None,
    ) -> Body:
        query = {} if method == "DELETE" else {"fieldManager": self.manager}
        if force is not None:
            query["force"] = "true" if force else "false"
        if dry_run:
            query["dryRun"] = "All"
        try:
            return self._requests.write(method, path, body, query=query, content=content, repeat=repeat, what=what)
        except NotReadyError as error:
            namespace = str((body.get("metadata") or {}).get("namespace") or "") if isinstance(body, dict) else ""
            raise held_up(self, namespace, error) from error

    # Paths

    def _path_of(self, body: Body, *, item: bool = True) -> str:
        metadata = body.get("metadata") or {}
        resource = self.resolve(str(body["apiVersion"]), str(body["kind"]))
        return self._path(resource, str(metadata.get("namespace") or ""), str(metadata["name"]) if item else "")

    def _path(self, resource: ResourceType, namespace: str, name: str = "") -> str:
        root = "/api/" if "/" not in resource.api_version else "/apis/"
        if name and resource.namespaced and not namespace:
            raise ConfigError(f"A {resource.kind} needs a namespace.")
        scope = f"/namespaces/{quote(namespace, safe='')}" if namespace and resource.namespaced else ""
        return f"{root}{resource.api_version}{scope}/{resource.plural}" + (f"/{quote(name, safe=':')}" if name else "")

    def _discover(self, api_version: str) -> tuple[ResourceType, ...] | None:
        """What the API serves in a group and version; None where it serves none of it."""
        root = "/api/" if "/" not in api_version else "/apis/"
        try:
            answer = self._requests.read(root + api_version, {})
        except KubernetesError as error:
            if error.status == 404:
                return None
            raise
        return tuple(
            ResourceType(api_version, str(r["kind"]), str(r["name"]), bool(r["namespaced"]))
            for r in answer.get("resources") or ()
            if "/" not in str(r["name"])
        )


def _named(body: Body) -> str:
    metadata = body.get("metadata") or {}
    return f"{body['kind']} {'/'.join(p for p in (metadata.get('namespace'), metadata.get('name')) if p)}"


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    rest = b""
    for chunk in response.stream(None, decode_content=True):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line for line in whole if line.strip())
