"""The public project's manifests, unchanged: each alone and each provider's folder as one fleet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.runner import Ran
from tests.shared import SHARED, shared

Cli = Callable[..., Ran]
ROOT = SHARED / "manifests"
FILES = sorted(str(p.relative_to(ROOT)) for p in ROOT.rglob("*.yaml")) if ROOT.is_dir() else ["none"]
# The files that hold clusters and not their classes, with the pool that misses its.
ALONE = {
    "concepts/inference-cluster-aks.yaml": "pool/aks-westeurope/gpuh100",
    "concepts/inference-cluster-eks.yaml": "pool/eks-us-west/gpu-l4",
    "concepts/inference-cluster-existing.yaml": "pool/byo-us-east/gpu-h100",
    "concepts/inference-cluster-gke.yaml": "pool/gke-us-central/gpu-l4",
    "concepts/inference-cluster-nebius.yaml": "pool/nebius-eu-north/gpu-h100",
    "concepts/inference-cluster-vultr.yaml": "pool/vultr-ewr/gpu-l40s",
}
FOLDERS: dict[str, dict[str, Any]] = {
    "concepts": {
        "clusters": ["aks-westeurope", "byo-us-east", "eks-us-west", "gke-us-central", "nebius-eu-north", "vultr-ewr"],
        "deployments": {"qwen3-8b": "placed", "qwen3-coder": "unplaced"},
    },
    "getting-started/aks": {
        "clusters": ["aks-eastus", "aks-southcentralus", "aks-westeurope"],
        "deployments": {"qwen-demo": "placed", "qwen-west": "placed"},
    },
    "getting-started/eks": {
        "clusters": ["eks-eu-central", "eks-us-east", "eks-us-west"],
        "deployments": {"qwen-demo": "placed", "qwen-west": "placed"},
    },
    "getting-started/gke": {
        "clusters": ["gpu-us-east", "gpu-us-west", "starter"],
        "deployments": {"qwen-demo": "placed", "qwen-west": "placed"},
    },
    "getting-started/nebius": {
        "clusters": ["nebius-eu-north", "nebius-eu-north-h100"],
        "deployments": {"qwen-demo": "placed", "qwen-west": "placed"},
    },
    "getting-started/vultr": {"clusters": ["vultr-ewr"], "deployments": {}},
    "overview": {"clusters": [], "deployments": {"qwen-demo": "unplaced"}},
}


def errors(findings: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(f["code"], f["subject"]) for f in findings if f["severity"] == "error"]


@pytest.mark.parametrize("name", FILES)
def test_a_file_alone(cli: Cli, name: str) -> None:
    path = shared("manifests", name)
    expected = [("ClassNotFound", ALONE[name])] if name in ALONE else []
    validated, planned = cli("validate", path, "--format", "json"), cli("plan", path, "--format", "json")
    assert sorted(set(errors(validated.document["findings"]))) == expected
    assert sorted(set(errors(planned.document.get("findings", ())))) == expected
    assert (validated.status, planned.status) == ((1, 1) if name in ALONE else (0, 0))


@pytest.mark.parametrize("name", FILES)
def test_nothing_of_a_file_is_dropped_in_silence(cli: Cli, name: str) -> None:
    """Every document is a class, a cluster, a deployment or an account, or a notice names its kind."""
    import yaml

    path: Path = shared("manifests", name)
    kinds = [d["kind"] for d in yaml.safe_load_all(path.read_text()) if d]
    acted = {"InferenceClass", "InferenceCluster", "ModelDeployment", "ClusterProviderConfig"}
    notices = " ".join(f["message"] for f in cli("validate", path, "--format", "json").document["findings"])
    assert [k for k in kinds if k not in acted and f"of kind {k} " not in notices] == []


@pytest.mark.parametrize("name", sorted(FOLDERS))
def test_a_folder_is_one_fleet(cli: Cli, name: str) -> None:
    path, expected = shared("manifests", name), FOLDERS[name]
    validated, planned = cli("validate", path, "--format", "json"), cli("plan", path, "--format", "json")
    document = planned.document
    assert errors(validated.document["findings"]) == []
    assert [c["name"] for c in document["clusters"]] == expected["clusters"]
    assert {c["gate"]["verdict"] for c in document["clusters"]} <= {"pass"}
    assert {d["name"]: d["verdict"] for d in document["deployments"]} == expected["deployments"]
    assert (validated.status, planned.status) == (0, 0)
