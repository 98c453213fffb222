"""Small recipes and bundles in tmp folders, in both layouts."""

from __future__ import annotations

import yaml

from modelplane_dagster.components.types import Component
from modelplane_dagster.importer.imports import import_bundle
from resources.aicr import read_inputs

ANY = [{"operator": "Exists"}]
NVIDIA_ONLY = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
EVERY_DRIVER = [
    {"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "modelplane.ai/cpu", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
]
OPERATOR_VALUES = {
    "driver": {"enabled": False},
    "toolkit": {"enabled": False},
    "devicePlugin": {"enabled": False},
    "gdrcopy": {"enabled": False},
    "nfd": {"enabled": False},
}
DRIVER_VALUES = {
    "gpuResourcesEnabledOverride": True,
    "nvidiaDriverRoot": "/",
    "resources": {"gpus": {"enabled": True}, "computeDomains": {"enabled": False}},
}


def ref(name, **more):
    return {
        "name": name,
        "namespace": more.pop("namespace", name),
        "chart": name,
        "type": "Helm",
        "source": "https://charts.example.test",
        "version": "1.0.0",
        **more,
    }


def recipe(*refs, service="eks", floor=">= 1.30", **more):
    return {
        "kind": "RecipeResult",
        "apiVersion": "aicr.nvidia.com/v1alpha1",
        "criteria": {"service": service},
        "constraints": [{"name": "K8s.server.version", "value": floor}],
        "componentRefs": list(refs),
        **more,
    }


def write(path, *documents):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump_all(documents, sort_keys=False), encoding="utf-8")
    return path


def bundle(root, values, manifests=None, *, numbered=False):
    """`values` by component name; `manifests` by component and file name. `numbered` writes the layout of 0.20."""
    root.mkdir(parents=True, exist_ok=True)
    for number, (name, body) in enumerate(values.items()):
        write(root / (f"{number:03d}-{name}" if numbered else name) / "values.yaml", body)
    for number, (name, files) in enumerate((manifests or {}).items()):
        folder = f"{number:03d}-{name}-post/templates" if numbered else f"{name}/manifests"
        for file, documents in files.items():
            write(root / folder / file, *documents)
    return root


def run(tmp_path, made, *, floors=(), source="EKS", default="1.36", shipped: tuple[Component, ...] = ()):
    """Imports the recipe `made` with the bundle in tmp_path/bundle."""
    path = write(tmp_path / "recipe.yaml", made)
    paths = [write(tmp_path / f"floor-{n}.yaml", floor) for n, floor in enumerate(floors)]
    inputs = read_inputs(path, tmp_path / "bundle", paths)
    return import_bundle(source, inputs, default_version=default, shipped=shipped)


def errors(made):
    return [(f.code, f.subject) for f in made.findings if f.severity.value == "error"]
