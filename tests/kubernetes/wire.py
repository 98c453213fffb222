"""A bare JSON client for any API server that a kubeconfig reaches, so that one suite runs against several."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Mapping
from http.client import HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

Body = dict[str, Any]


class Answer:
    def __init__(self, status: int, raw: bytes, headers: Mapping[str, str]) -> None:
        self.status, self.raw, self.headers = status, raw, headers

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    def ok(self) -> Any:
        """The body of a success; the test fails with the server's words otherwise."""
        assert 200 <= self.status < 300, f"{self.status}: {self.raw[:2000].decode(errors='replace')}"
        return self.body

    @property
    def causes(self) -> list[tuple[str, str]]:
        """(field, reason) of each cause."""
        return [(c.get("field", ""), c["reason"]) for c in self.body["details"].get("causes") or ()]

    @property
    def told(self) -> tuple[int, str]:
        """Status and reason."""
        return self.status, self.body.get("reason", "")


class Wire:
    """One user's connection; not for several threads at once."""

    def __init__(self, kubeconfig: Mapping[str, Any]) -> None:
        cluster, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
        at = urlsplit(cluster["server"])
        self._host, self._port, self.base = at.hostname or "", at.port or 443, at.path.rstrip("/")
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._context = ssl.create_default_context(cadata=authority)
        self._token = user["token"]
        self._connection: HTTPSConnection | None = None

    def connect(self, seconds: float = 30.0) -> HTTPSConnection:
        return HTTPSConnection(self._host, self._port, timeout=seconds, context=self._context)

    def headers(self, kind: str = "application/json", **more: str) -> dict[str, str]:
        named = {name.replace("_", "-"): value for name, value in more.items()}
        return {"Authorization": f"Bearer {self._token}", "Content-Type": kind} | named

    def send(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json", **headers: str
    ) -> Answer:
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        for attempt in (1, 2):
            if self._connection is None:
                self._connection = self.connect()
            try:
                self._connection.request(method, self.base + path, raw, self.headers(kind, **headers))
                answer = self._connection.getresponse()
                return Answer(answer.status, answer.read(), dict(answer.headers.items()))
            except (HTTPException, OSError):
                # A server may close a connection that was idle.
                self.close()
                if attempt == 2:
                    raise
        raise AssertionError("not reached")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, path: str, **query: str) -> Answer:
        return self.send("GET", _with(path, query))

    def post(self, path: str, body: Any, **query: str) -> Answer:
        return self.send("POST", _with(path, query), body)

    def put(self, path: str, body: Any, **query: str) -> Answer:
        return self.send("PUT", _with(path, query), body)

    def delete(self, path: str, body: Any = None, **query: str) -> Answer:
        return self.send("DELETE", _with(path, query), body)

    def patch(self, path: str, body: Any, kind: str = "merge-patch+json", **query: str) -> Answer:
        return self.send("PATCH", _with(path, query), body, kind=f"application/{kind}")

    def apply(self, path: str, body: Any, manager: str = "tester", *, force: bool = False, **query: str) -> Answer:
        wanted = {"fieldManager": manager, "force": "true" if force else "false", **query}
        return self.patch(path, body, "apply-patch+yaml", **wanted)


def _with(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path
