"""Server-side apply: who owns what, what a manager that gives something up takes away, who is in whose way."""

from __future__ import annotations

from typing import Any

import pytest

from resources.lab.api.merge import merge
from resources.lab.api.schema import Type
from tests.lab.objects import CONFIG_MAPS, CRDS, DAEMON_SETS, WIDGETS, config_map, widget, widget_crd
from tests.lab.server import Api

D = f"{DAEMON_SETS}/d"


def daemons(**spec: Any) -> dict[str, Any]:
    """A configuration of the DaemonSet `d`; the selector is in each, as the API wants it."""
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"app": "d"}},
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": spec},
        },
    }


def containers(answer: Any) -> list[dict[str, Any]]:
    return answer.body["spec"]["template"]["spec"]["containers"]


def owned(obj: dict[str, Any], manager: str, operation: str = "Apply") -> Any:
    return next(
        (
            entry["fieldsV1"]
            for entry in obj["metadata"]["managedFields"]
            if (entry["manager"], entry["operation"]) == (manager, operation)
        ),
        None,
    )


MAIN = {"name": "main", "image": "a:1"}


def test_an_apply_creates_and_owns_what_it_names_and_no_defaults(api: Api):
    made = api.apply(D, daemons(containers=[{**MAIN, "ports": [{"containerPort": 80}]}]))
    assert made.status == 201
    assert owned(made.body, "tester") == {
        "f:spec": {
            "f:selector": {},
            "f:template": {
                "f:metadata": {"f:labels": {"f:app": {}}},
                "f:spec": {
                    "f:containers": {
                        'k:{"name":"main"}': {
                            ".": {},
                            "f:name": {},
                            "f:image": {},
                            # `protocol` isn't in the configuration and is part of the key all the same.
                            "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
                        }
                    }
                },
            },
        }
    }
    assert containers(made)[0]["ports"] == [{"containerPort": 80, "protocol": "TCP"}]


def test_applying_the_same_again_changes_nothing(api: Api):
    first = api.apply(D, daemons(containers=[MAIN])).body
    again = api.apply(D, daemons(containers=[MAIN]))
    assert (again.status, again.body) == (200, first)


def test_a_conflict_names_the_manager_and_the_field(api: Api):
    api.apply(D, daemons(containers=[MAIN]), "helm")
    answer = api.apply(D, daemons(containers=[{**MAIN, "image": "a:2"}]), "ops")
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    path = '.spec.template.spec.containers[name="main"].image'
    assert answer.body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "helm"', "field": path}
    ]
    assert answer.body["message"] == f'Apply failed with 1 conflict: conflict with "helm": {path}'
    forced = api.apply(D, daemons(containers=[{**MAIN, "image": "a:2"}]), "ops", force=True)
    assert (forced.status, containers(forced)[0]["image"]) == (200, "a:2")
    back = api.apply(D, daemons(containers=[MAIN]), "helm")
    assert [c["message"] for c in back.body["details"]["causes"]] == ['conflict with "ops"']


def test_a_patch_takes_fields_over_and_then_stands_in_the_way(api: Api):
    api.apply(D, daemons(containers=[MAIN]), "helm")
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "a:9"}]}}}}
    api.patch(f"{D}?fieldManager=hand", patch, "strategic-merge-patch+json")
    answer = api.apply(D, daemons(containers=[MAIN]), "helm")
    assert [c["message"] for c in answer.body["details"]["causes"]] == ['conflict with "hand" using apps/v1']


def test_two_managers_may_want_the_same(api: Api):
    api.apply(f"{CONFIG_MAPS}/a", config_map("a", k="1"), "one")
    shared = api.apply(f"{CONFIG_MAPS}/a", config_map("a", k="1"), "two").body
    assert owned(shared, "one") == owned(shared, "two") == {"f:data": {"f:k": {}}}
    assert api.apply(f"{CONFIG_MAPS}/a", config_map("a"), "one").body["data"] == {"k": "1"}
    assert "data" not in api.apply(f"{CONFIG_MAPS}/a", {**config_map("a"), "data": None}, "two").body


