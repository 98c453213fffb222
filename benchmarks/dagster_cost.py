"""What Dagster itself costs a pass: the demo fleet's assets in one in-process run whose steps do nothing.

python -m benchmarks.dagster_cost [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import dagster as dg

from assets.build import build_defs
from assets.converge import JOB
from assets.instance import open_instance
from assets.keys import cluster_of
from assets.run import execute
from resources.files import load_fleet
from resources.settings import from_environment
from resources.steps.result import StepResult
from resources.world import live_world

ROOT = Path(__file__).resolve().parent.parent
STEPS = (
    "assets.clusters.ensure_control_plane",
    "assets.clusters.ensure_pool",
    "assets.clusters.ensure_base",
    "assets.clusters.ensure_component",
    "assets.devices.observe_devices",
)


def _ready(*args: object) -> StepResult:
    rows = tuple({"node": f"n{i}", "ready": True, "labels": "a=b, c=d"} for i in range(3))
    return StepResult(f"pool/{args[1:]}", "ready", "it stands", tables={"Nodes": rows})


def measure(instance: dg.DagsterInstance, home: Path, *, profile: bool) -> tuple[int, float]:
    """Assets, and the seconds of the second run of two."""
    settings = replace(from_environment({}), home=home, target="live")
    fleet = load_fleet([ROOT / "fleet", ROOT / "recipes"])
    job = build_defs(fleet, settings, lambda: live_world(settings)).resolve_job_def(JOB)
    keys = [k for k in job.asset_layer.executable_asset_keys if cluster_of(k)]
    keys = [k for k in keys if k.path[-1] != "schedulable_pools"]
    took = 0.0
    with mock.patch.multiple("assets.devices", observe_devices=_ready):
        patches = [mock.patch(name, _ready) for name in STEPS]
        for patch in patches:
            patch.start()
        try:
            execute(job, instance, keys)
            profiler = cProfile.Profile()
            start = time.perf_counter()
            if profile:
                profiler.enable()
            result = execute(job, instance, keys)
            profiler.disable()
            took = time.perf_counter() - start
            assert result.success
            if profile:
                pstats.Stats(profiler, stream=sys.stdout).sort_stats("tottime").print_stats(25)
                pstats.Stats(profiler, stream=sys.stdout).sort_stats("cumtime").print_stats(70)
        finally:
            for patch in patches:
                patch.stop()
    return len(keys), took


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--profile", action="store_true")
    profile = parser.parse_args().profile
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with dg.DagsterInstance.ephemeral() as instance:
            count, seconds = measure(instance, home, profile=False)
            print(f"ephemeral: {count} assets {seconds:.2f} s, {seconds / count * 1000:.1f} ms an asset")
        settings = replace(from_environment({}), home=home, target="live")
        instance = open_instance(settings)
        try:
            count, seconds = measure(instance, home, profile=profile)
            print(f"SQLite: {count} assets {seconds:.2f} s, {seconds / count * 1000:.1f} ms an asset")
        finally:
            instance.dispose()


if __name__ == "__main__":
    main()
