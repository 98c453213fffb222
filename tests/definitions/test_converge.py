"""The sensor: whom it requests, from observations and runs in a real instance."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from assets.converge import targets, tick
from assets.keys import claimed, cluster_key, model_key
from assets.summaries import Seen, observation
from tests.definitions.manifests import CLASSES, GOOD, MODEL, fleet
from tests.definitions.worlds import build

pytestmark = pytest.mark.dagster
EAST = tuple(cluster_key("east", leaf) for leaf in ("claimed_drivers", "control_plane", "pool_l4"))
RACK = tuple(cluster_key("rack", leaf) for leaf in ("claimed_drivers", "control_plane"))
TINY = model_key("ml", "tiny")
KNOWN = targets([*EAST, *RACK, TINY, dg.AssetKey(["class", "l4"])], fleet())
DIFFERS = {"changes": ["create pool/east/l4: it isn't there"]}


@pytest.fixture
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test(temp_dir=str(tmp_path_factory.mktemp("dagster"))) as made:
        yield made


def see(instance: dg.DagsterInstance, key: dg.AssetKey, state: str, *, at: float | None = None, **more: Any) -> None:
    lagging = bool(more.pop("lagging", False))
    body = {"state": state, "why": "because", **more}
    seen = Seen(body, f"{state}{more}", time.time() if at is None else at, lagging)
    instance.report_runless_asset_event(observation(key, seen))


def run(
    instance: dg.DagsterInstance,
    status: dg.DagsterRunStatus,
    keys: tuple[dg.AssetKey, ...] | None,
    *,
    job: str = "__ASSET_JOB",
) -> None:
    """A run on record, made as the UI makes one."""
    made = instance.create_run(
        run_id=None,
        job_name=job,
        run_config=None,
        status=dg.DagsterRunStatus.STARTED,
        tags=None,
        root_run_id=None,
        parent_run_id=None,
        step_keys_to_execute=None,
        execution_plan_snapshot=None,
        job_snapshot=None,
        parent_job_snapshot=None,
        asset_selection=frozenset(keys) if keys is not None else None,
        asset_check_selection=None,
        resolved_op_selection=None,
        op_selection=None,
        remote_job_origin=None,
        job_code_origin=None,
        asset_graph=build(fleet()).resolve_asset_graph(),
    )
    if status is dg.DagsterRunStatus.SUCCESS:
        instance.report_run_canceled(made)


def asked(instance: dg.DagsterInstance, cursor: str | None = None, *, now: float | None = None) -> list[list[str]]:
    return requests(tick(instance, cursor, KNOWN, now=time.time() if now is None else now))


def requests(result: dg.SensorResult) -> list[list[str]]:
    return [[k.to_user_string() for k in r.asset_selection or ()] for r in result.run_requests or ()]


EAST_KEYS = ["cluster/east/claimed_drivers", "cluster/east/control_plane", "cluster/east/pool_l4"]
RACK_KEYS = ["cluster/rack/claimed_drivers", "cluster/rack/control_plane"]


def test_nothing_is_asked_before_the_first_look(instance: dg.DagsterInstance) -> None:
    assert asked(instance) == []


@pytest.mark.parametrize(
    ("state", "more", "expected"),
    [
        ("differs", DIFFERS, [EAST_KEYS]),
        ("pending", {}, [EAST_KEYS]),
        ("converged", {}, []),
        ("converged", {"lagging": True}, [EAST_KEYS]),
        ("refused", {}, []),
        ("unknown", {}, []),
    ],
)
def test_clusters_are_asked_by_their_state(
    instance: dg.DagsterInstance, state: str, more: dict[str, Any], expected: list[list[str]]
) -> None:
    see(instance, claimed("east"), state, **more)
    assert asked(instance) == expected


@pytest.mark.parametrize(
    ("state", "pools", "lagging", "expected"),
    [
        ("differs", ["east/l4"], False, [["model/ml/tiny"]]),
        ("waiting", ["east/l4"], False, [["model/ml/tiny"]]),
        ("differs", [], False, []),
        ("unplaced", [], False, []),
        ("refused", ["east/l4"], False, []),
        ("serving", ["east/l4"], False, []),
        ("serving", ["east/l4"], True, [["model/ml/tiny"]]),
    ],
)
def test_a_model_gets_a_run_of_its_own_once_its_pools_are_ready(
    instance: dg.DagsterInstance, state: str, pools: list[str], lagging: bool, expected: list[list[str]]
) -> None:
    see(instance, TINY, state, ready_pools=pools, lagging=lagging)
    see(instance, claimed("east"), "converged")
    assert asked(instance) == expected


def test_clusters_share_a_run_and_models_have_their_own(instance: dg.DagsterInstance) -> None:
    see(instance, claimed("east"), "differs")
    see(instance, claimed("rack"), "pending")
    see(instance, TINY, "differs", ready_pools=["east/l4"])
    result = tick(instance, None, KNOWN, now=time.time())
    assert requests(result) == [[*EAST_KEYS, *RACK_KEYS], ["model/ml/tiny"]]
    assert [r.tags for r in result.run_requests or ()] == [
        {"modelplane/clusters": "east,rack", "dagster/max_runtime_seconds": "1800"},
        {"modelplane/models": "ml/tiny", "dagster/max_runtime_seconds": "1800"},
    ]
    assert [(r.run_key, r.run_config) for r in result.run_requests or ()] == [
        (None, {"resources": {"fleet": {"config": {"wait": 0.0}}}})
    ] * 2


@pytest.mark.parametrize(
    ("selection", "job", "expected"),
    [
        ((EAST[2],), "__ASSET_JOB", [RACK_KEYS]),
        (EAST, "converge", [RACK_KEYS]),
        # A run without a selection is of the whole job.
        (None, "converge", []),
        (None, "observe", [[*EAST_KEYS, *RACK_KEYS]]),
    ],
)
def test_what_a_run_is_working_on_is_left_alone(
    instance: dg.DagsterInstance, selection: Any, job: str, expected: list[list[str]]
) -> None:
    run(instance, dg.DagsterRunStatus.STARTED, selection, job=job)
    see(instance, claimed("east"), "differs")
    see(instance, claimed("rack"), "differs")
    assert asked(instance) == expected


def test_what_was_read_before_its_last_run_ended_says_nothing(instance: dg.DagsterInstance) -> None:
    began = time.time()
    run(instance, dg.DagsterRunStatus.SUCCESS, EAST)
    see(instance, claimed("east"), "differs", at=began)
    assert asked(instance) == []
    see(instance, claimed("east"), "differs")
    assert asked(instance) == [EAST_KEYS]


def test_a_refused_edit_is_left_alone_until_it_is_taken_back(instance: dg.DagsterInstance) -> None:
    see(instance, claimed("east"), "differs")
    cursor = tick(instance, None, KNOWN, now=time.time()).cursor
    see(instance, claimed("east"), "refused")
    assert asked(instance, cursor) == []
    see(instance, claimed("east"), "differs", changes=["update pool/east/l4: labels"])
    assert asked(instance, cursor) == [EAST_KEYS]


def test_the_same_state_again_waits_out_its_pause(instance: dg.DagsterInstance) -> None:
    start = time.time() - 1000
    see(instance, claimed("east"), "differs", at=start, changes=["create pool/east/l4: request 1 failed"])
    cursor = tick(instance, None, KNOWN, now=start).cursor
    # Another request id isn't progress.
    see(instance, claimed("east"), "differs", at=start + 5, changes=["create pool/east/l4: request 2 failed"])
    assert asked(instance, cursor, now=start + 20) == []
    assert asked(instance, cursor, now=start + 31) == [EAST_KEYS]


def test_a_tick_that_asks_nothing_keeps_its_cursor(instance: dg.DagsterInstance) -> None:
    start = time.time() - 1000
    see(instance, claimed("east"), "differs", at=start)
    cursor = tick(instance, None, KNOWN, now=start).cursor
    see(instance, claimed("east"), "converged", at=start + 10)
    result = tick(instance, cursor, KNOWN, now=start + 11)
    assert (result.run_requests, result.cursor) == ([], "{}")
    assert result.skip_reason


def test_the_loaded_sensor_asks_for_the_whole_cluster_and_its_classes(instance: dg.DagsterInstance) -> None:
    defs = build(fleet(CLASSES, GOOD, MODEL))
    sensor = defs.get_repository_def().get_sensor_def("converge")
    see(instance, claimed("rack"), "differs")
    with dg.build_sensor_context(instance=instance) as context:
        result = sensor(context)
    assert isinstance(result, dg.SensorResult)
    assert [sorted(k.path[-1] for k in r.asset_selection or ()) for r in result.run_requests or ()] == [
        [
            "amd",
            "amd-gpu-operator",
            "claimed_drivers",
            "control_plane",
            "cpus",
            "devices_cpu",
            "devices_mi",
            "dra-driver-cpu",
            "node-feature-discovery",
            "pool_cpu",
            "pool_mi",
            "schedulable_pools",
            "serving_base",
        ]
    ]
