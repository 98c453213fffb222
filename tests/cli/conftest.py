from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.runner import Ran, modelplane
from tests.made import Body, text


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the user's environment or state reaches a test."""
    for name in [n for n in os.environ if n.startswith("MODELPLANE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MODELPLANE_HOME", str(tmp_path / "home"))


@pytest.fixture
def cli(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Ran]:
    return lambda *arguments: modelplane(capfdbinary, *arguments)


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Writes objects into a folder of manifests; gives the folder."""

    def write(*objects: Body, name: str = "fleet.yaml") -> Path:
        folder = tmp_path / "manifests"
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(text(*objects))
        return folder

    return write
