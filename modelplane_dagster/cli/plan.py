"""`plan`: what reconciling would do, without touching anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from modelplane_dagster.cli.options import fleet_paths, format_option, paths_argument
from modelplane_dagster.cli.output import console, print_json
from modelplane_dagster.cli.plan_text import print_plan
from modelplane_dagster.findings import Finding, finding, has_errors
from modelplane_dagster.judgement import judge_live
from modelplane_dagster.known import Unknown
from modelplane_dagster.plan import FleetPlan, plan_fleet
from modelplane_dagster.plan_json import plan_document
from resources.files import load_fleet
from resources.settings import Settings, from_environment

if TYPE_CHECKING:
    from modelplane_dagster.cluster_plan import ClusterPlan
    from modelplane_dagster.manifests.fleet import Fleet


@click.command("plan")
@paths_argument(required=False)
@click.option("--observe", is_flag=True, help="Look at the clouds and clusters, and plan against what stands there.")
@format_option
def command(paths: tuple[Path, ...], observe: bool, form: str) -> int:  # noqa: FBT001 - click passes flags so
    """Print what reconciling would do. Without --observe nothing live is read."""
    settings = from_environment()
    fleet = load_fleet(fleet_paths(paths, settings))
    plan = _observed(fleet, settings) if observe else plan_fleet(fleet, overlay=settings.overlay())
    if form == "json":
        print_json(plan_document(plan))
    else:
        print_plan(console(), plan)
    return exit_status(plan)


def exit_status(plan: FleetPlan) -> int:
    """1 for invalid manifests, 3 where a cluster or recipe is refused, else 0."""
    if has_errors(plan.findings):
        return 1
    return 3 if plan.refused else 0


def _observed(fleet: Fleet, settings: Settings) -> FleetPlan:
    # Imported here: a plan that reads nothing live needs no cloud SDK.
    from resources.session import open_session  # noqa: PLC0415 - as above

    with open_session(settings, fleet) as session:
        plan = plan_fleet(fleet, overlay=settings.overlay(), observed=session.observe_all())
    return replace(plan, live={c.name: _judged(c, plan, settings.grace) for c in plan.clusters})


def _judged(cluster: ClusterPlan, plan: FleetPlan, grace: float) -> tuple[Finding, ...]:
    """What the audits say of what runs, and why what couldn't be read couldn't; empty where the gate stands before it."""
    observed = (plan.observed or {}).get(cluster.name)
    if cluster.gate.verdict != "pass" or observed is None:
        return ()
    problems = observed.problems()
    if isinstance(observed.control_plane, Unknown) and not problems:
        problems = (finding("ReadFailed", f"cluster/{cluster.name}", observed.control_plane.why),)
    if observed.live is None or isinstance(observed.control_plane, Unknown):
        return problems
    return (*problems, *judge_live(cluster, observed, grace=grace).findings)
