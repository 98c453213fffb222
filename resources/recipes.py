"""Recipes: a folder each, with manifests, a README and a `recipe.yaml` that says what the recipe is and who has run it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from modelplane_dagster.errors import ConfigError
from modelplane_dagster.manifests.clusters import Source

RECIPE_FILE = "recipe.yaml"
Text = Annotated[str, Field(min_length=1)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class Devices(_Part):
    """What one replica claims: `count` devices of `driver`, or that many CPUs of `dra.cpu`."""

    driver: Text
    product: Text
    count: Annotated[int, Field(ge=1)]


class Validation(_Part):
    """A run of this recipe by this project on real hardware."""

    hardware: Text
    date: date
    versions: Text


class Recipe(_Part):
    """`validated_on` is empty where nobody of this project has run the recipe on the hardware; `not_validated` then
    says so, and what is known instead. `machines` names what the nodes are, `deployments` what it deploys."""

    title: Text
    model: Text
    accelerators: Annotated[tuple[Devices, ...], Field(min_length=1)]
    machines: Text
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]
    images: Annotated[tuple[Text, ...], Field(min_length=1)]
    deployments: Annotated[tuple[Text, ...], Field(min_length=1)]
    validated_on: tuple[Validation, ...]
    not_validated: Text | None = None

    @model_validator(mode="after")
    def _honest(self) -> Self:
        if bool(self.validated_on) == (self.not_validated is not None):
            msg = "give notValidated where validatedOn is empty, and only there"
            raise ValueError(msg)
        return self


@dataclass(frozen=True, slots=True)
class RecipeFolder:
    path: Path
    recipe: Recipe

    @property
    def name(self) -> str:
        return self.path.name


def read_recipes(root: Path) -> tuple[RecipeFolder, ...]:
    """Every folder of `root`, by name. Raises ConfigError for one without a valid `recipe.yaml`."""
    folders = sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    return tuple(RecipeFolder(folder, read_recipe(folder)) for folder in folders)


def read_recipe(folder: Path) -> Recipe:
    """Raises ConfigError, naming the folder and the field."""
    try:
        return Recipe.model_validate(yaml.safe_load((folder / RECIPE_FILE).read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValidationError) as error:
        msg = f"The recipe {folder.name} has no valid {RECIPE_FILE}: {error}"
        raise ConfigError(msg) from error
