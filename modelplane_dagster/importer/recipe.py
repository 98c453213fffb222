"""A recipe file, checked: its components, their order, and the Kubernetes version that it needs at least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from modelplane_dagster.findings import Finding, Place, file_subject, finding
from modelplane_dagster.importer.types import TextFile
from modelplane_dagster.kube.versions import KubernetesVersion
from modelplane_dagster.manifests.reader import read
from modelplane_dagster.manifests.source import Document, documents

GROUP = "aicr.nvidia.com/"
FLOOR = "K8s.server.version"
# A name becomes a folder of the bundle and a key of ours.
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, alias_generator=to_camel)


class Constraint(_Part):
    name: str
    value: str


class ComponentRef(_Part):
    """`chart`, `source` (its repository) and `version` are empty for a component that is manifests alone."""

    name: Name
    namespace: str = ""
    chart: str = ""
    type: Literal["Helm"]
    source: str = ""
    version: str = ""
    overrides: dict[str, Any] | None = None
    dependency_refs: list[str] | None = None
    manifest_files: list[str] | None = None


class Criteria(_Part):
    service: str


class _Recipe(_Part):
    kind: Literal["RecipeResult"]
    api_version: str = Field(pattern=rf"^{GROUP}v[0-9a-z]+$")
    criteria: Criteria
    constraints: list[Constraint] | None = None
    component_refs: list[ComponentRef] = Field(min_length=1)
    deployment_order: list[str] | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """`components` come in the order of deployment; `floor` is None where no constraint gives one."""

    file: str
    components: tuple[ComponentRef, ...]
    floor: KubernetesVersion | None


def invalid(file: str, message: str, *, place: Place | None = None) -> Finding:
    """`BundleInvalid` of a file or folder; the place is the file's start where none is known."""
    return finding("BundleInvalid", file_subject(file), message, place=place or Place(file, 1, 1))


def bodies(file: TextFile) -> tuple[list[tuple[Document, Any]], tuple[Finding, ...]]:
    """The documents of a YAML file with their values, and what is wrong with it as YAML, each a `BundleInvalid`."""
    cut, refused = documents(file.path, file.data)
    found = [invalid(file.path, f.message, place=f.place) for f in refused]
    values: list[tuple[Document, Any]] = []
    for document in cut:
        value, problems = read(document)
        found += [invalid(file.path, f.message, place=f.place) for f in problems]
        if not problems:
            values.append((document, value))
    return values, tuple(found)


def parse_recipe(file: TextFile, source: str) -> tuple[Recipe | None, tuple[Finding, ...]]:
    """The recipe, None where the findings say why it isn't one for `source`."""
    values, found = bodies(file)
    if found:
        return None, found
    if len(values) != 1:
        return None, (invalid(file.path, f"expected one document, and {file.path} holds {len(values)}"),)
    document, value = values[0]
    if not isinstance(value, dict):
        return None, (invalid(file.path, "expected a mapping of kind RecipeResult", place=document.start),)
    try:
        parsed = _Recipe.model_validate(value)
    except ValidationError as error:
        return None, tuple(_field(document, row["loc"], row["msg"]) for row in error.errors()[:20])
    problems = [*_service(document, parsed, source), *_names(document, parsed)]
    floor, more = _floor(document, parsed)
    problems += more
    if problems:
        return None, tuple(problems)
    return Recipe(file.path, _ordered(parsed), floor), ()


def _field(document: Document, path: tuple[int | str, ...], what: str) -> Finding:
    shown = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).removeprefix(".")
    return invalid(document.file, f"{shown}: {what}", place=document.place(path))


def _service(document: Document, parsed: _Recipe, source: str) -> list[Finding]:
    if parsed.criteria.service == source.lower():
        return []
    message = f"expected a recipe of the service {source.lower()}, and it is of {parsed.criteria.service}"
    return [_field(document, ("criteria", "service"), message)]


def _names(document: Document, parsed: _Recipe) -> list[Finding]:
    found = []
    names: set[str] = set()
    for number, ref in enumerate(parsed.component_refs):
        if ref.name in names:
            found.append(_field(document, ("componentRefs", number, "name"), f"{ref.name} is there twice"))
        names.add(ref.name)
        if ref.chart and not (ref.source and ref.version):
            missing = "source" if not ref.source else "version"
            found.append(_field(document, ("componentRefs", number), f"{ref.name} has a chart and no {missing}"))
    for number, ref in enumerate(parsed.component_refs):
        for place, name in enumerate(ref.dependency_refs or ()):
            if name not in names:
                where = ("componentRefs", number, "dependencyRefs", place)
                found.append(_field(document, where, f"{ref.name} depends on {name}, which the recipe doesn't hold"))
    for number, name in enumerate(parsed.deployment_order or ()):
        if name not in names:
            found.append(_field(document, ("deploymentOrder", number), f"{name} isn't a component of the recipe"))
    return found


def _floor(document: Document, parsed: _Recipe) -> tuple[KubernetesVersion | None, list[Finding]]:
    floors: list[KubernetesVersion] = []
    found = []
    for number, row in enumerate(parsed.constraints or ()):
        if row.name != FLOOR:
            continue
        bound = row.value.strip()
        version = KubernetesVersion.parse(bound.removeprefix(">=")) if bound.startswith(">=") else None
        if version is None:
            where = ("constraints", number, "value")
            found.append(_field(document, where, f"expected a floor such as >= 1.32.4, and got {row.value!r}"))
        else:
            floors.append(version)
    return max(floors, default=None), found


def _ordered(parsed: _Recipe) -> tuple[ComponentRef, ...]:
    """By the deployment order; what that leaves out comes last, as listed."""
    order = {name: number for number, name in enumerate(parsed.deployment_order or ())}
    return tuple(sorted(parsed.component_refs, key=lambda ref: order.get(ref.name, len(order))))
