"""What each source's clusters get, by the hardware that their classes claim. The sets are written out."""

from __future__ import annotations

import pytest

from modelplane_dagster.cluster import SOURCES
from modelplane_dagster.components.join import join
from modelplane_dagster.components.lists import CLOUD, components_for, externals
from modelplane_dagster.errors import ConfigError
from tests.components.worlds import amd, amd_cpu, cpu, full, nvidia, nvidia_cpu, view

EVERYWHERE = {
    "cert-manager",
    "kube-prometheus-stack",
    "envoy-gateway",
    "ai-gateway-crds",
    "ai-gateway",
    "gaie-crds",
    "gateway-namespace",
    "gateway-proxy",
    "gateway-selfsigned-issuer",
    "trust-manager",
    "lws",
}
RECIPE = EVERYWHERE | {
    "prometheus-operator-crds",
    "prometheus-adapter",
    "k8s-ephemeral-storage-metrics",
    "nodewright-operator",
}
BASE = {
    "EKS": RECIPE,
    "GKE": RECIPE,
    "AKS": RECIPE,
    "Nebius": EVERYWHERE,
    "Vultr": EVERYWHERE,
    "Civo": EVERYWHERE,
    "Existing": EVERYWHERE,
}
NVIDIA = {
    "EKS": {
        "node-feature-discovery",
        "gpu-operator",
        "nvsentinel",
        "dra-driver-critical-pods-quota",
        "nvidia-dra-driver-gpu",
    },
    "GKE": {
        "node-feature-discovery",
        "gpu-operator",
        "nvsentinel",
        "dra-driver-critical-pods-quota",
        "nvidia-dra-driver-gpu",
    },
    "AKS": {
        "node-feature-discovery",
        "gpu-operator",
        "gpu-operator-toolkit-hardening",
        "nvsentinel",
        "dra-driver-critical-pods-quota",
        "nvidia-dra-driver-gpu",
    },
    "Nebius": {"node-feature-discovery", "dra-driver-critical-pods-quota", "nvidia-dra-driver-gpu"},
    "Vultr": {"dra-driver-critical-pods-quota", "nvidia-dra-driver-gpu"},
    "Civo": {"node-feature-discovery", "gpu-operator", "dra-driver-critical-pods-quota", "nvidia-dra-driver-gpu"},
    "Existing": {"node-feature-discovery", "dra-driver-critical-pods-quota", "nvidia-dra-driver-gpu"},
}
WITH_CPU = {"dra-driver-cpu"}
WITH_AMD = {"node-feature-discovery", "amd-gpu-operator"}


def installed(world):
    result = join(world, components_for(world.source))
    assert result.findings == ()
    return {c.key for c in result.components if c.install}


def test_every_source_has_a_list():
    assert tuple(CLOUD) == SOURCES


@pytest.mark.parametrize("source", SOURCES)
def test_no_claimed_driver_means_no_tagged_component(source):
    assert installed(view(source)) == BASE[source]


@pytest.mark.parametrize("source", SOURCES)
def test_nvidia_only_gets_no_amd_and_no_cpu_component(source):
    assert installed(view(source, nvidia())) == BASE[source] | NVIDIA[source]


@pytest.mark.parametrize("source", SOURCES)
def test_cpu_only_gets_no_gpu_component_at_all(source):
    assert installed(view(source, cpu())) == BASE[source] | WITH_CPU


@pytest.mark.parametrize("source", SOURCES)
def test_mixed_gets_exactly_both(source):
    assert installed(view(source, nvidia(), cpu())) == BASE[source] | NVIDIA[source] | WITH_CPU
    assert installed(view(source, nvidia_cpu())) == BASE[source] | NVIDIA[source] | WITH_CPU


def test_amd_is_served_on_existing():
    assert installed(view("Existing", amd())) == BASE["Existing"] | WITH_AMD
    assert installed(view("Existing", amd_cpu())) == BASE["Existing"] | WITH_AMD | WITH_CPU
    everything = BASE["Existing"] | WITH_AMD | WITH_CPU | NVIDIA["Existing"]
    assert installed(view("Existing", amd(), cpu(), nvidia())) == everything


@pytest.mark.parametrize(
    ("source", "pools", "added"),
    [
        ("EKS", [nvidia(fabric="EFA")], {"aws-dranet"}),
        ("EKS", [nvidia(minimum=1, maximum=3)], {"cluster-autoscaler"}),
        ("EKS", [nvidia(count=3, minimum=3, maximum=3)], set()),
        ("Civo", [nvidia(minimum=1, maximum=3)], {"cluster-autoscaler"}),
        ("GKE", [nvidia(minimum=1, maximum=3)], set()),
        ("AKS", [nvidia(fabric="InfiniBand")], {"network-operator"}),
        ("AKS", [nvidia()], set()),
    ],
)
def test_a_condition_brings_its_component(source, pools, added):
    assert installed(view(source, *pools)) == BASE[source] | NVIDIA[source] | added


@pytest.mark.parametrize("source", SOURCES)
def test_a_full_cluster_installs_the_whole_list(source):
    assert installed(full(source)) == {c.key for c in components_for(source)}


def test_externals():
    assert dict(externals("EKS")) == {"dra.net": "EFA"}
    assert dict(externals("GKE")) == {}


def test_unknown_source_and_stack_are_refused():
    with pytest.raises(ConfigError) as source:
        components_for("OpenStack")
    assert [(f.code, f.subject) for f in source.value.findings] == [("UnknownSource", "source/OpenStack")]
    with pytest.raises(ConfigError) as stack:
        components_for("EKS", stack="Dynamo")
    assert [(f.code, f.subject) for f in stack.value.findings] == [("UnknownStack", "stack/Dynamo")]


@pytest.mark.parametrize("source", SOURCES)
def test_every_chart_is_pinned_with_what_was_read(source):
    for component in components_for(source):
        assert component.pin is not None or component.manifests is not None, component.key
        if component.pin is not None:
            assert component.pin.checked == "2026-11-30"
            assert component.pin.read and component.pin.version and component.pin.repository
            assert component.release.startswith("mp-"), component.key
