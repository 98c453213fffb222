"""Which drivers a source supports, and how a site changes that."""

from __future__ import annotations

import pytest

from modelplane_dagster.cluster import SOURCES, ExternalDriver
from modelplane_dagster.components.join import join
from modelplane_dagster.components.lists import components_for
from modelplane_dagster.components.support import Support, supported
from modelplane_dagster.errors import ConfigError
from tests.components.worlds import amd, nvidia, view

NVIDIA = Support(via=("nvidia-dra-driver-gpu",))
CPU = Support(via=("dra-driver-cpu",))
MATRIX = {
    "EKS": {"dra.cpu": CPU, "dra.net": Support(external="where a pool has fabric: EFA"), "gpu.nvidia.com": NVIDIA},
    "GKE": {"dra.cpu": CPU, "gpu.nvidia.com": NVIDIA},
    "AKS": {"dra.cpu": CPU, "gpu.nvidia.com": NVIDIA},
    "Nebius": {"dra.cpu": CPU, "gpu.nvidia.com": NVIDIA},
    "Vultr": {"dra.cpu": CPU, "gpu.nvidia.com": NVIDIA},
    "Civo": {"dra.cpu": CPU, "gpu.nvidia.com": NVIDIA},
    "Existing": {"dra.cpu": CPU, "gpu.amd.com": Support(via=("amd-gpu-operator",)), "gpu.nvidia.com": NVIDIA},
}


@pytest.mark.parametrize("source", SOURCES)
def test_the_matrix(source):
    assert supported(source, components_for(source)) == MATRIX[source]


def test_what_the_platform_team_runs_is_supported():
    external = (
        ExternalDriver("dra.example.com", "Other", ""),
        ExternalDriver("gpu.nvidia.com", "GPU", "nvidia.com/gpu"),
    )
    rows = supported("Existing", components_for("Existing"), external)
    team = Support(external="the platform team runs it")
    assert rows == {**MATRIX["Existing"], "dra.example.com": team, "gpu.nvidia.com": team}


def test_publishing_one_more_driver_changes_the_matrix_and_a_tag_alone_does_not():
    tagged = components_for("EKS", {"nodewright-operator": {"drivers": ["gpu.amd.com"]}})
    assert supported("EKS", tagged) == MATRIX["EKS"]
    published = components_for("EKS", {"nodewright-operator": {"drivers": ["gpu.amd.com"], "publishes": "gpu.amd.com"}})
    assert supported("EKS", published) == {**MATRIX["EKS"], "gpu.amd.com": Support(via=("nodewright-operator",))}
    served = join(view("EKS", amd()), published)
    assert served.findings == ()
    assert served.get("nodewright-operator").reason == "serves gpu.amd.com of pool mi325x"
    more = components_for(
        "EKS", {"nvidia-dra-driver-gpu": {"publishes": ["gpu.nvidia.com", "compute-domain.nvidia.com"]}}
    )
    assert supported("EKS", more)["compute-domain.nvidia.com"] == Support(via=("nvidia-dra-driver-gpu",))
    assert supported("EKS", more)["gpu.nvidia.com"] == NVIDIA


def test_publishing_a_driver_twice_is_found():
    twice = components_for("EKS", {"nodewright-operator": {"publishes": ["dra.cpu"]}})
    found = join(view("EKS", nvidia()), twice).findings
    assert [(f.code, f.message) for f in found] == [
        ("PublishedTwice", "dra.cpu is published by dra-driver-cpu and by nodewright-operator.")
    ]


