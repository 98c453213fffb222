"""`drivers`: the source by driver support matrix, derived from the component lists."""

from __future__ import annotations

import click
from rich.table import Table

from modelplane_dagster.cli.options import format_option
from modelplane_dagster.cli.output import console, print_json
from modelplane_dagster.cluster import SOURCES
from modelplane_dagster.cluster_plan import Overlay
from modelplane_dagster.components.lists import components_for
from modelplane_dagster.components.support import supported
from resources.settings import from_environment


def matrix(overlay: Overlay | None) -> dict[str, dict[str, dict[str, object]]]:
    """By source and driver: `{"via": [keys]}` or `{"external": sentence}`."""
    result: dict[str, dict[str, dict[str, object]]] = {}
    for source in SOURCES:
        rows = supported(source, components_for(source, overlay))
        result[source] = {
            driver: {"external": row.external} if row.external else {"via": list(row.via)}
            for driver, row in sorted(rows.items())
        }
    return result


@click.command("drivers")
@format_option
def command(form: str) -> int:
    """Print which drivers each source supports, and through which component."""
    rows = matrix(from_environment().overlay())
    if form == "json":
        print_json(rows)
        return 0
    drivers = sorted({d for row in rows.values() for d in row})
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("source")
    for driver in drivers:
        table.add_column(driver, overflow="fold")
    for source, row in rows.items():
        table.add_row(source, *(_cell(row.get(d)) for d in drivers))
    console().print(table)
    return 0


def _cell(entry: dict[str, object] | None) -> str:
    if entry is None:
        return "-"
    via = entry.get("via")
    return ", ".join(str(v) for v in via) if isinstance(via, list) else f"external: {entry['external']}"
