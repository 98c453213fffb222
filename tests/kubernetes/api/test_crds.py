"""Custom resources: the definition, then what it serves."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kubernetes.api.bodies import CRDS, crd, until
from tests.kubernetes.wire import Wire


@pytest.fixture
def group(api: Wire, ns: str) -> str:
    """A group of the test's own whose widgets are served."""
    name = f"{ns}.example.com"
    api.post(CRDS, crd(name)).ok()
    until(lambda: _established(api, name))
    until(lambda: api.get(f"/apis/{name}/v1/widgets").status == 200)
    return name


def _established(api: Wire, group: str) -> bool:
    conditions = (api.get(f"{CRDS}/widgets.{group}").ok().get("status") or {}).get("conditions") or ()
    return {c["type"]: c["status"] for c in conditions} == {"NamesAccepted": "True", "Established": "True"}


def widgets(group: str, ns: str, name: str = "") -> str:
    return f"/apis/{group}/v1/namespaces/{ns}/widgets" + (f"/{name}" if name else "")


def widget(group: str, name: str = "w", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}


def test_its_api_is_discovered(api: Wire, group: str) -> None:
    found = api.get(f"/apis/{group}/v1").ok()
    assert [(r["name"], r["kind"], r["namespaced"]) for r in found["resources"]] == [
        ("widgets", "Widget", True),
        ("widgets/status", "Widget", True),
    ]
    groups = {g["name"]: g for g in api.get("/apis").ok()["groups"]}
    assert groups[group]["preferredVersion"] == {"groupVersion": f"{group}/v1", "version": "v1"}
    assert until(lambda: api.get(f"/openapi/v3/apis/{group}/v1").status == 200)


def test_defaults_and_validation(api: Wire, ns: str, group: str) -> None:
    made = api.post(widgets(group, ns), widget(group, size=3)).ok()
    assert made["spec"] == {"size": 3, "mode": "a"}
    assert made["metadata"]["generation"] == 1
    answer = api.post(widgets(group, ns), widget(group, "v", size=0, mode="c"))
    assert answer.told == (422, "Invalid")
    assert sorted(answer.causes) == [("spec.mode", "FieldValueNotSupported"), ("spec.size", "FieldValueInvalid")]
    missing = api.post(widgets(group, ns), widget(group, "v"))
    assert missing.causes == [("spec.size", "FieldValueRequired")]
    typed = api.post(widgets(group, ns), widget(group, "v", size="3"))
    assert typed.causes[0] == ("spec.size", "FieldValueTypeInvalid")


def test_unknown_fields_are_pruned_or_refused(api: Wire, ns: str, group: str) -> None:
    made = api.post(widgets(group, ns), widget(group, size=3, colour="red"), fieldValidation="Ignore").ok()
    assert "colour" not in made["spec"]
    answer = api.post(widgets(group, ns), widget(group, "v", size=3, colour="red"), fieldValidation="Strict")
    assert answer.told == (400, "BadRequest")
    assert 'unknown field "spec.colour"' in answer.body["message"]


def test_its_status_is_apart(api: Wire, ns: str, group: str) -> None:
    made = api.post(widgets(group, ns), widget(group, size=3) | {"status": {"seen": 1}}).ok()
    assert "status" not in made
    done = api.patch(f"{widgets(group, ns, 'w')}/status", {"status": {"seen": 2}, "spec": {"size": 9}}).ok()
    assert (done["status"], done["spec"]["size"], done["metadata"]["generation"]) == ({"seen": 2}, 3, 1)
    assert api.patch(widgets(group, ns, "w"), {"spec": {"size": 4}}).ok()["metadata"]["generation"] == 2


def test_no_strategic_patches(api: Wire, ns: str, group: str) -> None:
    api.post(widgets(group, ns), widget(group, size=3)).ok()
    answer = api.patch(widgets(group, ns, "w"), {"spec": {"size": 4}}, "strategic-merge-patch+json")
    assert answer.told == (415, "UnsupportedMediaType")


def test_apply_and_its_conflicts(api: Wire, ns: str, group: str) -> None:
    at = widgets(group, ns, "w")
    assert api.apply(at, widget(group, size=3), "first").status == 201
    answer = api.apply(at, widget(group, size=4), "second")
    assert answer.told == (409, "Conflict")
    assert answer.body["details"]["causes"][0] == {
        "reason": "FieldManagerConflict",
        "message": 'conflict with "first"',
        "field": ".spec.size",
    }
    assert api.apply(at, widget(group, size=4), "second", force=True).ok()["spec"]["size"] == 4


def test_they_go_with_their_definition(api: Wire, ns: str, group: str) -> None:
    api.post(widgets(group, ns), widget(group, size=3)).ok()
    api.delete(f"{CRDS}/widgets.{group}").ok()
    until(lambda: api.get(f"{CRDS}/widgets.{group}").status == 404)
    until(lambda: api.get(widgets(group, ns)).status == 404)


def test_a_name_that_isnt_the_plurals(api: Wire, ns: str) -> None:
    body = crd(f"{ns}.example.com")
    body["metadata"]["name"] = f"gadgets.{ns}.example.com"
    answer = api.post(CRDS, body)
    assert answer.told == (422, "Invalid")
    assert ("metadata.name", "FieldValueInvalid") in answer.causes


def test_a_second_version_is_served_beside_the_first(api: Wire, ns: str, group: str) -> None:
    found = api.get(f"{CRDS}/widgets.{group}").ok()
    first = found["spec"]["versions"][0]
    changed = {"spec": {"versions": [first, first | {"name": "v2", "storage": False}]}}
    api.patch(f"{CRDS}/widgets.{group}", changed).ok()
    # The handler of the old versions goes while the new one comes: a real server answers 503 in between.
    until(lambda: api.post(widgets(group, ns), widget(group, size=3)).status == 201)
    at = f"/apis/{group}/v2/namespaces/{ns}/widgets/w"
    until(lambda: api.get(at).status == 200)
    assert api.get(at).ok()["apiVersion"] == f"{group}/v2"
