"""Every recipe: its facts, its pins, its place, and that it says the same as the demo fleet."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from modelplane_dagster.errors import ConfigError
from modelplane_dagster.manifests.deployments import ModelDeployment
from modelplane_dagster.plan import plan_fleet
from modelplane_dagster.plan_json import plan_document
from resources.files import load_fleet
from resources.recipes import RecipeFolder, read_recipe, read_recipes

ROOT = Path(__file__).resolve().parents[2]
RECIPES = read_recipes(ROOT / "recipes")

# recipe: where each of its engines goes, alone and beside the fleet.
PLACES = {
    "qwen2.5-0.5b-cpu-civo": {"recipes/qwen2-5-0-5b-cpu": [("civo-london", "qwen", "cpu")]},
    "qwen2.5-0.5b-mi325x": {"recipes/qwen2-5-0-5b-mi325x": [("metal-dallas", "qwen", "mi325x")]},
    "qwen3-8b-l4-eks": {"recipes/qwen3-8b-l4": [("eks-oregon", "qwen", "l4")]},
}
# What a README must tell, as it is typed.
COMMANDS = (
    "modelplane-dagster validate recipes/{name}",
    "modelplane-dagster plan recipes/{name}",
    "modelplane-dagster reconcile recipes/{name}",
    "modelplane-dagster prune deployment/{deployment}",
    "/v1/chat/completions",
)
each_recipe = pytest.mark.parametrize("folder", RECIPES, ids=[r.name for r in RECIPES])


def _placed(paths: list[Path]) -> dict[str, list[tuple[str, str, str]]]:
    document = plan_document(plan_fleet(load_fleet(paths)))
    assert [c["name"] for c in document["clusters"] if c["gate"]["verdict"] != "pass"] == []
    assert [f["code"] for d in document["deployments"] for f in d["findings"]] == []
    return {
        f"{d['namespace']}/{d['name']}": [
            (replica["cluster"], engine["name"], member["pool"])
            for replica in d["replicas"]
            for engine in replica["engines"]
            for member in engine["members"]
        ]
        for d in document["deployments"]
    }


def _deployments(folder: RecipeFolder) -> dict[str, ModelDeployment]:
    return {"/".join(key): value for key, value in load_fleet([folder.path]).deployments.items()}


def test_the_recipes_are_these() -> None:
    assert [r.name for r in RECIPES] == list(PLACES)


@each_recipe
def test_a_recipe_alone_is_planned_whole(folder: RecipeFolder) -> None:
    fleet = load_fleet([folder.path])
    assert [f.code for f in fleet.findings] == []
    assert _placed([folder.path]) == PLACES[folder.name]


def test_beside_the_fleet_every_recipe_goes_to_the_same_place() -> None:
    together = {name: where for placed in PLACES.values() for name, where in placed.items()}
    assert load_fleet([ROOT / "fleet", ROOT / "recipes"]).findings == ()
    assert _placed([ROOT / "fleet", ROOT / "recipes"]) == together


@each_recipe
def test_a_recipe_repeats_the_fleet_exactly(folder: RecipeFolder) -> None:
    """A twin that differs is DuplicateName on both, which would take the cluster out of the fleet."""
    mine, fleets = load_fleet([folder.path]), load_fleet([ROOT / "fleet"])
    assert mine.clusters == {name: fleets.clusters[name] for name in mine.clusters}
    assert mine.classes == {name: fleets.classes[name] for name in mine.classes}


@each_recipe
def test_the_facts_are_those_of_the_manifests(folder: RecipeFolder) -> None:
    fleet, recipe = load_fleet([folder.path]), folder.recipe
    deployments = _deployments(folder)
    containers = [m.container for d in deployments.values() for e in d.engines for m in e.members]
    assert set(deployments) == set(recipe.deployments)
    assert {c.image for c in containers if c} == set(recipe.images)
    assert {c.source for c in fleet.clusters.values()} == set(recipe.sources)
    assert all(recipe.model in " ".join(c.args) for c in containers if c)


@each_recipe
def test_images_have_a_version(folder: RecipeFolder) -> None:
    loose = [i for i in folder.recipe.images if not re.search(r"(@sha256:[0-9a-f]{64}|:[^:/]*\d+\.\d+[^:/]*)$", i)]
    assert loose == []


@each_recipe
def test_the_readme_tells_what_to_type(folder: RecipeFolder) -> None:
    text = (folder.path / "README.md").read_text(encoding="utf-8")
    (deployment,) = folder.recipe.deployments
    wanted = [c.format(name=folder.name, deployment=deployment) for c in COMMANDS]
    assert [c for c in wanted if c not in text] == []
    assert not folder.recipe.not_validated or "has run it on the hardware" in text


GOOD = """
title: T
model: M
accelerators: [{driver: dra.cpu, product: CPUs, count: 1}]
machines: any
sources: [Civo]
images: [a/b:1.0]
deployments: [n/d]
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(GOOD + "validatedOn: []\n", "notValidated", id="silent about nobody having run it"),
        pytest.param(
            GOOD + "validatedOn: [{hardware: h, date: 2026-01-02, versions: v}]\nnotValidated: nobody has run it\n",
            "notValidated",
            id="says both",
        ),
        pytest.param(GOOD + "validatedOn: []\nnotValidated: nobody\nauthor: me\n", "author", id="unknown field"),
        pytest.param(GOOD.replace("Civo", "Linode") + "validatedOn: []\nnotValidated: no\n", "sources", id="no source"),
        pytest.param("", "recipe.yaml", id="empty"),
    ],
)
def test_a_recipe_that_is_not_one_is_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "recipe.yaml").write_text(text)
    with pytest.raises(ConfigError, match=told):
        read_recipe(tmp_path)


def test_a_validated_recipe_says_on_what(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(GOOD + "validatedOn: [{hardware: h, date: 2026-01-02, versions: v}]\n")
    (run,) = read_recipe(tmp_path).validated_on
    assert (run.hardware, run.date.isoformat(), run.versions) == ("h", "2026-01-02", "v")
