"""What an import is refused for: by code and subject, with nothing of the list given out."""

from __future__ import annotations

import pytest

from modelplane_dagster.importer.tables import ALLOW, DROP, MANAGED
from modelplane_dagster.importer.types import BundleFile, TextFile
from tests.importer.bundles import DRIVER_VALUES, OPERATOR_VALUES, bundle, errors, recipe, ref, run, write

GOOD = {"cert-manager": {}, "gpu-operator": OPERATOR_VALUES, "nvidia-dra-driver-gpu": DRIVER_VALUES}


def refused(made, *expected):
    assert errors(made) == list(expected)
    assert made.refused
    assert (made.components, made.changes) == ((), ())


def good(tmp_path, **more):
    bundle(tmp_path / "bundle", GOOD)
    return recipe(*(ref(name) for name in GOOD), **more)


def test_the_good_bundle_is_taken(tmp_path):
    made = run(tmp_path, good(tmp_path))
    assert errors(made) == []
    assert [c.key for c in made.components] == list(GOOD)


def test_an_unclassified_component_fails(tmp_path):
    bundle(tmp_path / "bundle", {**GOOD, "novelty": {}})
    refused(run(tmp_path, recipe(ref("novelty"), *(ref(n) for n in GOOD))), ("Unclassified", "component/EKS/novelty"))


def test_an_unclassified_folder_fails(tmp_path):
    made = good(tmp_path)
    write(tmp_path / "bundle/novelty/values.yaml", {})
    refused(run(tmp_path, made), ("Unclassified", "component/EKS/novelty"))


@pytest.mark.parametrize("name", sorted(ALLOW.keys() | DROP))
def test_every_classified_name_has_a_reason_and_one_table(name):
    assert (name in ALLOW) != (name in DROP)
    assert ALLOW[name].reason if name in ALLOW else DROP[name]


PATHS = [(m.component, m.path) for m in MANAGED if m.component != "nvsentinel"]


@pytest.mark.parametrize("wrong", ["absent", "null", "text"])
@pytest.mark.parametrize(("name", "path"), PATHS)
def test_a_managed_path_that_didnt_land_fails(tmp_path, name, path, wrong):
    made = good(tmp_path)
    *parents, last = path.split(".")
    body = values = {"nvidia-dra-driver-gpu": _driver, "gpu-operator": _operator}[name]()
    for part in parents:
        body = body[part]
    right = body.pop(last)
    if wrong != "absent":
        body[last] = None if wrong == "null" else str(right).lower() + " "
    write(tmp_path / f"bundle/{name}/values.yaml", values)
    refused(run(tmp_path, made), ("ManagedPathMissing", f"component/EKS/{name}"))


def _driver():
    return {**DRIVER_VALUES, "resources": {"gpus": {"enabled": True}, "computeDomains": {"enabled": False}}}


def _operator():
    return {name: dict(body) for name, body in OPERATOR_VALUES.items()}


def test_an_override_that_undoes_a_managed_path_fails(tmp_path):
    bundle(tmp_path / "bundle", {"gpu-operator": OPERATOR_VALUES})
    made = run(tmp_path, recipe(ref("gpu-operator", overrides={"devicePlugin": {"enabled": True}})))
    refused(made, ("ManagedPathMissing", "component/EKS/gpu-operator"))


@pytest.mark.parametrize(
    ("source", "toolkit", "root", "expected"),
    [
        ("EKS", True, "/", [("ManagedPathMissing", "component/EKS/gpu-operator")]),
        ("AKS", False, "/", []),
        ("GKE", True, "/home/kubernetes/bin/nvidia", []),
        ("GKE", False, "/home/kubernetes/bin/nvidia", []),
        ("GKE", False, "/", [("ManagedPathMissing", "component/GKE/nvidia-dra-driver-gpu")]),
    ],
)
def test_managed_values_follow_the_source(tmp_path, source, toolkit, root, expected):
    operator = {**OPERATOR_VALUES, "toolkit": {"enabled": toolkit}}
    driver = {**DRIVER_VALUES, "nvidiaDriverRoot": root}
    bundle(tmp_path / "bundle", {"gpu-operator": operator, "nvidia-dra-driver-gpu": driver})
    made = recipe(ref("gpu-operator"), ref("nvidia-dra-driver-gpu"), service=source.lower())
    assert errors(run(tmp_path, made, source=source)) == expected