def test_what_nobody_wants_any_more_goes_and_what_others_want_stays(api: Api):
    api.apply(f"{CONFIG_MAPS}/a", config_map("a", k="1", l="2"), "one")
    api.apply(f"{CONFIG_MAPS}/a", config_map("a", m="3"), "two")
    assert api.apply(f"{CONFIG_MAPS}/a", config_map("a", k="1"), "one").body["data"] == {"k": "1", "m": "3"}


@pytest.mark.parametrize(
    ("first", "second", "field"),
    [
        ({"env": [{"name": "A", "value": "1"}]}, {}, "env"),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": []}, "env"),
        ({"resources": {"limits": {"cpu": "1"}}}, {"resources": {}}, "limits"),
    ],
)
def test_emptied_lists_and_maps_are_pruned(api: Api, first: dict[str, Any], second: dict[str, Any], field: str):
    api.apply(D, daemons(containers=[{**MAIN, **first}]))
    after = containers(api.apply(D, daemons(containers=[{**MAIN, **second}])))[0]
    where = after["resources"] if field == "limits" else after
    assert where.get(field) in (None, [], {})


def test_giving_up_a_list_item_removes_it_with_what_others_set_inside(api: Api):
    side = {"name": "side", "image": "s:1"}
    api.apply(D, daemons(containers=[MAIN, side]), "helm")
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "side", "workingDir": "/w"}]}}}}
    api.patch(f"{D}?fieldManager=hand", patch, "strategic-merge-patch+json")
    after = api.apply(D, daemons(containers=[MAIN]), "helm")
    assert [c["name"] for c in containers(after)] == ["main"]
    # Ownership of paths that are gone is gone too.
    assert owned(after.body, "hand", "Update") is None


def test_an_update_of_a_child_does_not_take_the_item_away_from_its_owner(api: Api):
    api.apply(D, daemons(containers=[MAIN]), "helm")
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "a:2"}]}}}}
    after = api.patch(f"{D}?fieldManager=hand", patch, "strategic-merge-patch+json").body
    item = owned(after, "helm")["f:spec"]["f:template"]["f:spec"]["f:containers"]['k:{"name":"main"}']
    assert item == {".": {}, "f:name": {}}
    theirs = owned(after, "hand", "Update")["f:spec"]["f:template"]["f:spec"]["f:containers"]['k:{"name":"main"}']
    assert theirs == {"f:image": {}}


def test_a_newly_added_item_is_owned_by_its_writer(api: Api):
    api.apply(D, daemons(containers=[MAIN]), "helm")
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "s:1"}]}}}}
    after = api.patch(f"{D}?fieldManager=hand", patch, "strategic-merge-patch+json").body
    theirs = owned(after, "hand", "Update")["f:spec"]["f:template"]["f:spec"]["f:containers"]
    assert theirs['k:{"name":"side"}']["."] == {}


def test_atomic_lists_are_owned_as_a_whole(api: Api):
    one = [{"key": "a", "operator": "Exists"}]
    api.apply(D, daemons(containers=[MAIN], tolerations=one), "helm")
    other = api.apply(D, daemons(tolerations=[*one, {"key": "b", "operator": "Exists"}]), "ops")
    assert [c["field"] for c in other.body["details"]["causes"]] == [".spec.template.spec.tolerations"]


def test_finalizers_are_a_set(api: Api):
    def with_finalizers(*names: str) -> dict[str, Any]:
        body = config_map("a")
        body["metadata"]["finalizers"] = list(names)
        return body

    api.apply(f"{CONFIG_MAPS}/a", with_finalizers("x.example.com/1"), "one")
    api.apply(f"{CONFIG_MAPS}/a", with_finalizers("x.example.com/2"), "two")
    after = api.apply(f"{CONFIG_MAPS}/a", config_map("a"), "one").body
    assert after["metadata"]["finalizers"] == ["x.example.com/2"]


