"""The instance that passes run on: it remembers each asset's last materialisation, and nothing else.

A step reads the versions of what it depends on, so the newest materialisation of each asset is all that a run needs of the
past; the rest of its events are in its result. Dagster's own instance in memory writes each event through SQLAlchemy into
SQLite, which was a third of the passes' processor time (measured on the demo fleet).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import dagster as dg
from dagster._core.instance import InstanceType
from dagster._core.launcher.sync_in_memory_run_launcher import SyncInMemoryRunLauncher
from dagster._core.run_coordinator import DefaultRunCoordinator
from dagster._core.storage.event_log import InMemoryEventLogStorage
from dagster._core.storage.event_log.base import AssetEntry, AssetRecord, EventLogRecord
from dagster._core.storage.noop_compute_log_manager import NoOpComputeLogManager
from dagster._core.storage.root import TemporaryLocalArtifactStorage
from dagster._core.storage.runs import InMemoryRunStorage

if TYPE_CHECKING:
    from dagster._core.event_api import EventRecordsResult
    from dagster._core.events.log import EventLogEntry


class LastMaterialisations(InMemoryEventLogStorage):
    """What a run reads of the events before it. Every other question is answered from an empty database."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0
        self._last: dict[dg.AssetKey, AssetRecord] = {}

    def store_event(self, event: EventLogEntry) -> None:
        told = event.dagster_event
        if told is None or not told.is_step_materialization or told.asset_key is None:
            return
        self._count += 1
        entry = AssetEntry(
            asset_key=told.asset_key,
            last_materialization_record=EventLogRecord(storage_id=self._count, event_log_entry=event),
            last_run_id=event.run_id,
        )
        self._last[told.asset_key] = AssetRecord(storage_id=self._count, asset_entry=entry)

    def get_asset_records(self, asset_keys: Sequence[dg.AssetKey] | None = None) -> Sequence[AssetRecord]:
        wanted = self._last if asset_keys is None else asset_keys
        return [self._last[key] for key in wanted if key in self._last]

    def fetch_observations(
        self,
        records_filter: object,
        limit: int,
        cursor: str | None = None,
        ascending: bool = False,  # noqa: FBT001, FBT002 - Dagster's own signature
    ) -> EventRecordsResult:
        return dg.EventRecordsResult([], cursor or "", has_more=False)


def scratch_instance() -> dg.DagsterInstance:
    """As `DagsterInstance.ephemeral()` makes it, but for the events. Close it by `dispose`."""
    return dg.DagsterInstance(
        instance_type=InstanceType.EPHEMERAL,
        local_artifact_storage=TemporaryLocalArtifactStorage(),
        run_storage=InMemoryRunStorage(),
        event_storage=LastMaterialisations(),
        compute_log_manager=NoOpComputeLogManager(),
        run_coordinator=DefaultRunCoordinator(),
        run_launcher=SyncInMemoryRunLauncher(),
    )
