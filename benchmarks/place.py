"""Times the placing of one deployment of ten replicas over 1,000 clusters by CEL selectors, budget 0.1 s.
Run: python benchmarks/place.py."""

from __future__ import annotations

import os
import platform
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.fleets import Unlike, manifests
from modelplane_dagster.manifests.fleet import build_fleet
from modelplane_dagster.placement import place_all
from modelplane_dagster.plan import offer, plan_fleet

UNLIKE: tuple[Unlike, ...] = ("", "names")
ROUNDS = 5
BUDGET = 0.1


def main() -> None:
    print(f"Python {platform.python_version()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    for clusters in (500, 1000, 2000):
        for unlike in UNLIKE:
            fleet = build_fleet(manifests(clusters, 1, unlike=unlike))
            offers = [o for c in plan_fleet(fleet).clusters if (o := offer(c, None))]
            times = []
            for _ in range(ROUNDS):
                start = time.process_time()
                (placement,) = place_all(fleet, offers)
                times.append(time.process_time() - start)
            if placement.verdict != "placed" or len(placement.replicas) != 10:
                msg = f"ten replicas are meant to be placed: {placement.verdict}"
                raise SystemExit(msg)
            note = f", budget {BUDGET} s" if clusters == 1000 else ""
            kind = "no two alike" if unlike else "few shapes"
            print(f"{clusters} clusters, {kind}: first {times[0]:.3f} s, then {min(times[1:]):.3f} s{note}")


if __name__ == "__main__":
    main()
