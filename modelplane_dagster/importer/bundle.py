"""A bundle's files, checked: of each component its values and its manifests, in either layout.

0.11 writes `NAME/values.yaml` and `NAME/manifests/*.yaml`; 0.20 writes `NNN-NAME/values.yaml` and
`NNN-NAME-post/templates/*.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from modelplane_dagster.components.types import Values
from modelplane_dagster.findings import Finding
from modelplane_dagster.importer.recipe import bodies, invalid
from modelplane_dagster.importer.types import BundleFile

VALUES = "values.yaml"
MANIFEST_FOLDERS = ("manifests", "templates")
_NUMBER = re.compile(r"\d{3,}-")
_POST = "-post"


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of a manifest file; `name` is the file's own name, `number` counts its objects from 0."""

    name: str
    number: int
    body: dict[str, Any]


@dataclass(slots=True)
class BundlePart:
    """What a bundle holds of one component; `values` is None where it has no values file."""

    folder: str
    values: Values | None = None
    manifests: list[Manifest] = field(default_factory=list)


def component_name(folder: str) -> str:
    """The component that a folder belongs to: `013-gpu-operator-post` is gpu-operator's."""
    numbered = _NUMBER.match(folder)
    return folder[numbered.end() :].removesuffix(_POST) if numbered else folder


def parse_bundle(root: str, files: Iterable[BundleFile]) -> tuple[dict[str, BundlePart], tuple[Finding, ...]]:
    """By component name, and what is wrong. `root` is the bundle's folder, for messages."""
    parts: dict[str, BundlePart] = {}
    found: list[Finding] = []
    for file in sorted(files, key=lambda f: (f.folder, f.inside)):
        name = component_name(file.folder)
        part = parts.setdefault(name, BundlePart(file.folder))
        if file.inside == VALUES:
            if part.values is not None:
                message = f"{part.folder} and {file.folder} both hold values of {name}"
                found.append(invalid(file.file.path, message))
            part.values, problems = _values(file)
            found += problems
        elif file.inside.split("/")[0] in MANIFEST_FOLDERS:
            manifests, problems = _manifests(file)
            part.manifests += manifests
            found += problems
    if not parts:
        found.append(invalid(root, f"expected folders of components with {VALUES}, and {root} holds none"))
    return parts, tuple(found)


def _values(file: BundleFile) -> tuple[Values, tuple[Finding, ...]]:
    """An empty file is empty values, as Helm takes it."""
    values, found = bodies(file.file)
    if found:
        return {}, found
    whole = [(document, value) for document, value in values if value is not None]
    if not whole:
        return {}, ()
    document, value = whole[0]
    if len(whole) > 1:
        return {}, (invalid(file.file.path, f"expected one document, and there are {len(whole)}"),)
    if not isinstance(value, dict):
        return {}, (invalid(file.file.path, "values are a mapping, and this isn't one", place=document.start),)
    return value, ()


def _manifests(file: BundleFile) -> tuple[list[Manifest], tuple[Finding, ...]]:
    values, found = bodies(file.file)
    result: list[Manifest] = []
    problems = list(found)
    for document, value in values:
        if value is None:
            continue
        meta = value.get("metadata") if isinstance(value, dict) else None
        texts = [value.get("apiVersion"), value.get("kind")] if isinstance(value, dict) else []
        texts += [meta.get("name")] if isinstance(meta, dict) else []
        if len(texts) < 3 or not all(isinstance(text, str) and text for text in texts):
            message = "a manifest has apiVersion, kind and metadata.name"
            problems.append(invalid(file.file.path, message, place=document.start))
            continue
        result.append(Manifest(file.inside.rpartition("/")[2], len(result), value))
    return result, tuple(problems)
