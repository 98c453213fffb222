"""A control plane for this folder's tests; where its binaries are missing, each test skips and says how to get them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from resources.kubernetes import ClusterClient
from resources.lab.plane.assets import AssetsMissingError, find_assets
from resources.lab.plane.plane import Plane
from tests.kubernetes.placement.real import Real


@pytest.fixture(scope="session")
def assets() -> Path:
    try:
        return find_assets()
    except AssetsMissingError as error:
        pytest.skip(error.message)


@pytest.fixture(scope="session")
def plane(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """One for all tests that leave it as they found it."""
    with Plane(tmp_path_factory.mktemp("plane"), assets=assets) as running:
        yield running


@pytest.fixture(scope="session")
def real(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """A control plane for decisions alone: every node in it counts. Nothing runs there, so pods need no service account and
    no kubelet."""
    folder = tmp_path_factory.mktemp("placement")
    with Plane(folder, assets=assets, extra=["--disable-admission-plugins=ServiceAccount"]) as running:
        running.process("kwok").stop()
        found = Real(running.kubeconfig("user"))
        yield found
        found.close()


@pytest.fixture
def api(plane: Plane) -> Iterator[ClusterClient]:
    client = ClusterClient(plane.kubeconfig("user"), name="plane")
    yield client
    client.close()
