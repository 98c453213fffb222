"""Charts that no longer do what their declarations say, rendered by the real Helm: each is one disagreement. The audits are
no mirror of themselves, since only the chart was changed."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import pytest
import yaml

from modelplane_dagster.audit.instances import Instance, instances
from modelplane_dagster.audit.live import LiveNode, LiveWorkload
from modelplane_dagster.audit.live_audit import audit_live
from modelplane_dagster.audit.planned_nodes import planned_nodes
from modelplane_dagster.cluster import SOURCES, ClusterView
from modelplane_dagster.components.join import join
from modelplane_dagster.components.lists import components_for
from modelplane_dagster.components.types import Component, JoinedComponent, Knob
from modelplane_dagster.findings import Finding
from modelplane_dagster.kube.objects import NodeFacts, PodPlacement
from resources.helm import ChartRef, Helm
from resources.lab.charts import chart_file, write_chart
from tests.audit.worlds import AMD, CPU, NV, NVCPU, device, live, pool, view, workloads_of
from tests.helm_binary import helm_binary
from tests.lab import broken

POOLS = {
    "Existing": (NV, AMD, CPU, NVCPU),
    "EKS": (
        NV,
        CPU,
        NVCPU,
        pool("efa", device("gpu.nvidia.com", 8), device("dra.net", 4), fabric="EFA"),
    ),
    "AKS": (NV, CPU, NVCPU, pool("ib", device("gpu.nvidia.com", 8), fabric="InfiniBand")),
}
KEYS = ("nvidia.com/gpu", "amd.com/gpu", "modelplane.ai/cpu")


@dataclass(frozen=True)
class World:
    """One cluster of a source with every kind of pool, and all that the plan puts there."""

    view: ClusterView
    parts: tuple[JoinedComponent, ...]

    @property
    def nodes(self) -> list[LiveNode]:
        there = [n for n in planned_nodes(self.view, self.parts, instances(self.parts)) if n.pool]
        return [LiveNode(n) for n in (*there, NodeFacts("sys-1", {"kubernetes.io/os": "linux"}))]


def world(source: str) -> World:
    cluster = view(*POOLS.get(source, (NV, CPU, NVCPU)), source=source)
    return World(cluster, join(cluster, components_for(source)).components)


WORLDS = {source: world(source) for source in SOURCES}


def tagged() -> dict[str, tuple[str, Instance]]:
    """Every node-level workload of a component that not every cluster gets, once a chart."""
    found: dict[str, tuple[str, Instance]] = {}
    # A cluster of one's own has all three kinds of pool, so each stack is judged there where it comes there.
    for source, made in sorted(WORLDS.items(), key=lambda item: item[0] != "Existing"):
        joined = {p.key: p for p in made.parts}
        for instance in instances(made.parts):
            component = joined[instance.component.key].component
            if not instance.daemon or not (component.drivers or component.when):
                continue
            chart = chart_file(component) if component.pin else component.key
            found.setdefault(f"{chart}:{instance.name}", (source, instance))
    return found


TAGGED = tagged()
KEYED = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in KEYS]
NAMES = sorted(TAGGED)
CHARTED = [n for n in NAMES if TAGGED[n][1].workload.origin == "chart" and TAGGED[n][1].component.pin]

# Each fault: the tolerations that the chart then has, None for its own; whether it loses its selectors; what is found.
FAULTS = {
    "no toleration": ([], False, ["PlanDisagrees"]),
    "wrong value": ("wrong", False, ["PlanDisagrees"]),
    "keyless": ([{"operator": "Exists"}], False, ["PlanDisagrees", "ToleratesEverything"]),
    "widened": (KEYED, False, ["PlanDisagrees"]),
    "lost selector": (None, True, ["PlanDisagrees"]),
    "widened and lost selector": (KEYED, True, ["PlanDisagrees"]),
    "system nodes alone": ("wrong", True, ["PlanDisagrees"]),
}


def tolerations(instance: Instance, fault: str) -> list[dict[str, Any]] | None:
    told = FAULTS[fault][0]
    if told == "wrong":
        key = min(t.key for t in instance.placement.tolerations)
        return [{"key": key, "operator": "Equal", "value": "wrong", "effect": "NoSchedule"}]
    return told


def mutation(instance: Instance, fault: str) -> broken.Mutation:
    name, told = instance.workload.name, tolerations(instance, fault)

    def mutated(plan: broken.Plan) -> broken.Plan:
        plan = broken.lost_selector(name)(plan) if FAULTS[fault][1] else plan
        if told is None:
            return plan
        if not told:
            return broken.no_toleration(name)(plan)
        if "key" not in told[0]:
            return broken.keyless(name)(plan)
        if told[0]["operator"] == "Equal":
            return broken.wrong_value(name, told[0]["key"], told[0]["value"])(plan)
        return broken.widened(name, *(t["key"] for t in told))(plan)

    return mutated


@pytest.fixture(scope="module")
def helm():
    with Helm(helm_binary(), {"clusters": []}) as wrapped:
        yield wrapped


def rendered(helm: Helm, folder, source: str, component: Component, mutate: broken.Mutation) -> list[LiveWorkload]:
    """What the real Helm makes of the component's changed chart, as the API would show it."""
    joined = next(p for p in WORLDS[source].parts if p.key == component.key)
    chart = ChartRef(str(write_chart(component, folder, mutate=mutate)))
    bodies = yaml.safe_load_all(helm.template(component.release, chart, component.namespace, joined.values))
    found = []
    for body in bodies:
        if body and body["kind"] in ("DaemonSet", "Deployment", "StatefulSet"):
            meta = body["metadata"]
            meta["namespace"] = meta.get("namespace") or component.namespace
            meta["uid"] = f"uid-{meta['name']}"
            meta.setdefault("annotations", {})["meta.helm.sh/release-name"] = component.release
            found.append(LiveWorkload.parse(body))
    return found


