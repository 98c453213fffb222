"""The Dagster code location: the configured fleet's graph. Everything is built by `assets.build.build_defs`."""

from __future__ import annotations

import dagster as dg

from assets.build import build_defs
from resources.files import load_fleet
from resources.settings import from_environment
from resources.world import open_world

_settings = from_environment()

defs: dg.Definitions = build_defs(load_fleet(_settings.fleet), _settings, lambda: open_world(_settings))
