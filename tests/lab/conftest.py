from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.lab.server import Api, Served

_NAMES = count()


@pytest.fixture(scope="package")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("lab"))
    yield served
    served.stop()


@pytest.fixture
def name() -> str:
    return f"c{next(_NAMES)}"


@pytest.fixture
def api(served: Served, name: str) -> Iterator[Api]:
    """A fresh cluster of Kubernetes 1.36."""
    yield served.add(name)
    served.call(lambda: served.lab.clusters.remove_cluster(name))


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path / "home")
    yield served
    served.stop()


@pytest.fixture(autouse=True)
def no_seeded_clusters(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A daemon that a test starts holds the clusters that the test makes, not the demo's."""
    monkeypatch.setenv("MODELPLANE_LAB_SEED", str(tmp_path_factory.getbasetemp() / "no-seed.yaml"))
