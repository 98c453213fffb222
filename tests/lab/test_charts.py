"""Stand-in charts rendered by the real helm: what they place is what the declaration says."""

from __future__ import annotations

import dataclasses

import pytest
import yaml

from modelplane_dagster.components.effective import effective_placement
from modelplane_dagster.components.types import Component, CustomResource, DeclaredWorkload, Knob, Pin
from modelplane_dagster.kube.objects import PodPlacement
from resources.helm import ChartRef, Helm
from resources.lab.charts import chart_plan, write_chart, write_mirror
from tests.helm_binary import helm_binary

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def affinity(*expressions):
    terms = [{"matchExpressions": [{"key": k, "operator": op, "values": v}]} for k, op, v in expressions]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}


def exists(key):
    return {"key": key, "operator": "Exists", "effect": "NoSchedule"}


RULE = CustomResource("ops.dev/v1", "Policy", "policies", namespaced=False, values_root="operands", name="policy")

AGENT = Component(
    key="agent",
    release="mp-agent",
    namespace="agent",
    pin=Pin("agent", "oci://registry.example/charts", "1.2.3", "2026-11-30", "values"),
    publishes="gpu.example.com",
    settings={"config.mode": "string", "config.extra": "object", "debug": "boolean"},
    device_classes=("gpu.example.com", "mig.example.com"),
    workloads=(
        DeclaredWorkload(
            kind="DaemonSet",
            name="agent",
            publishes="gpu.example.com",
            node_selector=Knob("agent.nodeSelector", {"os": "linux"}, {"fixed": "yes"}),
            affinity=Knob("agent.affinity", affinity(("a", "In", ["1"])), affinity(("b", "NotIn", ["auto"]))),
            tolerations=Knob("agent.tolerations", [{"operator": "Exists"}], [exists("own")], empty="drops fixed"),
            priority_class="system-node-critical",
            host_network=True,
            host_ports=(8080,),
            ports={"healthz": 8080},
            cpu_request="100m",
            pod_labels={"tier": "node"},
        ),
        DeclaredWorkload(
            kind="DaemonSet",
            name="lists",
            namespace="elsewhere",
            affinity=Knob("lists", {"keys": ["type"], "values": ["x"]}, form="label lists"),
            tolerations=Knob("kept", [exists("kept")], empty="keeps default"),
        ),
        DeclaredWorkload(kind="Deployment", name="controller", enabled="controller.on", enabled_default=False),
        DeclaredWorkload(
            kind="Job",
            name="upgrade",
            hook="pre-upgrade",
            tolerations=Knob("agent.tolerations", [{"operator": "Exists"}]),
        ),
        DeclaredWorkload(
            kind="DaemonSet",
            name="operand",
            origin="operator",
            resource=RULE,
            tolerations=Knob("tolerations", [exists("gpu")]),
            enabled="on",
        ),
    ),
)

VALUES = [
    {},
    {"agent": {"nodeSelector": {"pool": "p"}}},
    {"agent": {"nodeSelector": {"os": None, "pool": "p"}}},
    {"agent": {"tolerations": []}, "kept": []},
    {"agent": {"tolerations": None}, "kept": None},
    {"agent": {"tolerations": [exists("mine")]}, "kept": [exists("mine")]},
    {"agent": {"affinity": affinity(("c", "In", ["2"]), ("d", "In", ["3"]))}},
    {"agent": {"affinity": None}, "lists": {"keys": ["pool", "zone"], "values": ["p", "q"]}},
    {"lists": {"keys": []}},
    {"agent": None},
]


@pytest.fixture(scope="module")
def helm():
    with Helm(helm_binary(), {"clusters": []}) as wrapped:
        yield wrapped


@pytest.fixture
def render(helm, tmp_path):
    def rendered(values=None, *, mutate=None, component=AGENT):
        chart = write_chart(component, tmp_path, mutate=mutate)
        documents = yaml.safe_load_all(helm.template("mp-agent", ChartRef(str(chart)), "agent", values or {}))
        return {(d["kind"], d["metadata"]["name"]): d for d in documents if d}

    return rendered


def pod_spec(objects, kind, name):
    return objects[(kind, name)]["spec"]["template"]["spec"]


@pytest.mark.parametrize("values", VALUES, ids=str)
def test_the_rendered_placement_is_the_effective_one(render, values):
    objects = render(values)
    for workload in AGENT.workloads:
        if (workload.kind, workload.name) in objects:
            seen = PodPlacement.parse(pod_spec(objects, workload.kind, workload.name))
            assert seen == effective_placement(workload, values), workload.name


