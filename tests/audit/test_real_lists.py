"""The audits on the component lists that clusters really get: each source, each mix of hardware that it drives."""

from dataclasses import replace
from itertools import combinations
from types import MappingProxyType

import pytest

from modelplane_dagster.audit.instances import instances
from modelplane_dagster.audit.live import LiveNode
from modelplane_dagster.audit.live_audit import audit_live
from modelplane_dagster.audit.plan_audit import audit_plan
from modelplane_dagster.audit.planned_nodes import planned_nodes
from modelplane_dagster.cluster import SOURCES
from modelplane_dagster.components.join import join
from modelplane_dagster.components.lists import components_for
from modelplane_dagster.kube.objects import NodeFacts
from tests.audit.worlds import AMD, CPU, NV, NVCPU, device, live, pool, template, view, workloads_of

AMDCPU = pool("amdcpu", device("gpu.amd.com", 8), *CPU.devices)
EFA = pool(
    "efa", device("gpu.nvidia.com", 8), device("dra.net", 4), fabric="EFA", machine={"instanceType": "p5.48xlarge"}
)
POOLS = (NV, AMD, CPU, NVCPU, AMDCPU)
MIXES = [
    pytest.param(source, pools, id=f"{source}-{'+'.join(p.name for p in pools)}")
    for source in SOURCES
    for count in (1, 2, 3)
    for pools in combinations(POOLS, count)
    if source == "Existing" or not any("gpu.amd.com" in p.drivers for p in pools)
]  # fmt: skip


def planned(cluster):
    return join(cluster, components_for(cluster.source)).components


def nodes_of(cluster, parts):
    """The nodes of the plan, hardware labels included, and one that nothing taints."""
    there = [n for n in planned_nodes(cluster, parts, instances(parts)) if n.pool]
    return [LiveNode(n) for n in (*there, NodeFacts("sys-1", MappingProxyType({"kubernetes.io/os": "linux"})))]


@pytest.mark.parametrize(("source", "pools"), MIXES)
def test_every_stack_reaches_its_pools_and_stays_off_the_others(source, pools):
    cluster = view(*pools, source=source)
    parts = planned(cluster)
    audit = audit_plan(cluster, parts)
    assert audit.findings == ()
    driver = next((r.reaches for r in audit.rows if r.name == "mp-dra-driver-cpu"), ())
    assert driver == tuple(p.name for p in pools if "dra.cpu" in p.drivers)
    plugin = next((r.reaches for r in audit.rows if r.name.endswith("kubelet-plugin")), ())
    assert plugin == tuple(p.name for p in pools if "gpu.nvidia.com" in p.drivers)


def test_a_fabric_brings_its_driver_to_its_pools_alone():
    cluster = view(NV, EFA, CPU)
    audit = audit_plan(cluster, planned(cluster))
    assert audit.findings == ()
    assert [r.reaches for r in audit.rows if r.component == "aws-dranet"] == [("efa",)]


ALL = view(NV, AMD, CPU, NVCPU, AMDCPU, source="Existing")
DAEMONS = sorted(
    i.name for i in instances(planned(ALL)) if i.daemon and i.workload.reach and i.workload.reach.kind == "only"
)


def test_the_cluster_agrees_with_the_plan():
    parts = planned(ALL)
    audit = audit_live(ALL, parts, live(nodes_of(ALL, parts), workloads_of(parts)))
    assert audit.findings == ()


@pytest.mark.parametrize("name", DAEMONS)
def test_a_chart_that_loses_its_tolerations_is_one_disagreement(name):
    parts = planned(ALL)
    workloads = [
        replace(w, placement=replace(w.placement, tolerations=())) if w.name == name else w for w in workloads_of(parts)
    ]
    (found,) = audit_live(ALL, parts, live(nodes_of(ALL, parts), workloads)).findings
    assert (found.code, f" {name} is expected on pool" in found.message) == ("PlanDisagrees", True)


@pytest.mark.parametrize("name", DAEMONS)
def test_a_chart_that_loses_its_selectors_is_one_disagreement(name):
    parts = planned(ALL)
    tolerating = [t.as_dict() for w in workloads_of(parts) if w.name == name for t in w.placement.tolerations]
    workloads = [
        replace(w, placement=template(tolerations=tolerating)) if w.name == name else w for w in workloads_of(parts)
    ]
    (found,) = audit_live(ALL, parts, live(nodes_of(ALL, parts), workloads)).findings
    assert (found.code, f" {name} is not expected on pool" in found.message) == ("PlanDisagrees", True)
