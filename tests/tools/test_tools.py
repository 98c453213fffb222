"""Where helm and kubectl are found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from modelplane_dagster.errors import ConfigError
from resources.tools import helm_path, kubectl_path


@pytest.fixture(autouse=True)
def _forgetful() -> Iterator[None]:
    for find in (helm_path, kubectl_path):
        find.cache_clear()
    yield
    for find in (helm_path, kubectl_path):
        find.cache_clear()


def _script(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """An empty PATH folder and an empty cache."""
    path, cache = tmp_path / "bin", tmp_path / "cache" / "modelplane-dagster" / "tools"
    path.mkdir()
    # The scripts need a shell's builtins alone.
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return path, cache


def test_a_helm_4_on_the_path_comes_first(places: tuple[Path, Path]):
    mine = _script(places[0] / "helm", "v4.1.4")
    _script(places[1] / "helm", "v4.3.1")
    assert helm_path() == mine


def test_a_helm_3_on_the_path_is_passed_over(places: tuple[Path, Path]):
    _script(places[0] / "helm", "v3.18.0")
    cached = _script(places[1] / "helm", "v4.3.1")
    assert helm_path() == cached


def test_without_helm_4_the_set_up_is_named(places: tuple[Path, Path]):
    _script(places[0] / "helm", "v3.18.0")
    with pytest.raises(ConfigError, match="run `make setup`"):
        helm_path()


def test_kubectl_of_the_cache_comes_first(places: tuple[Path, Path]):
    mine = _script(places[0] / "kubectl", "Client Version: v1.32.4")
    assert kubectl_path() == mine
    kubectl_path.cache_clear()
    cached = _script(places[1] / "kubectl", "Client Version: v1.37.1")
    assert kubectl_path() == cached


def test_without_kubectl_the_set_up_is_named(places: tuple[Path, Path]):
    with pytest.raises(ConfigError, match=f"kubectl is neither on the PATH nor in {places[1]}"):
        kubectl_path()
