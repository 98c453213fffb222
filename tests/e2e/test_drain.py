"""A cluster that is drained: its replicas go though nothing else takes them, and come back when the taint is gone."""

from __future__ import annotations

import pytest

from tests.e2e.site import site

pytestmark = [pytest.mark.lab, pytest.mark.dagster]
RECIPE = "recipes/qwen2.5-0.5b-cpu-civo"
TAINT = "spec:\n  taints:\n  - {key: maintenance, effect: NoExecute}\n"


def test_a_drained_cluster_empties_and_fills_again(tmp_path):
    with site(tmp_path) as fleet:
        fleet.copy(*(f"{RECIPE}/{name}.yaml" for name in ("classes", "cluster", "deployment")))
        assert fleet.reconcile().clean().json["verdict"] == "converged"
        path = fleet.folder / "cluster.yaml"
        text = path.read_text()

        def replicas() -> int:
            with fleet.session() as session:
                return len(session.observe("civo-london").replicas.value)

        assert (replicas(), text.count("spec:\n")) == (1, 1)
        path.write_text(text.replace("spec:\n", TAINT))
        ran = fleet.reconcile("10s").clean()
        assert (ran.status, replicas()) == (4, 0)
        path.write_text(text)
        assert (fleet.reconcile().clean().status, replicas()) == (0, 1)
