from __future__ import annotations

import pytest

from tests.importer.bundles import (
    ANY,
    DRIVER_VALUES,
    EVERY_DRIVER,
    NVIDIA_ONLY,
    OPERATOR_VALUES,
    bundle,
    errors,
    recipe,
    ref,
    run,
)

NFD_REASON = "Node Feature Discovery is a component of its own; two of them would contradict each other's labels"
NVIDIA_REASON = "it serves gpu.nvidia.com, so it tolerates their pools' taints alone"
EVERYWHERE = "it runs on every node, so it tolerates each driver's taint by its key"
CONTROLLER = "a controller needs one node, and no pool's"
BY_KEY = "a taint's value differs from cloud to cloud, so the key alone counts"


def imported(tmp_path, name, values, **more):
    bundle(tmp_path / "bundle", {name: values})
    made = run(tmp_path, recipe(ref(name, **more)))
    assert errors(made) == []
    return made.components[0].values, [c.as_dict() for c in made.changes]


def test_overrides_go_over_the_bundle_and_null_removes(tmp_path):
    values = {"a": {"b": 1, "gone": {"x": 1}, "null": None}, "list": [1, 2]}
    overrides = {"a": {"b": 2, "gone": None, "null": None}, "list": [3], "new": {"c": True}}
    made, changes = imported(tmp_path, "cert-manager", values, overrides=overrides)
    assert made == {"a": {"b": 2}, "list": [3], "new": {"c": True}}
    because = {"component": "cert-manager", "reason": "the recipe's overrides say so"}
    assert changes == [
        {**because, "path": "a.b", "from": 1, "to": 2},
        {**because, "path": "a.gone", "from": {"x": 1}, "to": None},
        {**because, "path": "list", "from": [1, 2], "to": [3]},
        {**because, "path": "new.c", "from": None, "to": True},
    ]


@pytest.mark.parametrize("before", [None, True])
def test_the_operators_own_nfd_is_turned_off(tmp_path, before):
    values = {k: v for k, v in OPERATOR_VALUES.items() if k != "nfd"}
    if before is not None:
        values["nfd"] = {"enabled": before}
    made, changes = imported(tmp_path, "gpu-operator", values)
    assert made == OPERATOR_VALUES
    assert changes == [
        {"component": "gpu-operator", "path": "nfd.enabled", "from": before, "to": False, "reason": NFD_REASON}
    ]


@pytest.mark.parametrize(
    ("name", "values", "path", "after", "reason"),
    [
        ("nvidia-dra-driver-gpu", {"controller": {"tolerations": ANY}}, "controller.tolerations", NVIDIA_ONLY, NVIDIA_REASON),
        ("nvidia-dra-driver-gpu", {"x": [{"inner": {"tolerations": ANY}}]}, "x[0].inner.tolerations", NVIDIA_ONLY, NVIDIA_REASON),
        ("nvidia-dra-driver-gpu", {"systemNodeTolerations": ANY}, "systemNodeTolerations", NVIDIA_ONLY, NVIDIA_REASON),
        ("nvidia-dra-driver-gpu", {"odd": ANY}, "odd", NVIDIA_ONLY, NVIDIA_REASON),
        (
            "nvidia-dra-driver-gpu",
            {"tolerations": [{"key": "", "operator": "Exists", "effect": "NoExecute"}, {"key": "a", "operator": "Exists"}]},
            "tolerations",
            [{"key": "a", "operator": "Exists"}],
            NVIDIA_REASON,
        ),
        (
            "nvidia-dra-driver-gpu",
            {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Equal", "value": "true", "effect": "NoSchedule"}]},
            "tolerations",
            NVIDIA_ONLY,
            BY_KEY,
        ),
        (
            "kube-prometheus-stack",
            {"prometheus-node-exporter": {"tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]}},
            "prometheus-node-exporter.tolerations",
            EVERY_DRIVER,
            EVERYWHERE,
        ),
        ("kube-prometheus-stack", {"grafana": {"tolerations": ANY}}, "grafana.tolerations", [], CONTROLLER),
        (
            "k8s-ephemeral-storage-metrics",
            {"deploy_type": "DaemonSet", "tolerations": ANY},
            "tolerations",
            EVERY_DRIVER,
            EVERYWHERE,
        ),
        ("k8s-ephemeral-storage-metrics", {"deploy_type": "Deployment", "tolerations": ANY}, "tolerations", [], CONTROLLER),
    ],
)  # fmt: skip
def test_a_keyless_toleration_is_narrowed(tmp_path, name, values, path, after, reason):
    base = DRIVER_VALUES if name == "nvidia-dra-driver-gpu" else {}
    _, changes = imported(tmp_path, name, {**base, **values})
    before = values
    for part in path.replace("[0]", ".0").split("."):
        before = before[int(part)] if part == "0" else before[part]
    assert changes == [{"component": name, "path": path, "from": before, "to": after, "reason": reason}]


def test_what_only_looks_like_a_toleration_stays(tmp_path):
    values = {
        "matchExpressions": [{"key": "a", "operator": "Exists"}],
        "scope": [{"scopeName": "BestEffort", "operator": "Exists"}],
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
        "none": {"tolerations": []},
    }
    made, changes = imported(tmp_path, "cert-manager", values)
    assert (made, changes) == (values, [])


def test_a_dependency_on_what_is_dropped_goes_and_is_listed(tmp_path):
    bundle(tmp_path / "bundle", {"cert-manager": {}, "kgateway": {}})
    made = run(tmp_path, recipe(ref("kgateway"), ref("cert-manager", dependencyRefs=["kgateway"])))
    assert [c.depends_on for c in made.components] == [()]
    assert [d.name for d in made.dropped] == ["kgateway"]
    assert [(c.path, c.before, c.after) for c in made.changes] == [("dependencyRefs", ["kgateway"], [])]