def test_a_status_is_owned_apart(api: Api):
    api.apply(D, daemons(containers=[MAIN]), "helm")
    status = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}, "status": {"numberReady": 1}}
    after = api.apply(f"{D}/status", status, "controller").body
    entry = next(e for e in after["metadata"]["managedFields"] if e["manager"] == "controller")
    assert (entry["subresource"], entry["fieldsV1"]) == ("status", {"f:status": {"f:numberReady": {}}})
    assert after["spec"]["template"]["spec"]["containers"][0]["image"] == "a:1"


def test_unknown_fields_of_a_configuration_are_refused(api: Api):
    answer = api.apply(D, daemons(containers=[{**MAIN, "imagee": "x"}]))
    assert answer.status == 500
    assert answer.body["message"].endswith(".spec.template.spec.containers[0].imagee: field not declared in schema")


def test_custom_resources_merge_by_their_own_schema(api: Api):
    api.post(CRDS, widget_crd())
    api.apply(f"{WIDGETS}/w", widget("w", size=1), "one")
    both = api.apply(f"{WIDGETS}/w", {**widget("w"), "spec": {"mode": "b"}}, "two", force=True).body
    assert both["spec"] == {"size": 1, "mode": "b"}
    assert owned(both, "two") == {"f:spec": {"f:mode": {}}}


def test_apply_needs_a_manager_and_no_owners_of_its_own(api: Api):
    answer = api.patch(f"{CONFIG_MAPS}/a", config_map("a"), "apply-patch+yaml")
    assert answer.causes == [("fieldManager", "FieldValueRequired")]
    body = config_map("a")
    body["metadata"]["managedFields"] = [{"manager": "x", "operation": "Apply", "apiVersion": "v1"}]
    assert api.apply(f"{CONFIG_MAPS}/a", body).status == 400


def test_giving_up_all_metadata_keeps_the_objects_identity(api: Api):
    body = config_map("a")
    body["metadata"]["labels"] = {"l": "x"}
    api.apply(f"{CONFIG_MAPS}/a", body)
    after = api.apply(f"{CONFIG_MAPS}/a", config_map("a"))
    assert (after.status, after.body["metadata"]["name"]) == (200, "a")
    assert "labels" not in after.body["metadata"]


def test_an_empty_keyed_list_is_not_owned_and_an_empty_map_or_atomic_list_is(api: Api):
    main = {**MAIN, "env": [], "args": [], "resources": {}}
    made = api.apply(D, daemons(containers=[main])).body
    item = owned(made, "tester")["f:spec"]["f:template"]["f:spec"]["f:containers"]['k:{"name":"main"}']
    assert item == {".": {}, "f:args": {}, "f:image": {}, "f:name": {}, "f:resources": {}}


def test_a_null_is_wanted_as_much_as_a_value(api: Api):
    api.apply(D, daemons(containers=[MAIN], nodeSelector={"a": "b"}), "helm")
    after = api.apply(D, daemons(containers=[MAIN], nodeSelector=None), "helm").body
    assert "nodeSelector" not in after["spec"]["template"]["spec"]
    assert "f:nodeSelector" in owned(after, "helm")["f:spec"]["f:template"]["f:spec"]


_C = Type({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {}}, None)


@pytest.mark.parametrize(
    ("live", "config", "merged"),
    [
        ("ab", "b", "ab"),
        ("ab", "c", "abc"),
        ("ab", "ca", "cab"),
        ("ab", "ba", "ba"),
        ("abc", "ca", "bca"),
        ("axb", "ab", "axb"),
        ("", "ba", "ba"),
        ("ab", "", "ab"),
    ],
)
def test_the_order_of_merged_lists(live: str, config: str, merged: str):
    out = merge([{"name": n} for n in live], [{"name": n} for n in config], _C)
    assert "".join(item["name"] for item in out) == merged
