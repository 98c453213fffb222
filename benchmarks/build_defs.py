"""How long the graph of a large fleet takes to build and to load.

python -m benchmarks.build_defs [CLUSTERS]
"""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import replace
from pathlib import Path

from assets.build import build_defs
from benchmarks.fleets import manifests
from modelplane_dagster.manifests.fleet import build_fleet
from resources.settings import from_environment
from resources.world import live_world


def main() -> None:
    clusters = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    settings = replace(from_environment({}), home=Path("/nowhere"), target="live", fleet=())
    start = time.perf_counter()
    fleet = build_fleet(manifests(clusters, 10), [])
    read = time.perf_counter()
    defs = build_defs(fleet, settings, lambda: live_world(settings))
    built = time.perf_counter()
    repository = defs.get_repository_def()
    loaded = time.perf_counter()
    graph = repository.asset_graph
    print(
        f"{clusters} clusters, {len(graph.get_all_asset_keys())} assets, {len(graph.asset_check_keys)} checks: manifests "
        f"{read - start:.2f} s, build_defs {built - read:.2f} s, repository {loaded - built:.2f} s, peak "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB"
    )


if __name__ == "__main__":
    main()
