"""What passes saw last, kept in the default instance: a materialisation an asset and an evaluation a check, with no run.

The passes themselves run on an instance in memory. Dagster's SQLite takes some forty connections and commits an asset,
which was more than half of a reconcile's time (measured on the demo fleet); the UI shows these records all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING

import dagster as dg
from dagster._core.storage.event_log import SqliteEventLogStorage
from sqlalchemy import create_engine

from assets.evaluations import evaluation

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

# How long, in seconds, a write waits for another process's: as long as Dagster's own.
_BUSY = 30


class History:
    """The newest record of each asset and check."""

    def __init__(self) -> None:
        self._made: dict[dg.AssetKey, dg.AssetMaterialization] = {}
        self._judged: dict[tuple[dg.AssetKey, str], dg.AssetCheckEvaluation] = {}

    def take(self, events: Iterable[dg.DagsterEvent]) -> None:
        """The materialisations and evaluations among a run's events."""
        for event in events:
            if event.event_type_value == "ASSET_MATERIALIZATION":
                made = event.step_materialization_data.materialization
                self._made[made.asset_key] = made
            elif event.event_type_value == "ASSET_CHECK_EVALUATION":
                judged = event.asset_check_evaluation_data
                # What it points at is the run in memory, which is gone by the time anyone looks.
                self._judged[(judged.asset_key, judged.check_name)] = evaluation(judged)

    def keep(self, instance: dg.DagsterInstance) -> None:
        """Writes them, materialisations first; nothing where no pass ran."""
        with _one_transaction(instance):
            for made in self._made.values():
                instance.report_runless_asset_event(made)
            for judged in self._judged.values():
                instance.report_runless_asset_event(judged)
        self._made.clear()
        self._judged.clear()


@contextmanager
def _one_transaction(instance: dg.DagsterInstance) -> Iterator[None]:
    """On SQLite, all writes of the block go through one connection and transaction a database: Dagster makes an engine and a
    connection for each of its statements, four times the processor time of the writes themselves (measured on 1.13.27).
    Another storage is left as it is."""
    storage = instance.event_log_storage
    # There is no public way, so another Dagster may not have this one: the writes are then only slower.
    connect = getattr(storage, "_connect", None)
    if not isinstance(storage, SqliteEventLogStorage) or connect is None:
        yield
        return
    opened: dict[str, Connection] = {}
    with ExitStack() as stack:

        @contextmanager
        def kept(shard: str) -> Iterator[Connection]:
            if shard not in opened:
                with connect(shard):
                    # Makes the database where it isn't there yet.
                    pass
                engine = create_engine(storage.conn_string_for_shard(shard), connect_args={"timeout": _BUSY})
                stack.callback(engine.dispose)
                opened[shard] = stack.enter_context(engine.begin())
            yield opened[shard]

        storage._connect = kept  # type: ignore[method-assign]  # taken back below
        stack.callback(lambda: storage.__dict__.pop("_connect"))
        # It looks the same table up for each evaluation, and no table comes or goes meanwhile.
        storage.has_table = cache(storage.has_table)  # type: ignore[method-assign]  # taken back below
        stack.callback(lambda: storage.__dict__.pop("has_table"))
        yield
