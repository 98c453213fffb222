"""`prune`: the only command that deletes."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from modelplane_dagster.cli.options import fleet_paths, format_option
from modelplane_dagster.cli.output import console, print_json
from modelplane_dagster.errors import ConfigError, RefusedError, UnreadableError
from resources.files import load_fleet
from resources.prune import PrunePlan, plan_prune, prune
from resources.session import open_session
from resources.settings import from_environment

REFUSED, IN_USE = 3, 5


@click.command("prune")
@click.argument("subject")
@click.option("--fingerprint", help="What an earlier call printed: with it, prune acts.")
@click.option("--unreachable", is_flag=True, help="The cluster's API is gone: go by the cloud's evidence.")
@click.option("--fleet", "paths", multiple=True, type=click.Path(path_type=Path), help="Files or folders of manifests.")
@format_option
def command(
    subject: str,
    fingerprint: str | None,
    unreachable: bool,  # noqa: FBT001 - click passes flags so
    paths: tuple[Path, ...],
    form: str,
) -> int:
    """Delete SUBJECT: cluster/C, pool/C/P, component/C/KEY or deployment/NS/NAME. Without a fingerprint, say what would go."""
    if fingerprint == "":
        raise ConfigError("--fingerprint is empty: give what prune prints without it, or leave it out.")
    settings = from_environment()
    fleet = load_fleet(fleet_paths(paths, settings))
    with open_session(settings, fleet) as session:
        try:
            if fingerprint is None:
                planned = plan_prune(session, subject, unreachable=unreachable)
                _show(planned, form, done=False)
                return IN_USE if planned.users else 0
            _show(prune(session, subject, fingerprint, unreachable=unreachable), form, done=True)
        except RefusedError as error:
            click.echo(f"modelplane-dagster: {error.message}", err=True)
            return IN_USE if any(f.code == "InUse" for f in error.findings) else REFUSED
        except UnreadableError as error:
            click.echo(f"modelplane-dagster: {error.message}", err=True)
            return IN_USE
    return 0


def _show(planned: PrunePlan, form: str, *, done: bool) -> None:
    if form == "json":
        print_json({**planned.as_dict(), "done": done})
        return
    out = console()
    out.print(Text(f"{'Pruned' if done else 'Would go with'} {planned.subject}", "bold"))
    for line in planned.goes:
        out.print(f"  {line}", markup=False)
    for line in planned.takes_along:
        out.print(Text(f"  the chart's own hooks take along: {line}", "yellow"), overflow="fold")
    for line in planned.users:
        out.print(Text(f"  in use: {line}", "red"), overflow="fold")
    if planned.stays:
        out.print("  stays on the cluster; where nothing else uses it, remove it with", markup=False)
    for line in planned.stays:
        # One line each, however long: it is there to be copied.
        out.print(f"    {line}", markup=False, soft_wrap=True)
    empty = len(planned.goes) == 1 and planned.goes[0].startswith("nothing")
    if not done and not planned.users and not empty:
        out.print(
            f"To do it: modelplane-dagster prune {planned.subject} --fingerprint {planned.fingerprint}", markup=False
        )
