"""What a reconcile takes that has nothing to do: twenty lab clusters, budget 10 s, and no write reaches any API.

python -m benchmarks converged [CLUSTERS [RUNS]]

The fleet is made first, which takes minutes. Each run is the command line's own `reconcile` over what then stands.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.fleets import manifests
from resources.lab.client import LabClient, stop

ROOT = Path(__file__).resolve().parent.parent
CLUSTERS, RUNS = 20, 3
BUDGET = 10.0
LIMIT = 3600.0


def reconcile(home: Path, fleet: Path) -> dict[str, Any]:
    """What the command says. Raises SystemExit where it doesn't converge."""
    command = [sys.executable, "-m", "modelplane_dagster", "reconcile", str(fleet), "--timeout", f"{LIMIT:.0f}s"]
    done = subprocess.run(
        [*command, "--format", "json"],
        cwd=ROOT,
        env={**os.environ, "MODELPLANE_HOME": str(home), "MODELPLANE_TARGET": "lab"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit("\n".join(["the fleet is meant to converge:", *done.stderr.splitlines()[-12:]]))
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def changes(lab: Path) -> int:
    """Writes and deletes that reached any API of the lab; its own controllers' and agents' aren't counted there."""
    status = LabClient(lab).status()
    every = [*status["clusters"], *status["clouds"].values()]
    return sum(int(api["writes"]) + int(api["deletes"]) for api in every)


def main() -> None:
    clusters = int(sys.argv[1]) if len(sys.argv) > 1 else CLUSTERS
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else RUNS
    print(f"Python {platform.python_version()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="modelplane-converged-") as folder:
        home, fleet = Path(folder) / "home", Path(folder) / "fleet"
        fleet.mkdir()
        for name, content in manifests(clusters, 0):
            (fleet / name).write_bytes(content)
        try:
            made = reconcile(home, fleet)
            print(f"{clusters} clusters made in {made['seconds']:.0f} s, {made['passes']} passes", flush=True)
            measure(home, fleet, runs)
        finally:
            stop(home / "lab")


def measure(home: Path, fleet: Path, runs: int) -> None:
    before, walls = changes(home / "lab"), []
    for _ in range(runs):
        load, cpu, start = os.getloadavg()[0], _children(), time.perf_counter()
        said = reconcile(home, fleet)
        walls.append(time.perf_counter() - start)
        print(
            f"load {load:.1f}: {walls[-1]:.1f} s of wall time, {said['seconds']:.1f} s of them reconciling in {said['passes']} "
            f"passes; {_children() - cpu:.1f} s of the processor",
            flush=True,
        )
    middle, writes = statistics.median(walls), changes(home / "lab") - before
    verdict = "within" if middle <= BUDGET and not writes else "over"
    print(f"median {middle:.1f} s, {writes} writes: {verdict} the budget of {BUDGET:.0f} s and none")


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