@pytest.mark.parametrize(
    ("recipes", "floors", "default", "floor", "expected"),
    [
        (">= 1.30", [], "1.36", "1.30", []),
        (">= 1.30", [">= 1.32.4", ">= 1.32"], "1.36", "1.32.4", []),
        (">= 1.34", [">= 1.32.4"], "1.34", "1.34", []),
        (">= 1.9", [">= 1.30"], "1.36", "1.30", []),
        (">= 1.30", [">= 1.37"], "1.36", "1.37", [("FloorTooHigh", "source/EKS")]),
        (">= 1.34.1", [], "1.34", "1.34.1", [("FloorTooHigh", "source/EKS")]),
    ],
)
def test_the_floor_is_the_highest_of_all(tmp_path, recipes, floors, default, floor, expected):
    made = good(tmp_path, floor=recipes)
    # The components of a floor file don't count, not even unknown ones.
    more = [recipe(ref("novelty"), floor=text) for text in floors]
    result = run(tmp_path, made, floors=more, default=default)
    assert (result.floor, errors(result)) == (floor, expected)


def test_no_constraint_is_no_floor(tmp_path):
    made = run(tmp_path, good(tmp_path, constraints=[{"name": "OS.release", "value": "24.04"}]))
    assert (made.floor, made.as_dict()["floor"], errors(made)) == ("", None, [])


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "Recipe"},
        {"apiVersion": "v1"},
        {"criteria": {}},
        {"criteria": {"service": "gke"}},
        {"componentRefs": []},
        {"componentRefs": None},
        {"componentRefs": ["gpu-operator"]},
        {"componentRefs": [ref("cert-manager"), ref("cert-manager")]},
        {"componentRefs": [ref("cert-manager", type="Kustomize")]},
        {"componentRefs": [ref("cert-manager", version=1.2)]},
        {"componentRefs": [ref("cert-manager", version="")]},
        {"componentRefs": [ref("../cert-manager")]},
        {"componentRefs": [ref("cert-manager", overrides=["a"])]},
        {"componentRefs": [ref("cert-manager", dependencyRefs=["absent"])]},
        {"deploymentOrder": ["absent"]},
        {"constraints": [{"name": "K8s.server.version", "value": "< 1.40"}]},
        {"constraints": [{"name": "K8s.server.version", "value": ">= latest"}]},
        {"constraints": [{"name": "K8s.server.version", "value": 1.3}]},
    ],
    ids=str,
)
def test_a_recipe_that_isnt_one_is_refused(tmp_path, change):
    made = run(tmp_path, {**good(tmp_path), **change})
    assert {e for e in errors(made)} == {("BundleInvalid", f"file{tmp_path / 'recipe.yaml'}")}
    assert made.components == ()


@pytest.mark.parametrize(
    "data",
    [b"", b"a: [", b"\xff\xfe\x00", b"- a", b"a: 1\na: 2\n", b"a: 1\n---\nb: 2\n", b"text", b"[" * 500],
    ids=str,
)
@pytest.mark.parametrize("which", ["recipe.yaml", "floor-0.yaml", "bundle/gpu-operator/values.yaml"])
def test_bytes_that_hold_no_such_file_are_refused(tmp_path, which, data):
    from modelplane_dagster.importer.imports import import_bundle
    from resources.aicr import read_inputs

    write(tmp_path / "recipe.yaml", good(tmp_path))
    write(tmp_path / "floor-0.yaml", recipe(ref("a")))
    (tmp_path / which).write_bytes(data)
    inputs = read_inputs(tmp_path / "recipe.yaml", tmp_path / "bundle", [tmp_path / "floor-0.yaml"])
    made = import_bundle("EKS", inputs, default_version="1.36", shipped=())
    assert made.refused
    codes = {f.code for f in made.findings if f.subject == f"file{tmp_path / which}"}
    # Empty values are values: what they lack is said by path.
    empty_values = which.startswith("bundle") and data == b""
    assert codes == (set() if empty_values else {"BundleInvalid"})
    assert made.components == ()


