"""Server-side apply: creation, ownership, conflicts, pruning, force."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kubernetes.api.bodies import apps, config_map, core, daemon_set
from tests.kubernetes.wire import Body, Wire


def owners(obj: Body) -> dict[str, Any]:
    """The fields that each manager owns, by "manager operation"."""
    return {f"{m['manager']} {m['operation']}": m["fieldsV1"] for m in obj["metadata"]["managedFields"]}


def test_an_apply_creates_and_then_updates(api: Wire, ns: str) -> None:
    at = core(ns, name="a")
    first = api.apply(at, config_map("a", x="1", y="2"))
    assert first.status == 201
    assert first.body["data"] == {"x": "1", "y": "2"}
    assert owners(first.body) == {"tester Apply": {"f:data": {"f:x": {}, "f:y": {}}}}
    (entry,) = first.body["metadata"]["managedFields"]
    assert {k: entry[k] for k in ("apiVersion", "fieldsType")} == {"apiVersion": "v1", "fieldsType": "FieldsV1"}
    second = api.apply(at, config_map("a", x="9"))
    assert second.status == 200
    assert second.body["data"] == {"x": "9"}
    assert owners(second.body) == {"tester Apply": {"f:data": {"f:x": {}}}}


def test_the_same_again_changes_nothing(api: Wire, ns: str) -> None:
    at, body = core(ns, name="a"), config_map("a", {"k": "v"}, x="1")
    first = api.apply(at, body).ok()
    assert api.apply(at, body).ok()["metadata"] == first["metadata"]
    at, body = apps(ns, name="d"), daemon_set("d", nodeSelector={"no": "where"})
    api.apply(at, body).ok()
    assert api.apply(at, body).ok()["metadata"]["generation"] == 1


def test_a_conflict_names_the_manager_and_the_field(api: Wire, ns: str) -> None:
    at = core(ns, name="a")
    api.apply(at, config_map("a", x="1", y="1"), "first").ok()
    answer = api.apply(at, config_map("a", x="2", y="1"), "second")
    assert answer.told == (409, "Conflict")
    assert answer.body["message"] == 'Apply failed with 1 conflict: conflict with "first": .data.x'
    assert answer.body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "first"', "field": ".data.x"}
    ]
    assert api.get(at).ok()["data"] == {"x": "1", "y": "1"}


def test_a_conflict_with_an_update_says_so(api: Wire, ns: str) -> None:
    at = core(ns, name="a")
    api.apply(at, config_map("a", x="1", y="1"), "first").ok()
    api.patch(at, {"data": {"x": "2", "y": "2"}}, fieldManager="ops").ok()
    answer = api.apply(at, config_map("a", x="3", y="3"), "first")
    assert answer.told == (409, "Conflict")
    assert answer.body["message"].startswith('Apply failed with 2 conflicts: conflicts with "ops" using v1')
    assert [c["field"] for c in answer.body["details"]["causes"]] == [".data.x", ".data.y"]
    assert 'conflict with "ops" using v1' in answer.body["details"]["causes"][0]["message"]


def test_force_takes_over(api: Wire, ns: str) -> None:
    at = core(ns, name="a")
    api.apply(at, config_map("a", x="1", y="1"), "first").ok()
    forced = api.apply(at, config_map("a", x="2"), "second", force=True).ok()
    assert forced["data"] == {"x": "2", "y": "1"}
    assert owners(forced) == {
        "first Apply": {"f:data": {"f:y": {}}},
        "second Apply": {"f:data": {"f:x": {}}},
    }


def test_two_managers_may_want_the_same(api: Wire, ns: str) -> None:
    at = core(ns, name="a")
    api.apply(at, config_map("a", x="1"), "first").ok()
    both = api.apply(at, config_map("a", x="1"), "second").ok()
    assert owners(both).keys() == {"first Apply", "second Apply"}
    # What one gives up stays while another wants it.
    left = api.apply(at, config_map("a"), "first").ok()
    assert left["data"] == {"x": "1"}
    assert api.apply(at, config_map("a"), "second").ok().get("data") in (None, {})


def test_what_the_server_fills_in_is_nobodys(api: Wire, ns: str) -> None:
    made = api.apply(apps(ns, name="d"), daemon_set("d", nodeSelector={"no": "where"})).ok()
    (fields,) = [f for who, f in owners(made).items() if who == "tester Apply"]
    spec = fields["f:spec"]
    assert spec.keys() == {"f:selector", "f:template"}
    container = spec["f:template"]["f:spec"]["f:containers"]
    assert container == {'k:{"name":"main"}': {".": {}, "f:name": {}, "f:image": {}}}


def test_list_items_go_with_their_owner(api: Wire, ns: str) -> None:
    at = apps(ns, name="d")
    two = daemon_set("d", nodeSelector={"no": "where"})
    containers = two["spec"]["template"]["spec"]["containers"]
    containers.append({"name": "side", "image": "s:1"})
    api.apply(at, two).ok()
    containers.pop()
    done = api.apply(at, two).ok()
    assert [c["name"] for c in done["spec"]["template"]["spec"]["containers"]] == ["main"]


def test_ports_are_keyed_by_port_and_protocol(api: Wire, ns: str) -> None:
    at = apps(ns, name="d")
    body = daemon_set("d", nodeSelector={"no": "where"})
    container = body["spec"]["template"]["spec"]["containers"][0]
    container["ports"] = [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]
    made = api.apply(at, body).ok()
    fields = owners(made)["tester Apply"]["f:spec"]["f:template"]["f:spec"]["f:containers"]['k:{"name":"main"}'][
        "f:ports"
    ]
    assert fields.keys() == {'k:{"containerPort":80,"protocol":"TCP"}', 'k:{"containerPort":80,"protocol":"UDP"}'}
    container["ports"].pop(0)
    done = api.apply(at, body).ok()
    assert done["spec"]["template"]["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "UDP"}]


@pytest.mark.parametrize(
    ("first", "second", "field"),
    [
        ({"nodeSelector": {"a": "b"}}, {}, "nodeSelector"),
        ({"tolerations": [{"key": "k", "operator": "Exists"}]}, {}, "tolerations"),
        ({"hostNetwork": True}, {}, "hostNetwork"),
        (
            {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}},
            {},
            "affinity",
        ),
    ],
)
def test_what_is_no_longer_applied_goes(
    api: Wire, ns: str, first: dict[str, Any], second: dict[str, Any], field: str
) -> None:
    at = apps(ns, name="d")
    api.apply(at, daemon_set("d", **first)).ok()
    done = api.apply(at, daemon_set("d", **second)).ok()
    assert done["spec"]["template"]["spec"].get(field) in (None, [], {}, False)


def test_an_atomic_list_is_owned_whole(api: Wire, ns: str) -> None:
    at = apps(ns, name="d")
    api.apply(at, daemon_set("d", tolerations=[{"key": "a", "operator": "Exists"}]), "first").ok()
    both = [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]
    answer = api.apply(at, daemon_set("d", tolerations=both), "second")
    assert answer.told == (409, "Conflict")
    assert answer.body["details"]["causes"][0]["field"] == ".spec.template.spec.tolerations"


def test_a_status_is_owned_apart(api: Wire, ns: str) -> None:
    at = core(ns, "pods", "p")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"nodeSelector": {"no": "where"}, "containers": [{"name": "c", "image": "i:1"}]},
    }
    api.apply(at, pod).ok()
    status = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": {"message": "hello"}}
    done = api.apply(f"{at}/status", status, "agent").ok()
    assert done["status"]["message"] == "hello"
    assert [m.get("subresource", "") for m in done["metadata"]["managedFields"] if m["manager"] == "agent"] == [
        "status"
    ]


def test_a_create_and_a_put_own_what_they_write(api: Wire, ns: str) -> None:
    made = api.post(core(ns), config_map("a", {"k": "v"}, x="1"), fieldManager="maker").ok()
    assert owners(made) == {
        "maker Update": {"f:data": {".": {}, "f:x": {}}, "f:metadata": {"f:labels": {".": {}, "f:k": {}}}}
    }
    made["data"]["y"] = "2"
    done = api.put(core(ns, name="a"), made, fieldManager="other").ok()
    assert owners(done)["other Update"] == {"f:data": {"f:y": {}}}


def test_an_apply_needs_a_manager(api: Wire, ns: str) -> None:
    answer = api.patch(core(ns, name="a"), config_map("a"), "apply-patch+yaml")
    assert answer.told == (422, "Invalid")
    assert answer.causes == [("fieldManager", "FieldValueRequired")]


def test_an_apply_carries_no_owners(api: Wire, ns: str) -> None:
    body = config_map("a")
    body["metadata"]["managedFields"] = [
        {"manager": "x", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}
    ]
    answer = api.apply(core(ns, name="a"), body)
    assert answer.told == (400, "BadRequest")
    assert answer.body["message"] == "metadata.managedFields must be nil"


def test_an_apply_of_an_unknown_field(api: Wire, ns: str) -> None:
    body = daemon_set("d", nodeSelectr={"a": "b"})
    answer = api.apply(apps(ns, name="d"), body, fieldValidation="Strict")
    assert answer.status in {400, 500}
    assert "nodeSelectr" in answer.body["message"]


def test_an_apply_with_a_stale_version(api: Wire, ns: str) -> None:
    at = core(ns, name="a")
    first = api.apply(at, config_map("a", x="1")).ok()
    api.apply(at, config_map("a", x="2")).ok()
    body = config_map("a", x="3")
    body["metadata"]["resourceVersion"] = first["metadata"]["resourceVersion"]
    assert api.apply(at, body).told == (409, "Conflict")
