"""What every asset of a fleet shares: owners, links to the manifest's line, the context that factories are given."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.session import RESOURCE

if TYPE_CHECKING:
    from modelplane_dagster.cluster_plan import Planner
    from modelplane_dagster.manifests.fleet import Fleet
    from resources.settings import Settings

# Dagster marks links to code as beta; a fleet makes hundreds, and each would warn.
warnings.filterwarnings(
    "ignore", message="Class `(LocalFileCodeReference|CodeReferencesMetadataValue)`", category=dg.BetaWarning
)

REQUIRES = {RESOURCE}
# What a run's pod asks for under dagster-k8s: one process that waits more than it works.
RUN_POD = {
    "dagster-k8s/config": {
        "container_config": {
            "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}}
        },
        "job_spec_config": {"ttl_seconds_after_finished": 3600},
    }
}
OWNERS = ["team:platform"]
SOURCE_KIND = {
    "EKS": "aws",
    "GKE": "gcp",
    "AKS": "azure",
    "Nebius": "nebius",
    "Vultr": "vultr",
    "Civo": "civo",
    "Existing": "kubernetes",
}


@dataclass(frozen=True, slots=True)
class Build:
    """What asset factories read: the fleet, the planner and the settings; never anything live."""

    fleet: Fleet
    planner: Planner
    settings: Settings

    def manifest_line(
        self, kind: str, name: str, namespace: str = "", path: tuple[str | int, ...] = ()
    ) -> dict[str, Any]:
        """Metadata that links to the manifest's line; empty where no file is known."""
        place = self.fleet.place(kind, name, path, namespace)
        if place is None:
            return {}
        file = Path(place.file)
        found = next((p for p in (file, *(f.parent / file for f in self.settings.fleet)) if p.is_file()), None)
        text = {"manifest": f"{place.file}:{place.line}"}
        if found is None:
            return text
        reference = dg.LocalFileCodeReference(
            file_path=str(found.resolve()), line_number=place.line, label=f"{kind} {name}"
        )
        return {**text, "dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference])}
