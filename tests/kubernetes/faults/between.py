"""A door before an API server that breaks connections at chosen requests: before the server got the request, or after it
acted and before its answer came through."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import urlsplit

_HOP = frozenset(
    {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "content-length"}
)
Cut = Literal["", "before", "after"]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came in; `alive` tells whether who sent it still waits for its answer."""

    method: str
    path: str
    body: bytes
    agent: str
    alive: Callable[[], bool] = lambda: True

    @property
    def helm(self) -> bool:
        return self.agent.lower().startswith("helm")


class Door:
    """`rule` says of each request whether its connection breaks, and where; several threads ask it at once."""

    def __init__(self, kubeconfig: Mapping[str, Any]) -> None:
        cluster = kubeconfig["clusters"][0]["cluster"]
        at = urlsplit(cluster["server"])
        self._host, self._port = at.hostname or "", at.port or 443
        self._context = ssl.create_default_context(
            cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
        )
        self._kubeconfig = kubeconfig
        self.token = kubeconfig["users"][0]["user"]["token"]
        self.rule: Callable[[Asked], Cut] = lambda _: ""
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True

    def kubeconfig(self) -> dict[str, Any]:
        """The same user's, through the door."""
        found = dict(self._kubeconfig)
        found["clusters"] = [
            {**c, "cluster": {"server": f"http://127.0.0.1:{self.server.server_address[1]}"}} for c in found["clusters"]
        ]
        return found

    def connect(self) -> HTTPSConnection:
        return HTTPSConnection(self._host, self._port, context=self._context)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        door = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def alive(self) -> bool:
                """Nothing more is to be read, and the connection isn't closed: reading would wait."""
                try:
                    return bool(self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
                except BlockingIOError:
                    return True
                except OSError:
                    return False

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                asked = Asked(self.command, self.path, body, self.headers.get("User-Agent") or "", self.alive)
                cut = door.rule(asked)
                self.close_connection = True
                if cut == "before":
                    return
                with suppress(HTTPException, OSError):
                    connection = door.connect()
                    try:
                        kept = {k: v for k, v in self.headers.items() if k.lower() not in _HOP}
                        # helm sends no token where its way isn't encrypted.
                        kept["Authorization"] = f"Bearer {door.token}"
                        connection.request(self.command, self.path, body, kept)
                        answer = connection.getresponse()
                        if cut == "after":
                            answer.read()
                            return
                        self.pass_on(answer)
                    finally:
                        connection.close()

            def pass_on(self, answer: HTTPResponse) -> None:
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in _HOP:
                        self.send_header(name, value)
                if answer.length is not None:
                    self.send_header("Content-Length", str(answer.length))
                    self.close_connection = False
                self.send_header("Connection", "close" if self.close_connection else "keep-alive")
                self.end_headers()
                while chunk := answer.read1(65536):
                    self.wfile.write(chunk)
                    self.wfile.flush()

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

        return Handler


@contextmanager
def door(kubeconfig: Mapping[str, Any]) -> Iterator[Door]:
    made = Door(kubeconfig)
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()
        thread.join()
