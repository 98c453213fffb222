"""Create, read, list, replace, patch, delete."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kubernetes.api.bodies import apps, claim, claims, config_map, core, daemon_set, deployment, pod
from tests.kubernetes.wire import Wire


def test_an_object_gets_its_identity(api: Wire, ns: str) -> None:
    made = api.post(core(ns), config_map("a", x="1")).ok()
    assert made["data"] == {"x": "1"}
    assert (made["apiVersion"], made["kind"]) == ("v1", "ConfigMap")
    assert made["metadata"].keys() >= {
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "managedFields",
    }
    assert api.get(core(ns, name="a")).ok() == made


def test_a_generated_name(api: Wire, ns: str) -> None:
    body = config_map("x") | {"metadata": {"generateName": "pre-"}}
    name = api.post(core(ns), body).ok()["metadata"]["name"]
    assert name.startswith("pre-")
    assert len(name) == 9


@pytest.mark.parametrize(
    ("method", "path", "body", "told", "message", "details"),
    [
        (
            "GET",
            "configmaps/none",
            None,
            (404, "NotFound"),
            'configmaps "none" not found',
            {"name": "none", "kind": "configmaps"},
        ),
        (
            "POST",
            "configmaps",
            config_map("kept"),
            (409, "AlreadyExists"),
            'configmaps "kept" already exists',
            {"name": "kept", "kind": "configmaps"},
        ),
        ("GET", "nothings", None, (404, "NotFound"), "the server could not find the requested resource", {}),
        (
            "DELETE",
            "configmaps/none",
            None,
            (404, "NotFound"),
            'configmaps "none" not found',
            {"name": "none", "kind": "configmaps"},
        ),
    ],
)
def test_refusals(
    api: Wire, ns: str, method: str, path: str, body: Any, told: tuple[int, str], message: str, details: dict[str, str]
) -> None:
    api.post(core(ns), config_map("kept")).ok()
    answer = api.send(method, f"/api/v1/namespaces/{ns}/{path}", body)
    assert answer.told == told
    assert answer.body["message"] == message
    assert (answer.body["kind"], answer.body["apiVersion"], answer.body["status"]) == ("Status", "v1", "Failure")
    assert answer.body["code"] == told[0]
    assert answer.body.get("details") == details


def test_a_group_is_named_in_a_refusal(api: Wire, ns: str) -> None:
    answer = api.get(apps(ns, name="none"))
    assert answer.body["message"] == 'daemonsets.apps "none" not found'
    assert answer.body["details"] == {"name": "none", "group": "apps", "kind": "daemonsets"}


def test_an_invalid_object(api: Wire, ns: str) -> None:
    answer = api.post(core(ns), config_map("Not_A_Name"))
    assert answer.told == (422, "Invalid")
    assert answer.body["message"].startswith(
        'ConfigMap "Not_A_Name" is invalid: metadata.name: Invalid value: "Not_A_Name": '
    )
    assert answer.body["details"]["name"] == "Not_A_Name"
    assert answer.body["details"]["kind"] == "ConfigMap"
    assert answer.causes == [("metadata.name", "FieldValueInvalid")]


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        (
            {"tolerations": [{"operator": "Equal", "value": "x"}]},
            [("spec.tolerations[0].operator", "FieldValueInvalid")],
        ),
        (
            {"tolerations": [{"key": "k", "operator": "Exists", "value": "x"}]},
            [("spec.tolerations[0].operator", "FieldValueInvalid")],
        ),
        (
            {"tolerations": [{"key": "k", "operator": "Gt", "value": "1"}]},
            [("spec.tolerations[0].operator", "FieldValueNotSupported")],
        ),
        (
            {"tolerations": [{"key": "k", "operator": "Exists", "effect": "Never"}]},
            [("spec.tolerations[0].effect", "FieldValueNotSupported")],
        ),
        (
            {"tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}]},
            [("spec.tolerations[0].effect", "FieldValueInvalid")],
        ),
        ({"nodeSelector": {"a b": "x"}}, [("spec.nodeSelector", "FieldValueInvalid")]),
        (
            {
                "affinity": {
                    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
                }
            },
            [
                (
                    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
                    "FieldValueRequired",
                )
            ],
        ),
    ],
)
def test_where_a_pod_may_run_is_validated(
    api: Wire, ns: str, spec: dict[str, Any], causes: list[tuple[str, str]]
) -> None:
    answer = api.post(core(ns, "pods"), pod("p", **spec))
    assert answer.told == (422, "Invalid")
    assert answer.causes == causes


def _terms(*expressions: dict[str, Any], **more: Any) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [{"matchExpressions": list(expressions), **more}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


@pytest.mark.parametrize(
    ("spec", "field", "reason"),
    [
        (_terms({"key": "a", "operator": "In"}), "matchExpressions[0].values", "FieldValueRequired"),
        (
            _terms({"key": "a", "operator": "Exists", "values": ["x"]}),
            "matchExpressions[0].values",
            "FieldValueForbidden",
        ),
        (
            _terms({"key": "a", "operator": "Gt", "values": ["1", "2"]}),
            "matchExpressions[0].values",
            "FieldValueRequired",
        ),
        (
            _terms({"key": "a", "operator": "Sort", "values": ["1"]}),
            "matchExpressions[0].operator",
            "FieldValueInvalid",
        ),
        (
            _terms(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]),
            "matchFields[0].values",
            "FieldValueRequired",
        ),
        (
            _terms(matchFields=[{"key": "spec.x", "operator": "In", "values": ["a"]}]),
            "matchFields[0].key",
            "FieldValueInvalid",
        ),
    ],
)
def test_node_affinity_is_validated(api: Wire, ns: str, spec: dict[str, Any], field: str, reason: str) -> None:
    answer = api.post(apps(ns), daemon_set("d", **spec))
    assert answer.told == (422, "Invalid")
    assert [(f.rpartition("nodeSelectorTerms[0].")[2], r) for f, r in answer.causes] == [(field, reason)]


def test_a_daemon_set_needs_a_selector_that_matches(api: Wire, ns: str) -> None:
    body = daemon_set("d")
    body["spec"]["selector"]["matchLabels"] = {"app": "other"}
    answer = api.post(apps(ns), body)
    assert answer.told == (422, "Invalid")
    assert answer.causes == [("spec.template.metadata.labels", "FieldValueInvalid")]
    body["spec"].pop("selector")
    assert api.post(apps(ns), body).causes == [("spec.template.metadata.labels", "FieldValueInvalid")]
    body = deployment("m")
    body["spec"].pop("selector")
    assert ("spec.selector", "FieldValueRequired") in api.post(apps(ns, "deployments"), body).causes


def test_the_selector_is_immutable(api: Wire, ns: str) -> None:
    made = api.post(apps(ns), daemon_set("d")).ok()
    made["spec"]["selector"]["matchLabels"] = {"app": "d", "more": "x"}
    made["spec"]["template"]["metadata"]["labels"] = {"app": "d", "more": "x"}
    made["metadata"].pop("resourceVersion")
    answer = api.put(apps(ns, name="d"), made)
    assert answer.told == (422, "Invalid")
    assert answer.causes == [("spec.selector", "FieldValueInvalid")]


def test_a_list_names_its_kind_and_its_items_dont(api: Wire, ns: str) -> None:
    api.post(core(ns), config_map("a")).ok()
    found = api.get(core(ns), fieldSelector="metadata.name=a").ok()
    assert (found["apiVersion"], found["kind"]) == ("v1", "ConfigMapList")
    assert "kind" not in found["items"][0]
    assert found["metadata"]["resourceVersion"]


def test_paging(api: Wire, ns: str) -> None:
    for name in "abcde":
        api.post(core(ns), config_map(name, {"page": "yes"})).ok()
    seen, query = [], {"limit": "2", "labelSelector": "page=yes"}
    while True:
        page = api.get(core(ns), **query).ok()
        seen.append([i["metadata"]["name"] for i in page["items"]])
        if not page["metadata"].get("continue"):
            break
        query["continue"] = page["metadata"]["continue"]
    assert seen == [["a", "b"], ["c", "d"], ["e"]]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"labelSelector": "tier=web"}, ["a", "b"]),
        ({"labelSelector": "tier==web,size!=big"}, ["b"]),
        ({"labelSelector": "tier!=web"}, ["c", "kube-root-ca.crt"]),
        ({"labelSelector": "tier in (web,db)"}, ["a", "b", "c"]),
        ({"labelSelector": "tier,size notin (big)"}, ["b", "c"]),
        ({"labelSelector": "!tier"}, ["kube-root-ca.crt"]),
        ({"labelSelector": "size>5"}, []),
        ({"fieldSelector": "metadata.name=b"}, ["b"]),
        ({"fieldSelector": "metadata.name!=b", "labelSelector": "tier"}, ["a", "c"]),
    ],
)
def test_selectors(api: Wire, ns: str, query: dict[str, str], found: list[str]) -> None:
    for name, labels in (("a", {"tier": "web", "size": "big"}), ("b", {"tier": "web"}), ("c", {"tier": "db"})):
        api.post(core(ns), config_map(name, labels)).ok()
    if api.get(core(ns, name="kube-root-ca.crt")).status == 404:
        # The real controller publishes the cluster's authority in every namespace.
        api.post(core(ns), config_map("kube-root-ca.crt"))
    assert [i["metadata"]["name"] for i in api.get(core(ns), **query).ok()["items"]] == found


@pytest.mark.parametrize("query", [{"labelSelector": "a in"}, {"labelSelector": "=x"}, {"fieldSelector": "spec.x=1"}])
def test_selectors_that_cant_be_read(api: Wire, ns: str, query: dict[str, str]) -> None:
    assert api.get(core(ns), **query).told == (400, "BadRequest")


def test_pods_by_node(api: Wire, ns: str) -> None:
    api.post(core(ns, "pods"), pod("here", nodeName="api-node")).ok()
    api.post(core(ns, "pods"), pod("nowhere", nodeSelector={"no": "where"})).ok()
    found = api.get(core(ns, "pods"), fieldSelector="spec.nodeName=api-node").ok()["items"]
    assert [p["metadata"]["name"] for p in found] == ["here"]


def test_a_stale_put_is_refused(api: Wire, ns: str) -> None:
    first = api.post(core(ns), config_map("a", x="1")).ok()
    api.put(core(ns, name="a"), first | {"data": {"x": "2"}}).ok()
    stale = api.put(core(ns, name="a"), first | {"data": {"x": "3"}})
    assert stale.told == (409, "Conflict")
    assert stale.body["message"] == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to the '
        "latest version and try again"
    )
    assert stale.body["details"] == {"name": "a", "kind": "configmaps"}


def test_a_write_that_changes_nothing_keeps_the_version(api: Wire, ns: str) -> None:
    first = api.post(core(ns), config_map("a", x="1")).ok()
    version = first["metadata"]["resourceVersion"]
    assert api.put(core(ns, name="a"), first).ok()["metadata"]["resourceVersion"] == version
    assert api.patch(core(ns, name="a"), {"data": {"x": "1"}}).ok()["metadata"]["resourceVersion"] == version
    assert api.patch(core(ns, name="a"), {"data": {"x": "2"}}).ok()["metadata"]["resourceVersion"] != version


def test_the_generation_counts_changes_of_the_spec(api: Wire, ns: str) -> None:
    at = apps(ns, name="d")
    assert api.post(apps(ns), daemon_set("d", nodeSelector={"no": "where"})).ok()["metadata"]["generation"] == 1
    assert api.patch(at, {"metadata": {"labels": {"x": "y"}}}).ok()["metadata"]["generation"] == 1
    assert api.patch(at, {"spec": {"minReadySeconds": 5}}).ok()["metadata"]["generation"] == 2
    assert api.patch(at, {"status": {"numberReady": 7}}).ok()["metadata"]["generation"] == 2


def test_status_and_spec_are_apart(api: Wire, ns: str) -> None:
    made = api.post(claims(ns), claim("c") | {"status": {"devices": []}}).ok()
    assert made.get("status") in (None, {})
    request = [{"resource": "pods", "name": "p", "uid": "u"}]
    allocation = {"devices": {"results": [{"request": "r", "driver": "x.example.com", "pool": "p", "device": "d"}]}}
    written = made | {"status": {"allocation": allocation, "reservedFor": request}}
    assert api.put(claims(ns, "c"), written).ok().get("status") in (None, {})
    spec = {"devices": {"requests": [{"name": "other", "exactly": {"deviceClassName": "y"}}]}}
    done = api.put(f"{claims(ns, 'c')}/status", written | {"spec": spec}).ok()
    assert done["spec"] == made["spec"]
    assert done["status"]["reservedFor"] == request


def test_a_claims_spec_is_immutable(api: Wire, ns: str) -> None:
    made = api.post(claims(ns), claim("c")).ok()
    made["spec"]["devices"]["requests"][0]["name"] = "other"
    answer = api.put(claims(ns, "c"), made)
    assert answer.told == (422, "Invalid")
    assert answer.causes == [("spec", "FieldValueInvalid")]


@pytest.mark.parametrize(
    ("kind", "patch", "data"),
    [
        ("merge-patch+json", {"data": {"a": None, "c": "3"}}, {"b": "2", "c": "3"}),
        ("json-patch+json", [{"op": "replace", "path": "/data/a", "value": "9"}], {"a": "9", "b": "2"}),
        (
            "json-patch+json",
            [{"op": "remove", "path": "/data/a"}, {"op": "add", "path": "/data/x~1y", "value": "1"}],
            None,
        ),
        ("strategic-merge-patch+json", {"data": {"b": None}}, {"a": "1"}),
        ("strategic-merge-patch+json", {"data": {"$patch": "replace", "z": "1"}}, {"z": "1"}),
    ],
)
def test_patches(api: Wire, ns: str, kind: str, patch: Any, data: dict[str, str] | None) -> None:
    api.post(core(ns), config_map("a", a="1", b="2")).ok()
    answer = api.patch(core(ns, name="a"), patch, kind)
    if data is None:
        # A key of a ConfigMap holds no slash.
        assert answer.told == (422, "Invalid")
    else:
        assert answer.ok()["data"] == data


def test_a_json_patch_escapes_slashes(api: Wire, ns: str) -> None:
    api.post(core(ns), config_map("a", {"k": "v"})).ok()
    patch = [{"op": "add", "path": "/metadata/labels/example.com~1x", "value": "y"}]
    done = api.patch(core(ns, name="a"), patch, "json-patch+json").ok()
    assert done["metadata"]["labels"] == {"k": "v", "example.com/x": "y"}


def test_a_json_patch_whose_test_fails(api: Wire, ns: str) -> None:
    api.post(core(ns), config_map("a", a="1")).ok()
    patch = [{"op": "test", "path": "/data/a", "value": "2"}, {"op": "remove", "path": "/data/a"}]
    assert api.patch(core(ns, name="a"), patch, "json-patch+json").told == (422, "Invalid")
    assert api.get(core(ns, name="a")).ok()["data"] == {"a": "1"}


def test_strategic_patches_merge_lists_by_their_keys(api: Wire, ns: str) -> None:
    api.post(apps(ns), daemon_set("d", nodeSelector={"no": "where"})).ok()
    more = {"name": "main", "env": [{"name": "A", "value": "1"}]}
    patch = {"spec": {"template": {"spec": {"containers": [more, {"name": "side", "image": "s:1"}]}}}}
    done = api.patch(apps(ns, name="d"), patch, "strategic-merge-patch+json").ok()
    found = done["spec"]["template"]["spec"]["containers"]
    assert {c["name"]: (c["image"], c.get("env")) for c in found} == {
        "main": ("reg.example.com/app:1", [{"name": "A", "value": "1"}]),
        "side": ("s:1", None),
    }
    gone = {"spec": {"template": {"spec": {"containers": [{"name": "side", "$patch": "delete"}]}}}}
    done = api.patch(apps(ns, name="d"), gone, "strategic-merge-patch+json").ok()
    assert [c["name"] for c in done["spec"]["template"]["spec"]["containers"]] == ["main"]


def test_a_dry_run_stores_nothing(api: Wire, ns: str) -> None:
    assert api.post(core(ns), config_map("dry"), dryRun="All").ok()["metadata"]["uid"]
    assert api.get(core(ns, name="dry")).status == 404
    api.post(core(ns), config_map("a", x="1")).ok()
    assert api.patch(core(ns, name="a"), {"data": {"x": "2"}}, dryRun="All").ok()["data"] == {"x": "2"}
    assert api.apply(core(ns, name="a"), config_map("a", x="3"), force=True, dryRun="All").ok()["data"] == {"x": "3"}
    assert api.delete(core(ns, name="a"), dryRun="All").status == 200
    assert api.get(core(ns, name="a")).ok()["data"] == {"x": "1"}


@pytest.mark.parametrize(("mode", "status"), [("Strict", 400), ("Warn", 201), ("Ignore", 201)])
def test_unknown_fields(api: Wire, ns: str, mode: str, status: int) -> None:
    body = daemon_set("d", nodeSelectr={"a": "b"})
    answer = api.post(apps(ns), body, fieldValidation=mode)
    assert answer.status == status
    if status == 400:
        assert answer.body["reason"] == "BadRequest"
        assert 'strict decoding error: unknown field "spec.template.spec.nodeSelectr"' in answer.body["message"]
    else:
        assert "nodeSelectr" not in answer.body["spec"]["template"]["spec"]
        assert ("Warning" in answer.headers) == (mode == "Warn")


def test_a_wrong_type_is_refused(api: Wire, ns: str) -> None:
    answer = api.post(apps(ns), daemon_set("d", nodeSelector={"gpu": True}))
    assert answer.told == (400, "BadRequest")
    assert "cannot unmarshal bool into Go struct field" in answer.body["message"]


def test_bodies_that_cant_be_read(api: Wire, ns: str) -> None:
    assert api.send("POST", core(ns), b"{nonsense").told == (400, "BadRequest")
    assert api.post(core(ns), {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}).told == (
        400,
        "BadRequest",
    )
    body = config_map("x") | {"metadata": {"name": "x", "namespace": "elsewhere"}}
    assert api.post(core(ns), body).told == (400, "BadRequest")
    assert api.put(core(ns, name="y"), config_map("x")).told == (400, "BadRequest")


def test_quantities_become_canonical(api: Wire, ns: str) -> None:
    resources = {"requests": {"cpu": "0.5", "memory": "1024Mi"}, "limits": {"cpu": "1000m"}}
    body = pod("p", nodeSelector={"no": "where"})
    body["spec"]["containers"][0]["resources"] = resources
    found = api.post(core(ns, "pods"), body).ok()["spec"]["containers"][0]["resources"]
    assert found == {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1"}}


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("configmaps", config_map("x"), "Status"),
        ("pods", pod("x", nodeSelector={"no": "where"}), "Pod"),
        ("serviceaccounts", {"metadata": {"name": "x"}}, "ServiceAccount"),
        ("services", {"metadata": {"name": "x"}, "spec": {"ports": [{"port": 80}]}}, "Service"),
        ("secrets", {"metadata": {"name": "x"}}, "Status"),
    ],
)
def test_what_a_delete_answers(api: Wire, ns: str, path: str, body: dict[str, Any], kind: str) -> None:
    made = api.post(core(ns, path), body).ok()
    answer = api.delete(core(ns, path, "x")).ok()
    assert answer["kind"] == kind
    if kind == "Status":
        assert answer["status"] == "Success"
        assert answer["details"] == {"name": "x", "kind": path, "uid": made["metadata"]["uid"]}


def test_delete_preconditions(api: Wire, ns: str) -> None:
    made = api.post(core(ns), config_map("a")).ok()
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "another"}}
    answer = api.delete(core(ns, name="a"), options)
    assert answer.told == (409, "Conflict")
    assert (
        f"the UID in the precondition (another) does not match the UID in record ({made['metadata']['uid']})"
        in (answer.body["message"])
    )
    options["preconditions"] = {"uid": made["metadata"]["uid"]}
    assert api.delete(core(ns, name="a"), options).status == 200


def test_a_collection_is_deleted_by_label(api: Wire, ns: str) -> None:
    for name, labels in (("a", {"go": "1"}), ("b", {"go": "1"}), ("c", {"stay": "1"})):
        api.post(core(ns), config_map(name, labels)).ok()
    api.delete(core(ns), labelSelector="go=1").ok()
    left = {i["metadata"]["name"] for i in api.get(core(ns)).ok()["items"]}
    assert left - {"kube-root-ca.crt"} == {"c"}
