"""Slices that make the scheduler charge CPUs: the pod that claims them no longer mirrors the claim, and a driver that is away
for a moment restarts nobody."""

from __future__ import annotations

import pytest

from resources.kubernetes import ClusterClient
from tests.e2e.metal import METAL, SEED
from tests.e2e.site import ROOT, Site, eventually, site

pytestmark = [pytest.mark.lab, pytest.mark.slow]
POOL, SLICE = "pool/metal/cpu", ("resource.k8s.io/v1", "ResourceSlice")


@pytest.fixture
def running(tmp_path):
    with site(tmp_path, seed=SEED.replace("1.36.1", "1.37.1")) as made:
        made.write(
            "metal.yaml", METAL.replace("metadata: {name: metal}", "metadata: {name: metal, labels: {region: uk}}")
        )
        made.write("model.yaml", (ROOT / "recipes/qwen2.5-0.5b-cpu-civo/deployment.yaml").read_text())
        yield made


def converge(made: Site) -> None:
    ran = made.reconcile().clean()
    assert (ran.status, ran.json["verdict"]) == (0, "converged"), ran.json


def engine(client: ClusterClient) -> tuple[str, dict[str, str]]:
    """The workload's version, and what its pod requests."""
    (found,) = client.list("apps/v1", "Deployment", namespace="recipes")
    (container,) = found["spec"]["template"]["spec"]["containers"]
    return found["metadata"]["annotations"]["modelplane.ai/digest"], container["resources"]["requests"]


def test_the_claim_is_mirrored_only_where_nobody_charges_it(running):
    converge(running)
    client = ClusterClient(running.lab.kubeconfig("metal", "user"), manager="driver")
    mirrored, asks = engine(client)
    assert asks == {"cpu": "6"}
    running.lab.fault(POOL, "driver-never-publishes")
    eventually(lambda: client.list(*SLICE) == [])
    # Nothing is published: nothing is known, and nothing changes.
    assert running.reconcile("3s").clean().status == 4
    assert engine(client) == (mirrored, {"cpu": "6"})
    running.lab.fault(POOL, "driver-never-publishes", on=False)
    eventually(lambda: client.list(*SLICE) != [])
    (mine,) = client.list(*SLICE)
    for device in mine["spec"]["devices"]:
        device["nodeAllocatableResources"] = {"cpu": {}}
    client.replace(mine)
    converge(running)
    charged, asks = engine(client)
    assert (charged != mirrored, asks) == (True, {"cpu": "1m"})
    calm = running.changes()
    converge(running)
    assert (running.changes(), engine(client)) == (calm, (charged, {"cpu": "1m"}))
