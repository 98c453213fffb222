"""`explain`: which component serves which pool, and why."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from modelplane_dagster.cli.options import fleet_paths, format_option
from modelplane_dagster.cli.output import console, print_findings, print_json
from modelplane_dagster.cluster import PoolView
from modelplane_dagster.cluster_plan import ClusterPlan, Planner
from modelplane_dagster.errors import ConfigError
from resources.files import load_fleet
from resources.settings import from_environment


@click.command("explain")
@click.argument("subject", metavar="CLUSTER[/POOL]")
@click.option("--fleet", "paths", multiple=True, type=click.Path(path_type=Path), help="Files or folders of manifests.")
@format_option
def command(subject: str, paths: tuple[Path, ...], form: str) -> int:
    """Say which component serves which pool of a cluster, and why."""
    settings = from_environment()
    name, _, pool_name = subject.partition("/")
    planner = Planner(load_fleet(fleet_paths(paths, settings)), settings.overlay())
    if name not in planner.names():
        msg = f"No manifest names a cluster {name}; there is {', '.join(planner.names()) or 'none'}."
        raise ConfigError(msg)
    plan = planner.plan(name)
    pools = plan.view.pools if plan.view else ()
    if pool_name and pool_name not in {p.name for p in pools}:
        msg = f"Cluster {name} has no pool {pool_name}; it has {', '.join(p.name for p in pools) or 'none that is known'}."
        raise ConfigError(msg)
    chosen = tuple(p for p in pools if not pool_name or p.name == pool_name)
    if form == "json":
        print_json(document(plan, chosen))
    else:
        _print(console(), plan, chosen)
    return 0


def document(plan: ClusterPlan, pools: tuple[PoolView, ...]) -> dict[str, object]:
    return {
        "cluster": plan.name,
        "source": plan.source,
        "verdict": plan.gate.verdict,
        "pools": [
            {
                "name": p.name,
                "role": p.role.value,
                "drivers": {d: _why(p, d) for d in p.drivers},
                "servedBy": [{"component": c.key, "reason": c.reason} for c in plan.serving(p.name)],
            }
            for p in pools
        ],
        "leftOut": [
            {"component": c.key, "reason": c.reason}
            for c in (plan.join.components if plan.join else ())
            if not c.install
        ],
        "findings": [f.as_dict() for f in plan.gate.findings],
    }


def _why(pool: PoolView, driver: str) -> str:
    names = ", ".join(d.name for d in pool.devices if d.driver == driver and d.claim == "DRA")
    return f"class {pool.class_name} claims its device {names}"


def _print(out: Console, plan: ClusterPlan, pools: tuple[PoolView, ...]) -> None:
    out.print(Text.assemble((plan.name, "bold"), f"  {plan.source}  {plan.gate.verdict}"))
    print_findings(out, plan.gate.findings, indent="  ")
    for pool in pools:
        out.print(Text.assemble("  pool ", (pool.name, "bold"), f"  role {pool.role.value}, {pool.count} nodes"))
        for driver in pool.drivers:
            out.print(f"    {driver}: {_why(pool, driver)}", markup=False)
        for joined in plan.serving(pool.name):
            out.print(Text.assemble("    served by ", (joined.key, "green"), f": {joined.reason}"), overflow="fold")
        if not plan.serving(pool.name):
            out.print("    served by nothing: it claims no driver that a component serves")
    left = [c for c in (plan.join.components if plan.join else ()) if not c.install]
    if left:
        out.print(Text("  left out", "dim"))
        for joined in left:
            out.print(Text(f"    {joined.key}: {joined.reason}", "dim"), overflow="fold")
