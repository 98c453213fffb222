"""A fleet of two clusters, one of them in trouble: a clear status in time, no traceback, the other one done, and convergence
when the trouble is over."""

from __future__ import annotations

import time

import pytest

from resources.helm import ChartRef, chart_ref
from resources.lab.charts import write_chart
from tests.e2e.metal import METAL, SEED
from tests.e2e.site import eventually, site
from tests.lab import broken

pytestmark = [pytest.mark.lab]
# subject and kind: the state of the troubled cluster, and what its sentence or findings name.
FAULTS = {
    "drop_connections": ("cluster/metal", "unknown", "metal"),
    "unauthorized": ("cluster/metal", "unknown", "Unauthorized"),
    "node-without-label": ("pool/metal/cpu", "pending", "modelplane.ai/pool=cpu"),
    "driver-never-publishes": ("pool/metal/cpu", "pending", "dra.cpu"),
}


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with site(tmp_path_factory.mktemp("faults"), seed=SEED) as made:
        made.copy("fleet/clusters/civo-london.yaml", "fleet/classes/civo-cpu.yaml")
        made.write("metal.yaml", METAL)
        ran = made.reconcile().clean()
        assert (ran.status, ran.json["verdict"]) == (0, "converged"), ran.json
        yield made


@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=pytest.mark.slow) if k in ("unauthorized", "node-without-label") else k for k in FAULTS],
)
def test_one_cluster_in_trouble(running, kind):
    subject, state, named = FAULTS[kind]
    pools = running.folder / "civo-london.yaml"
    text = pools.read_text()
    running.lab.fault(subject, kind)
    # Something to do for the other one meanwhile.
    pools.write_text(f"{text}  - name: {kind.replace('_', '-')[:12]}\n    className: civo-cpu\n    nodeCount: 1\n")
    try:
        start = time.monotonic()
        ran = running.reconcile("15s").clean()
        assert time.monotonic() - start < 40
    finally:
        running.lab.fault(subject, kind, on=False)
    rows = {c["name"]: c for c in ran.json["clusters"]}
    # The label of a node that others run is its owner's to set; the rest may pass by itself.
    stuck = kind == "node-without-label"
    assert (ran.status, ran.json["verdict"], ran.json["stuck"]) == (4, "late", stuck), ran.json
    assert (rows["metal"]["state"], rows["civo-london"]["state"]) == (state, "converged"), ran.json
    said = [rows["metal"]["why"], *(f["message"] + f["fix"] for f in rows["metal"]["findings"])]
    assert any(named in text for text in said), said
    again = running.reconcile().clean()
    assert (again.status, again.json["verdict"]) == (0, "converged"), again.json


def test_a_chart_whose_daemon_lands_on_the_system_node_looks_healthy_and_is_found(running, tmp_path):
    """DESIRED 1, READY 1, all pods ready, and the pool has no driver: one disagreement, and none once the chart is back."""
    name = "mp-dra-driver-cpu"

    def mutate(plan):
        return broken.lost_selector(name)(broken.wrong_value(name, "modelplane.ai/cpu", "other")(plan))

    with running.session() as session:
        planned = session.plan_standing("metal")
        joined = planned.component("dra-driver-cpu")
        good = chart_ref(joined.component.pin, mirror=session.world.chart_mirror)
        helm, client = session.helm("metal"), session.client("metal")

        def install(chart: ChartRef) -> None:
            helm.upgrade_install(name, chart, joined.component.namespace, joined.values, wait="none", timeout=30)

        def codes() -> list[str]:
            summary = session.summary("metal", session.observe("metal"))
            return [f.code for f in summary.findings if f.severity == "error" and f.subject.startswith("component/")]

        def status() -> tuple[int, int]:
            daemon = client.get("apps/v1", "DaemonSet", name, namespace=joined.component.namespace)["status"]
            return daemon["desiredNumberScheduled"], daemon["numberReady"]

        install(ChartRef(str(write_chart(joined.component, tmp_path, mutate=mutate))))
        eventually(lambda: status() == (1, 1))
        eventually(lambda: codes() == ["PlanDisagrees"])
        install(good)
        eventually(lambda: codes() == [])


def test_an_api_that_answers_slowly_is_waited_for(running):
    """Every call takes a second, and slow isn't unreadable: it converges all the same."""
    running.lab.fault("cluster/metal", "slow")
    try:
        assert "slow" in next(c for c in running.status()["clusters"] if c["name"] == "metal")["faults"]
        start = time.monotonic()
        ran = running.reconcile("120s").clean()
        seconds = time.monotonic() - start
    finally:
        running.lab.fault("cluster/metal", "slow", on=False)
    rows = {c["name"]: c["state"] for c in ran.json["clusters"]}
    assert (ran.status, ran.json["verdict"], rows) == (
        0,
        "converged",
        {"metal": "converged", "civo-london": "converged"},
    ), ran.json
    # The fault was there.
    assert seconds > 5
