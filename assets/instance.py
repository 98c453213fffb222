"""The default Dagster instance: SQLite under the product's home, made on first use."""

from __future__ import annotations

import fcntl
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
from sqlalchemy import event
from sqlalchemy.engine import Engine

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
  # A run of a killed machine would count as working on its clusters for ever.
  max_runtime_seconds: 7200
"""


def open_instance(settings: Settings) -> dg.DagsterInstance:
    """The instance in DAGSTER_HOME, else under MODELPLANE_HOME: the one that `make ui` shows. Close it by `dispose`."""
    folder = settings.instance
    folder.mkdir(parents=True, exist_ok=True)
    _spare_syncs()
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


def _spare_syncs() -> None:
    """SQLite doesn't wait for the disk in this process: Dagster commits some thirty times an asset, and the waits were a third
    of a pass (measured). A killed process loses nothing; a machine without power may lose the history of its last runs,
    which nothing that reconciles goes by."""
    if not event.contains(Engine, "connect", _no_sync):
        event.listen(Engine, "connect", _no_sync)


def _no_sync(connection: object, _record: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=OFF")
