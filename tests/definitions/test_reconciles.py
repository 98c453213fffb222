"""A fleet converges by the schedule and the sensor alone, and so does what is added to it while nobody touches Dagster."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from assets.keys import claimed, model_key
from assets.summaries import last_seen
from tests.definitions.server import ROOT, dagster_dev

pytestmark = [pytest.mark.slow, pytest.mark.lab]
LIMIT = 480.0


def test_it_converges_by_schedule_and_sensor_alone(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet"
    fleet.mkdir()
    _add(fleet, "fleet/classes/civo-cpu.yaml", "fleet/clusters/civo-london.yaml")
    # Without a helm of its own the first run would fetch one; the tools' cache is shared.
    with dagster_dev(tmp_path / "home", {"MODELPLANE_FLEET": str(fleet), "MODELPLANE_RECONCILE": "1"}) as server:
        instance = dg.DagsterInstance.from_config(str(server.home / "dagster"))
        try:
            first = _until(lambda: _unsettled(instance, ["civo-london"], []), server.log)
            # A GPU class that claims CPUs too, a cluster on another cloud, and a recipe.
            _add(fleet, "fleet/classes/vultr-l40s-cpu.yaml", "fleet/clusters/vultr-newark.yaml")
            _add(fleet, "recipes/qwen2.5-0.5b-cpu-civo/deployment.yaml")
            models = [("recipes", "qwen2-5-0-5b-cpu")]
            second = _until(lambda: _unsettled(instance, ["civo-london", "vultr-newark"], models), server.log)
            runs = instance.get_runs()
        finally:
            instance.dispose()
    by = {r.tags.get("dagster/schedule_name") or r.tags.get("dagster/sensor_name") for r in runs}
    assert by == {"reconcile", "converge"}
    failed = [r.run_id for r in runs if r.status is dg.DagsterRunStatus.FAILURE]
    converging = sum(1 for r in runs if r.job_name == "converge")
    sys.stdout.write(
        f"\nabsent to converged {first:.0f} s, the additions {second:.0f} s; {converging} converge runs, "
        f"{len(runs) - converging} looks, {len(failed)} failed\n"
    )
    assert failed == []


def _add(fleet: Path, *files: str) -> None:
    for file in files:
        shutil.copy(ROOT / file, fleet / Path(file).name)


def _unsettled(instance: dg.DagsterInstance, clusters: list[str], models: list[tuple[str, str]]) -> list[str]:
    """What doesn't stand as planned yet, or whose records don't say so."""
    wanted = {claimed(c): "converged" for c in clusters} | {model_key(*m): "serving" for m in models}
    waits = []
    for key, state in wanted.items():
        seen = last_seen(instance, key)
        if seen is None or seen.body["state"] != state or seen.lagging:
            told = f"{seen.body['state']}: {seen.body['why']}, lagging {seen.lagging}" if seen else "never seen"
            waits.append(f"{key.to_user_string()} is {told}")
    return waits


def _until(waits: Callable[[], list[str]], log: Path) -> float:
    """The seconds that it took."""
    start = time.monotonic()
    while waiting := waits():
        if time.monotonic() - start > LIMIT:
            raise AssertionError("\n".join(waiting) + "\n" + log.read_text(errors="replace")[-6000:])
        time.sleep(2)
    return time.monotonic() - start