def test_everything_a_daemon_declares_is_rendered(render):
    objects = render({"config": {"mode": "grouped", "extra": {"a": 1}}, "debug": False})
    daemon = objects[("DaemonSet", "agent")]
    template = daemon["spec"]["template"]
    assert daemon["metadata"]["namespace"] == "agent"
    assert template["metadata"] == {
        "labels": {
            "app.kubernetes.io/name": "agent",
            "app.kubernetes.io/instance": "mp-agent",
            "lab.modelplane.ai/workload": "agent",
            "tier": "node",
        },
        "annotations": {
            "lab.modelplane.ai/plays": "agent/agent",
            "lab.modelplane.ai/settings": '{"config.extra":"{\\"a\\":1}","config.mode":"\\"grouped\\"","debug":"false"}',
        },
    }
    spec = template["spec"]
    assert spec["containers"] == [
        {
            "name": "main",
            "image": "lab.modelplane.ai/agent:1.2.3",
            "ports": [{"name": "healthz", "containerPort": 8080, "hostPort": 8080, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "100m"}},
        }
    ]
    assert (spec["hostNetwork"], spec["priorityClassName"], spec["serviceAccountName"]) == (
        True,
        "system-node-critical",
        "mp-agent",
    )
    assert objects[("ConfigMap", "mp-agent-settings")]["data"] == {
        "config.mode": '"grouped"',
        "config.extra": '{"a":1}',
        "debug": "false",
    }
    assert objects[("DaemonSet", "lists")]["metadata"]["namespace"] == "elsewhere"
    assert objects[("Job", "upgrade")]["metadata"]["annotations"]["helm.sh/hook"] == "pre-upgrade"


def test_a_switch_turns_a_workload_on(render):
    assert ("Deployment", "controller") not in render()
    assert ("Deployment", "controller") in render({"controller": {"on": True}})


def test_the_operators_resource_is_copied_from_its_root(render):
    objects = render({"operands": {"on": False, "extra": 1}})
    assert objects[("Policy", "policy")]["spec"] == {"on": False, "extra": 1, "tolerations": [exists("gpu")]}
    crd = objects[("CustomResourceDefinition", "policies.ops.dev")]["spec"]
    assert (crd["group"], crd["scope"], crd["names"]["kind"]) == ("ops.dev", "Cluster", "Policy")
    assert crd["versions"][0]["schema"] == {
        "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    }


def test_device_classes_take_the_drivers_devices(render):
    objects = render()
    classes = {n: o["spec"]["selectors"][0]["cel"]["expression"] for (k, n), o in objects.items() if k == "DeviceClass"}
    assert classes == {
        "gpu.example.com": 'device.driver == "gpu.example.com"',
        "mig.example.com": 'device.driver == "gpu.example.com" && has(device.attributes["gpu.example.com"].type)'
        ' && device.attributes["gpu.example.com"].type == "mig"',
    }


def test_a_broken_variant_differs_only_where_it_was_broken(render):
    def keyless(plan):
        plan["workloads"][0]["tolerations"] |= {"path": [], "default": [{"operator": "Exists"}], "fixed": []}
        return plan

    broken, sound = render({"agent": {"tolerations": [exists("mine")]}}, mutate=keyless), render()
    spec = pod_spec(broken, "DaemonSet", "agent")
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert broken[("DaemonSet", "lists")] == sound[("DaemonSet", "lists")]


def test_the_same_component_gives_the_same_bytes(tmp_path):
    first, second = write_chart(AGENT, tmp_path / "a"), write_chart(dataclasses.replace(AGENT), tmp_path / "b")
    assert first.name == "agent-1.2.3.tgz"
    assert first.read_bytes() == second.read_bytes()


def test_components_of_one_pin_share_a_chart(tmp_path, helm):
    more = DeclaredWorkload(kind="Deployment", name="more")
    other = Component(key="other", release="mp-agent", namespace="agent", pin=AGENT.pin, workloads=(more,))
    bare = Component(key="bare", namespace="agent")
    (chart,) = write_mirror((AGENT, bare, other), tmp_path)
    names = [d["metadata"]["name"] for d in yaml.safe_load_all(helm.template("r", ChartRef(str(chart)), "n", {})) if d]
    assert "agent" in names
    assert "more" in names


def test_a_component_of_manifests_alone_has_no_chart():
    with pytest.raises(ValueError, match="bare has no chart"):
        chart_plan(Component(key="bare"))
