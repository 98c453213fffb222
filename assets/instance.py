"""The default Dagster instance: SQLite under the product's home, made on first use."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

if TYPE_CHECKING:
    from resources.settings import Settings

_CONFIG = """\
# Made by modelplane-dagster on first use; edit it as you like.
telemetry:
  enabled: false
nux:
  enabled: false
run_monitoring:
  enabled: true
"""


def open_instance(settings: Settings) -> dg.DagsterInstance:
    """The instance in DAGSTER_HOME, else under MODELPLANE_HOME: the one that `make ui` shows. Close it by `dispose`."""
    folder = settings.instance
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder / "opening.lock"):
        config = folder / "dagster.yaml"
        if not config.exists():
            config.write_text(_CONFIG, encoding="utf-8")
        return dg.DagsterInstance.from_config(str(folder))


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time: two that make Dagster's databases at once stamp their revision twice, after which no process
    opens them again (1.13.27)."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
