"""`import-aicr`: makes the component list of EKS, GKE or AKS from what AICR wrote."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click
import orjson
import yaml
from rich.text import Text

from modelplane_dagster.cli.options import format_option
from modelplane_dagster.cli.output import console, print_findings, print_json
from modelplane_dagster.components.lists import components_for
from modelplane_dagster.errors import ConfigError
from modelplane_dagster.importer.imports import import_bundle
from modelplane_dagster.importer.tables import SOURCES as RECIPE_SOURCES
from modelplane_dagster.importer.types import Import
from modelplane_dagster.sources import SOURCES
from resources.aicr import read_inputs

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("import-aicr")
@click.argument("source", type=click.Choice(RECIPE_SOURCES, case_sensitive=False))
@click.argument("recipe", type=_FILE)
@click.argument("bundle", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("floors", nargs=-1, metavar="[FLOOR...]", type=_FILE)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the list there as well, as JSON where the name ends in .json and as YAML otherwise.",
)
@format_option
def command(source: str, recipe: Path, bundle: Path, floors: tuple[Path, ...], output: Path | None, form: str) -> int:
    """Make the component list of SOURCE from a RECIPE, its BUNDLE and recipes with an accelerator (FLOOR)."""
    if output is not None and not output.absolute().parent.is_dir():
        msg = f"{output.absolute().parent} isn't a folder."
        raise ConfigError(msg)
    made = import_bundle(
        source,
        read_inputs(recipe, bundle, floors),
        default_version=SOURCES[source].record.default_version,
        shipped=components_for(source),
    )
    if output is not None and not made.refused:
        _write(output, made)
    if form == "json":
        print_json(made.as_dict())
    else:
        _print(made, output)
    return 1 if made.refused else 0


def _write(path: Path, made: Import) -> None:
    """The whole document, or nothing: it is written beside the file and moved into its place."""
    document = made.as_dict()
    if path.suffix == ".json":
        data = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    else:
        data = yaml.dump(document, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=120).encode()
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.absolute().parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            # mkstemp's files are their owner's alone; a list is no secret.
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        msg = f"{path} can't be written: {error.strerror or error}"
        raise ConfigError(msg) from error


class _Plain(yaml.SafeDumper):
    """Without anchors: the same value in two places is two values."""

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


def _print(made: Import, output: Path | None) -> None:
    out = console()
    for component in made.components:
        tags = ", ".join(component.drivers) or "every cluster"
        chart = f"{component.chart} {component.version}" if component.chart else "manifests"
        out.print(Text.assemble((component.key, "bold"), f"  {chart}  ({tags})"))
    for dropped in made.dropped:
        out.print(Text(f"dropped {dropped.name}: {dropped.reason}", "dim"), overflow="fold")
    for change in made.changes:
        out.print(Text(f"changed {change.component} {change.path}: {change.reason}", "dim"), overflow="fold")
    print_findings(out, made.findings)
    errors = sum(f.severity.value == "error" for f in made.findings)
    if made.refused:
        out.print(f"Refused for {errors} errors; nothing was written.")
        return
    where = f", written to {output}" if output else ""
    floor = f", Kubernetes {made.floor} or newer" if made.floor else ""
    total = f"{len(made.components)} components for {made.source}{floor}; {len(made.changes)} changes{where}."
    out.print(total, markup=False, soft_wrap=True)
