"""States of simulated clouds with short delays, and waiting for what they do."""

from __future__ import annotations

import time
from pathlib import Path

from resources.lab.clouds.state import CloudState, Delays, Endpoint, Hooks, Traits

QUICK = Delays(cluster=0.05, pool=0.05, update=0.02, delete=0.02)


def make_state(source: str, folder: Path, **traits: bool) -> CloudState:
    hooks = Hooks(endpoint=lambda name: Endpoint(f"https://{name}.lab.invalid:6443", "PEM", "lab-token"))
    return CloudState(source, folder, delays=QUICK, traits=Traits(**traits), hooks=hooks)


def wait_for(done, what, seconds=30.0):
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise AssertionError(f"{what} wasn't there within {seconds} s")
        time.sleep(0.01)


def until_ready(ask, seconds=30.0):
    """Asks until the answer is ready; gives every answer."""
    answers = []

    def ready():
        answers.append(ask())
        return answers[-1].state == "ready"

    wait_for(ready, "ready", seconds)
    return answers
