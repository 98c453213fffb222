"""A chart whose CRDs Helm doesn't upgrade, at a new version: its CRDs come first, once, and nobody else's fields are taken."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from modelplane_dagster.components.types import Component
from resources.kubernetes import ClusterClient
from resources.lab.charts import write_chart
from resources.session import Session, open_session
from resources.steps import ensure_component
from tests.e2e.site import ROOT, Site, eventually, site

pytestmark = [pytest.mark.lab]
NAME, CRD_API, KIND = "metal-dallas", "apiextensions.k8s.io/v1", "CustomResourceDefinition"
CRD = {
    "node-feature-discovery": "nodefeaturerules.nfd.k8s-sigs.io",
    "lws": "leaderworkersets.leaderworkerset.x-k8s.io",
    "nvidia-dra-driver-gpu": "computedomains.resource.nvidia.com",
}


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("crds"), seed=(ROOT / "resources/lab/seed.yaml").read_text()) as made:
        made.copy(
            "fleet/clusters/metal-dallas.yaml", *(f"fleet/classes/metal-{n}.yaml" for n in ("mi325x", "h100", "cpu"))
        )
        yield made


@contextmanager
def session_with(running: Site, overlay: str = "") -> Iterator[Session]:
    path = running.home / "overlay.yaml"
    path.write_text(overlay)
    settings = replace(running.settings(), components=path if overlay else None)
    with open_session(settings, running.fleet(), wait=30.0) as session:
        yield session


def component(session: Session, key: str) -> Component:
    return session.plan(NAME).component(key).component


def told(crd: dict[str, Any]) -> str:
    """What the chart says of the CRD's first version."""
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].get("description", "")


def newer(running: Site, old: Component, version: str) -> None:
    """A chart of that version in the mirror, whose CRDs say so."""

    def mutate(plan: dict[str, Any]) -> dict[str, Any]:
        result = copy.deepcopy(plan)
        for crd in result["crds"]:
            crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = version
        return result

    pin = replace(old.pin, version=version) if old.pin else None
    write_chart(replace(old, pin=pin), running.home / "lab" / "charts", mutate=mutate)


def managers(crd: dict[str, Any]) -> set[str]:
    """Who holds a field of the CRD's first version."""
    return {m["manager"] for m in crd["metadata"]["managedFields"] if "f:versions" in m["fieldsV1"].get("f:spec", {})}


def read(client: ClusterClient, key: str) -> dict[str, Any]:
    found = client.get(CRD_API, KIND, CRD[key])
    assert found is not None
    return found


def version_of(session: Session, key: str) -> str:
    return session.standing(NAME).components[key].version


def installed(session: Session, *keys: str) -> None:
    for key in keys:
        eventually(lambda key=key: ensure_component(session, NAME, key).state == "ready")


@pytest.mark.parametrize(
    "key", ["node-feature-discovery", pytest.param("nvidia-dra-driver-gpu", marks=pytest.mark.slow)]
)
def test_the_new_charts_crds_come_before_its_upgrade(running, key):
    needs = ("node-feature-discovery", "dra-driver-critical-pods-quota") if key == "nvidia-dra-driver-gpu" else ()
    with session_with(running) as session:
        installed(session, *needs, key)
        old = component(session, key)
        before = read(session.client(NAME), key)
        assert (told(before), managers(before)) == ("", {"helm"})
    newer(running, old, "9.9.9")
    overlay = f"{key}: {{version: 9.9.9}}\n"
    with session_with(running, overlay) as session:
        calm = running.changes()
        plan = session.judged(NAME)
        assert plan.gate.verdict == "pass"
        session.observe(NAME)
        assert (running.changes(), told(read(session.client(NAME), key))) == (calm, "")
        result = ensure_component(session, NAME, key)
        assert (result.state in ("ready", "pending"), result.changed) == (True, True), result
        after = read(session.client(NAME), key)
        assert (told(after), version_of(session, key)) == ("9.9.9", "9.9.9")
        assert "modelplane-dagster" in managers(after)
        installed(session, key)
        # Nothing changed: nothing is written.
        calm = running.changes()
        assert ensure_component(session, NAME, key).changed is False, "the second time there is nothing to do"
        assert running.changes() == calm
    # From now on ours are the fields, and Helm's first install is in nobody's way.
    newer(running, old, "9.9.10")
    with session_with(running, overlay.replace("9.9.9", "9.9.10")) as session:
        installed(session, key)
        assert told(read(session.client(NAME), key)) == "9.9.10"


def test_somebody_elses_field_is_a_conflict_that_is_reported_and_nothing_is_upgraded(running):
    key = "lws"
    with session_with(running) as session:
        installed(session, key)
        old = component(session, key)
        crd = read(session.client(NAME), key)
    ops = ClusterClient(running.lab.kubeconfig(NAME, "user"), manager="ops")
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = "theirs"
    mine = {"apiVersion": CRD_API, "kind": KIND, "metadata": {"name": CRD[key]}, "spec": crd["spec"]}
    ops.apply(mine, force=True)
    newer(running, old, "9.9.9")
    with session_with(running, f"{key}: {{version: 9.9.9}}\n") as session:
        result = ensure_component(session, NAME, key)
        assert (result.state, [f.code for f in result.findings]) == ("failed", ["ComponentsConflict"])
        assert result.sentence == f"Cluster {NAME}: customresourcedefinitions {CRD[key]}: ops owns .spec.versions."
        assert told(read(session.client(NAME), key)) == "theirs"
        assert version_of(session, key) == old.pin.version