def test_an_overlay_changes_pins_and_values():
    overlay = {
        "dra-driver-cpu": {
            "version": "0.3.1",
            "repository": "oci://registry.example.com/charts",
            "values": {"driverConfig": {"reservedCPUs": "0-3"}, "healthzPort": 18080},
        },
        "cert-manager": {"values": {"crds": None, "replicaCount": 2}},
    }
    parts = {c.key: c for c in components_for("Nebius", overlay)}
    pin = parts["dra-driver-cpu"].pin
    assert (pin.version, pin.repository) == ("0.3.1", "oci://registry.example.com/charts")
    result = join(view("Nebius", amd(), cpu_mode="individual"), tuple(parts.values()))
    assert result.get("cert-manager").values == {"replicaCount": 2}
    from tests.components.worlds import cpu

    result = join(view("Nebius", cpu()), tuple(parts.values()))
    assert result.findings == ()
    assert result.get("dra-driver-cpu").values == {
        "nodeSelector": {"modelplane.ai/cpu": "true"},
        "tolerations": [{"key": "modelplane.ai/cpu", "operator": "Exists", "effect": "NoSchedule"}],
        "driverConfig": {"reservedCPUs": "0-3", "cpuDeviceMode": "grouped"},
        "healthzPort": 18080,
    }


def test_an_overlays_values_are_checked_like_our_own():
    parts = components_for("EKS", {"cert-manager": {"values": {"crds": {"enable": True}}}})
    assert [(f.code, f.subject) for f in join(view("EKS"), parts).findings] == [
        ("UnknownValuesPath", "component/c/cert-manager")
    ]
    keyless = components_for("EKS", {"cert-manager": {"values": {"tolerations": [{"operator": "Exists"}]}}})
    assert [(f.code, f.subject) for f in join(view("EKS"), keyless).findings] == [
        ("KeylessToleration", "component/c/cert-manager")
    ]


def test_an_overlays_tags_are_held_to_the_rules_of_dependence():
    parts = components_for("EKS", {"gpu-operator": {"drivers": ["gpu.nvidia.com", "gpu.amd.com"]}})
    assert join(view("EKS", nvidia()), parts).findings == ()
    alone = components_for("Existing", {"node-feature-discovery": {"drivers": ["gpu.nvidia.com"]}})
    assert [(f.code, f.subject) for f in join(view("Existing", amd()), alone).findings] == [
        ("DependencyForeign", "component/c/amd-gpu-operator")
    ]


def test_an_overlay_serves_all_sources():
    overlay = {"amd-gpu-operator": {"version": "v1.5.2"}}
    assert [c.key for c in components_for("EKS", overlay)] == [c.key for c in components_for("EKS")]
    assert next(c for c in components_for("Existing", overlay) if c.key == "amd-gpu-operator").pin.version == "v1.5.2"


@pytest.mark.parametrize(
    ("overlay", "subject", "said"),
    [
        ({"cert-manger": {}}, "overlay/cert-manger", "There is no component cert-manger; the nearest is cert-manager."),
        (
            {"cert-manager": {"versoin": "1"}},
            "overlay/cert-manager",
            "An overlay has no field versoin; the nearest is version.",
        ),
        ({"cert-manager": {"version": 1.2}}, "overlay/cert-manager", "version takes a string."),
        ({"cert-manager": {"values": []}}, "overlay/cert-manager", "values takes a mapping."),
        (
            {"cert-manager": {"drivers": "gpu.nvidia.com"}},
            "overlay/cert-manager",
            "drivers takes a list of whole driver names, such as gpu.amd.com.",
        ),
        (
            {"cert-manager": {"publishes": ["nvidia"]}},
            "overlay/cert-manager",
            "publishes takes a list of whole driver names, such as gpu.amd.com.",
        ),
        ({"cert-manager": "v1"}, "overlay/cert-manager", "The entry of cert-manager is no mapping of fields."),
        ({"gaie-crds": {"version": "v2"}}, "overlay/gaie-crds", "gaie-crds is no chart, so it has no version."),
        (["cert-manager"], "overlay", "The overlay is no mapping of component keys."),
    ],
)
def test_an_invalid_overlay_is_refused(overlay, subject, said):
    with pytest.raises(ConfigError) as raised:
        components_for("EKS", overlay)
    assert [(f.code, f.subject, f.message) for f in raised.value.findings] == [("OverlayInvalid", subject, said)]