@pytest.mark.parametrize(
    "manifest",
    [[1], [{"kind": "ConfigMap"}], [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": 3}}], [["a"]]],
    ids=str,
)
def test_a_manifest_that_is_no_object_is_refused(tmp_path, manifest):
    made = good(tmp_path)
    path = write(tmp_path / "bundle/gpu-operator/manifests/odd.yaml", *manifest)
    refused(run(tmp_path, made), ("BundleInvalid", f"file{path}"))


def test_a_manifest_that_is_a_template_is_refused(tmp_path):
    made = good(tmp_path)
    path = tmp_path / "bundle/000-gpu-operator-post/templates/a.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("{{- if .Values.on }}\nkind: ConfigMap\n{{- end }}\n")
    found = run(tmp_path, made)
    assert found.refused
    assert {e for e in errors(found)} == {("BundleInvalid", f"file{path}")}


@pytest.mark.parametrize(
    "make",
    [
        lambda root: (root / "cert-manager/values.yaml").unlink(),
        lambda root: write(root / "nvsentinel/values.yaml", {}),
        lambda root: [p.unlink() for p in root.glob("*/values.yaml")],
    ],
    ids=["values missing", "another component", "nothing"],
)
def test_a_bundle_of_another_recipe_is_refused(tmp_path, make):
    made = good(tmp_path)
    make(tmp_path / "bundle")
    found = run(tmp_path, made)
    assert ("BundleInvalid", f"file{tmp_path / 'bundle'}") in errors(found)
    assert found.components == ()


def test_two_folders_of_one_component_are_refused(tmp_path):
    made = good(tmp_path)
    write(tmp_path / "bundle/003-cert-manager/values.yaml", {})
    refused(run(tmp_path, made), ("BundleInvalid", f"file{tmp_path / 'bundle/cert-manager/values.yaml'}"))


def test_a_manifest_that_the_recipe_names_and_the_bundle_lacks_is_refused(tmp_path):
    bundle(tmp_path / "bundle", {"cert-manager": {}})
    made = run(tmp_path, recipe(ref("cert-manager", manifestFiles=["components/cert-manager/manifests/a.yaml"])))
    refused(made, ("BundleInvalid", f"file{tmp_path / 'bundle'}"))


def test_a_file_that_cant_be_read_is_refused(tmp_path):
    made = good(tmp_path)
    values = tmp_path / "bundle/cert-manager/values.yaml"
    values.unlink()
    values.mkdir()
    refused(run(tmp_path, made), ("BundleInvalid", f"file{values}"))


def test_every_reason_is_told_at_once(tmp_path):
    bundle(tmp_path / "bundle", {"gpu-operator": {**OPERATOR_VALUES, "driver": {}}, "novelty": {}})
    made = run(tmp_path, recipe(ref("novelty"), ref("gpu-operator"), floor=">= 1.99"))
    refused(
        made,
        ("ManagedPathMissing", "component/EKS/gpu-operator"),
        ("Unclassified", "component/EKS/novelty"),
        ("FloorTooHigh", "source/EKS"),
    )


def test_a_bundle_needs_no_disk():
    from modelplane_dagster.importer.bundle import parse_bundle

    file = BundleFile("nfd", "values.yaml", TextFile("b/nfd/values.yaml", b"a: 1"))
    parts, found = parse_bundle("b", [file])
    assert ({name: part.values for name, part in parts.items()}, found) == ({"nfd": {"a": 1}}, ())
