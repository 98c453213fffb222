"""A cloud acts and its reply is lost: the next look finds what was made, and nothing is made twice."""

from __future__ import annotations

import time

import pytest

from resources.steps import ensure_control_plane, ensure_pool
from tests.e2e.site import site

pytestmark = [pytest.mark.lab]
# cluster, pool: what the cloud holds in the end, the system pool with it.
CASES = {
    "EKS": ("eks-oregon", "l4", {"l4": 1, "system": 1}),
    "GKE": ("gke-iowa", "l4", {"l4": 1, "system": 3}),
    "AKS": ("aks-amsterdam", "cpu-d8", {"cpud8cca8a2": 1, "system": 1}),
    "Nebius": ("nebius-finland", "h100", {"h100": 1, "system": 1}),
    "Vultr": ("vultr-newark", "l40s", {"l40s": 1, "system": 1}),
    "Civo": ("civo-london", "cpu", {"cpu": 1, "system": 2}),
}
FILES = (
    "accounts/nebius",
    *(f"clusters/{c}" for c, *_ in CASES.values()),
    *(f"classes/{c}" for c in ("aks-a100", "aks-cpu", "civo-cpu", "eks-l4", "eks-h100-efa", "gke-l4", "gke-a100")),
    *(f"classes/{c}" for c in ("nebius-h100", "vultr-l40s-cpu")),
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    with site(tmp_path_factory.mktemp("lost")) as made:
        made.copy(*(f"fleet/{f}.yaml" for f in FILES))
        yield made


@pytest.mark.parametrize("source", CASES)
def test_one_cluster_and_one_pool(made, source):
    cluster, pool, holds = CASES[source]
    for subject in (f"cluster/{cluster}", f"pool/{cluster}/{pool}"):
        made.lab.fault(subject, "lost-reply")
    said = []
    end = time.monotonic() + 30
    with made.session() as session:
        while True:
            plane = ensure_control_plane(session, cluster)
            nodes = ensure_pool(session, cluster, pool) if plane.state == "ready" else plane
            said.append((nodes.state, nodes.sentence))
            if (plane.state, nodes.state) == ("ready", "ready"):
                break
            assert time.monotonic() < end, said
            time.sleep(0.1)
    assert {state for state, _ in said} <= {"pending", "ready"}, said
    assert made.clouds(source) == {cluster: holds}
    left = [f for f in made.status()["clouds"][source]["faults"] if f"/{cluster}" in f]
    assert left == [], "a reply that should have been lost wasn't"
