"""What `make demo` takes, with the shares of Helm, of Dagster and of the lab's daemon; budget 60 s, the median of five.

python -m benchmarks demo [RUNS]

Each run is the command line's own `reconcile` of the demo fleet, on a home of its own, so that it starts the lab, makes
everything and keeps what it saw. The budget is of wall time on a machine with two processors and nothing else to do; the
processor time of each part is what can be compared between machines that do something else as well.
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
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

from resources.lab.client import stop
from resources.lab.home import running
from resources.tools import HELM_VERSION

ROOT = Path(__file__).resolve().parent.parent
BUDGET = 60.0
RUNS = 3
LIMIT = 600.0
PARTS = ("wall", "reconcile", "process", "dagster", "helm", "daemon")


def reconcile() -> None:
    """In a process of its own: the command, then its parts as JSON on the last line of stderr."""
    from assets import clusters, devices, models, passes  # noqa: PLC0415 - only in the process that measures
    from modelplane_dagster.cli.main import collect_seldom, leave, run  # noqa: PLC0415 - as above

    spent = {"runs": 0.0, "steps": 0.0}

    def timed(name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            start = time.thread_time()
            try:
                return inner(*arguments, **more)
            finally:
                spent[name] += time.thread_time() - start

        return call

    collect_seldom()
    with mock.patch.object(passes, "execute", timed("runs", passes.execute)):
        for module in (clusters, devices, models):
            mock.patch.object(module, "run_step", timed("steps", module.run_step)).start()
        status = run(["reconcile", "--timeout", f"{LIMIT:.0f}s", "--format", "json"])
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    parts = {
        "process": own.ru_utime + own.ru_stime,
        "helm": children.ru_utime + children.ru_stime,
        "dagster": spent["runs"] - spent["steps"],
    }
    print(json.dumps(parts), file=sys.stderr)
    leave(status)


def measure() -> dict[str, float]:
    """Seconds of one run by part. Raises SystemExit where it doesn't converge: half a run says nothing."""
    with tempfile.TemporaryDirectory(prefix="modelplane-demo-") as folder:
        lab = Path(folder) / "lab"
        start = time.perf_counter()
        try:
            done = subprocess.run(
                [sys.executable, "-c", "from benchmarks.demo import reconcile; reconcile()"],
                cwd=ROOT,
                env={**os.environ, "MODELPLANE_HOME": folder, "MODELPLANE_TARGET": "lab"},
                capture_output=True,
                text=True,
                check=False,
            )
            wall = time.perf_counter() - start
            daemon = _processor_time(running(lab) or 0)
        finally:
            stop(lab)
        lines = done.stderr.splitlines() or [""]
        if done.returncode != 0:
            raise SystemExit("\n".join(["the demo fleet is meant to converge:", *lines[-8:]]))
        inside = json.loads(done.stdout)
        return {"wall": wall, "reconcile": float(inside["seconds"]), "daemon": daemon, **json.loads(lines[-1])}


def _processor_time(pid: int) -> float:
    """Seconds, of the user and of the system; 0 where there is no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    print(
        f"Python {platform.python_version()}, Dagster {version('dagster')}, Helm {HELM_VERSION}, {os.cpu_count()} "
        f"processors; wall and reconcile in seconds of wall time, the others of the processor"
    )
    print(f"{'load':>5}" + "".join(f"{part:>11}" for part in PARTS))
    rows = []
    for _ in range(runs):
        load = os.getloadavg()[0]
        rows.append(measure())
        print(f"{load:5.1f}" + "".join(f"{rows[-1][part]:11.1f}" for part in PARTS), flush=True)
    middle = {part: statistics.median(row[part] for row in rows) for part in PARTS}
    print("median" + "".join(f"{middle[part]:{10 if i == 0 else 11}.1f}" for i, part in enumerate(PARTS)))
    print(f"{'within' if middle['wall'] <= BUDGET else 'over'} the budget of {BUDGET:.0f} s of wall time")


if __name__ == "__main__":
    main()
