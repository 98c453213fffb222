"""An asset of one step is in every respect the asset that `@dg.asset` makes."""

import json
from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._serdes import serialize_value

from assets.common import OWNERS, REQUIRES
from assets.step import step_asset

KEYS = tuple(dg.AssetKey(["cluster", "a-b", leaf]) for leaf in ("claimed_drivers", "pool_a.b", "devices_a-b"))
Make = Callable[[int, Callable[[dg.AssetExecutionContext], dg.MaterializeResult]], dg.AssetsDefinition]


def checks(key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    return [
        dg.AssetCheckSpec("ready", asset=key, description="There.", blocking=key == KEYS[0]),
        dg.AssetCheckSpec("reach", asset=key),
    ]


def facts(number: int) -> dict[str, Any]:
    return {
        "deps": list(KEYS[:number]),
        "group_name": "clusters/a_b",
        "owners": OWNERS,
        "kinds": {"helm"},
        "description": f"Asset {number}.",
        "metadata": {"values": dg.MetadataValue.json({"a": 1})},
        "code_version": f"v{number}",
    }


def by_decorator(number: int, step: Callable[[dg.AssetExecutionContext], dg.MaterializeResult]) -> dg.AssetsDefinition:
    @dg.asset(key=KEYS[number], check_specs=checks(KEYS[number]), required_resource_keys=REQUIRES, **facts(number))
    def asset(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        return step(context)

    return asset


def by_us(number: int, step: Callable[[dg.AssetExecutionContext], dg.MaterializeResult]) -> dg.AssetsDefinition:
    return step_asset(step, dg.AssetSpec(KEYS[number], **facts(number)), checks(KEYS[number]))


def step_of(number: int, *, leave_out: str = "") -> Callable[[dg.AssetExecutionContext], dg.MaterializeResult]:
    def step(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        assert context.resources.fleet == "the fleet"
        if context.run.tags.get("raise") == str(number):
            raise dg.Failure("refused", allow_retries=False)
        passed = context.run.tags.get("shut") != str(number)
        results = [dg.AssetCheckResult(check_name=n, passed=passed) for n in ("ready", "reach") if n != leave_out]
        version = dg.DataVersion(f"{context.asset_key.to_user_string()} 1")
        return dg.MaterializeResult(metadata={"state": "ready"}, check_results=results, data_version=version)

    return step


def definitions(make: Make) -> dg.Definitions:
    resources = {"fleet": dg.ResourceDefinition.hardcoded_resource("the fleet")}
    return dg.Definitions([make(number, step_of(number)) for number in range(len(KEYS))], resources=resources)


def as_loaded(make: Make) -> Any:
    """What the webserver is told of the code location, without the names of inputs, which no asset shows."""
    told = serialize_value(RepositorySnap.from_def(definitions(make).get_repository_def()))
    for number, key in enumerate(KEYS):
        told = told.replace(f'"{"_".join(key.path).replace("-", "_").replace(".", "_")}"', f'"above_{number}"')
    return json.loads(told)


def told(make: Make, **tags: str) -> list[tuple[str, str, Any]]:
    """Each event of a run by type and step; with an evaluation's verdict and a materialisation's versions."""
    job = definitions(make).resolve_implicit_global_asset_job_def()
    found = []
    with dg.DagsterInstance.ephemeral() as instance:
        for event in job.execute_in_process(instance=instance, tags=tags, raise_on_error=False).all_events:
            more: Any = None
            if event.event_type_value == "ASSET_CHECK_EVALUATION":
                more = (event.asset_check_evaluation_data.check_name, event.asset_check_evaluation_data.passed)
            elif event.is_step_materialization:
                made = event.step_materialization_data.materialization
                more = {k: v for k, v in (made.tags or {}).items() if "version" in k}
            elif event.is_step_failure:
                data = event.step_failure_data
                more = (data.user_failure_data, data.error.cls_name if data.error else "")
            found.append((event.event_type_value, event.step_key or "", more))
    return found


def test_the_webserver_is_told_the_same() -> None:
    assert as_loaded(by_us) == as_loaded(by_decorator)


@pytest.mark.parametrize("tags", [{}, {"shut": "0"}, {"shut": "1"}, {"raise": "0"}, {"raise": "1"}])
def test_a_run_tells_the_same(tags: dict[str, str]) -> None:
    assert told(by_us, **tags) == told(by_decorator, **tags)


@pytest.mark.parametrize("make", [by_us, by_decorator])
def test_a_step_that_leaves_out_a_check_fails(make: Make) -> None:
    result = dg.materialize(
        [make(0, step_of(0, leave_out="reach"))],
        resources={"fleet": "the fleet"},
        instance=dg.DagsterInstance.ephemeral(),
        raise_on_error=False,
    )
    assert not result.success
