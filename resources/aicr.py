"""Reads what `aicr recipe` and `aicr bundle` wrote. What can't be read is a finding; nothing is concluded from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from modelplane_dagster.findings import Finding
from modelplane_dagster.importer.bundle import MANIFEST_FOLDERS, VALUES
from modelplane_dagster.importer.imports import Inputs
from modelplane_dagster.importer.recipe import invalid
from modelplane_dagster.importer.types import BundleFile, TextFile

MAX_FILE = 16 * 1024 * 1024
SUFFIXES = (".yaml", ".yml")


def read_inputs(recipe: Path, bundle: Path, floors: Iterable[Path] = ()) -> Inputs:
    """The recipe, the floor files, and of the bundle each component folder's values and manifests. Never raises for
    what is wrong with a file: `problems` says so, and the file counts as empty."""
    problems: list[Finding] = []
    return Inputs(
        recipe=_read(recipe, problems),
        root=str(bundle),
        bundle=tuple(_bundle(bundle, problems)),
        floors=tuple(_read(path, problems) for path in floors),
        problems=tuple(problems),
    )


def _read(path: Path, problems: list[Finding]) -> TextFile:
    try:
        size = path.stat().st_size
        if size <= MAX_FILE:
            return TextFile(str(path), path.read_bytes())
        problems.append(invalid(str(path), f"{path} has {size} bytes, and a file may have {MAX_FILE}"))
    except OSError as error:
        problems.append(invalid(str(path), f"{path} can't be read: {error.strerror or error}"))
    return TextFile(str(path), b"")


def _bundle(root: Path, problems: list[Finding]) -> Iterator[BundleFile]:
    for folder in _entries(root, problems):
        if not folder.is_dir():
            continue
        values = folder / VALUES
        if values.exists():
            yield BundleFile(folder.name, VALUES, _read(values, problems))
        for name in MANIFEST_FOLDERS:
            inside = folder / name
            for path in _entries(inside, problems) if inside.is_dir() else ():
                if path.suffix in SUFFIXES:
                    yield BundleFile(folder.name, f"{name}/{path.name}", _read(path, problems))


def _entries(folder: Path, problems: list[Finding]) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        problems.append(invalid(str(folder), f"{folder} can't be read: {error.strerror or error}"))
        return []
