"""One in-process run of the converge job over a selection: the command line's passes and the benchmarks use it."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from assets.session import RESOURCE


def execute(
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    keys: Sequence[dg.AssetKey],
    *,
    tags: dict[str, str] | None = None,
) -> dg.ExecuteInProcessResult:
    """Steps wait for nothing, and what raises is in the result."""
    return job.execute_in_process(
        instance=instance,
        asset_selection=list(keys),
        raise_on_error=False,
        run_config={
            "resources": {RESOURCE: {"config": {"wait": 0.0}}},
            "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
        },
        tags=tags,
    )
