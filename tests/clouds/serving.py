"""A simulated cloud on a loopback port, for as long as a test runs."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import uvicorn

from resources.lab.clouds.state import CloudState, Delays, Endpoint, Hooks, Traits

QUICK = Delays(cluster=0.05, pool=0.05, update=0.02, delete=0.02)


def make_state(source: str, folder: Path, **traits: bool) -> CloudState:
    hooks = Hooks(endpoint=lambda name: Endpoint(f"https://{name}.lab.invalid:6443", "PEM", "lab-token"))
    return CloudState(source, folder, delays=QUICK, traits=Traits(**traits), hooks=hooks)


@contextlib.contextmanager
def serve(app) -> Iterator[str]:
    """The URL of the app; the server stops with the block."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        wait_for(lambda: server.started, "the server")
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(5)


def wait_for(done, what, seconds=5.0):
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise AssertionError(f"{what} wasn't there within {seconds} s")
        time.sleep(0.01)


def until_ready(ask, seconds=5.0):
    """Asks until the answer is ready; gives every answer."""
    answers = []

    def ready():
        answers.append(ask())
        return answers[-1].state == "ready"

    wait_for(ready, "ready", seconds)
    return answers
