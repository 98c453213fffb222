"""`validate`: reads manifests, checks schema and cross-references."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from modelplane_dagster.cli.options import fleet_paths, format_option, paths_argument
from modelplane_dagster.cli.output import console, print_findings, print_json
from modelplane_dagster.findings import Finding, has_errors, ordered
from resources.files import load_fleet
from resources.settings import from_environment

if TYPE_CHECKING:
    from modelplane_dagster.manifests.fleet import Fleet


@click.command("validate")
@paths_argument(required=True)
@format_option
def command(paths: tuple[Path, ...], form: str) -> int:
    """Read manifests (files or folders) and check schema and cross-references."""
    fleet = load_fleet(fleet_paths(paths, from_environment()))
    findings: tuple[Finding, ...] = ordered(fleet.findings)
    if form == "json":
        print_json({"findings": [f.as_dict() for f in findings]})
    else:
        out = console()
        print_findings(out, findings)
        errors = sum(f.severity.value == "error" for f in findings)
        out.print(f"{_counts(fleet)}; {errors} errors, {len(findings) - errors} other findings.")
    return 1 if has_errors(findings) else 0


def _counts(fleet: Fleet) -> str:
    """How many objects of each kind that is acted on, the invalid ones among them."""
    valid = {
        "InferenceCluster": ("clusters", len(fleet.clusters)),
        "InferenceClass": ("classes", len(fleet.classes)),
        "ModelDeployment": ("deployments", len(fleet.deployments)),
    }
    invalid = Counter(kind for kind, _ in fleet.broken)
    return ", ".join(
        f"{count + invalid[kind]} {word}" + (f" ({invalid[kind]} invalid)" if invalid[kind] else "")
        for kind, (word, count) in valid.items()
    )
