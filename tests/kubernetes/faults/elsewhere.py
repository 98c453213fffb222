"""A process that takes itself to be on another host, whose time of day is off: either a writer that takes the cluster's lease
again and again and notes each write that it would make, or the command line.

    python -m tests.kubernetes.faults.elsewhere HOST SKEW writes DURATION KUBECONFIG FOLDER JOURNAL
    python -m tests.kubernetes.faults.elsewhere HOST SKEW runs DURATION ARGUMENTS...
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from modelplane_dagster.errors import ModelplaneError
from resources import lease as leases
from resources.host import Host
from resources.kubernetes import ClusterClient


def moved(name: str, skew: float) -> Host:
    """The rest of the process believes it too."""
    right = time.time
    socket.gethostname = lambda: name  # type: ignore[assignment]  # the process's own name, for as long as it lives
    time.time = lambda: right() + skew  # type: ignore[assignment]  # as above
    return Host(name, wall=lambda: datetime.now(UTC) + timedelta(seconds=skew))


def writes(host: Host, kubeconfig: Path, folder: Path, journal: Path) -> None:
    """For ever; a line a write: when, by the machine's one clock, and whose."""
    client = ClusterClient(json.loads(kubeconfig.read_text()), name="metal", timeout=3, retries=0)
    with journal.open("a", buffering=1) as lines:
        turn = 0
        while True:
            turn += 1
            held = leases.take("metal", folder, digest=host.name, wait=60, announce=lambda _: None, host=host)
            try:
                leases.extend(held, client, wait=0.5, announce=lambda _: None)
                for _ in range(30):
                    held.check()
                    lines.write(f"{host.clock():.3f} {host.name} {os.getpid()} {turn}\n")
                    time.sleep(0.05)
            except ModelplaneError as error:
                lines.write(f"# {host.clock():.3f} {host.name} {error.message}\n")
            finally:
                held.release()
            time.sleep(0.1)


def main(name: str, skew: str, what: str, duration: str, *arguments: str) -> int:
    host = moved(name, float(skew))
    leases.DURATION, leases.HOLD = float(duration), float(duration) * 2 / 3
    if what == "writes":
        writes(host, *(Path(p) for p in arguments))
    from modelplane_dagster.cli.main import run  # after the process has moved

    leases.Host = lambda: host  # type: ignore[assignment,misc]  # what a lease takes where it is given no host
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
