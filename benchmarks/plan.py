"""Times the plan of a fleet, from the bytes of its files to the JSON: 1,000 clusters, 3,000 pools and 100 deployments,
budget 3 s and 500 MB, growing linearly. Run: python benchmarks/plan.py.

Each size runs in a process of its own, so that the peak of memory is its own. Processor time is what is compared: the
machine may be shared.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.fleets import Unlike, manifests

SIZES = (500, 1000, 2000)
DEPLOYMENTS = 100
BUDGET_SECONDS, BUDGET_MB = 3.0, 500


def measure(clusters: int, *, unlike: Unlike) -> dict[str, float]:
    """Seconds of the processor by part, the peak of memory in MB, and the size of the JSON in MB."""
    import orjson  # noqa: PLC0415 - only in the process that measures

    from modelplane_dagster.cli.main import collect_seldom  # noqa: PLC0415 - as above
    from modelplane_dagster.manifests.fleet import build_fleet  # noqa: PLC0415 - as above
    from modelplane_dagster.plan import plan_fleet  # noqa: PLC0415 - as above
    from modelplane_dagster.plan_json import plan_document  # noqa: PLC0415 - as above

    # As the command line does.
    collect_seldom()
    files = manifests(clusters, DEPLOYMENTS, unlike=unlike)
    wall, start = time.perf_counter(), time.process_time()
    fleet = build_fleet(files)
    read = time.process_time()
    plan = plan_fleet(fleet)
    planned = time.process_time()
    written = orjson.dumps(plan_document(plan))
    end = time.process_time()
    verdicts = {c.gate.verdict for c in plan.clusters} | {p.verdict for p in plan.placements}
    if verdicts != {"pass", "placed"}:
        msg = f"the fleet is meant to be whole: {sorted(verdicts)}"
        raise SystemExit(msg)
    return {
        "read": read - start,
        "plan": planned - read,
        "write": end - planned,
        "all": end - start,
        "wall": time.perf_counter() - wall,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "json": len(written) / 1e6,
    }


def apart(clusters: int, *, unlike: Unlike) -> dict[str, float]:
    command = [sys.executable, __file__, str(clusters), unlike]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def table(*, unlike: Unlike) -> None:
    print("clusters   read   plan  write    all  (wall)   memory    JSON   a cluster")
    for clusters in SIZES:
        m = apart(clusters, unlike=unlike)
        over = m["all"] > BUDGET_SECONDS or m["memory"] > BUDGET_MB
        note = ("  over budget" if over else "  within budget") if clusters == 1000 else ""
        print(
            f"{clusters:>8} {m['read']:6.2f} {m['plan']:6.2f} {m['write']:6.2f} {m['all']:6.2f} {m['wall']:7.2f}s"
            f" {m['memory']:6.0f}MB {m['json']:5.0f}MB {1000 * m['all'] / clusters:7.2f}ms{note}"
        )


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(measure(int(sys.argv[1]), unlike=next(u for u in get_args(Unlike) if u == sys.argv[2]))))
        return
    load = os.getloadavg()[0]
    print(f"Python {platform.python_version()}, {os.cpu_count()} processors, load {load:.1f}; seconds of the processor")
    print(f"\nThree pools a cluster, {DEPLOYMENTS} deployments of ten replicas; clusters of few shapes")
    table(unlike="")
    print("\nThe same, autoscaled, with bounds of their own")
    table(unlike="sizes")
    print("\nThe same, no two clusters alike: pool names, labels and bounds of their own")
    table(unlike="names")


if __name__ == "__main__":
    main()