def made_otherwise(instance: Instance, fault: str, workloads: list[LiveWorkload]) -> list[LiveWorkload]:
    """The same fault in what an operator makes of its resource, or in a manifest."""
    told = tolerations(instance, fault)
    placement = instance.placement
    if told is not None:
        placement = replace(placement, tolerations=PodPlacement.parse({"tolerations": told}).tolerations)
    if FAULTS[fault][1]:
        placement = replace(placement, node_selector={}, affinity=PodPlacement().affinity)
    key = (instance.namespace, instance.name)
    return [replace(w, placement=placement) if (w.namespace, w.name) == key else w for w in workloads]


def found(
    source: str, workloads: list[LiveWorkload], parts: tuple[JoinedComponent, ...] | None = None
) -> list[Finding]:
    made = WORLDS[source]
    return list(audit_live(made.view, parts or made.parts, live(made.nodes, workloads)).findings)


@pytest.mark.parametrize("source", SOURCES)
def test_nothing_is_found_where_nothing_was_changed(source):
    assert found(source, workloads_of(WORLDS[source].parts)) == []


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", NAMES)
def test_a_changed_chart_is_one_disagreement(helm, tmp_path, name, fault):
    source, instance = TAGGED[name]
    workloads = workloads_of(WORLDS[source].parts)
    if name in CHARTED:
        component = instance.component
        others = [w for w in workloads if w.release != component.release]
        workloads = [*others, *rendered(helm, tmp_path, source, component, mutation(instance, fault))]
    else:
        workloads = made_otherwise(instance, fault, workloads)
    findings = found(source, workloads)
    assert [f.code for f in findings] == FAULTS[fault][2]
    one = findings[0]
    key = instance.component.key
    assert one.subject == f"component/c/{key}"
    assert one.message.startswith(f"{key}: DaemonSet {instance.name} is ")
    assert re.search(r"expected (on|to tolerate the taints of) pools? ", one.message), one.message
    assert " seen " in one.message
    assert one.fix.startswith("Correct the ")


@pytest.mark.parametrize("name", CHARTED)
def test_a_daemon_that_nobody_declared_is_one_finding(helm, tmp_path, name):
    source, instance = TAGGED[name]
    component = instance.component
    others = [w for w in workloads_of(WORLDS[source].parts) if w.release != component.release]
    extra = rendered(helm, tmp_path, source, component, broken.extra_daemon(instance.workload.name))
    (one,) = found(source, [*others, *extra])
    assert (one.code, "undeclared" in one.message, "system" in one.message or "no pool" in one.message) == (
        "UndeclaredWorkload",
        True,
        True,
    ), one.message


@pytest.mark.parametrize("name", [n for n in NAMES if TAGGED[n][1].component.pin])
def test_a_changed_declaration_is_one_disagreement(name):
    """The chart stays; its declaration forgets the tolerations. Manifests of ours are their own declaration."""
    source, instance = TAGGED[name]
    made = WORLDS[source]
    wrong = replace(instance.workload, tolerations=Knob(default=[]))
    told = tuple(wrong if w == instance.workload else w for w in instance.component.workloads)
    parts = tuple(
        replace(p, component=replace(p.component, workloads=told)) if p.key == instance.component.key else p
        for p in made.parts
    )
    (one,) = found(source, workloads_of(made.parts), parts)
    assert (one.code, one.subject) == ("PlanDisagrees", f"component/c/{instance.component.key}")
