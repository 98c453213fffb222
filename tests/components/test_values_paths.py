"""Every value that a list sets is one that its chart reads: a slip in any of them is told by its path."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest

from modelplane_dagster.cluster import SOURCES
from modelplane_dagster.components.join import join
from modelplane_dagster.components.lists import components_for
from tests.components.worlds import full

# What stands below these belongs to Kubernetes or to the user, not to the chart's values.
OPAQUE = {
    "nodeSelector",
    "affinity",
    "tolerations",
    "supportedInstanceLabels",
    "default",
    "defaultRequest",
    "podMonitorNamespaceSelector",
    "serviceMonitorNamespaceSelector",
    "selector",
    "nodeAffinity",
}


def leaves(node, path=()):
    """Every path to a value, as tuples of keys."""
    for key, value in node.items():
        here = (*path, key)
        is_flag = key == "default" and not isinstance(value, dict)
        if isinstance(value, dict) and value and (key not in OPAQUE or is_flag):
            yield from leaves(value, here)
        else:
            yield here


def starts(values):
    """Every path of the values, to a value or to a mapping of values, with one whole path that it starts."""
    return {path[:depth]: path for path in leaves(values) for depth in range(1, len(path) + 1)}


def changed(values, path, change):
    result = deepcopy(values)
    node = result
    for key in path[:-1]:
        node = node[key]
    change(node, path[-1])
    return result


def misspell(node, key):
    node[f"{key}x"] = node.pop(key)


def retype(node, key):
    node[key] = "no such" if isinstance(node[key], dict) else {"no": "such"}


def told(source, key, **changes):
    """The findings of one component alone; that its dependencies aren't there is told beside them."""
    component = next(c for c in components_for(source) if c.key == key)
    made = {name: (lambda _, v=value: v) for name, value in changes.items()}
    return [(f.code, f.subject, f.message) for f in join(full(source), (replace(component, **made),)).findings]


CASES = [
    pytest.param(source, joined.key, joined.values, id=f"{source}-{joined.key}")
    for source in SOURCES
    for joined in join(full(source), components_for(source)).installed
    if joined.values
]


@pytest.mark.parametrize(("source", "component", "values"), CASES)
def test_every_misspelt_value_is_told_by_its_path(source, component, values):
    for start, path in starts(values).items():
        depth = len(start)
        wrong = ".".join((*start[:-1], f"{start[-1]}x", *path[depth:]))
        findings = told(source, component, values=changed(values, start, misspell))
        assert any(
            code == "UnknownValuesPath" and where == f"component/c/{component}" and f"no value {wrong}" in message
            for code, where, message in findings
        ), (wrong, findings)


@pytest.mark.parametrize(("source", "component", "values"), CASES)
def test_every_retyped_value_is_told_by_its_path(source, component, values):
    for path in starts(values):
        findings = told(source, component, values=changed(values, path, retype))
        dotted = ".".join(path)
        assert any(
            code == "WrongValuesType" and where == f"component/c/{component}" and message.startswith(f"{dotted} takes")
            for code, where, message in findings
        ), (dotted, findings)


@pytest.mark.parametrize(
    ("source", "component", "kind"),
    [
        ("Existing", "amd-gpu-operator", "DeviceConfig"),
        ("AKS", "network-operator", "NicClusterPolicy"),
    ],
)
def test_every_misspelt_field_of_a_custom_resource_of_ours_is_told(source, component, kind):
    made = join(full(source), components_for(source)).get(component).manifests
    manifest = next(m for m in made if m["kind"] == kind)
    for path in leaves(manifest["spec"]):
        wrong = {**manifest, "spec": changed(manifest["spec"], path, misspell)}
        dotted = ".".join((*path[:-1], f"{path[-1]}x"))
        findings = told(source, component, manifests=(wrong,))
        assert any(c == "UnknownValuesPath" and f"no value {dotted}" in m for c, _, m in findings), dotted
        wrong = {**manifest, "spec": changed(manifest["spec"], path, retype)}
        findings = told(source, component, manifests=(wrong,))
        dotted = ".".join(path)
        assert any(c == "WrongValuesType" and m.startswith(f"{dotted} takes") for c, _, m in findings), dotted
