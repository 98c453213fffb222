from __future__ import annotations

import json

import pytest
import yaml

from modelplane_dagster.cli.main import run
from tests.importer.bundles import bundle, recipe, ref, write
from tests.shared import shared


@pytest.fixture
def small(tmp_path):
    """A recipe and bundle that hold one dropped component and cert-manager."""
    bundle(tmp_path / "bundle", {"cert-manager": {"crds": {"enabled": True}}, "kai-scheduler": {}})
    path = write(tmp_path / "recipe.yaml", recipe(ref("kai-scheduler"), ref("cert-manager", version="v1.20.2")))
    return [str(path), str(tmp_path / "bundle")]


def document(capfdbinary):
    out = capfdbinary.readouterr().out
    assert out.count(b"\n") == 1
    return json.loads(out)


def test_json_has_exactly_the_documented_shape(small, capfdbinary):
    assert run(["import-aicr", "EKS", *small, "--format", "json"]) == 0
    made = document(capfdbinary)
    differs = made.pop("findings")
    assert made == {
        "components": [
            {
                "key": "cert-manager",
                "chart": "cert-manager",
                "repository": "https://charts.example.test",
                "version": "v1.20.2",
                "namespace": "cert-manager",
                "drivers": [],
                "dependsOn": [],
                "values": {"crds": {"enabled": True}},
                "manifests": [],
            }
        ],
        "dropped": [{"name": "kai-scheduler", "reason": "a scheduler is the serving stack's choice"}],
        "changes": [],
        "floor": "1.30",
    }
    assert {
        "code": "PinDiffers",
        "severity": "info",
        "subject": "component/EKS/cert-manager",
        "message": "cert-manager: repository is https://charts.example.test in the bundle"
        " and https://charts.jetstack.io in ours.",
        "fix": "Review the difference before changing the pin.",
        "file": None,
        "line": None,
        "column": None,
    } in differs


@pytest.mark.parametrize(("name", "load"), [("list.json", json.loads), ("list.yaml", yaml.safe_load)])
def test_output_holds_the_same_document(small, tmp_path, capfdbinary, name, load):
    out = tmp_path / "out" / name
    out.parent.mkdir()
    assert run(["import-aicr", "eks", *small, "--output", str(out), "--format", "json"]) == 0
    assert load(out.read_text()) == document(capfdbinary)
    assert [p.name for p in out.parent.iterdir()] == [name]


def test_a_refused_import_writes_nothing(small, tmp_path, capfdbinary):
    write(tmp_path / "recipe.yaml", recipe(ref("cert-manager"), ref("novelty")))
    out = tmp_path / "list.yaml"
    out.write_text("before")
    assert run(["import-aicr", "EKS", *small, "--output", str(out), "--format", "json"]) == 1
    made = document(capfdbinary)
    assert (made["components"], made["changes"], made["floor"]) == ([], [], "1.30")
    assert [f["code"] for f in made["findings"]] == ["Unclassified", "BundleInvalid"]
    assert out.read_text() == "before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bundle", "list.yaml", "recipe.yaml"]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["EKS"],
        ["Nebius", "RECIPE", "BUNDLE"],
        ["EKS", "absent.yaml", "BUNDLE"],
        ["EKS", "RECIPE", "absent"],
        ["EKS", "RECIPE", "RECIPE"],
        ["EKS", "BUNDLE", "BUNDLE"],
        ["EKS", "RECIPE", "BUNDLE", "absent.yaml"],
        ["EKS", "RECIPE", "BUNDLE", "--output", "absent/list.yaml"],
        ["EKS", "RECIPE", "BUNDLE", "--output", "BUNDLE"],
    ],
    ids=" ".join,
)
def test_unusable_arguments_are_status_2(small, capfdbinary, arguments):
    places = {"RECIPE": small[0], "BUNDLE": small[1]}
    assert run(["import-aicr", *(places.get(a, a) for a in arguments)]) == 2
    captured = capfdbinary.readouterr()
    assert captured.out == b""
    assert captured.err != b""


def test_text_names_components_and_ends_with_the_sum(small, capfd):
    assert run(["import-aicr", "EKS", *small]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "cert-manager  cert-manager v1.20.2  (every cluster)"
    assert lines[1] == "dropped kai-scheduler: a scheduler is the serving stack's choice"
    assert lines[-1] == "1 components for EKS, Kubernetes 1.30 or newer; 0 changes."


@pytest.mark.parametrize("source", ["EKS", "GKE", "AKS"])
def test_the_real_bundles_import(source, tmp_path, capfd):
    root = shared("aicr", source.lower())
    floors = [str(p) for p in sorted(root.glob("floor-*.yaml"))]
    out = tmp_path / "list.yaml"
    arguments = [source, str(root / "recipe.yaml"), str(root / "bundle"), *floors, "--output", str(out)]
    assert run(["import-aicr", *arguments]) == 0
    assert len(yaml.safe_load(out.read_text())["components"]) == 8
    assert "&id" not in out.read_text()
    assert capfd.readouterr().out.splitlines()[-1].startswith(f"8 components for {source}, ")
