"""One cluster's API through the official client, as JSON: every call has a timeout, every failed read raises.

The official client's typed parsing costs ten times what the JSON costs on large lists, so bodies stay JSON objects here.
"""

from __future__ import annotations

import copy
import json
import logging
import random
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

import urllib3
from kubernetes import client as kube_client
from kubernetes import config as kube_config

from modelplane_dagster.errors import ConfigError, KubernetesError, UnreadableError
from resources.kubernetes_errors import api_error
from resources.kubernetes_kinds import KNOWN, ResourceType

FIELD_MANAGER = "modelplane-dagster"
Body = dict[str, Any]
Bodies = list[Body]
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
PatchType = Literal["merge", "json", "strategic"]

_PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
_APPLY = "application/apply-patch+yaml"
_PAUSES = (0.1, 0.3, 0.8)
# An observation is a dozen reads: of an API that just didn't answer, the others needn't find that out one by one.
_DOWN_SECONDS = 1.0
_RETRIED_STATUS = frozenset({429, 500, 502, 503, 504})
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Calls:
    """Requests that left this client, retries included; a dry run counts as a read, for it changes nothing."""

    reads: int = 0
    writes: int = 0
    deletes: int = 0


class ClusterClient:
    """`kubeconfig` is a kubeconfig as a mapping; its credential plugins keep working. `timeout` is in seconds and holds
    for each attempt. Safe to share between threads."""

    def __init__(
        self,
        kubeconfig: Mapping[str, Any],
        *,
        name: str = "",
        timeout: float = 20.0,
        manager: str = FIELD_MANAGER,
        retries: int = 3,
    ) -> None:
        self.name = name
        self.manager = manager
        self._timeout = timeout
        self._pauses = _PAUSES[:retries]
        self._api = _api_client(kubeconfig, name)
        self._kinds: dict[tuple[str, str], ResourceType] = {}
        self._counts = [0, 0, 0]
        self._lock = threading.Lock()
        self._down: tuple[float, UnreadableError] | None = None

    @property
    def calls(self) -> Calls:
        with self._lock:
            return Calls(*self._counts)

    def close(self) -> None:
        self._api.close()

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
        items: Bodies = []
        while True:
            answer = self._read(path, query)
            if not isinstance(answer.get("items"), list):
                raise UnreadableError(f"{self._where()}: the answer to a list of {kind} holds no items.")
            items.extend({"apiVersion": api_version, "kind": kind, **item} for item in answer["items"])
            metadata = answer.get("metadata") or {}
            if not metadata.get("continue"):
                return items, str(metadata.get("resourceVersion") or "")
            query = {**query, "continue": str(metadata["continue"])}

    def get(self, api_version: str, kind: str, name: str, *, namespace: str = "") -> Body | None:
        """The object; None when the API says that it doesn't exist. Raises UnreadableError where the read fails."""
        path = self._path(self.resolve(api_version, kind), namespace, name)
        try:
            return self._read(path, {})
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
        response = self._attempts("GET", path, query=query, timeout=(self._timeout, seconds + 15.0))
        try:
            for line in _lines(response):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise api_error(self._where(), 410, json.dumps(event["object"]))
                yield str(event["type"]), event["object"]
        except (urllib3.exceptions.HTTPError, ValueError, OSError) as error:
            raise UnreadableError(f"{self._where()}: a watch of {kind} broke off ({type(error).__name__}).") from error
        finally:
            response.close()

    def server_version(self) -> str:
        """The server's version as it writes it, such as v1.36.3."""
        return str(self._read("/version", {})["gitVersion"])

    def serves(self, api_version: str, kind: str) -> bool:
        """Whether the API serves the kind now; asks the cluster, so that a kind that was just added is seen."""
        return any(t.kind == kind for t in self._discover(api_version) or ())

    def resolve(self, api_version: str, kind: str) -> ResourceType:
        """Where the kind stands. Raises UnreadableError where the API doesn't serve it."""
        known = KNOWN.get((api_version, kind)) or self._kinds.get((api_version, kind))
        if known is not None:
            return known
        for found in self._discover(api_version) or ():
            self._kinds[(api_version, found.kind)] = found
        if (api_version, kind) not in self._kinds:
            raise UnreadableError(f"{self._where()}: the API serves no {kind} in {api_version}.")
        return self._kinds[(api_version, kind)]

    # Writes

    def apply(self, body: Body, *, dry_run: bool = False, force: bool = False) -> Body:
        """Server-side apply as this client's field manager; returns the object as the server holds it.

        Idempotent. Raises ConflictError where another manager owns a field that we would change, naming it and the fields.
        """
        query = {"fieldManager": self.manager, "force": "true" if force else "false"}
        path = self._path_of(body)
        return self._write("PATCH", path, body, query=query, content=_APPLY, dry_run=dry_run, repeat=True)

    def create(self, body: Body, *, dry_run: bool = False) -> Body:
        """Raises ConflictError where the object exists. Repeated only where the request can't have arrived."""
        path = self._path_of(body, item=False)
        return self._write("POST", path, body, query={"fieldManager": self.manager}, dry_run=dry_run)

    def replace(self, body: Body, *, status: bool = False) -> Body:
        """PUT of an object as it was read: raises ConflictError where it has changed since."""
        path = self._path_of(body) + ("/status" if status else "")
        return self._write("PUT", path, body, query={"fieldManager": self.manager})

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
        query = {"fieldManager": self.manager}
        return self._write(
            "PATCH", path, changes, query=query, content=_PATCH_TYPES[how], dry_run=dry_run, repeat=how != "json"
        )

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
            self._write("DELETE", path, body, query={}, repeat=True)
        except KubernetesError as error:
            if error.status == 404:
                return False
            raise
        return True

    # Requests

    def _read(self, path: str, query: Mapping[str, str]) -> Body:
        response = self._attempts("GET", path, query=query)
        try:
            answer = json.loads(response.data)
        except (ValueError, urllib3.exceptions.HTTPError, OSError) as error:
            raise UnreadableError(f"{self._where()}: the answer to {path} isn't readable.") from error
        if not isinstance(answer, dict):
            raise UnreadableError(f"{self._where()}: the answer to {path} isn't an object.")
        return answer

    def _write(
        self,
        method: Method,
        path: str,
        body: Any,  # noqa: ANN401 - a JSON body: an object, or the list of a JSON patch
        *,
        query: Mapping[str, str],
        content: str = "application/json",
        dry_run: bool = False,
        repeat: bool = False,
    ) -> Body:
        sent = {**query, "dryRun": "All"} if dry_run else query
        response = self._attempts(method, path, query=sent, body=body, content=content, repeat=repeat)
        try:
            return json.loads(response.data)
        except (ValueError, urllib3.exceptions.HTTPError, OSError) as error:
            raise KubernetesError(f"{self._where()}: {method} {path} was taken, its answer isn't readable.") from error

    def _attempts(
        self,
        method: Method,
        path: str,
        *,
        query: Mapping[str, str],
        body: Any = None,  # noqa: ANN401 - as in _write
        content: str = "application/json",
        repeat: bool = True,
        timeout: tuple[float, float] | None = None,
    ) -> urllib3.BaseHTTPResponse:
        """A response of status 2xx. GETs and writes marked `repeat` are tried again after a lost connection and a 5xx;
        everything is tried again after a refused connection and a 429, which can't have acted. A GET right after one that
        got no answer fails as that did."""
        if method == "GET" and self._down is not None and time.monotonic() - self._down[0] < _DOWN_SECONDS:
            raise UnreadableError(self._down[1].message)
        for pause in (*self._pauses, None):
            wait = pause
            try:
                response = self._once(method, path, query=query, body=body, content=content, timeout=timeout)
            except (urllib3.exceptions.HTTPError, OSError) as error:
                arrived = not isinstance(error, urllib3.exceptions.NewConnectionError)
                if wait is None or (arrived and not repeat):
                    raise self._unreachable(method, error) from error
            else:
                if 200 <= response.status < 300:
                    return response
                text = response.data.decode("utf-8", "replace")
                temporary = response.status in _RETRIED_STATUS and (repeat or response.status == 429)
                if wait is None or not temporary:
                    raise api_error(self._where(), response.status, text, what=_object_of(path))
                wait = max(wait, min(float(_number(response.headers.get("Retry-After"))), 5.0))
            _log.debug("%s: %s %s again in %.1f s", self.name, method, path, wait)
            time.sleep(wait * random.uniform(0.8, 1.2))
        raise AssertionError("the last attempt returns or raises")

    def _once(
        self,
        method: Method,
        path: str,
        *,
        query: Mapping[str, str],
        body: Any,  # noqa: ANN401 - as in _write
        content: str,
        timeout: tuple[float, float] | None,
    ) -> urllib3.BaseHTTPResponse:
        """One request through the official client's connection pool and credentials. A status is returned, not raised."""
        self._count(method, dry_run="dryRun" in query)
        headers = {**self._api.default_headers, "Accept": "application/json", "Content-Type": content}
        self._api.update_params_for_auth(headers, [], ["BearerToken"])
        try:
            return self._api.rest_client.request(
                method,
                self._api.configuration.host + path,
                query_params=list(query.items()),
                headers=headers,
                body=body,
                _preload_content=False,
                _request_timeout=timeout or (min(self._timeout, 5.0), self._timeout),
            )
        except kube_client.ApiException as error:
            if not error.status:
                raise OSError(str(error.reason)) from error
            return urllib3.HTTPResponse(
                body=error.body if isinstance(error.body, bytes) else str(error.body or "").encode(),
                headers=dict(error.headers or {}),
                status=error.status,
            )

    def _count(self, method: Method, *, dry_run: bool) -> None:
        slot = 0 if method == "GET" or dry_run else 2 if method == "DELETE" else 1
        with self._lock:
            self._counts[slot] += 1

    def _unreachable(self, method: Method, error: BaseException) -> UnreadableError | KubernetesError:
        sentence = f"{self._where()}: the API doesn't answer ({type(error).__name__})."
        if method != "GET":
            return KubernetesError(sentence, reason="Unreachable")
        failed = UnreadableError(sentence)
        self._down = (time.monotonic(), failed)
        return failed

    def _where(self) -> str:
        return f"Cluster {self.name}" if self.name else "The cluster"

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
            answer = self._read(root + api_version, {})
        except KubernetesError as error:
            if error.status == 404:
                return None
            raise
        return tuple(
            ResourceType(api_version, str(r["kind"]), str(r["name"]), bool(r["namespaced"]))
            for r in answer.get("resources") or ()
            if "/" not in str(r["name"])
        )


def _api_client(kubeconfig: Mapping[str, Any], name: str) -> kube_client.ApiClient:
    """Raises ConfigError for a kubeconfig that doesn't load; its text never reaches the message."""
    settings = kube_client.Configuration()
    try:
        kube_config.load_kube_config_from_dict(
            copy.deepcopy(dict(kubeconfig)), client_configuration=settings, persist_config=False
        )
    except kube_config.ConfigException as error:
        raise ConfigError(f"The kubeconfig of {name or 'the cluster'} can't be used.") from error
    settings.retries = False
    settings.connection_pool_maxsize = 16
    return kube_client.ApiClient(configuration=settings)


def _object_of(path: str) -> str:
    """`plural name` or `plural namespace/name`, as the path says."""
    *_, plural, name = ("", "", *path.strip("/").split("/"))
    scope = path.partition("/namespaces/")[2].split("/")
    return f"{plural} {scope[0]}/{name}" if len(scope) == 3 else f"{plural} {name}"


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    rest = b""
    for chunk in response.stream(None, decode_content=True):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line for line in whole if line.strip())


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0
