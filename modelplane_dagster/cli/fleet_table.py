"""What stands, as a table: cluster, pool, role, drivers, served by, devices, recipes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from modelplane_dagster.cli.output import print_findings
from modelplane_dagster.findings import Finding, Severity

if TYPE_CHECKING:
    from assets.passes import Look
    from modelplane_dagster.audit.health import PoolHealth
    from modelplane_dagster.summary import ClusterSummary

_STYLE = {"converged": "green", "refused": "bold red", "pending": "yellow", "differs": "yellow", "unknown": "red"}
_POOL = {"ready": "green", "idle": "cyan", "pending": "yellow", "unhealthy": "red", "unknown": "red"}


def print_fleet(out: Console, look: Look) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("cluster", "source", "pool", "role", "drivers", "served by", "devices", "recipes"):
        table.add_column(column, overflow="fold")
    recipes = _recipes(look)
    for plan in look.plan.clusters:
        summary = look.clusters[plan.name]
        health = {h.pool: h for h in summary.health}
        pools = plan.view.pools if plan.view else ()
        for number, pool in enumerate(pools):
            table.add_row(
                Text(plan.name, _STYLE[summary.state]) if number == 0 else "",
                plan.source if number == 0 else "",
                pool.name,
                pool.role.value,
                "\n".join(pool.drivers) or "-",
                "\n".join(c.key for c in plan.serving(pool.name) if c.component.publishes) or "-",
                _devices(health.get(pool.name)),
                "\n".join(recipes.get((plan.name, pool.name), ())) or "-",
            )
        if not pools:
            table.add_row(Text(plan.name, _STYLE[summary.state]), plan.source or "?", "-", "-", "-", "-", "-", "-")
    out.print(table)
    _problems(out, look)


def _devices(health: PoolHealth | None) -> Text:
    if health is None:
        return Text("unknown", "red")
    counts: Counter[str] = Counter()
    for row in health.devices:
        counts[row.driver] += row.devices
    told = "\n".join(f"{n} of {driver}" for driver, n in sorted(counts.items()))
    state = "" if health.state == "ready" else f"{health.state} "
    return Text(f"{state}{told}".strip() or health.state, _POOL[health.state])


def _recipes(look: Look) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for placement in look.plan.placements:
        state, _ = look.models[(placement.namespace, placement.name)]
        for replica in placement.replicas:
            for pool in dict.fromkeys(m.pool for e in replica.engines for m in e.members):
                found.setdefault((replica.cluster, pool), []).append(f"{placement.name} ({state})")
    return found


def _problems(out: Console, look: Look) -> None:
    for name, summary in look.clusters.items():
        if summary.state == "converged" and not _loud(summary):
            continue
        out.print()
        out.print(Text.assemble((name, "bold"), "  ", (summary.state, _STYLE[summary.state]), f"  {summary.why}"))
        print_findings(out, _loud(summary), indent="  ")
    for (namespace, name), (state, why) in look.models.items():
        if state != "serving":
            out.print()
            out.print(Text.assemble((f"{namespace}/{name}", "bold"), "  ", (state, "yellow"), f"  {why}"))
    orphans = look.plan.orphans
    if orphans:
        out.print()
        out.print(Text("Left over (kept until pruned)", "bold yellow"))
        for orphan in orphans:
            out.print(f"  {orphan.subject}: {orphan.reason}\n    {orphan.prune}", markup=False)


def _loud(summary: ClusterSummary) -> list[Finding]:
    return [f for f in summary.findings if f.severity is not Severity.INFO]
