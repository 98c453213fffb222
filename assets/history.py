"""What passes saw last, kept in the default instance: a materialisation an asset and an evaluation a check, with no run.

The passes themselves run on an instance in memory. Dagster's SQLite takes some forty connections and commits an asset,
which was more than half of a reconcile's time (measured on the demo fleet); the UI shows these records all the same.
"""

from __future__ import annotations

from collections.abc import Iterable

import dagster as dg


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
                self._judged[(judged.asset_key, judged.check_name)] = dg.AssetCheckEvaluation(
                    asset_key=judged.asset_key,
                    check_name=judged.check_name,
                    passed=judged.passed,
                    severity=judged.severity,
                    description=judged.description,
                    metadata=judged.metadata,
                )

    def keep(self, instance: dg.DagsterInstance) -> None:
        """Writes them, materialisations first; nothing where no pass ran."""
        for made in self._made.values():
            instance.report_runless_asset_event(made)
        for judged in self._judged.values():
            instance.report_runless_asset_event(judged)
        self._made.clear()
        self._judged.clear()
