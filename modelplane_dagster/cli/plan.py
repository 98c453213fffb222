"""`plan`: what reconciling would do, without touching anything."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from modelplane_dagster.cli.options import fleet_paths, format_option, paths_argument
from modelplane_dagster.cli.output import console, print_findings, print_json
from modelplane_dagster.cli.plan_text import print_plan
from modelplane_dagster.findings import Severity, has_errors
from modelplane_dagster.plan import FleetPlan, plan_fleet
from modelplane_dagster.plan_json import plan_document
from resources.files import load_fleet
from resources.settings import Settings, from_environment

if TYPE_CHECKING:
    from modelplane_dagster.manifests.fleet import Fleet
    from modelplane_dagster.summary import ClusterSummary

# What is missing because it isn't installed yet: the plan above tells that already.
_NOT_YET = frozenset({"DaemonMissing", "DriverNotReady", "SliceMissing", "StackMissesPool", "QuotaMissing"})


@click.command("plan")
@paths_argument(required=False)
@click.option("--observe", is_flag=True, help="Look at the clouds and clusters, and plan against what stands there.")
@format_option
def command(paths: tuple[Path, ...], observe: bool, form: str) -> int:  # noqa: FBT001 - click passes flags so
    """Print what reconciling would do. Without --observe nothing live is read."""
    settings = from_environment()
    fleet = load_fleet(fleet_paths(paths, settings))
    seen: tuple[ClusterSummary, ...] = ()
    if observe:
        plan, seen = _observed(fleet, settings)
    else:
        plan = plan_fleet(fleet, overlay=settings.overlay())
    if form == "json":
        document = plan_document(plan)
        print_json({**document, "observed": [s.as_dict() for s in seen]} if observe else document)
    else:
        print_plan(console(), plan)
        print_seen(console(), seen)
    return exit_status(plan)


def exit_status(plan: FleetPlan) -> int:
    """1 for invalid manifests, 3 where a cluster or recipe is refused, else 0."""
    if has_errors(plan.findings):
        return 1
    return 3 if plan.refused else 0


def _observed(fleet: Fleet, settings: Settings) -> tuple[FleetPlan, tuple[ClusterSummary, ...]]:
    """The plan against what stands, and how each cluster stands: what its nodes lack is told here, before anything is
    installed."""
    # Imported here: a plan that reads nothing live needs no cloud SDK.
    from resources.session import open_session  # noqa: PLC0415 - as above

    with open_session(settings, fleet) as session:
        observed = session.observe_all()
        seen = tuple(session.summary(name, observed.get(name)) for name in session.planner.names())
        return plan_fleet(fleet, overlay=settings.overlay(), observed=observed), seen


def print_seen(out: Console, seen: Iterable[ClusterSummary]) -> None:
    """What was found on the clusters themselves; nothing of those where nothing was."""
    for summary in seen:
        hidden = _NOT_YET if summary.changes else frozenset[str]()
        found = [f for f in summary.findings if f.severity is not Severity.INFO and f.code not in hidden]
        if not found and summary.state != "unknown":
            continue
        out.print()
        out.print(
            Text.assemble(
                ("On ", "bold"), (summary.name, "bold"), f"  {summary.why if summary.state == 'unknown' else ''}"
            )
        )
        print_findings(out, found, indent="  ")
