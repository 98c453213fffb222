"""The graph of a fleet: that it loads on any input without a network, and that it is this."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from assets.build import build_defs
from modelplane_dagster.manifests.fleet import Fleet
from resources.files import load_fleet
from resources.world import live_world
from tests.definitions.manifests import CLASSES, GOOD, MODEL, REFUSED, UNKNOWN, fleet
from tests.definitions.worlds import build, settings

ROOT = Path(__file__).resolve().parents[2]
SNAPSHOT = Path(__file__).with_name("graph.json")
DEMO = [ROOT / "fleet", ROOT / "recipes"]
EMPTY = fleet()


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        msg = "loading definitions opened a connection"
        raise AssertionError(msg)

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def graph(defs: dg.Definitions) -> dict[str, object]:
    """Keys with their upstream keys and checks, and what runs them."""
    repository = defs.get_repository_def()
    nodes = defs.resolve_asset_graph()
    jobs = [j.name for j in repository.get_all_jobs() if not j.name.startswith("__")]
    return {
        "assets": {
            key.to_user_string(): {
                "group": nodes.get(key).group_name,
                "dependsOn": sorted(p.to_user_string() for p in nodes.get(key).parent_keys),
                "checks": sorted(c.name for c in nodes.get_check_keys_for_assets({key})),
            }
            for key in sorted(nodes.get_all_asset_keys(), key=lambda k: k.to_user_string())
        },
        "blocking": sorted(c.to_user_string() for c in nodes.asset_check_keys if nodes.get_check_spec(c).blocking),
        "jobs": sorted(jobs),
        "schedules": {s.name: [s.cron_schedule, s.job_name] for s in repository.schedule_defs},
        "sensors": {s.name: [s.minimum_interval_seconds, s.job_name] for s in repository.sensor_defs},
    }


def test_the_graph_of_a_small_fleet() -> None:
    """When it changes on purpose, write what is printed to graph.json."""
    seen = graph(build(fleet(CLASSES, GOOD, MODEL)))
    assert seen == json.loads(SNAPSHOT.read_text()), json.dumps(seen, indent=1)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize(
    ("name", "of", "clusters"),
    [
        ("empty", EMPTY, 0),
        ("good", fleet(CLASSES, GOOD, MODEL), 2),
        ("refused and unknown", fleet(CLASSES, GOOD, REFUSED, UNKNOWN), 6),
        ("not YAML", fleet(CLASSES, GOOD, "a: [b"), 2),
        ("demo", load_fleet(DEMO), 7),
        ("refused in every way", load_fleet([ROOT / "examples"]), None),
    ],
)
def test_it_loads_without_a_network(name: str, of: Fleet, clusters: int | None) -> None:
    defs = build(of)
    keys = defs.resolve_asset_graph().get_all_asset_keys()
    defs.get_repository_def()
    found = {k.path[1] for k in keys if k.path[0] == "cluster"}
    if clusters is not None:
        assert (name, len(found)) == (name, clusters)
    for cluster in of.clusters:
        assert cluster in found


@pytest.mark.dagster
def test_a_broken_manifest_fails_its_own_clusters_check_and_the_rest_loads() -> None:
    defs = build(fleet(CLASSES, GOOD, UNKNOWN))
    keys = defs.resolve_asset_graph().get_all_asset_keys()
    assert {k.path[2] for k in keys if k.path[:2] == ["cluster", "typo"]} == {"claimed_drivers"}
    assert {k.path[2] for k in keys if k.path[:2] == ["cluster", "lost"]} == {"claimed_drivers"}
    assert dg.AssetKey(["cluster", "east", "control_plane"]) in keys


@pytest.mark.dagster
def test_checks_of_an_invalid_and_of_a_refused_cluster_say_why(tmp_path: Path) -> None:
    defs = build_defs(
        fleet(CLASSES, GOOD, REFUSED, UNKNOWN, "a: [b"), settings(tmp_path), lambda: live_world(settings(tmp_path))
    )
    told = {}
    for asset in ("lost", "typo", "amd-on-eks"):
        told |= checks(defs, dg.AssetKey(["cluster", asset, "claimed_drivers"]))
    missing = "ClassNotFound: spec.nodePools[0].className: no manifest holds the class 'no-such-class'"
    invalid = "ClusterInvalid: The manifest of cluster typo is invalid (MissingField, UnknownField); nothing about it is changed."
    unsupported = (
        "UnsupportedDevices: Class amd-eks claims the device gpu of driver gpu.amd.com, which EKS doesn't support; EKS "
        "supports dra.cpu, dra.net, gpu.nvidia.com."
    )
    assert told == {
        "lost/supported_devices": (False, missing),
        "lost/placement_plan": (False, "nothing can be said while the manifests are unknown"),
        "lost/manifests": (False, missing),
        "typo/supported_devices": (False, f"{invalid} (and 2 more)"),
        "typo/placement_plan": (False, "nothing can be said while the manifests are unknown"),
        "typo/manifests": (False, invalid),
        "amd-on-eks/supported_devices": (False, unsupported),
        "amd-on-eks/placement_plan": (True, "nothing to object"),
        "amd-on-eks/manifests": (True, "nothing to object"),
    }
    assert checks(defs, dg.AssetKey(["fleet", "manifests"])) == {
        "manifests/readable": (False, "MissingField: spec.cluster.eks.region: this field is required"),
        "manifests/loaded": (True, "nothing to object"),
    }


def checks(defs: dg.Definitions, key: dg.AssetKey) -> dict[str, tuple[bool, str]]:
    with dg.DagsterInstance.ephemeral() as instance:
        result = defs.resolve_job_def("converge").execute_in_process(
            instance=instance,
            asset_selection=[key],
            raise_on_error=False,
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        )
        found = result.get_asset_check_evaluations()
    return {f"{key.path[1]}/{e.check_name}": (e.passed, str(e.description)) for e in found}


@pytest.mark.parametrize(
    ("reconcile", "schedule", "sensor"),
    [
        (False, dg.DefaultScheduleStatus.STOPPED, dg.DefaultSensorStatus.STOPPED),
        (True, dg.DefaultScheduleStatus.RUNNING, dg.DefaultSensorStatus.RUNNING),
    ],
)
def test_nothing_reconciles_unless_it_is_told_to(
    reconcile: bool, schedule: dg.DefaultScheduleStatus, sensor: dg.DefaultSensorStatus
) -> None:
    repository = build(fleet(CLASSES, GOOD), reconcile=reconcile).get_repository_def()
    assert [s.default_status for s in repository.schedule_defs] == [schedule]
    assert [s.default_status for s in repository.sensor_defs] == [sensor]


@pytest.mark.dagster
def test_the_workspace_loads_from_any_folder(tmp_path: Path) -> None:
    """As `dagster` itself loads it, a process of its own and no working directory of ours."""
    dagster = Path(sys.executable).with_name("dagster")
    ran = subprocess.run(
        [dagster, "definitions", "validate", "-w", ROOT / "workspace.yaml"],
        cwd="/",
        env={**os.environ, "MODELPLANE_HOME": str(tmp_path), "DAGSTER_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.dagster
def test_dg_accepts_the_project(tmp_path: Path) -> None:
    ran = subprocess.run(
        [Path(sys.executable).with_name("dg"), "check", "defs"],
        cwd=ROOT,
        env={
            **os.environ,
            "MODELPLANE_HOME": str(tmp_path),
            "DAGSTER_HOME": str(tmp_path),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
