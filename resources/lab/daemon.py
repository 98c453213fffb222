"""The lab's one process: the clusters' APIs, what else is mounted beside them, and the control endpoints.

`Lab` is the assembly. Whoever adds controllers, clouds or agents adds a `Part` to `parts()`; nothing else here changes.
Files under the home: `lab.pid` (locked while the daemon lives), `lab.port`, `lab.token` (mode 600), `lab.log`,
`tls.crt`, `tls.key` (mode 600), `clusters/`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import uvicorn

from modelplane_dagster.errors import ConfigError
from resources.lab.api.app import KubeApp, Receive, Scope, Send
from resources.lab.api.certificates import loopback_certificate
from resources.lab.api.clusters import Clusters, ClusterSet
from resources.lab.control import Control
from resources.lab.home import PORT_FILE, RUNS_ALREADY, UNUSABLE, locked_pidfile, read_token
from resources.settings import LabKind, from_environment

AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
_LAST_ANSWERS = 0.2  # seconds for requests that are being answered when the daemon stops
_ALIVE_EVERY = 2.0  # seconds between looks at the home


class Part(Protocol):
    """Something that lives in the daemon: controllers, the clouds' simulators, agents."""

    async def start(self, lab: Lab) -> None:
        """Called on the running loop before the first request. May mount applications and start tasks."""

    async def stop(self) -> None:
        """Called once when the daemon goes; ends the tasks that `start` began."""


class Lab:
    """The running lab. `mount("/clouds/", app)` serves every path that begins so, the longest prefix first."""

    def __init__(self, home: Path, parts: Sequence[Part] = (), *, kind: LabKind = "embedded") -> None:
        self.home = home
        self.kind = kind
        self.clusters, api = _apis(kind, home)
        self.control = Control(self, read_token(home))
        self._certificate = loopback_certificate(home)
        self._parts = list(parts)
        # What parts add to the status, and what takes the faults of more than one API.
        self.shows: dict[str, Callable[[], Any]] = {}
        self.cluster_faults: Callable[[str], list[str]] = lambda _name: []
        self.set_fault: Callable[[str, str, bool], bool] = lambda _subject, _kind, _on: False
        self._mounts: dict[str, AsgiApp] = {}
        self.mount("/clusters/", api)
        self.mount("/lab/", self.control)
        self._server: uvicorn.Server | None = None

    def mount(self, prefix: str, app: AsgiApp) -> None:
        self._mounts[prefix] = app
        self._mounts = dict(sorted(self._mounts.items(), key=lambda kv: -len(kv[0])))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        for prefix, app in self._mounts.items():
            if scope["path"].startswith(prefix):
                await app(scope, receive, send)
                return
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def serve(self, sock: socket.socket) -> None:
        """Serves on a bound socket until `stop`."""
        certificate = self._certificate
        self.clusters.address = f"https://127.0.0.1:{sock.getsockname()[1]}"
        self.clusters.authority = certificate.certificate.read_bytes()
        config = uvicorn.Config(
            self,
            ssl_certfile=certificate.certificate,
            ssl_keyfile=certificate.key,
            log_level="warning",
            access_log=False,
            # Nothing stands before the lab, and reading the headers of what would costs a twentieth of its time.
            proxy_headers=False,
            lifespan="off",
            http="httptools",
            timeout_graceful_shutdown=1,
            # A client that keeps its connection for a minute would otherwise meet a closed socket.
            timeout_keep_alive=120,
        )
        self._server = uvicorn.Server(config)
        for part in self._parts:
            await part.start(self)
        alive = asyncio.ensure_future(self._watch_home())
        try:
            await self._server.serve(sockets=[sock])
        finally:
            alive.cancel()
            for part in reversed(self._parts):
                await part.stop()
            self.clusters.close()

    async def _watch_home(self) -> None:
        """Stops the daemon when its home is taken away, so that a removed folder leaves no process behind."""
        while self.home.is_dir():
            await asyncio.sleep(_ALIVE_EVERY)
        self.stop()

    def stop(self) -> None:
        for cluster in self.clusters:
            cluster.close_watches()
        if self._server is not None:
            self._server.should_exit = True
            asyncio.get_running_loop().call_later(_LAST_ANSWERS, self._cut_off)

    def _cut_off(self) -> None:
        """Idle clients keep their connections open, and over TLS uvicorn would wait for each to say goodbye."""
        for connection in tuple(self._server.server_state.connections if self._server else ()):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()


def _apis(kind: LabKind, home: Path) -> tuple[ClusterSet[Any], AsgiApp]:
    """The clusters of the lab's kind and what serves them. Each kind's state has a folder of its own."""
    if kind == "embedded":
        embedded = Clusters(home / "clusters")
        return embedded, KubeApp(embedded)
    from resources.lab.plane.clusters import PlaneClusters  # noqa: PLC0415 - its proxy is imported where it is used alone
    from resources.lab.plane.front import PlaneFront  # noqa: PLC0415 - as above

    planes = PlaneClusters(home / "planes")
    return planes, PlaneFront(planes)


def parts() -> list[Part]:
    """What the daemon runs beside the APIs."""
    from resources.lab.clouds.part import CloudsPart  # noqa: PLC0415 - the clouds' SDKs are imported in the daemon alone
    from resources.lab.play import PlayPart  # noqa: PLC0415 - as above

    clouds = CloudsPart()
    return [clouds, PlayPart(clouds)]


def bound_socket(home: Path) -> socket.socket:
    """On the port of the last time where it is free, so that kubeconfigs handed out stay good; else on any."""
    last = home / PORT_FILE
    wanted = [int(last.read_text())] if last.exists() and last.read_text().isdigit() else []
    for port in (*wanted, 0):
        # asyncio turns Nagle's delay (40 ms an answer) off for sockets that name their protocol, and for no others.
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            sock.close()
            continue
        fresh = home / f"{PORT_FILE}.new"
        fresh.write_text(str(sock.getsockname()[1]))
        fresh.replace(home / PORT_FILE)
        return sock
    raise OSError("no free port on loopback")


def start(home: Path) -> int:
    """Runs the daemon in this process until it is stopped; at once RUNS_ALREADY where one does, and UNUSABLE, with the reason
    on stderr, where a setting or the seed can't be used."""
    home.mkdir(parents=True, exist_ok=True)
    lock = locked_pidfile(home)
    if lock is None:
        return RUNS_ALREADY
    lab = Lab(home, parts(), kind=from_environment().lab_kind)
    sock = bound_socket(home)
    sock.listen(1024)
    os.truncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    _loop_policy()
    try:
        asyncio.run(lab.serve(sock))
    except ConfigError as error:
        sys.stderr.write(f"{error.message}\n".replace("\n", " ").strip() + "\n")
        return UNUSABLE
    finally:
        os.close(lock)
    return 0


def _loop_policy() -> None:
    try:
        import uvloop  # noqa: PLC0415 - only the daemon needs it, and it isn't there on every platform
    except ImportError:
        return
    uvloop.install()


if __name__ == "__main__":
    sys.exit(start(Path(sys.argv[1])))
