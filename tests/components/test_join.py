"""What the join decides and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modelplane_dagster.cluster import ExternalDriver
from modelplane_dagster.components.join import Kept, join
from modelplane_dagster.components.lists import components_for
from modelplane_dagster.components.placing import kept
from modelplane_dagster.components.types import Component, DeclaredWorkload, Knob, Pin, Reach, When
from tests.components.worlds import AMD, CPU, NV, amd, cpu, full, nvidia, nvidia_cpu, pool, view

PIN = Pin("chart", "oci://example.com/charts", "1.0.0", "2026-11-30", "nothing")


def codes(result):
    return [(f.code, f.subject) for f in result.findings]


def chart(key, **more):
    return Component(**{"key": key, "release": f"mp-{key}", "namespace": key, "pin": PIN, **more})


def reasons(world):
    result = join(world, components_for(world.source))
    return {c.key: c.reason for c in result.components}


def test_reasons_are_sentences_about_the_pools():
    said = reasons(view("Existing", nvidia(), cpu("a"), cpu("b")))
    assert said["nvidia-dra-driver-gpu"] == "serves gpu.nvidia.com of pool l4"
    assert said["dra-driver-cpu"] == "serves dra.cpu of pools a and b"
    assert said["amd-gpu-operator"] == "left out: no pool claims gpu.amd.com"
    assert said["cert-manager"] == "every cluster gets it"


def test_reasons_of_conditions():
    assert reasons(view("EKS", nvidia(fabric="EFA")))["aws-dranet"] == "because its fabric is EFA: l4"
    assert reasons(view("EKS", nvidia()))["aws-dranet"] == "left out: no pool for which its fabric is EFA"


def test_what_the_platform_team_runs_is_left_out():
    world = view("Existing", nvidia(), amd(), external=(ExternalDriver(AMD, "GPU", "amd.com/gpu"),))
    result = join(world, components_for("Existing"))
    assert result.findings == ()
    operator = result.get("amd-gpu-operator")
    assert (operator.install, operator.reason) == (False, "left out: the platform team runs gpu.amd.com itself")
    discovery = result.get("node-feature-discovery")
    assert discovery.serves == ("l4",)
    terms = discovery.values["worker"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms == {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "modelplane.ai/pool", "operator": "In", "values": ["l4"]}]}]
    }


def test_dependencies_come_first():
    keys = [c.key for c in join(full("EKS"), components_for("EKS")).components]
    for first, second in [
        ("prometheus-operator-crds", "kube-prometheus-stack"),
        ("node-feature-discovery", "gpu-operator"),
        ("gpu-operator", "nvidia-dra-driver-gpu"),
        ("dra-driver-critical-pods-quota", "nvidia-dra-driver-gpu"),
        ("cert-manager", "envoy-gateway"),
        ("gateway-selfsigned-issuer", "trust-manager"),
    ]:
        assert keys.index(first) < keys.index(second), (first, second)


def test_pool_lists_and_taints_keep_what_the_live_release_names():
    world = view("Existing", nvidia("b"), cpu())
    keep = {"node-feature-discovery": Kept(frozenset({"a"}), frozenset({"amd.com/gpu"}))}
    worker = join(world, components_for("Existing"), keep=keep).get("node-feature-discovery").values["worker"]
    assert worker == {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "modelplane.ai/pool", "operator": "In", "values": ["a", "b"]}]}
                    ]
                }
            }
        },
        "tolerations": [
            {"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        ],
    }
    driver = join(world, components_for("Existing"), keep=keep).get("nvidia-dra-driver-gpu").values["kubeletPlugin"]
    terms = driver["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms[0]["matchExpressions"][0]["values"] == ["b"]


@pytest.mark.parametrize("source", ["EKS", "Existing"])
def test_what_is_kept_is_read_back_from_the_values_that_were_made(source):
    read = {c.key: kept(c.values) for c in join(full(source), components_for(source)).installed}
    pools = {"l4", "l4cpu", "efa"} if source == "EKS" else {"l4", "l4cpu"}
    assert read["nvidia-dra-driver-gpu"] == (frozenset(pools), frozenset({"nvidia.com/gpu"}))
    cpu_taints = {"modelplane.ai/cpu", "nvidia.com/gpu"} | ({"amd.com/gpu"} if source == "Existing" else set())
    assert read["dra-driver-cpu"] == (frozenset(), frozenset(cpu_taints))
    if source == "EKS":
        assert read["aws-dranet"] == (frozenset({"efa"}), frozenset({"nvidia.com/gpu"}))


def test_cpu_tolerations_are_the_taints_of_every_pool_that_claims_cpus():
    values = join(view("EKS", nvidia_cpu(), nvidia()), components_for("EKS")).get("dra-driver-cpu").values
    assert values == {
        "nodeSelector": {"modelplane.ai/cpu": "true"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "driverConfig": {"reservedCPUs": "0-1", "cpuDeviceMode": "grouped"},
    }


@pytest.mark.parametrize(
    ("mode", "config"),
    [
        ("individual", {"reservedCPUs": "0-1", "cpuDeviceMode": "individual"}),
        (None, {"reservedCPUs": "0-1"}),
    ],
)
def test_cpu_mode_is_the_clusters(mode, config):
    world = view("Existing", cpu(), cpu_mode=mode)
    assert join(world, components_for("Existing")).get("dra-driver-cpu").values["driverConfig"] == config


def test_one_device_config_a_pool():
    made = join(view("Existing", amd("x"), amd("y")), components_for("Existing")).get("amd-gpu-operator").manifests
    assert [(m["metadata"]["name"], m["spec"]["selector"]) for m in made] == [
        ("mp-x", {"modelplane.ai/pool": "x"}),
        ("mp-y", {"modelplane.ai/pool": "y"}),
    ]
    spec = made[0]["spec"]
    tolerated = [{"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert spec["driver"] == {"enable": False}
    assert spec["draDriver"]["enable"] is True
    assert spec["devicePlugin"]["enableDevicePlugin"] is False
    assert spec["draDriver"]["tolerations"] == tolerated
    assert spec["devicePlugin"]["nodeLabellerTolerations"] == tolerated
    assert spec["metricsExporter"]["tolerations"] == tolerated
    assert all(":latest" not in image for image in (spec["draDriver"]["image"], spec["metricsExporter"]["image"]))


# -- refusals -----------------------------------------------------------------------------------------------------


def test_duplicate_key_and_release():
    twice = join(view("EKS"), (chart("one"), chart("one")))
    assert codes(twice) == [("DuplicateComponent", "component/c/one")]
    shared = join(
        view("EKS"), (chart("one", release="mp-x", namespace="n"), chart("two", release="mp-x", namespace="n"))
    )
    assert codes(shared) == [("DuplicateComponent", "component/c/two")]


def test_dependency_that_no_list_holds():
    result = join(view("EKS"), (chart("one", depends_on=("two",)),))
    assert codes(result) == [("DependencyMissing", "component/c/one")]


def test_dependency_that_the_join_dropped():
    parts = (
        chart("base", drivers=frozenset({NV, CPU})),
        chart("one", drivers=frozenset({NV}), depends_on=("base",)),
        chart("cond", drivers=frozenset({NV})),
    )
    assert codes(join(view("EKS", nvidia()), parts)) == []
    never = When("it never is", lambda _: ())
    dropped = (chart("plain"), chart("needs", depends_on=("gone",)), chart("gone", when=never))
    assert codes(join(view("Existing", amd()), dropped)) == [("DependencyMissing", "component/c/needs")]


@pytest.mark.parametrize("tags", [frozenset(), frozenset({AMD}), frozenset({NV, AMD})])
def test_dependency_on_another_drivers_component(tags):
    parts = (chart("stack", drivers=frozenset({NV})), chart("one", drivers=tags, depends_on=("stack",)))
    assert codes(join(view("Existing", nvidia(), amd()), parts)) == [("DependencyForeign", "component/c/one")]


def test_circle():
    parts = (chart("one", depends_on=("two",)), chart("two", depends_on=("one",)), chart("three"))
    assert codes(join(view("EKS"), parts)) == [("DependencyCycle", "component/c/one")]


DAEMON = DeclaredWorkload(
    kind="DaemonSet",
    name="d",
    reach=Reach("all"),
    tolerations=Knob("daemon.tolerations", [{"operator": "Exists"}]),
)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"daemon": {"tolerations": [{"operator": "Exists"}]}}, "daemon.tolerations holds a toleration without a key"),
        ({"daemon": {"tolerations": [{"key": "", "operator": "Exists"}]}}, "daemon.tolerations holds"),
        ({}, "DaemonSet d tolerates every taint by its chart's default"),
    ],
)
def test_keyless_toleration(values, said):
    result = join(view("EKS"), (chart("one", workloads=(DAEMON,), values=lambda _: values),))
    assert codes(result) == [("KeylessToleration", "component/c/one")]
    assert result.findings[0].message.startswith(said)


def test_keyless_toleration_in_a_manifest_of_ours():
    spec = {"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}
    daemon = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}, "spec": spec}
    result = join(view("EKS"), (Component(key="one", manifests=lambda _: (daemon,)),))
    assert codes(result) == [("KeylessToleration", "component/c/one")]


def test_keyed_tolerations_and_cleared_ones_pass():
    for tolerations in ([{"key": "a", "operator": "Exists"}], [], None):
        values = {"daemon": {"tolerations": tolerations}}
        assert codes(join(view("EKS"), (chart("one", workloads=(DAEMON,), values=lambda _, v=values: v),))) == []


@pytest.mark.parametrize(
    "component",
    [
        chart("k" * 64, release="mp-k", namespace="k"),
        chart("one", release="r" * 54),
        chart("one", namespace="n" * 64),
        chart("one", namespace="No_Name"),
        chart("one", workloads=(DeclaredWorkload(kind="Deployment", name="w" * 64),)),
        chart("one", workloads=(DeclaredWorkload(kind="Deployment", name="w", pod_labels={"a": "v" * 64}),)),
    ],
)
def test_limits_of_components(component):
    assert codes(join(view("EKS"), (component,))) == [("LimitExceeded", f"component/c/{component.key}")]


def test_limits_of_pools_and_of_what_is_named_after_them():
    long = pool("p" * 64)
    assert codes(join(view("EKS", long), ())) == [("LimitExceeded", f"pool/c/{'p' * 64}")]
    fits_as_label_alone = join(view("Existing", amd("p" * 50)), components_for("Existing"))
    assert {f.code for f in fits_as_label_alone.findings} == {"LimitExceeded"}
    assert {f.subject for f in fits_as_label_alone.findings} == {"component/c/amd-gpu-operator"}


def test_two_publishers_of_one_driver():
    parts = (chart("one", publishes=NV), chart("two", publishes=AMD, publishes_more=frozenset({NV})))
    assert codes(join(view("EKS"), parts)) == [("PublishedTwice", "cluster/c")]


def test_a_publisher_that_its_tags_leave_out():
    parts = (chart("one", drivers=frozenset({NV}), publishes=NV, publishes_more=frozenset({AMD})),)
    assert codes(join(view("Existing", amd()), parts)) == [("PublisherDropped", "component/c/one")]
    tagged = (replace(parts[0], drivers=frozenset({NV, AMD})),)
    assert codes(join(view("Existing", amd()), tagged)) == []


def test_values_that_the_chart_does_not_read():
    component = chart("one", settings={"image.tag": "string"}, values=lambda _: {"image": {"tga": "1"}})
    result = join(view("EKS"), (component,))
    assert codes(result) == [("UnknownValuesPath", "component/c/one")]
    assert result.findings[0].message == "The chart reads no value image.tga; the nearest it does read is image.tag."
    wrong = chart("one", settings={"image.tag": "string"}, values=lambda _: {"image": {"tag": 1}})
    result = join(view("EKS"), (wrong,))
    assert codes(result) == [("WrongValuesType", "component/c/one")]
    assert result.findings[0].message == "image.tag takes a value of type string, and it is integer."
    inside = chart("one", settings={"image.tag": "string"}, values=lambda _: {"image": True})
    assert codes(join(view("EKS"), (inside,))) == [("WrongValuesType", "component/c/one")]


def test_values_are_checked_against_a_null_that_takes_them_away():
    gone = chart("one", settings={"image.tag": "string"}, values=lambda _: {"image": {"tag": None}})
    assert codes(join(view("EKS"), (gone,))) == []


def test_nothing_is_made_for_what_is_not_installed():
    left = join(view("EKS", cpu()), components_for("EKS")).get("node-feature-discovery")
    assert (left.install, left.values, left.prepares, left.manifests, left.serves) == (False, {}, (), (), ())
