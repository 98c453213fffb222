"""What passes saw last stands in the default instance, and its storage is as it was before."""

from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from assets.history import History
from assets.instance import open_instance
from resources.settings import from_environment


@dg.asset(check_specs=[dg.AssetCheckSpec("ready", asset="pool")])
def pool(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    state = context.run.tags["state"]
    checked = dg.AssetCheckResult(check_name="ready", passed=state == "ready")
    return dg.MaterializeResult(metadata={"state": state}, check_results=[checked])


@pytest.fixture
def instance(tmp_path: Path) -> dg.DagsterInstance:
    return open_instance(replace(from_environment({}), home=tmp_path))


def kept(instance: dg.DagsterInstance, *states: str) -> None:
    history = History()
    for state in states:
        with dg.DagsterInstance.ephemeral() as scratch:
            history.take(dg.materialize([pool], instance=scratch, tags={"state": state}).all_events)
    history.keep(instance)


def last(instance: dg.DagsterInstance) -> tuple[str, str]:
    event = instance.get_latest_materialization_event(dg.AssetKey("pool"))
    assert event is not None
    assert event.asset_materialization is not None
    check = dg.AssetCheckKey(dg.AssetKey("pool"), "ready")
    (record,) = instance.event_log_storage.get_asset_check_execution_history(check, limit=1)
    return str(event.asset_materialization.metadata["state"].value), record.status.value


def test_the_last_record_of_each_asset_and_check_is_kept(instance: dg.DagsterInstance) -> None:
    kept(instance, "pending", "ready")
    assert last(instance) == ("ready", "SUCCEEDED")
    assert len(instance.fetch_materializations(dg.AssetKey("pool"), limit=9).records) == 1


def test_the_instance_goes_on_as_before(instance: dg.DagsterInstance) -> None:
    kept(instance, "ready")
    kept(instance, "pending")
    assert last(instance) == ("pending", "FAILED")
    result = dg.materialize([pool], instance=instance, tags={"state": "ready"})
    assert result.success
    assert last(instance) == ("ready", "SUCCEEDED")
    assert len(instance.fetch_materializations(dg.AssetKey("pool"), limit=9).records) == 3


def test_a_write_that_fails_leaves_the_instance_usable(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_event: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(instance, "report_runless_asset_event", fail)
        with pytest.raises(OSError, match="disk full"):
            kept(instance, "ready")
    kept(instance, "ready")
    assert last(instance) == ("ready", "SUCCEEDED")
