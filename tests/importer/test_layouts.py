from __future__ import annotations

import pytest

from modelplane_dagster.importer.bundle import component_name
from modelplane_dagster.importer.types import ImportedComponent
from tests.importer.bundles import ANY, NVIDIA_ONLY, OPERATOR_VALUES, bundle, errors, recipe, ref, run

CONFIG = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {
        "name": "dcgm-exporter",
        "labels": {"app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "gpu-operator-25.10.1"},
    },
}
DAEMON = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "probe"},
    "spec": {"template": {"spec": {"tolerations": ANY, "containers": [{"name": "probe"}]}}},
}


@pytest.mark.parametrize("numbered", [False, True], ids=["0.11", "0.20"])
def test_both_layouts_give_the_same_list(tmp_path, numbered):
    values = {"cert-manager": {"crds": {"enabled": True}}, "gpu-operator": {**OPERATOR_VALUES, "a": [{"b": 1}]}}
    manifests = {"gpu-operator": {"dcgm.yaml": [CONFIG, DAEMON]}}
    bundle(tmp_path / "bundle", values, manifests, numbered=numbered)
    operator = ref(
        "gpu-operator", dependencyRefs=["cert-manager"], manifestFiles=["components/gpu-operator/manifests/dcgm.yaml"]
    )
    made = run(tmp_path, recipe(operator, ref("cert-manager"), deploymentOrder=["cert-manager", "gpu-operator"]))
    assert errors(made) == []
    assert made.components == (
        ImportedComponent(
            key="cert-manager",
            chart="cert-manager",
            repository="https://charts.example.test",
            version="1.0.0",
            namespace="cert-manager",
            drivers=(),
            depends_on=(),
            values={"crds": {"enabled": True}},
        ),
        ImportedComponent(
            key="gpu-operator",
            chart="gpu-operator",
            repository="https://charts.example.test",
            version="1.0.0",
            namespace="gpu-operator",
            drivers=("gpu.nvidia.com",),
            depends_on=("cert-manager",),
            values={**OPERATOR_VALUES, "a": [{"b": 1}]},
            manifests=(
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": "dcgm-exporter", "labels": {"app.kubernetes.io/managed-by": "Helm"}},
                },
                {
                    "apiVersion": "apps/v1",
                    "kind": "DaemonSet",
                    "metadata": {"name": "probe"},
                    "spec": {"template": {"spec": {"tolerations": NVIDIA_ONLY, "containers": [{"name": "probe"}]}}},
                },
            ),
        ),
    )
    assert [(c.component, c.path, c.before, c.after) for c in made.changes] == [
        ("gpu-operator", "dcgm.yaml[0]: metadata.labels.helm.sh/chart", "gpu-operator-25.10.1", None),
        ("gpu-operator", "dcgm.yaml[1]: spec.template.spec.tolerations", ANY, NVIDIA_ONLY),
    ]


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("gpu-operator", "gpu-operator"),
        ("007-gpu-operator", "gpu-operator"),
        ("007-gpu-operator-post", "gpu-operator"),
        ("1000-nfd", "nfd"),
        ("k8s-ephemeral-storage-metrics", "k8s-ephemeral-storage-metrics"),
    ],
)
def test_a_folder_belongs_to_a_component(folder, name):
    assert component_name(folder) == name


def test_names_of_both_versions_become_our_keys(tmp_path):
    bundle(
        tmp_path / "bundle",
        {"nfd": {"worker": {"tolerations": ANY}}, "skyhook-operator": {"controllerManager": {"tolerations": ANY}}},
        {"skyhook-customizations": {"tuning.yaml": [{**DAEMON, "kind": "Skyhook", "spec": {"tolerations": ANY}}]}},
        numbered=True,
    )
    custom = {"name": "skyhook-customizations", "type": "Helm", "source": "", "dependencyRefs": ["skyhook-operator"]}
    made = run(tmp_path, recipe(ref("nfd"), ref("skyhook-operator"), custom))
    assert errors(made) == []
    assert [(c.key, c.drivers, c.depends_on) for c in made.components] == [
        ("node-feature-discovery", ("gpu.amd.com", "gpu.nvidia.com"), ()),
        ("nodewright-operator", (), ()),
        ("nodewright-customizations", (), ("nodewright-operator",)),
    ]
    taints = [[t["key"] for t in c.after] for c in made.changes if c.path.endswith("tolerations")]
    assert taints == [
        ["amd.com/gpu", "nvidia.com/gpu"],
        [],
        ["amd.com/gpu", "modelplane.ai/cpu", "nvidia.com/gpu"],
    ]
