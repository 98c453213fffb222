"""Every chart of every source, with the values that a cluster using all of it gets: rendered is what is declared."""

from __future__ import annotations

import json

import pytest
import yaml

from modelplane_dagster.cluster import SOURCES, ClusterView, PoolView, Role
from modelplane_dagster.components.effective import placed
from modelplane_dagster.components.join import join
from modelplane_dagster.components.lists import components_for
from modelplane_dagster.drivers import AMD, CPU, DRIVERS, NETWORK, NVIDIA
from modelplane_dagster.kube.objects import PodPlacement
from resources.helm import Helm, chart_ref
from resources.lab.agents.daemons import daemon_of
from resources.lab.charts import chart_file, chart_plan, write_mirror
from tests.helm_binary import helm_binary


def pool(name, role, *drivers, **more):
    taint = DRIVERS[drivers[0]].taint
    labels = {"modelplane.ai/pool": name}
    return PoolView("c", name, name, role, drivers, labels=labels, taints=(taint,) if taint else (), **more)


def view(source):
    pools = [
        pool("cpu", Role.CPU, CPU),
        pool("nv", Role.GPU, NVIDIA, minimum=0, maximum=4),
        pool("nv-cpu", Role.GPU, NVIDIA, CPU),
    ]
    if source == "Existing":
        pools.append(pool("amd", Role.GPU, AMD))
    if source == "EKS":
        pools.append(pool("efa", Role.GPU, NVIDIA, NETWORK, fabric="EFA"))
    if source == "AKS":
        pools.append(pool("ib", Role.GPU, NVIDIA, fabric="InfiniBand"))
    claimed = frozenset(d for p in pools for d in p.drivers)
    return ClusterView("c", source, "1.36", tuple(pools), claimed, cpu_mode="grouped")


def joined(source):
    return [j for j in join(view(source), components_for(source)).components if j.install and j.component.pin]


CASES = {(j.key, chart_file(j.component), json.dumps(j.values, sort_keys=True)): j for s in SOURCES for j in joined(s)}


@pytest.fixture(scope="module")
def helm():
    with Helm(helm_binary(), {"clusters": []}) as wrapped:
        yield wrapped


@pytest.fixture(scope="module")
def mirror(tmp_path_factory):
    """One folder for all sources, as a lab has it."""
    folder = tmp_path_factory.mktemp("mirror")
    write_mirror((c for source in SOURCES for c in components_for(source)), folder)
    return folder


@pytest.mark.parametrize("case", CASES.values(), ids=[f"{key}-{file}" for key, file, _ in CASES])
def test_what_is_rendered_is_what_is_declared(helm, mirror, case):
    component = case.component
    chart = chart_ref(component.pin, mirror=str(mirror))
    documents = [
        d for d in yaml.safe_load_all(helm.template(component.release, chart, component.namespace, case.values)) if d
    ]
    rendered = {(d["kind"], d["metadata"]["name"]): d for d in documents}
    resources = [*documents, *case.manifests]
    for resource in resources:
        resource.setdefault("metadata", {})["uid"] = "u"
    made = {}
    for workload in component.workloads:
        if workload.origin == "operator":
            mine = [r for r in resources if workload.resource and r["kind"] == workload.resource.kind]
            found = [d for r in mine if (d := daemon_of(component, workload, r)) is not None]
            made |= {(d["kind"], d["metadata"]["name"]): d for d in found}
    expected = {(p.workload.kind, p.name): p.placement for p in placed(case)}
    shown = {
        at: d for at, d in {**rendered, **made}.items() if at[0] in {"DaemonSet", "Deployment", "StatefulSet", "Job"}
    }
    assert {at: PodPlacement.parse(d["spec"]["template"]["spec"]) for at, d in shown.items()} == expected


def test_components_that_share_a_chart_declare_it_alike():
    """A mirror holds one file for a chart and version, whichever source it is for."""
    seen = {}
    for source in SOURCES:
        for component in components_for(source):
            if component.pin is None:
                continue
            known = seen.setdefault(chart_file(component), chart_plan(component))
            for workload in chart_plan(component)["workloads"]:
                same = [w for w in known["workloads"] if w["name"] == workload["name"]]
                assert same in ([], [workload]), (source, component.key)
