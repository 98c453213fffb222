"""A reconcile that is killed outright goes on from where it was: it converges, makes nothing twice, and no lease blocks."""

from __future__ import annotations

import signal
import time
from collections import Counter

import pytest

from resources.kubernetes import ClusterClient
from resources.releases import read_releases
from tests.e2e.site import Site, site

pytestmark = [pytest.mark.lab]
RECIPE = "recipes/qwen2.5-0.5b-cpu-civo"
STOOD = {"civo-london": {"cpu": 1, "system": 2}}
# Writes that reach the APIs from nothing to a serving deployment: 120, give or take the passes.
WRITES = 120


def fleet(made: Site) -> Site:
    made.copy(*(f"{RECIPE}/{name}.yaml" for name in ("classes", "cluster", "deployment")))
    return made


def killed_at(made: Site, writes: int) -> bool:
    """Runs reconcile until that many writes and deletes reached the APIs, and kills it; False where it ended before."""
    process = made.start("reconcile", str(made.folder), "--timeout", "240s")
    end = time.monotonic() + 240
    try:
        while process.poll() is None:
            assert time.monotonic() < end, made.changes()
            if made.total() >= writes:
                process.send_signal(signal.SIGKILL)
                break
            # Each look is a TLS handshake with the daemon that the writes go through: closer ones would starve them.
            time.sleep(0.05)
    finally:
        process.kill()
        _, err = process.communicate()
    assert "Traceback" not in err, err
    return process.returncode == -signal.SIGKILL


def stands(made: Site) -> None:
    """Converged, and everything there once."""
    ran = made.reconcile().clean()
    assert (ran.status, ran.json["verdict"], ran.json["failures"]) == (0, "converged", []), ran.json
    assert made.clouds("Civo") == STOOD
    client = ClusterClient(made.lab.kubeconfig("civo-london", "product"), name="civo-london")
    try:
        nodes = [n["metadata"]["name"] for n in client.list("v1", "Node")]
        assert len(set(nodes)) == 3
        releases = read_releases(client)
        assert [n for n, count in Counter(r.name for r in releases).items() if count > 1] == []
        assert {r.status for r in releases} == {"deployed"}
        replicas = client.list("apps/v1", "Deployment", namespace="recipes")
        assert [d["status"].get("readyReplicas") for d in replicas] == [1]
    finally:
        client.close()
    before = made.changes()
    assert made.reconcile().status == 0
    assert made.changes() == before


def test_killed_again_and_again_on_the_way(tmp_path):
    with site(tmp_path) as made:
        fleet(made)
        for writes in (3, 60):
            assert killed_at(made, writes)
        stands(made)


@pytest.mark.slow
@pytest.mark.parametrize("point", range(20))
def test_killed_at_twenty_points(tmp_path, point):
    with site(tmp_path) as made:
        fleet(made)
        killed_at(made, 1 + point * WRITES // 20)
        stands(made)
