"""Writes the pages that are made from tables: `python docs/generate.py`, from the project's root.

`findings.md` comes from the table of codes, `drivers.md` from the component lists and the sources' records, `recipes.md`
from each recipe's `recipe.yaml`. A test holds them current.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from modelplane_dagster.cli.drivers import matrix
from modelplane_dagster.cluster_plan import Overlay
from modelplane_dagster.codes import CODES
from modelplane_dagster.sources import SOURCES
from resources.recipes import RecipeFolder, read_recipes

MADE = "<!-- Made by docs/generate.py; change the tables, not this page. -->"

FINDINGS = """\
What the gate, the audits and the readers report. Codes are stable: tools may branch on them. `error` refuses or fails,
`warning` and `info` only tell. A finding's own message names what was expected and what was seen; its fix, where it gives
one of its own, is nearer than the one here. What *lasts* is mended by nobody's waiting: `reconcile` ends as soon as nothing
else is left, and goes on asking for the rest until its `--timeout`."""

DRIVERS = """\
Which DRA driver a cluster's pools may claim, by source, and the component that publishes its devices. It is derived from
the component lists, as `modelplane-dagster drivers` prints it; a site's overlay (`MODELPLANE_COMPONENTS`) changes that
command's answer and not this page. A dash means that the gate refuses the claim with `UnsupportedDevices`."""

EXTERNAL = """\
An Existing cluster may declare drivers that its team runs itself (`existing.externalDrivers`); see
[existing clusters](existing-clusters.md)."""

RECIPES = """\
A model on named hardware, each. A folder holds the manifests, what to type, and `recipe.yaml`, from which this page is made
and which says who has run it. The clusters and classes are the demo fleet's, repeated, so that a folder works alone."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in lines)


def findings_page() -> str:
    """Every code, by area, in the table's order."""
    parts = [
        MADE,
        "# Findings",
        FINDINGS,
    ]
    for area in dict.fromkeys(row.area for row in CODES.values()):
        rows = [
            (f"`{c}`", r.severity, "yes" if r.lasts else "", r.meaning, r.fix)
            for c, r in CODES.items()
            if r.area == area
        ]
        parts += [f"## {area}", table(("code", "severity", "lasts", "means", "do"), rows)]
    return "\n\n".join(parts) + "\n"


def drivers_page(overlay: Overlay | None = None) -> str:
    """The support matrix as `modelplane-dagster drivers` prints it, and what each source brings of its own. The shipped
    page is made without an overlay."""
    rows = matrix(overlay)
    drivers = sorted({driver for row in rows.values() for driver in row})
    return (
        "\n\n".join(
            [
                MADE,
                "# Drivers",
                DRIVERS,
                table(
                    ("source", *(f"`{d}`" for d in drivers)),
                    [(s, *(_cell(r.get(d)) for d in drivers)) for s, r in rows.items()],
                ),
                EXTERNAL,
                "## What each source brings",
                table(
                    ("source", "default Kubernetes", "lists need", "version as", "GPU driver on the nodes", "fabrics"),
                    [_source(name) for name in rows],
                ),
            ]
        )
        + "\n"
    )


def _cell(entry: dict[str, object] | None) -> str:
    if entry is None:
        return "-"
    via = entry.get("via")
    return ", ".join(f"`{v}`" for v in via) if isinstance(via, list) else f"external, {entry['external']}"


def _source(name: str) -> tuple[str, ...]:
    record = SOURCES[name].record
    fabrics = ", ".join(f for f in record.fabrics if f != "None")
    return (
        name,
        record.default_version or "the source's own",
        record.floor or "-",
        record.version_form.replace("<", "&lt;"),
        record.driver_image,
        fabrics or "-",
    )


def recipes_page() -> str:
    """Every recipe of `recipes/`, by name."""
    parts = [
        MADE,
        "# Recipes",
        RECIPES,
    ]
    parts += [_recipe(folder) for folder in read_recipes(ROOT / "recipes")]
    return "\n\n".join(parts) + "\n"


def _recipe(folder: RecipeFolder) -> str:
    recipe = folder.recipe
    claims = ", ".join(f"{d.count} {d.product} (`{d.driver}`)" for d in recipe.accelerators)
    runs = "; ".join(f"{v.hardware}, {v.date}, {v.versions}" for v in recipe.validated_on)
    rows = [
        ("model", f"`{recipe.model}`"),
        ("claims", claims),
        ("machines", recipe.machines),
        ("sources", ", ".join(recipe.sources)),
        ("images", ", ".join(f"`{i}`" for i in recipe.images)),
        ("run on", runs or recipe.not_validated or ""),
    ]
    return f"## [{recipe.title}](../recipes/{folder.name}/README.md)\n\n{table(('', ''), rows)}"


PAGES = {"findings.md": findings_page, "drivers.md": drivers_page, "recipes.md": recipes_page}


def main() -> None:
    for name, page in PAGES.items():
        (ROOT / "docs" / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
