"""The default Dagster instance: SQLite under the product's home, made on first use."""

from __future__ import annotations

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
    config = folder / "dagster.yaml"
    if not config.exists():
        config.write_text(_CONFIG, encoding="utf-8")
    return dg.DagsterInstance.from_config(str(folder))
