"""The root command, and the one place where errors become exit statuses."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from modelplane_dagster.errors import (
    ClusterBusyError,
    ConfigError,
    ModelplaneError,
    RefusedError,
    UnreadableError,
)

# Each command's module is imported when it is called: `plan` needs no cloud SDK and no Dagster.
COMMANDS = {
    "validate": "modelplane_dagster.cli.validate",
    "plan": "modelplane_dagster.cli.plan",
    "reconcile": "modelplane_dagster.cli.reconcile",
    "explain": "modelplane_dagster.cli.explain",
    "drivers": "modelplane_dagster.cli.drivers",
    "import-aicr": "modelplane_dagster.cli.import_aicr",
    "telemetry": "modelplane_dagster.cli.telemetry",
    "lab": "modelplane_dagster.cli.lab",
    "prune": "modelplane_dagster.cli.prune",
    "status": "modelplane_dagster.cli.status",
}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name]).command
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="modelplane-dagster", prog_name="modelplane-dagster")
def root() -> None:
    """Keep a fleet of Kubernetes inference clusters as its YAML manifests say."""


def exit_status(error: ModelplaneError) -> int:
    """Unusable arguments and settings are 2, a refusal 3, another writer or a failed read 4, anything else 1."""
    if isinstance(error, ConfigError):
        return 2
    if isinstance(error, RefusedError):
        return 3
    return 4 if isinstance(error, ClusterBusyError | UnreadableError) else 1


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; its exit status."""
    try:
        result = root.main(args=arguments, prog_name="modelplane-dagster", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return 2
    except click.Abort:
        click.echo("interrupted", err=True)
        return 130
    except ModelplaneError as error:
        click.echo(f"modelplane-dagster: {error.message}", err=True)
        return exit_status(error)
    except OSError as error:
        # A home or another configured place that can't be used; what the product itself reads and writes is told by kind.
        where = f" ({error.filename})" if error.filename else ""
        click.echo(f"modelplane-dagster: {error.strerror or type(error).__name__}{where}", err=True)
        return 2
    return result if isinstance(result, int) else 0


def collect_seldom() -> None:
    """Makes the garbage collector look for cycles less often: a plan makes millions of small objects and hardly a cycle,
    and by the defaults a third of its time goes into looking for some."""
    gc.set_threshold(50_000, 20, 50)


def leave(status: int) -> NoReturn:
    """Ends the process. The interpreter looks for cycles several times as it ends, two seconds where Dagster was loaded, to
    free what ends with the process anyhow: there is nothing left to look through."""
    gc.freeze()
    sys.exit(status)


def main() -> None:
    collect_seldom()
    leave(run())
