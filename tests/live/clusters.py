"""A lab cluster as somebody's own: a process of its own with MODELPLANE_TARGET=live, another home, and a kubeconfig."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from modelplane_dagster.errors import KubernetesError, UnreadableError
from resources.kubernetes import ClusterClient
from resources.settings import LabKind
from tests.e2e.site import ROOT, Site, eventually, site

OWN = ROOT / "examples" / "own" / "mine.yaml"
SEED = """
clusters:
  mine:
    version: "1.36.1"
    nodes:
    - {name: room, cpus: 8, memoryGiB: 32}
    - name: worker
      cpus: 8
      memoryGiB: 32
      labels: {modelplane.ai/pool: cpu, modelplane.ai/cpu: "true"}
      taints: [{key: modelplane.ai/cpu, value: "true"}]
"""


@dataclass(frozen=True, slots=True)
class Own:
    """`lab` is where the cluster really runs, `live` the process that knows nothing of it but a kubeconfig; `kind` says what
    answers its API."""

    lab: Site
    live: Site
    kind: LabKind = "embedded"

    def client(self, manager: str = "somebody") -> ClusterClient:
        """Who looks from outside, and isn't counted."""
        return ClusterClient(self.lab.lab.kubeconfig("mine", "user"), name="mine", manager=manager)

    def with_kubeconfig(self, config: Mapping[str, Any], name: str) -> Site:
        """The same process with another kubeconfig."""
        path = self.live.home.parent / f"{name}.kubeconfig"
        path.write_text(yaml.safe_dump(dict(config)))
        return replace(self.live, env={**self.live.env, "MODELPLANE_KUBECONFIG_MINE": str(path)})


@contextmanager
def own(folder: Path, kind: LabKind = "embedded") -> Iterator[Own]:
    with site(folder / "lab", seed=SEED, kind=kind) as lab:
        fleet, home = folder / "fleet", folder / "live"
        fleet.mkdir()
        shutil.copy(OWN, fleet / "mine.yaml")
        charts = folder / "charts"
        shutil.copytree(lab.home / "lab" / "charts", charts)
        env = {
            "MODELPLANE_TARGET": "live",
            "MODELPLANE_HOME": str(home),
            "MODELPLANE_FLEET": str(fleet),
            "MODELPLANE_GRACE": "1",
            "MODELPLANE_CHART_MIRROR": str(charts),
            "MODELPLANE_SECRETS": "",
            "DAGSTER_HOME": str(home / "dagster"),
        }
        bare = Own(lab, Site(fleet, home, env))
        made = Own(lab, bare.with_kubeconfig(lab.lab.kubeconfig("mine", "product"), "product"), kind)
        # The machines take a moment to join, and a fresh API a moment to serve every group.
        eventually(lambda: _settled(made.client()), within=90.0)
        yield made


def _settled(client: ClusterClient) -> bool:
    try:
        return len([n for n in names(client) if n.startswith("Node ")]) == 2
    except KubernetesError:
        return False


def names(client: ClusterClient) -> set[str]:
    """Every object of the cluster but its events."""
    groups = client._requests.read("/apis", {})["groups"]
    found: set[str] = set()
    for version in ["v1", *(g["preferredVersion"]["groupVersion"] for g in groups)]:
        for kind in _listed(client, version):
            found |= _names(client, version, kind)
    return found


def _listed(client: ClusterClient, version: str) -> list[str]:
    """The kinds that can be listed; none of a group that was withdrawn since its name was read."""
    root = "/apis/" if "/" in version else "/api/"
    try:
        rows = client._requests.read(root + version, {})["resources"]
    except KubernetesError as error:
        if error.status == 404:
            return []
        raise
    return [r["kind"] for r in rows if "/" not in r["name"] and "list" in r["verbs"] and r["kind"] != "Event"]


def _names(client: ClusterClient, version: str, kind: str) -> set[str]:
    try:
        bodies = client.list(version, kind)
    except (KubernetesError, UnreadableError):
        if client.serves(version, kind):
            raise
        # Withdrawn since its group was read.
        return set()
    return {f"{kind} {b['metadata'].get('namespace', '')}/{b['metadata']['name']}" for b in bodies}
