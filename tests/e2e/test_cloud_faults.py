"""Clouds that misbehave, by the steps alone: each fault has a clear status, holds nothing else up, and makes nothing twice."""

from __future__ import annotations

import time

import pytest
import yaml

from resources.steps import ensure_control_plane, ensure_pool
from tests.e2e.site import ROOT, site

pytestmark = [pytest.mark.lab]
FIRST, MORE = "first", ("short", "quota", "slow")
# cluster, class, the cloud's own names of the first pool and the nodes of the system pool.
CASES = {
    "EKS": ("eks-oregon", "eks-l4", FIRST, 1),
    "GKE": ("gke-iowa", "gke-l4", FIRST, 3),
    "AKS": ("aks-amsterdam", "aks-cpu", FIRST, 1),
    "Nebius": ("nebius-finland", "nebius-h100", FIRST, 1),
    "Vultr": ("vultr-newark", "vultr-l40s-cpu", FIRST, 1),
    "Civo": ("civo-london", "civo-cpu", FIRST, 2),
}
ZONES = {"EKS": ["us-west-2a"], "GKE": ["us-central1-a"]}
# kind: the pool that it hits, the states that a step may tell, and the codes of what it says.
FAULTS = {
    "no-capacity": ("short", {"pending"}, {"NoCapacity"}),
    "quota": ("quota", {"failed"}, {"QuotaExceeded"}),
    "slow-pool": ("slow", {"pending"}, {"Pending"}),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    with site(tmp_path_factory.mktemp("clouds")) as made:
        made.copy("fleet/accounts/nebius.yaml")
        for source, (cluster, name, *_) in CASES.items():
            made.copy(f"fleet/classes/{name}.yaml")
            body = yaml.safe_load((ROOT / f"fleet/clusters/{cluster}.yaml").read_text())
            zones = {"zones": ZONES[source]} if source in ZONES else {}
            body["spec"]["nodePools"] = [
                {"name": pool, "className": name, "nodeCount": 1, **zones} for pool in (FIRST, *MORE)
            ]
            made.write(f"{cluster}.yaml", yaml.safe_dump(body))
        yield made


def until_ready(session, cluster, pool, *, within=30.0):
    """What the step said on its way."""
    said = []
    end = time.monotonic() + within
    while True:
        result = ensure_control_plane(session, cluster)
        if result.state == "ready":
            result = ensure_pool(session, cluster, pool)
            if result.state == "ready":
                return said
        said.append((result.state, result.sentence))
        assert time.monotonic() < end, said
        time.sleep(0.1)


@pytest.mark.parametrize("source", CASES)
def test_a_lost_reply_makes_one_cluster_and_one_pool(made, source):
    cluster, _, pool, system = CASES[source]
    for subject in (f"cluster/{cluster}", f"pool/{cluster}/{FIRST}"):
        made.lab.fault(subject, "lost-reply")
    with made.session() as session:
        said = until_ready(session, cluster, FIRST)
    assert {state for state, _ in said} == {"pending"}, said
    assert made.clouds(source) == {cluster: {pool: 1, "system": system}}
    left = [f for f in made.status()["clouds"][source]["faults"] if f"/{cluster}" in f]
    assert left == [], "a reply that should have been lost wasn't"


@pytest.mark.parametrize("kind", [k if k == "no-capacity" else pytest.param(k, marks=pytest.mark.slow) for k in FAULTS])
@pytest.mark.parametrize("source", CASES)
def test_a_pool_in_trouble_says_so_and_recovers(made, source, kind):
    cluster = CASES[source][0]
    pool, states, codes = FAULTS[kind]
    subject = f"pool/{cluster}/{pool}"
    with made.session() as session:
        until_ready(session, cluster, FIRST)
        made.lab.fault(subject, kind)
        told = []
        end = time.monotonic() + 2
        while time.monotonic() < end:
            told.append(ensure_pool(session, cluster, pool))
            time.sleep(0.1)
        # Where a failed pool is cleared before it is asked for anew, every other pass only asks.
        assert {t.state for t in told} <= {"pending", *states}, told
        assert codes <= {f.code for t in told for f in t.findings if t.state in states}, told
        assert ensure_pool(session, cluster, FIRST).state == "ready"
        made.lab.fault(subject, kind, on=False)
        until_ready(session, cluster, pool)


@pytest.mark.parametrize("source", CASES)
def test_a_throttled_cloud_is_asked_again(made, source):
    cluster = CASES[source][0]
    with made.session() as session:
        until_ready(session, cluster, FIRST)
        for _ in range(3):
            made.lab.fault(f"cloud/{source}", "throttling")
            result = ensure_pool(session, cluster, FIRST)
            assert result.state in ("ready", "pending"), result
        assert [f for f in made.status()["clouds"][source]["faults"] if "throttling" in f] == []
        until_ready(session, cluster, FIRST)
