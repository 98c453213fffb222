"""Both sides: the embedded lab's API in the ordinary run, a real control plane under the marker `kubernetes`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from modelplane_dagster.errors import ConfigError
from resources.tools import helm_path, kubectl_path
from tests.kubernetes.api.gaps import GAPS
from tests.kubernetes.wire import Wire
from tests.lab.served import served

Run = Callable[..., "subprocess.CompletedProcess[str]"]
_NUMBERS = count(1)
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "api-node", "labels": {"for": "api", "kubernetes.io/hostname": "api-node"}},
    "status": {
        "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
        "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ok"}],
    },
}


@pytest.fixture(scope="package", params=["lab", pytest.param("plane", marks=pytest.mark.kubernetes)])
def side(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="package")
def kubeconfig(
    side: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Any]]:
    if side == "plane":
        config = request.getfixturevalue("plane").kubeconfig("user")
        _make_node(config)
        yield config
        return
    with served(tmp_path_factory.mktemp("lab") / "clusters") as lab:
        lab.add("api")
        config = lab.clusters.kubeconfig("api", "user")
        _make_node(config)
        yield config


def _make_node(config: Mapping[str, Any]) -> None:
    wire = Wire(config)
    assert wire.post("/api/v1/nodes", NODE).status in {201, 409}
    wire.close()


@pytest.fixture(autouse=True)
def known_gap(request: pytest.FixtureRequest) -> None:
    """Skips what the lab is known not to do, with the reason."""
    if "side" in request.fixturenames and request.getfixturevalue("side") == "lab":
        name = request.node.name.replace("[lab-", "[").replace("[lab]", "")
        if why := GAPS.get(name) or GAPS.get(request.node.originalname):
            pytest.skip(f"a known gap of the lab: {why}")


@pytest.fixture
def api(kubeconfig: Mapping[str, Any]) -> Iterator[Wire]:
    wire = Wire(kubeconfig)
    yield wire
    wire.close()


@pytest.fixture
def ns(api: Wire) -> str:
    """A namespace of the test's own."""
    name = f"api-{next(_NUMBERS)}-{os.getpid()}"
    api.post("/api/v1/namespaces", {"metadata": {"name": name}}).ok()
    return name


@pytest.fixture
def tool(kubeconfig: Mapping[str, Any], tmp_path: Path) -> Run:
    """Runs helm or kubectl with folders of its own; `fails` says that a failure is expected."""
    config = tmp_path / "kubeconfig"
    config.write_text(json.dumps(kubeconfig))
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": str(config)}

    def run(command: str, *args: str, fails: bool = False, given: str = "") -> subprocess.CompletedProcess[str]:
        try:
            binary = helm_path() if command == "helm" else kubectl_path()
        except ConfigError as error:
            pytest.skip(error.message)
        done = subprocess.run(
            [str(binary), *args], env=env, input=given, capture_output=True, text=True, timeout=90, check=False
        )
        assert (done.returncode != 0) == fails, done.stderr + done.stdout
        return done

    return run
