"""A real server on loopback in a thread, and a bare JSON client for it."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
from collections.abc import Callable
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

from resources.lab.daemon import Lab, bound_socket


class Served:
    """A lab served from a thread; `call` runs a function on its loop, where the stores live."""

    def __init__(self, home: Path) -> None:
        self.lab = Lab(home)
        self.home = home
        self._sock = bound_socket(home)
        self._sock.listen(128)
        self.port = self._sock.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 10
        while not (self.lab._server and self.lab._server.started):
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.005)

    def _run(self) -> None:
        self._loop.run_until_complete(self.lab.serve(self._sock))

    def call(self, work: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self.lab.stop)
        self._thread.join(10)

    def add(self, name: str, version: str = "v1.36.3", **switches: bool) -> Api:
        self.call(lambda: self.lab.clusters.add_cluster(name, version, **switches))
        return self.api(name)

    def api(self, name: str, user: str = "product") -> Api:
        return Api(self, name, user)

    def kubeconfig(self, name: str, user: str, path: Path) -> Path:
        path.write_text(json.dumps(self.lab.clusters.kubeconfig(name, user)))
        return path


class Answer:
    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.raw = body

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    @property
    def causes(self) -> list[tuple[str, str]]:
        """(field, reason) of each cause."""
        return [(c.get("field", ""), c["reason"]) for c in self.body["details"]["causes"]]


class Api:
    """One user's view of one cluster."""

    def __init__(self, served: Served, name: str, user: str) -> None:
        config = served.lab.clusters.kubeconfig(name, user)
        self.token = config["users"][0]["user"]["token"]
        self.base = f"/clusters/{name}"
        self._context = ssl.create_default_context(cafile=str(served.home / "tls.crt"))
        self._port = served.port
        self._connection: HTTPSConnection | None = None

    def connect(self) -> HTTPSConnection:
        return HTTPSConnection("127.0.0.1", self._port, timeout=10, context=self._context)

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        if self._connection is None:
            self._connection = self.connect()
        sent = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        self._connection.request(method, self.base + path, raw, sent)
        answer = self._connection.getresponse()
        return Answer(answer.status, answer.read())

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, **headers)

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        return self.request("POST", path, body, **headers)

    def put(self, path: str, body: Any) -> Answer:
        return self.request("PUT", path, body)

    def delete(self, path: str, body: Any = None) -> Answer:
        return self.request("DELETE", path, body)

    def patch(self, path: str, body: Any, kind: str = "merge-patch+json") -> Answer:
        return self.request("PATCH", path, body, Content_Type=f"application/{kind}")

    def apply(self, path: str, body: Any, manager: str = "tester", *, force: bool = False, extra: str = "") -> Answer:
        query = f"?fieldManager={manager}&force={'true' if force else 'false'}{extra}"
        return self.patch(path + query, body, "apply-patch+yaml")
