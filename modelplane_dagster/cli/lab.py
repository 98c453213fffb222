"""`lab`: the embedded lab: up, status, down, kubeconfigs, faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import yaml
from rich.table import Table

from modelplane_dagster.cli.options import fleet_paths, format_option
from modelplane_dagster.cli.output import console, print_json
from modelplane_dagster.errors import ConfigError, NotReadyError
from resources.files import load_fleet
from resources.lab.client import LabClient, LabError, ensure_running, stop
from resources.settings import Settings, from_environment


def _home(settings: Settings) -> Any:  # noqa: ANN401 - a Path
    return settings.home / "lab"


@click.group("lab")
def command() -> None:
    """The embedded lab: simulated clouds and clusters on loopback."""


@command.command("up")
@format_option
def up(form: str) -> int:
    """Start the lab; one that runs is left as it is."""
    settings = from_environment()
    client = ensure_running(_home(settings), settings.lab_kind)
    return _show(client.status(), form)


@command.command("down")
@format_option
def down(form: str) -> int:
    """Stop the lab; its state stays on disk."""
    stopped = stop(_home(from_environment()))
    if form == "json":
        print_json({"stopped": stopped})
    else:
        click.echo("The lab is stopped." if stopped else "No lab was running.")
    return 0


@command.command("status")
@format_option
def status(form: str) -> int:
    """Say what runs, with the reads, writes and deletes that each API took. 1 when no lab runs."""
    try:
        found = LabClient(_home(from_environment())).status()
    except NotReadyError as error:
        if form == "json":
            print_json({"running": False, "clusters": [], "clouds": {}})
        else:
            click.echo(error.message)
        return 1
    return _show(found, form)


@command.command("kubeconfig")
@click.argument("cluster")
def kubeconfig(cluster: str) -> int:
    """Write a kubeconfig of a lab cluster and print its path."""
    home = _home(from_environment())
    try:
        config = LabClient(home).kubeconfig(cluster, "user")
    except LabError as error:
        raise ConfigError(error.message) from error
    folder = home / "kubeconfigs"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{cluster}.yaml"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    click.echo(str(path))
    return 0


@command.group("fault")
def fault() -> None:
    """Make the lab misbehave, or behave again."""


_fleet_option = click.option(
    "--fleet", "paths", multiple=True, type=click.Path(path_type=Path), help="Files or folders of manifests."
)


@fault.command("set")
@click.argument("subject")
@click.argument("kind")
@_fleet_option
def fault_set(subject: str, kind: str, paths: tuple[Path, ...]) -> int:
    """SUBJECT is cluster/C, pool/C/P or cloud/SOURCE, of the lab or of the fleet; KIND one of the lab's fault kinds."""
    return _fault(subject, kind, paths, on=True)


@fault.command("clear")
@click.argument("subject")
@click.argument("kind")
@_fleet_option
def fault_clear(subject: str, kind: str, paths: tuple[Path, ...]) -> int:
    """Lift a fault."""
    return _fault(subject, kind, paths, on=False)


def _fault(subject: str, kind: str, paths: tuple[Path, ...], *, on: bool) -> int:
    # Imported here: only faults need the lab's insides.
    from resources.lab.subjects import check_fault, known_subjects  # noqa: PLC0415 - as above

    settings = from_environment()
    fleet = load_fleet(fleet_paths(paths, settings))
    client = ensure_running(_home(settings), settings.lab_kind)
    known = known_subjects(client, fleet)
    # A fault outlives the manifest of what it was set on, and is lifted all the same.
    check_fault(subject, kind, known if on or subject not in _troubled(client.status()) else {subject})
    try:
        client.fault(subject, kind, on=on)
    except LabError as error:
        raise ConfigError(error.message) from error
    click.echo(f"{subject}: {kind} {'set' if on else 'cleared'}")
    return 0


def _troubled(status: dict[str, Any]) -> set[str]:
    """What a fault is set on."""
    told = [text for row in (*status["clusters"], *status.get("clouds", {}).values()) for text in row["faults"]]
    named = {text.partition(" ")[0] for text in told if " " in text}
    return named | {f"cluster/{row['name']}" for row in status["clusters"] if row["faults"]}


def _show(found: dict[str, Any], form: str) -> int:
    if form == "json":
        print_json({"running": True, **found})
        return 0
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("API", "version", "reads", "writes", "deletes", "faults"):
        table.add_column(column)
    for name, row in found.get("clouds", {}).items():
        table.add_row(f"cloud {name}", "-", *_counts(row), ", ".join(row["faults"]) or "-")
    for row in found["clusters"]:
        table.add_row(f"cluster {row['name']}", row["version"], *_counts(row), ", ".join(row["faults"]) or "-")
    out = console()
    out.print(table)
    out.print(f"process {found['pid']}, {found['address']}")
    return 0


def _counts(row: dict[str, Any]) -> tuple[str, str, str]:
    return str(row.get("reads", 0)), str(row.get("writes", 0)), str(row.get("deletes", 0))
