"""Which clusters and deployments runs are working on, and when the last run of each ended."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import dagster as dg

from assets.keys import owner

OBSERVE = "observe"
# Runs that may still write: their results must not be shadowed by an evaluation of ours, nor their clusters asked again.
IN_PROGRESS = (
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)
ENDED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
# After a long standstill the newest runs are enough: each cluster's last one is among them or long since observed.
AT_MOST = 1000


def touched(run: dg.DagsterRun, everything: Iterable[dg.AssetKey]) -> set[dg.AssetKey]:
    """The owners (see `keys.owner`) of the assets that a run works on. A run that names none works on `everything`;
    `observe` on nothing."""
    if run.job_name == OBSERVE:
        return set()
    chosen = run.asset_selection
    if chosen is None:
        checks = run.asset_check_selection
        chosen = frozenset(c.asset_key for c in checks) if checks else None
    return {owner(k) for k in (everything if chosen is None else chosen)}


def in_progress(instance: dg.DagsterInstance, everything: Iterable[dg.AssetKey]) -> set[dg.AssetKey]:
    """The owners of all assets that a run may still write."""
    known = tuple(everything)
    found: set[dg.AssetKey] = set()
    for record in instance.get_run_records(dg.RunsFilter(statuses=list(IN_PROGRESS))):
        found |= touched(record.dagster_run, known)
    return found


def ended_since(
    instance: dg.DagsterInstance, since: float, everything: Iterable[dg.AssetKey]
) -> dict[dg.AssetKey, float]:
    """By owner, when its last run ended, in seconds since the epoch; only of runs that ended after `since`."""
    known = tuple(everything)
    after = dg.RunsFilter(statuses=list(ENDED), updated_after=datetime.fromtimestamp(since, tz=UTC))
    found: dict[dg.AssetKey, float] = {}
    for record in instance.get_run_records(after, limit=AT_MOST):
        end = record.end_time or record.update_timestamp.timestamp()
        for key in touched(record.dagster_run, known):
            found[key] = max(end, found.get(key, 0.0))
    return {key: end for key, end in found.items() if end > since}
