"""Where a broken chart lands, by the controllers: what the audits must find."""

from __future__ import annotations

import pytest
import yaml

from modelplane_dagster.components.cpu import DRA_DRIVER_CPU
from resources.helm import ChartRef, Helm
from resources.lab.charts import write_chart
from tests.helm_binary import helm_binary
from tests.lab import broken
from tests.lab.test_controllers import Lab

NAME = "mp-dra-driver-cpu"
VALUES = {
    "nodeSelector": {"modelplane.ai/cpu": "true"},
    "tolerations": [{"key": "modelplane.ai/cpu", "operator": "Exists", "effect": "NoSchedule"}],
}
CPU, NV = "modelplane.ai/cpu", "nvidia.com/gpu"
CASES = {
    "sound": (None, {NAME: ["cpu-1"]}),
    "no toleration": (broken.no_toleration(NAME), {NAME: []}),
    "wrong value": (broken.wrong_value(NAME, CPU, "yes"), {NAME: []}),
    "keyless": (broken.keyless(NAME), {NAME: ["cpu-1"]}),
    "widened": (broken.widened(NAME, CPU, NV), {NAME: ["cpu-1"]}),
    "lost selector": (broken.lost_selector(NAME), {NAME: ["cpu-1", "sys-1"]}),
    "keyless and lost selector": (
        lambda plan: broken.keyless(NAME)(broken.lost_selector(NAME)(plan)),
        {NAME: ["cpu-1", "nv-1", "sys-1"]},
    ),
    "wrong value and lost selector": (
        lambda plan: broken.wrong_value(NAME, CPU, "yes")(broken.lost_selector(NAME)(plan)),
        {NAME: ["sys-1"]},
    ),
    "extra daemon": (broken.extra_daemon(NAME), {NAME: ["cpu-1"], "undeclared": ["sys-1"]}),
}


@pytest.mark.parametrize(("mutate", "expected"), CASES.values(), ids=CASES)
def test_a_broken_chart_lands_elsewhere_and_looks_healthy(tmp_path, mutate, expected):
    chart = write_chart(DRA_DRIVER_CPU, tmp_path, mutate=mutate)
    with Helm(helm_binary(), {"clusters": []}) as helm:
        rendered = helm.template("mp-dra-driver-cpu", ChartRef(str(chart)), "default", VALUES)
    lab = Lab()
    lab.node("sys-1")
    lab.node("cpu-1", {CPU: "true"}, [(CPU, "true", "NoSchedule")])
    lab.node("nv-1", {}, [(NV, "present", "NoSchedule")])
    for body in yaml.safe_load_all(rendered):
        if body and body["kind"] == "DaemonSet":
            lab.store.create("daemonsets.apps", body)
    lab.run()
    seen = {}
    for daemon in lab.store.list("daemonsets.apps"):
        status = daemon["status"]
        assert status["desiredNumberScheduled"] == status["numberReady"]
        owned = [
            p["spec"]["nodeName"]
            for p in lab.store.list("pods")
            if p["metadata"]["ownerReferences"][0]["name"] == daemon["metadata"]["name"]
        ]
        seen[daemon["metadata"]["name"]] = sorted(owned)
    assert seen == expected
