"""The passes' own instance says what Dagster's says: versions of what a step depends on, checks, success."""

import dagster as dg
import pytest

from assets.scratch import scratch_instance

NOT_COMPARED = ("run_id", "event_pointer", "code_version")


@dg.asset(check_specs=[dg.AssetCheckSpec("gate", asset="first", blocking=True)])
def first(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    passed = context.run.tags.get("gate") != "shut"
    return dg.MaterializeResult(
        data_version=dg.DataVersion(context.run.tags["version"]),
        check_results=[dg.AssetCheckResult(check_name="gate", passed=passed)],
    )


@dg.asset(deps=[first])
def second() -> dg.MaterializeResult:
    return dg.MaterializeResult(data_version=dg.DataVersion("own"))


@dg.asset(deps=["outside", second])
def third() -> dg.MaterializeResult:
    return dg.MaterializeResult(metadata={"state": "ready"}, data_version=dg.DataVersion("last"))


def run(
    instance: dg.DagsterInstance, *chosen: dg.AssetsDefinition, **tags: str
) -> list[tuple[str, str, dict[str, str]]]:
    """Every event's type and step, a materialisation's with its tags."""
    job = dg.Definitions(assets=[first, second, third]).resolve_implicit_global_asset_job_def()
    keys = [key for asset in chosen for key in asset.keys]
    result = job.execute_in_process(instance=instance, asset_selection=keys, tags=tags, raise_on_error=False)
    told = []
    for event in result.all_events:
        made = event.step_materialization_data.materialization.tags if event.is_step_materialization else {}
        kept = {k: v for k, v in (made or {}).items() if not any(name in k for name in NOT_COMPARED)}
        told.append((event.event_type_value, event.step_key or "", kept))
    return told


def runs(instance: dg.DagsterInstance) -> list[list[tuple[str, str, dict[str, str]]]]:
    with instance:
        return [
            run(instance, first, second, version="1"),
            run(instance, third, version="1"),
            run(instance, first, version="2"),
            run(instance, second, third, version="2"),
            run(instance, first, second, version="3", gate="shut"),
        ]


def test_as_dagsters_own_instance() -> None:
    assert runs(scratch_instance()) == runs(dg.DagsterInstance.ephemeral())


@pytest.mark.parametrize(
    ("version", "expected"),
    [("1", "1"), ("2", "2")],
)
def test_a_step_reads_the_newest_version_of_what_it_depends_on(version: str, expected: str) -> None:
    with scratch_instance() as instance:
        run(instance, first, version="0")
        run(instance, first, version=version)
        tags = next(tags for kind, _, tags in run(instance, second, version="-") if kind == "ASSET_MATERIALIZATION")
    assert tags["dagster/input_data_version/first"] == expected
