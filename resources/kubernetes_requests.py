"""Requests to one cluster's API: attempts with a timeout each, repeated where that is safe, and counted.

What is repeated: reads and dry runs always; writes that say the same thing twice (apply, merge patches, deletes) after a
lost reply and a 5xx; creates, replacements and JSON patches only where they can't have acted: a refused connection, a 429,
and a 401 that fresh credentials may turn.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import urllib3

from modelplane_dagster.errors import KubernetesError, UnreadableError
from resources.kube_connection import Connection
from resources.kubernetes_errors import api_error

Body = dict[str, Any]
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Reload = Callable[[], Mapping[str, Any]]
PAUSES = (0.1, 0.3, 0.8)
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


class Requests:
    """`reload` gives the kubeconfig anew, for one that is replaced while the run goes on; None where it never changes."""

    def __init__(
        self,
        kubeconfig: Mapping[str, Any],
        *,
        name: str,
        timeout: float,
        retries: int,
        reload: Reload | None = None,
    ) -> None:
        self.name = name
        self.timeout = timeout
        self._pauses = PAUSES[:retries]
        self._reload = reload
        self._kubeconfig = kubeconfig
        self._connection = Connection(kubeconfig, name)
        self._counts = [0, 0, 0]
        self._lists: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()
        self._down: tuple[float, UnreadableError] | None = None
        self.guard: Callable[[], None] = lambda: None

    @property
    def calls(self) -> Calls:
        with self._lock:
            return Calls(*self._counts)

    @property
    def lists(self) -> Mapping[tuple[str, str], int]:
        """How often each kind was listed, by (kind, namespace); an empty namespace is the whole cluster. Pages of one
        list count once."""
        with self._lock:
            return dict(self._lists)

    def count_list(self, kind: str, namespace: str) -> None:
        with self._lock:
            self._lists[kind, namespace] = self._lists.get((kind, namespace), 0) + 1

    def close(self) -> None:
        self._connection.close()

    @property
    def where(self) -> str:
        return f"Cluster {self.name}" if self.name else "The cluster"

    def read(self, path: str, query: Mapping[str, str]) -> Body:
        """A JSON object. Raises UnreadableError for anything else."""
        response = self.attempts("GET", path, query=query)
        try:
            answer = json.loads(response.data)
        except ValueError as error:
            raise UnreadableError(f"{self.where}: the answer to {path} isn't readable.") from error
        if not isinstance(answer, dict):
            raise UnreadableError(f"{self.where}: the answer to {path} isn't an object.")
        return answer

    def write(
        self,
        method: Method,
        path: str,
        body: Any,  # noqa: ANN401 - a JSON body: an object, or the list of a JSON patch
        *,
        query: Mapping[str, str],
        content: str = "application/json",
        repeat: bool = False,
        what: str = "",
    ) -> Body:
        """The object as the API gives it back."""
        response = self.attempts(method, path, query=query, body=body, content=content, repeat=repeat, what=what)
        try:
            return json.loads(response.data)
        except ValueError as error:
            text = f"{self.where}: {method} {path} was taken, its answer isn't readable."
            raise KubernetesError(text, write=True) from error

    def attempts(
        self,
        method: Method,
        path: str,
        *,
        query: Mapping[str, str],
        body: Any = None,  # noqa: ANN401 - as in write
        content: str = "application/json",
        repeat: bool = True,
        what: str = "",
        stream: float | None = None,
    ) -> urllib3.BaseHTTPResponse:
        """A response of status 2xx, its body read; with `stream`, the seconds that it may be silent, unread. A GET right
        after one that got no answer fails as that did."""
        if method == "GET" and self._down is not None and time.monotonic() - self._down[0] < _DOWN_SECONDS:
            raise UnreadableError(self._down[1].message)
        safe = repeat or "dryRun" in query
        renewed = False
        pauses = [*self._pauses, None]
        while True:
            try:
                response = self._once(method, path, query=query, body=body, content=content, stream=stream)
            except (urllib3.exceptions.HTTPError, OSError) as error:
                wait = pauses.pop(0)
                arrived = not isinstance(error, urllib3.exceptions.NewConnectionError)
                if wait is None or (arrived and not safe):
                    raise self._unreachable(method, error) from error
            else:
                if 200 <= response.status < 300:
                    return response
                if response.status == 401 and not renewed and self._renew():
                    renewed = True
                    continue
                wait = pauses.pop(0)
                temporary = response.status in _RETRIED_STATUS and (safe or response.status == 429)
                if wait is None or not temporary:
                    text = response.data.decode("utf-8", "replace")
                    raise api_error(self.name, response.status, text, what=what, write=method != "GET")
                wait = max(wait, min(float(_number(response.headers.get("Retry-After"))), 5.0))
            _log.debug("%s: %s %s again in %.1f s", self.name, method, path, wait)
            time.sleep(wait * random.uniform(0.8, 1.2))

    def _once(
        self,
        method: Method,
        path: str,
        *,
        query: Mapping[str, str],
        body: Any,  # noqa: ANN401 - as in write
        content: str,
        stream: float | None,
    ) -> urllib3.BaseHTTPResponse:
        """One request; the body is read here, so that a reply that breaks off in the middle counts as lost."""
        if method != "GET" and "dryRun" not in query:
            self.guard()
        timeout = (min(self.timeout, 5.0), self.timeout) if stream is None else (self.timeout, stream)
        dry_run = "dryRun" in query
        try:
            response = self._connection.request(method, path, query=query, body=body, content=content, timeout=timeout)
        except (urllib3.exceptions.HTTPError, OSError):
            # It may have arrived. What our own credentials or the server's certificate stopped hasn't.
            self._count(method, dry_run=dry_run)
            raise
        self._count(method, dry_run=dry_run)
        if stream is None or response.status >= 300:
            _ = response.data
        return response

    def _renew(self) -> bool:
        """After a 401: fresh credentials from where they come, or the whole kubeconfig anew where it was replaced."""
        again = self._connection.renew()
        if self._reload is None:
            return again
        found = self._reload()
        if found == self._kubeconfig:
            return again
        with self._lock:
            self._connection, self._kubeconfig = Connection(found, self.name), found
        return True

    def _count(self, method: Method, *, dry_run: bool) -> None:
        slot = 0 if method == "GET" or dry_run else 2 if method == "DELETE" else 1
        with self._lock:
            self._counts[slot] += 1

    def _unreachable(self, method: Method, error: BaseException) -> UnreadableError | KubernetesError:
        sentence = f"{self.where}: the API doesn't answer ({type(error).__name__})."
        if method != "GET":
            return KubernetesError(sentence, reason="Unreachable", write=True)
        failed = UnreadableError(sentence)
        self._down = (time.monotonic(), failed)
        return failed


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0
