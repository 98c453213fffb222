"""Options and arguments that commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from modelplane_dagster.errors import ConfigError
from resources.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
_LONG = 200


def format_option(function: F) -> F:
    option = click.option(
        "--format",
        "form",
        type=click.Choice(["text", "json"]),
        default="text",
        help="Text for people, or JSON alone on stdout.",
    )
    return option(function)


def paths_argument(*, required: bool) -> Callable[[F], F]:
    return click.argument("paths", nargs=-1, required=required, type=click.Path(path_type=Path))


def fleet_paths(paths: tuple[Path, ...], settings: Settings) -> tuple[Path, ...]:
    """The paths given, else the configured fleet's. Raises ConfigError for a path that isn't there."""
    chosen = paths or settings.fleet
    for path in chosen:
        if not os.path.lexists(path):
            msg = f"{_shown(path)} isn't there."
            raise ConfigError(msg)
    return chosen


def _shown(path: Path) -> str:
    text = str(path)
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."
