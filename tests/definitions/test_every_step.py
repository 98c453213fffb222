"""The gate at every step: each asset of a refused cluster alone, by every selection, and no write reaches anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from assets.build import build_defs
from assets.converge import JOB
from assets.keys import cluster_key, cluster_of
from assets.results import failure
from modelplane_dagster.errors import RefusedError
from modelplane_dagster.kube.objects import Taint
from modelplane_dagster.manifests.fleet import Fleet
from modelplane_dagster.observed import Record
from resources.clouds.seam import CloudCluster, CloudPool
from resources.records import Records
from tests.definitions.manifests import CLASSES, GOOD, MODEL, REFUSED, UNKNOWN, fleet
from tests.definitions.worlds import RecordingWorld, recording_world, settings

pytestmark = pytest.mark.dagster

# `east` ran NVIDIA's GPUs until its class was edited to claim CPUs alone.
EDITED = CLASSES.replace(
    "- {name: gpu, driver: gpu.nvidia.com, deviceClassName: gpu.nvidia.com, capacity: {memory: {value: 23034Mi}}}",
    '- {name: cpus, driver: dra.cpu, deviceClassName: dra.cpu, capacity: {cpu: {value: "2"}}}',
)
RECORD = Record(
    name="east",
    source="EKS",
    location="us-east-1",
    account="default",
    digest="sha256:before",
    pools={"l4": ("gpu.nvidia.com",)},
)
RUNNING = CloudCluster(
    name="east",
    state="ready",
    version="1.35",
    ours=True,
    account="account",
    pools=(
        CloudPool(
            name="l4",
            state="ready",
            labels={"modelplane.ai/pool": "l4", "modelplane.ai/gpu": "nvidia"},
            taints=(Taint("nvidia.com/gpu", "present", "NoSchedule"),),
            count=1,
            joined=1,
        ),
    ),
)
CASES = {
    "refused on a cloud": (fleet(CLASSES, REFUSED), "amd-on-eks"),
    "refused on a cluster of one's own": (fleet(CLASSES, REFUSED), "gaudi-rack"),
    "a class is missing": (fleet(CLASSES, UNKNOWN), "lost"),
    "the manifest is wrong": (fleet(CLASSES, UNKNOWN), "typo"),
    "edited while it runs": (fleet(EDITED, GOOD), "east"),
}
LEAVES = {
    "amd-on-eks": {"control_plane", "pool_l4", "pool_mi", "serving_base", "devices_l4", "devices_mi"},
    "gaudi-rack": {"control_plane", "pool_cpu", "pool_gaudi", "serving_base", "dra-driver-cpu", "devices_cpu"},
    "lost": {"claimed_drivers"},
    "typo": {"claimed_drivers"},
    "east": {"control_plane", "pool_l4", "serving_base", "dra-driver-cpu", "devices_l4", "schedulable_pools"},
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[RecordingWorld]:
    with recording_world(tmp_path) as world:
        world.clusters["east"] = RUNNING
        Records(tmp_path / "records").write(RECORD)
        yield world


QUIET = {
    "resources": {"fleet": {"config": {"wait": 0.0}}},
    "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
}


class Bench:
    """Runs selections of the converge job against the recording world."""

    def __init__(self, of: Fleet, world: RecordingWorld) -> None:
        self.world = world
        self.job = build_defs(of, settings(world.script.parent), lambda: world).resolve_job_def(JOB)
        self.keys = sorted(self.job.asset_layer.executable_asset_keys, key=str)
        self.instance = dg.DagsterInstance.ephemeral()

    def run(self, keys: list[dg.AssetKey]) -> dg.ExecuteInProcessResult:
        return self.job.execute_in_process(
            instance=self.instance,
            asset_selection=keys,
            raise_on_error=False,
            run_config=QUIET,
        )

    def parted(self, assets: set[dg.AssetKey], checks: set[dg.AssetCheckKey]) -> bool:
        """Runs exactly these; False where Dagster refuses to."""
        try:
            job = self.job.get_subset(asset_selection=assets, asset_check_selection=checks)
        except dg.DagsterInvalidSubsetError:
            return False
        job.execute_in_process(instance=self.instance, raise_on_error=False, run_config=QUIET)
        return True


@pytest.mark.parametrize("case", CASES)
def test_no_step_of_a_refused_cluster_writes(case: str, world: RecordingWorld) -> None:
    of, name = CASES[case]
    bench = Bench(of, world)
    mine = [k for k in bench.keys if cluster_of(k) == name]
    assert LEAVES[name] <= {k.path[-1] for k in mine}
    for key in mine:
        bench.run([key])
        assert (key, world.all_writes()) == (key, [])


@pytest.mark.parametrize("case", ["refused on a cloud", "refused on a cluster of one's own", "edited while it runs"])
def test_no_selection_of_a_refused_cluster_writes(case: str, world: RecordingWorld) -> None:
    of, name = CASES[case]
    bench = Bench(of, world)
    mine = [k for k in bench.keys if cluster_of(k) == name]
    everything = bench.run(mine)
    # The blocking check ends the run of the cluster before its first writing step.
    assert [e.step_key for e in everything.all_events if e.is_step_failure] == [
        f"cluster__{_op(name)}__claimed_drivers"
    ]
    partial = [
        [k for k in mine if k.path[-1] != "claimed_drivers"],
        [cluster_key(name, leaf) for leaf in ("claimed_drivers", "serving_base")],
        [k for k in mine if k.path[-1].startswith("devices_")],
    ]
    for selection in partial:
        bench.run(selection)
    assert world.all_writes() == []


@pytest.mark.parametrize("case", ["refused on a cloud", "refused on a cluster of one's own", "edited while it runs"])
def test_no_selection_parts_a_step_from_its_checks(case: str, world: RecordingWorld) -> None:
    """Checks alone, or assets `without_checks()`: a step holds both, so Dagster refuses such a selection before anything
    runs, one at a time and all together, and the gate's blocking check can't be left out of a run that holds its asset."""
    of, name = CASES[case]
    bench = Bench(of, world)
    graph = bench.job.asset_layer.asset_graph
    assets = dg.AssetSelection.assets(*(k for k in bench.keys if cluster_of(k) == name))
    mine = sorted(assets.resolve(graph), key=str)
    checks = sorted(dg.AssetSelection.checks_for_assets(*mine).resolve_checks(graph), key=str)
    assert {k.asset_key for k in checks} == set(mine)
    assert assets.without_checks().resolve_checks(graph) == set()
    for part in (*({k} for k in checks), set(checks)):
        assert bench.parted(set(), part) is False, part
    for whole in (*({k} for k in mine), set(mine)):
        assert bench.parted(whole, set()) is False, whole
    assert world.all_writes() == []


def test_a_refused_step_says_the_gates_sentence(world: RecordingWorld) -> None:
    bench = Bench(CASES["refused on a cloud"][0], world)
    result = bench.run([cluster_key("amd-on-eks", "pool_l4")])
    failed = [e.step_failure_data.user_failure_data for e in result.all_events if e.is_step_failure]
    assert [f.description for f in failed if f] == [
        (
            "UnsupportedDevices: Class amd-eks claims the device gpu of driver gpu.amd.com, which EKS doesn't support; EKS "
            "supports dra.cpu, dra.net, gpu.nvidia.com."
        )
    ]


def test_a_refusal_is_not_retried() -> None:
    assert failure(RefusedError("no")).allow_retries is False


@pytest.mark.parametrize("leaf", ["control_plane", "pool_l4"])
def test_the_same_steps_write_where_the_gate_opens(leaf: str, tmp_path: Path) -> None:
    """The recorder isn't deaf."""
    with recording_world(tmp_path) as world:
        if leaf == "pool_l4":
            world.clusters["east"] = CloudCluster("east", "ready", "1.35", ours=True, account="account")
        Bench(fleet(CLASSES, GOOD), world).run([cluster_key("east", leaf)])
        said = {"control_plane": "EKS ensure_control_plane east", "pool_l4": "EKS ensure_pool east/l4"}
        assert said[leaf] in world.all_writes()


def test_a_good_cluster_beside_a_refused_one_is_worked_on(world: RecordingWorld) -> None:
    world.clusters.clear()
    (world.script.parent / "records" / "east.json").unlink()
    bench = Bench(fleet(CLASSES, GOOD, REFUSED, MODEL), world)
    bench.run(bench.keys)
    assert [w for w in world.all_writes() if w.startswith(("EKS", "AKS"))] == ["EKS ensure_control_plane east"]


def _op(name: str) -> str:
    return name.replace("-", "_")
