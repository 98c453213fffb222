"""The public project's own manifests, unchanged: every object is read, and nothing is dropped in silence."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from modelplane_dagster.findings import Severity
from modelplane_dagster.manifests.fleet import build_fleet
from resources.files import read_paths
from tests.shared import SHARED, shared

FILES = sorted(str(p.relative_to(SHARED)) for p in (SHARED / "manifests").rglob("*.yaml"))
FOLDERS = ["concepts", "overview", *(f"getting-started/{name}" for name in ("aks", "eks", "gke", "nebius", "vultr"))]


def accounted(paths: list[Path]):
    """The fleet, with a check that each document is in it or behind a notice of its kind."""
    files, found = read_paths(paths)
    assert found == []
    fleet = build_fleet(files)
    documents = [d for _, data in files for d in yaml.load_all(data, Loader=yaml.CSafeLoader) if d]
    counted = len(fleet.classes) + len(fleet.clusters) + len(fleet.deployments) + len(fleet.provider_configs)
    counted += sum(int(f.message.split()[0]) for f in fleet.findings if f.code in ("ForeignKind", "NotActedOn"))
    assert counted == len(documents)
    return fleet


@pytest.mark.parametrize("name", FILES or ["absent"])
def test_a_file_alone_misses_classes_at_most(name):
    fleet = accounted([shared(name)])
    assert {f.code for f in fleet.findings if f.severity is not Severity.INFO} <= {"ClassNotFound"}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_provider_s_folder_is_a_clean_fleet(name):
    fleet = accounted([shared("manifests", *name.split("/"))])
    assert [f for f in fleet.findings if f.severity is not Severity.INFO] == []


def test_the_five_provider_configs():
    fleet = accounted(sorted(shared("manifests", "getting-started").glob("clusterproviderconfig-*.yaml")))
    assert [(c.provider, c.name, c.project, c.secret and c.secret.name) for c in fleet.provider_configs] == [
        ("AKS", "default", "", "azure-credentials"),
        ("EKS", "default", "", "aws-creds"),
        ("GKE", "default", "my-gcp-project", "gcp-creds"),
        ("Nebius", "default", "project-e00example", "nebius-credentials"),
        ("Vultr", "default", "", "vultr-credentials"),
    ]
