"""A release that stands as planned isn't given to helm again: not by a writer that waited for the one that made it, and not
because an object of ours beside it is gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from modelplane_dagster.gate import Admission
from resources.kubernetes import ClusterClient
from resources.steps.components import ensure_component
from tests.e2e.metal import METAL, SEED
from tests.e2e.site import Site, site

pytestmark = [pytest.mark.lab]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path, seed=SEED) as found:
        found.write("metal.yaml", METAL)
        yield found


def revisions(made: Site, release: str) -> list[tuple[str, str]]:
    client = ClusterClient(made.lab.kubeconfig("metal", "user"), name="metal")
    try:
        found = client.list("v1", "Secret", labels=f"owner=helm,name={release}")
        return sorted((s["metadata"]["labels"]["version"], s["metadata"]["labels"]["status"]) for s in found)
    finally:
        client.close()


def test_a_writer_that_waited_for_another_finds_its_work_done(made: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It judged before it had the lease; while it waits, the holder installs the very release and lets go."""
    with made.session() as second:
        take = second.write

        def wait(admission: Admission) -> None:
            monkeypatch.undo()
            with made.session() as first:
                assert ensure_component(first, "metal", "lws").changed
            take(admission)

        monkeypatch.setattr(second, "write", wait)
        result = ensure_component(second, "metal", "lws")
    assert not result.changed, result
    assert revisions(made, "mp-lws") == [("1", "deployed")]


def test_an_object_of_ours_that_is_gone_comes_back_without_helm(made: Site) -> None:
    def ensured() -> None:
        with made.session() as session:
            result = ensure_component(session, "metal", "dra-driver-cpu")
            assert result.changed, result

    ensured()
    client = ClusterClient(made.lab.kubeconfig("metal", "user"), name="metal")
    try:
        (quota,) = client.list("v1", "ResourceQuota", namespace="dra-driver-cpu")
        client.delete("v1", "ResourceQuota", quota["metadata"]["name"], namespace="dra-driver-cpu")
        ensured()
        assert [q["spec"] for q in client.list("v1", "ResourceQuota", namespace="dra-driver-cpu")] == [quota["spec"]]
    finally:
        client.close()
    assert revisions(made, "mp-dra-driver-cpu") == [("1", "deployed")]
