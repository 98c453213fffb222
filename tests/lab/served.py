"""Lab clusters served on loopback from a thread of the test's process, controllers running."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import uvicorn

from resources.kubernetes import ClusterClient
from resources.lab.api.app import KubeApp
from resources.lab.api.certificates import loopback_certificate
from resources.lab.api.clusters import Cluster, Clusters
from resources.lab.controllers import Timing, controllers

FAST = Timing(batch=0.01, start=0.05, finish=0.05, stop=0.03, retry=0.3)


class Served:
    def __init__(self, clusters: Clusters, loop: asyncio.AbstractEventLoop) -> None:
        self.clusters = clusters
        self._loop = loop

    def add(self, name: str, version: str = "v1.36.3", **switches) -> Cluster:
        """A cluster with its controllers, made on the server's thread."""

        async def made() -> Cluster:
            cluster = self.clusters.add_cluster(name, version, **switches)
            controllers(cluster.store, timing=FAST).start()
            return cluster

        return asyncio.run_coroutine_threadsafe(made(), self._loop).result(10)

    def client(self, name: str, user: str = "product") -> ClusterClient:
        return ClusterClient(self.clusters.kubeconfig(name, user), name=name)

    def on_loop(self, what):
        async def run():
            return what()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Served]:
    # Named by protocol: asyncio turns Nagle off for such sockets alone, and with it each request takes 40 ms.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.bind(("127.0.0.1", 0))
    sock.listen(256)
    clusters = Clusters(folder)
    # TLS, because clients built on client-go send no token without it.
    certificate = loopback_certificate(folder.parent)
    clusters.address = f"https://127.0.0.1:{sock.getsockname()[1]}"
    clusters.authority = certificate.certificate.read_bytes()
    config = uvicorn.Config(
        KubeApp(clusters),
        ssl_certfile=certificate.certificate,
        ssl_keyfile=certificate.key,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    begun: list[asyncio.AbstractEventLoop] = []
    ready = threading.Event()

    async def main() -> None:
        begun.append(asyncio.get_running_loop())
        ready.set()
        await server.serve(sockets=[sock])

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    ready.wait(10)
    try:
        yield Served(clusters, begun[0])
    finally:
        for cluster in clusters:
            begun[0].call_soon_threadsafe(cluster.close_watches)
        server.should_exit = True
        thread.join(5)
        sock.close()
