"""`telemetry`: the OpenTelemetry collector's configuration for a cluster."""

from __future__ import annotations

from pathlib import Path

import click
import yaml

from modelplane_dagster.cli.options import fleet_paths, format_option
from modelplane_dagster.cli.output import print_json, print_plain
from modelplane_dagster.errors import ConfigError, ModelplaneError
from modelplane_dagster.findings import ordered
from modelplane_dagster.resolve import resolve
from modelplane_dagster.telemetry import collector_config
from resources.files import load_fleet
from resources.settings import from_environment


@click.command("telemetry")
@click.argument("cluster")
@click.option("--fleet", "paths", multiple=True, type=click.Path(path_type=Path), help="Files or folders of manifests.")
@format_option
def command(cluster: str, paths: tuple[Path, ...], form: str) -> int:
    """Print the configuration of the OpenTelemetry collector for CLUSTER: what it claims is what is scraped."""
    fleet = load_fleet(fleet_paths(paths, from_environment()))
    names = sorted({*fleet.clusters, *(name for kind, name in fleet.broken if kind == "InferenceCluster")})
    if cluster not in names:
        msg = f"No manifest names a cluster {cluster}; there is {', '.join(names) or 'none'}."
        raise ConfigError(msg)
    resolution = resolve(fleet, cluster)
    if resolution.view is None:
        found = ordered(resolution.findings)
        reasons = "; ".join(f"{f.code}: {f.message}" for f in found if f.severity.value == "error")
        msg = f"What cluster {cluster} claims is unknown, so there is no configuration for it. {reasons}".rstrip()
        raise ModelplaneError(msg, findings=found)
    config = collector_config(cluster, resolution.view.claimed)
    if form == "json":
        print_json(config)
        return 0
    if not config["service"]["pipelines"]:
        print_plain(f"# Cluster {cluster} claims no driver that has metrics: no collector is needed.\n")
    print_plain(yaml.safe_dump(config, sort_keys=False, width=120))
    return 0
