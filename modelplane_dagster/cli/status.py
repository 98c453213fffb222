"""`status`: what stands now, read and not touched."""

from __future__ import annotations

from pathlib import Path

import click

from modelplane_dagster.cli.fleet_table import print_fleet
from modelplane_dagster.cli.options import fleet_paths, format_option, paths_argument
from modelplane_dagster.cli.output import console, print_json
from modelplane_dagster.errors import UnreadableError
from resources.files import load_fleet
from resources.session import open_session
from resources.settings import from_environment


@click.command("status")
@paths_argument(required=False)
@format_option
def command(paths: tuple[Path, ...], form: str) -> int:
    """Look at every cluster and say how it stands. Exit status 0 when all is converged, 3 refused, 4 otherwise."""
    settings = from_environment()
    fleet = load_fleet(fleet_paths(paths, settings))
    from assets.model_state import model_state  # noqa: PLC0415 - Dagster is only imported by the commands that need it
    from assets.passes import Look  # noqa: PLC0415 - as above

    with open_session(settings, fleet) as session:
        plan = session.fleet_plan()
        observed = plan.observed
        if observed is None:
            msg = "The fleet wasn't observed."
            raise UnreadableError(msg)
        clusters = {name: session.summary(name, observed.get(name)) for name in session.planner.names()}
        look = Look(plan, clusters, {(p.namespace, p.name): model_state(plan, p) for p in plan.placements})
    if form == "json":
        print_json(
            {"clusters": [s.as_dict() for s in clusters.values()], "orphans": [o.as_dict() for o in plan.orphans]}
        )
    else:
        print_fleet(console(), look)
    if look.settled and not look.refused:
        return 0
    return 3 if look.refused else 4
