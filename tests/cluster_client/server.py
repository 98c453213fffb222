"""A scripted HTTP server: answers in the order given and records what it was asked."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DROP = 0
CUT = -1


@dataclass
class Script:
    """`answers` are (status, body, headers); status DROP closes the connection without a word, CUT in the middle of the
    body. `headers` are those that were sent, `certificates` the common names of the clients, over TLS alone."""

    answers: list[tuple[int, Any, dict[str, str]]]
    asked: list[tuple[str, str, str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    certificates: list[str] = field(default_factory=list)
    url: str = ""

    def kubeconfig(self, user: dict[str, Any] | None = None, **cluster: Any) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": self.url, **cluster}}],
            "users": [{"name": "u", "user": {"token": "t"} if user is None else user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }


@contextmanager
def scripted(
    *answers: tuple[int, Any] | tuple[int, Any, dict[str, str]], tls: ssl.SSLContext | None = None
) -> Iterator[Script]:
    script = Script([(a[0], a[1], a[2] if len(a) > 2 else {}) for a in answers])

    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            script.asked.append((self.command, self.path, self.headers.get("Content-Type") or "", body))
            script.headers.append(dict(self.headers.items()))
            if tls is not None:
                subject = (self.connection.getpeercert() or {}).get("subject", ())
                script.certificates.append(dict(pair for part in subject for pair in part).get("commonName", ""))
            status, reply, headers = script.answers.pop(0)
            if status == DROP:
                self.close_connection = True
                return
            raw = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
            if status == CUT:
                self.send_response(200)
                self.send_header("Content-Length", str(len(raw) + 10))
                self.end_headers()
                self.wfile.write(raw)
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in {"Content-Length": str(len(raw)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    script.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
