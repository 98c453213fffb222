"""A simulated cloud on loopback for the length of a test, and a clock that a test can read."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn


@contextmanager
def serving(app) -> Iterator[str]:
    """The app's URL, while it answers. A cloud that doesn't speak HTTP serves itself."""
    if hasattr(app, "serve"):
        with app.serve() as url:
            yield url
        return
    # asyncio turns Nagle's delay (40 ms an answer) off for sockets that name their protocol, and for no others.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="critical", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=5)
        listener.close()
