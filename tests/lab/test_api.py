"""The API's answers over a real socket: reads, writes, refusals."""

from __future__ import annotations

import json
import time
from http.client import RemoteDisconnected

import pytest

from tests.lab.objects import (
    CONFIG_MAPS,
    CRDS,
    DAEMON_SETS,
    DEPLOYMENTS,
    PODS,
    WIDGETS,
    config_map,
    daemon_set,
    pod,
    widget,
    widget_crd,
)
from tests.lab.server import Api, Served


def test_version_and_discovery(api: Api):
    assert api.get("/version").body["gitVersion"] == "v1.36.3"
    assert [g["name"] for g in api.get("/apis").body["groups"]].count("apps") == 1
    names = [r["name"] for r in api.get("/apis/resource.k8s.io/v1").body["resources"]]
    assert names == [
        "deviceclasses",
        "resourceclaims",
        "resourceclaims/status",
        "resourceclaimtemplates",
        "resourceslices",
    ]
    paths = api.get("/openapi/v3").body["paths"]
    assert paths["apis/apps/v1"]["serverRelativeURL"].startswith("/openapi/v3/apis/apps/v1")
    operation = api.get("/openapi/v3/apis/apps/v1").body["paths"][
        "/apis/apps/v1/namespaces/{namespace}/daemonsets/{name}"
    ]["patch"]
    assert "fieldValidation" in [p["name"] for p in operation["parameters"]]


def test_dynamic_resource_allocation_comes_with_1_34(served: Served):
    old = served.add("old", "v1.33.2")
    assert old.get("/apis/resource.k8s.io/v1").status == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        ("GET", "/api/v1/namespaces/default/pods/none", None, 404, "NotFound"),
        ("GET", "/api/v1/nothings", None, 404, "NotFound"),
        ("POST", "/api/v1/namespaces/nowhere/configmaps", {"metadata": {"name": "x"}}, 404, "NotFound"),
        ("POST", CONFIG_MAPS, {"metadata": {"name": "BAD_name"}}, 422, "Invalid"),
        ("POST", CONFIG_MAPS, {"metadata": {}}, 422, "Invalid"),
        ("POST", CONFIG_MAPS, {"kind": "Secret", "metadata": {"name": "x"}}, 400, "BadRequest"),
        ("POST", CONFIG_MAPS, {"metadata": {"name": "x", "resourceVersion": "3"}}, 400, "BadRequest"),
        ("POST", CONFIG_MAPS, {"metadata": {"name": "x"}, "data": {"a": 1}}, 400, "BadRequest"),
        ("POST", CONFIG_MAPS, b"{", 400, "BadRequest"),
        ("GET", CONFIG_MAPS + "?fieldSelector=data.a=b", None, 400, "BadRequest"),
        ("DELETE", "/api/v1/namespaces/default/pods/none", None, 404, "NotFound"),
        ("PUT", CONFIG_MAPS, {}, 405, "MethodNotAllowed"),
    ],
)
def test_refusals(api: Api, method: str, path: str, body: object, status: int, reason: str):
    answer = api.request(method, path, body)
    assert (answer.status, answer.body["kind"], answer.body["status"]) == (status, "Status", "Failure")
    assert (answer.body["code"], answer.body["reason"]) == (status, reason)


def test_create_twice_is_refused(api: Api):
    assert api.post(CONFIG_MAPS, config_map("a")).status == 201
    again = api.post(CONFIG_MAPS, config_map("a"))
    assert (again.status, again.body["reason"]) == (409, "AlreadyExists")
    assert again.body["message"] == 'configmaps "a" already exists'


def test_stale_put_is_refused_and_a_put_that_changes_nothing_keeps_the_version(api: Api):
    first = api.post(CONFIG_MAPS, config_map("a", k="1")).body
    same = api.put(f"{CONFIG_MAPS}/a", first).body
    assert same["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    second = api.put(f"{CONFIG_MAPS}/a", {**first, "data": {"k": "2"}}).body
    assert second["metadata"]["resourceVersion"] != first["metadata"]["resourceVersion"]
    stale = api.put(f"{CONFIG_MAPS}/a", {**first, "data": {"k": "3"}})
    assert (stale.status, stale.body["reason"]) == (409, "Conflict")


def test_generation_counts_changes_of_the_spec_alone(api: Api):
    api.post(DAEMON_SETS, daemon_set("d"))
    path = f"{DAEMON_SETS}/d"
    assert api.patch(path, {"metadata": {"labels": {"a": "b"}}}).body["metadata"]["generation"] == 1
    assert api.patch(f"{path}/status", {"status": {"numberReady": 1}}).body["metadata"]["generation"] == 1
    changed = api.patch(path, {"spec": {"minReadySeconds": 5}}).body
    assert (changed["metadata"]["generation"], changed["status"]["numberReady"]) == (2, 1)


def test_status_and_spec_are_isolated(api: Api):
    api.post(DAEMON_SETS, {**daemon_set("d"), "status": {"numberReady": 9}})
    path = f"{DAEMON_SETS}/d"
    assert api.get(path).body["status"]["numberReady"] == 0
    api.patch(path, {"status": {"numberReady": 7}})
    assert api.get(path).body["status"]["numberReady"] == 0
    api.patch(f"{path}/status", {"spec": {"minReadySeconds": 5}, "status": {"numberReady": 2}})
    after = api.get(path).body
    assert (after["status"]["numberReady"], after["spec"].get("minReadySeconds")) == (2, None)


def test_defaults_of_a_daemon_set(api: Api):
    spec = api.post(DAEMON_SETS, daemon_set("d")).body["spec"]
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    assert spec["template"]["spec"] == {
        "containers": [
            {
                "name": "main",
                "image": "reg.example.com/app:1",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
    }


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("labelSelector=tier%3Dfront", ["a", "b"]),
        ("labelSelector=tier!%3Dfront", ["c", "d", "kube-root"]),
        ("labelSelector=tier+in+(front,back)", ["a", "b", "c"]),
        ("labelSelector=tier+notin+(front,back)", ["d", "kube-root"]),
        ("labelSelector=tier", ["a", "b", "c"]),
        ("labelSelector=!tier", ["d", "kube-root"]),
        ("labelSelector=tier%3Dfront,color%3Dred", ["a"]),
        ("fieldSelector=metadata.name%3Dc", ["c"]),
        ("fieldSelector=metadata.name!%3Dc&labelSelector=tier", ["a", "b"]),
    ],
)
def test_selectors(api: Api, selector: str, found: list[str]):
    labels = {
        "a": {"tier": "front", "color": "red"},
        "b": {"tier": "front"},
        "c": {"tier": "back"},
        "d": {},
        "kube-root": {},
    }
    for name, value in labels.items():
        api.post(CONFIG_MAPS, {"metadata": {"name": name, "labels": value}})
    assert [o["metadata"]["name"] for o in api.get(f"{CONFIG_MAPS}?{selector}").body["items"]] == found


def test_paging(api: Api):
    for name in ("a", "b", "c", "d", "e"):
        api.post(CONFIG_MAPS, config_map(name))
    first = api.get(f"{CONFIG_MAPS}?limit=2").body
    assert [o["metadata"]["name"] for o in first["items"]] == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 3
    second = api.get(f"{CONFIG_MAPS}?limit=2&continue={first['metadata']['continue']}").body
    last = api.get(f"{CONFIG_MAPS}?limit=2&continue={second['metadata']['continue']}").body
    assert [o["metadata"]["name"] for o in (*second["items"], *last["items"])] == ["c", "d", "e"]
    assert "continue" not in last["metadata"]


def test_a_list_names_its_kind(api: Api):
    api.post(CONFIG_MAPS, config_map("a"))
    answer = api.get(CONFIG_MAPS).body
    assert (answer["kind"], answer["apiVersion"], answer["items"][0]["data"]) == ("ConfigMapList", "v1", {})


def test_dry_run_answers_and_stores_nothing(api: Api):
    before = api.get(CONFIG_MAPS).body["metadata"]["resourceVersion"]
    assert api.post(f"{CONFIG_MAPS}?dryRun=All", config_map("a")).status == 201
    assert api.get(f"{CONFIG_MAPS}/a").status == 404
    assert api.apply(f"{CONFIG_MAPS}/a", config_map("a"), extra="&dryRun=All").status == 201
    api.post(CONFIG_MAPS, config_map("b", k="1"))
    assert api.patch(f"{CONFIG_MAPS}/b?dryRun=All", {"data": {"k": "2"}}).body["data"] == {"k": "2"}
    assert api.request("DELETE", f"{CONFIG_MAPS}/b?dryRun=All").status == 200
    assert api.get(f"{CONFIG_MAPS}/b").body["data"] == {"k": "1"}
    assert int(api.get(CONFIG_MAPS).body["metadata"]["resourceVersion"]) == int(before) + 1


@pytest.mark.parametrize(
    ("mode", "status", "kept"), [("Strict", 400, None), ("Warn", 201, False), ("Ignore", 201, False)]
)
def test_unknown_fields(api: Api, mode: str, status: int, kept: bool | None):
    answer = api.post(f"{DAEMON_SETS}?fieldValidation={mode}", daemon_set("d", nodeSelectr={"a": "b"}))
    assert answer.status == status
    if kept is None:
        assert 'unknown field "spec.template.spec.nodeSelectr"' in answer.body["message"]
    else:
        assert ("nodeSelectr" in answer.body["spec"]["template"]["spec"]) == kept


def test_a_node_selector_holds_strings(api: Api):
    answer = api.post(DAEMON_SETS, daemon_set("d", nodeSelector={"modelplane.ai/cpu": True}))
    assert answer.status == 400
    assert "expected string" in answer.body["message"]
    assert "nodeSelector.modelplane.ai/cpu" in answer.body["message"]
    applied = api.apply(f"{DAEMON_SETS}/d", daemon_set("d", nodeSelector={"modelplane.ai/cpu": True}))
    assert (applied.status, "expected string" in applied.body["message"]) == (500, True)


_TERMS = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"


def _affinity(*expressions: dict[str, object]) -> dict[str, object]:
    terms = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({"tolerations": [{"key": "a"}]}, []),
        ({"tolerations": [{"operator": "Exists"}]}, []),
        ({"tolerations": [{"value": "x"}]}, [("spec.tolerations[0].operator", "FieldValueInvalid")]),
        ({"tolerations": [{"operator": "Equal"}]}, [("spec.tolerations[0].operator", "FieldValueInvalid")]),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "x"}]},
            [("spec.tolerations[0].operator", "FieldValueInvalid")],
        ),
        (
            {"tolerations": [{"key": "a", "operator": "Is"}]},
            [("spec.tolerations[0].operator", "FieldValueNotSupported")],
        ),
        (
            {"tolerations": [{"key": "a", "effect": "Never"}]},
            [("spec.tolerations[0].effect", "FieldValueNotSupported")],
        ),
        (
            {"affinity": _affinity({"key": "a", "operator": "In", "values": []})},
            [(f"{_TERMS}[0].matchExpressions[0].values", "FieldValueRequired")],
        ),
        (
            {"affinity": _affinity({"key": "a", "operator": "Exists", "values": ["x"]})},
            [(f"{_TERMS}[0].matchExpressions[0].values", "FieldValueForbidden")],
        ),
        ({"nodeSelector": {"a": "x" * 64}}, [("spec.nodeSelector", "FieldValueInvalid")]),
        ({"containers": []}, [("spec.containers", "FieldValueRequired")]),
    ],
)
def test_pod_validation(api: Api, spec: dict[str, object], causes: list[tuple[str, str]]):
    answer = api.post(PODS, pod("p", **spec))
    assert answer.status == (422 if causes else 201)
    if causes:
        assert answer.causes == causes


@pytest.mark.parametrize(
    ("taint", "cause"),
    [
        ({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}, None),
        ({"key": "a"}, ("metadata.taints[0].effect", "FieldValueRequired")),
        ({"key": "a", "effect": "Never"}, ("metadata.taints[0].effect", "FieldValueNotSupported")),
        ({"key": "a", "value": "not ok", "effect": "NoSchedule"}, ("metadata.taints[0].value", "FieldValueInvalid")),
        ({"key": "-", "effect": "NoSchedule"}, ("metadata.taints[0].key", "FieldValueInvalid")),
    ],
)
def test_taints(api: Api, taint: dict[str, str], cause: tuple[str, str] | None):
    answer = api.post("/api/v1/nodes", {"metadata": {"name": "n"}, "spec": {"taints": [taint]}})
    assert answer.status == (201 if cause is None else 422)
    if cause is not None:
        assert answer.causes == [cause]


@pytest.mark.parametrize(
    ("labels", "valid"),
    [
        ({"a": "b"}, True),
        ({"k" * 63: "v" * 63}, True),
        ({"p" * 253 + "/k": "v"}, True),
        ({"k" * 64: "v"}, False),
        ({"p" * 254 + "/k": "v"}, False),
        ({"k": "v" * 64}, False),
        ({"k": "-v"}, False),
        ({"a/b/c": "v"}, False),
    ],
)
def test_labels(api: Api, labels: dict[str, str], valid: bool):
    answer = api.post(CONFIG_MAPS, {"metadata": {"name": "a", "labels": labels}})
    assert answer.status == (201 if valid else 422)


@pytest.mark.parametrize("path", [DAEMON_SETS, DEPLOYMENTS])
def test_workload_selectors(api: Api, path: str):
    body = {**daemon_set("d"), "kind": "DaemonSet" if path == DAEMON_SETS else "Deployment"}
    odd = json.loads(json.dumps(body))
    odd["spec"]["template"]["metadata"]["labels"] = {"app": "other"}
    assert api.post(path, odd).causes == [("spec.template.metadata.labels", "FieldValueInvalid")]
    assert api.post(path, body).status == 201
    body["spec"]["selector"] = {"matchLabels": {"x": "y"}}
    body["spec"]["template"]["metadata"]["labels"] = {"x": "y"}
    assert api.put(f"{path}/d", body).causes == [("spec.selector", "FieldValueInvalid")]


def test_a_claims_spec_is_immutable(api: Api):
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    request = {"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    made = api.post(path, {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}).body
    assert made["spec"]["devices"]["requests"][0]["exactly"] == {
        "deviceClassName": "gpu.nvidia.com",
        "allocationMode": "ExactCount",
        "count": 1,
    }
    made["spec"]["devices"]["requests"][0]["exactly"]["count"] = 2
    assert api.put(f"{path}/c", made).causes == [("spec", "FieldValueInvalid")]


@pytest.mark.parametrize(
    ("version", "gate", "kept"),
    [("v1.35.4", None, False), ("v1.36.3", None, True), ("v1.36.3", False, False), ("v1.35.4", True, True)],
)
def test_consumable_capacity_is_dropped_in_silence(
    served: Served, name: str, version: str, gate: bool | None, kept: bool
):
    api = served.add(name, version, consumable_capacity=gate)
    exactly = {"deviceClassName": "dra.cpu", "capacity": {"requests": {"dra.cpu/cpu": "6"}}}
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}
    template = {"metadata": {"name": "t"}, "spec": {"spec": claim["spec"]}}
    device = {"name": "d", "allowMultipleAllocations": True, "capacity": {"dra.cpu/cpu": {"value": "6"}}}
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "dra.cpu", "nodeName": "n", "pool": pool, "devices": [device]}
    base = "/apis/resource.k8s.io/v1"
    claims = f"{base}/namespaces/default/resourceclaims"
    for query in ("?dryRun=All", ""):
        made = api.post(claims + query, claim).body["spec"]["devices"]["requests"][0]["exactly"]
        assert ("capacity" in made) == kept
    templates = f"{base}/namespaces/default/resourceclaimtemplates"
    made = api.post(templates, template).body["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    assert ("capacity" in made) == kept
    published = api.post(f"{base}/resourceslices", {"metadata": {"name": "s"}, "spec": spec}).body
    assert ("allowMultipleAllocations" in published["spec"]["devices"][0]) == kept
    assert published["spec"]["devices"][0]["capacity"] == {"dra.cpu/cpu": {"value": "6"}}


def test_quantities_become_canonical(api: Api):
    resources = {"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": {"cpu": 1.5}}
    made = api.post(PODS, pod("p", containers=[{"name": "c", "image": "i:1", "resources": resources}])).body
    assert made["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "1", "memory": "1Gi"},
        "limits": {"cpu": "1500m"},
    }
    bad = {"requests": {"cpu": "one"}}
    assert api.post(PODS, pod("q", containers=[{"name": "c", "image": "i:1", "resources": bad}])).status == 400


# Patches


@pytest.mark.parametrize(
    ("kind", "patch", "data"),
    [
        ("merge-patch+json", {"data": {"a": None, "b": "2"}}, {"b": "2"}),
        ("strategic-merge-patch+json", {"data": {"b": "2"}}, {"a": "1", "b": "2"}),
        ("json-patch+json", [{"op": "replace", "path": "/data/a", "value": "3"}], {"a": "3"}),
    ],
)
def test_patches(api: Api, kind: str, patch: object, data: dict[str, str]):
    api.post(CONFIG_MAPS, config_map("a", a="1"))
    assert api.patch(f"{CONFIG_MAPS}/a", patch, kind).body["data"] == data


def test_a_json_patch_whose_test_fails_changes_nothing(api: Api):
    api.post(CONFIG_MAPS, config_map("a", a="1"))
    patch = [{"op": "remove", "path": "/data/a"}, {"op": "test", "path": "/data/b", "value": "x"}]
    assert api.patch(f"{CONFIG_MAPS}/a", patch, "json-patch+json").status == 422
    assert api.get(f"{CONFIG_MAPS}/a").body["data"] == {"a": "1"}


def test_strategic_merge_of_containers_by_name(api: Api):
    api.post(DAEMON_SETS, daemon_set("d"))
    path = f"{DAEMON_SETS}/d"
    containers = [{"name": "main", "env": [{"name": "A", "value": "1"}]}, {"name": "side", "image": "s:1"}]
    spec = {"spec": {"template": {"spec": {"containers": containers, "tolerations": [{"key": "a"}]}}}}
    made = api.patch(path, spec, "strategic-merge-patch+json").body["spec"]["template"]["spec"]
    assert [(c["name"], c["image"]) for c in made["containers"]] == [("main", "reg.example.com/app:1"), ("side", "s:1")]
    gone = {"spec": {"template": {"spec": {"containers": [{"name": "side", "$patch": "delete"}]}}}}
    made = api.patch(path, gone, "strategic-merge-patch+json").body["spec"]["template"]["spec"]
    assert [c["name"] for c in made["containers"]] == ["main"]
    assert made["tolerations"] == [{"key": "a"}]


# Custom resources


def test_a_crd_makes_an_api(api: Api):
    assert api.get(WIDGETS).status == 404
    crd = api.post(CRDS, widget_crd()).body
    assert {c["type"]: c["status"] for c in crd["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    made = api.post(WIDGETS, widget("w", size=3, extra=1)).body
    assert made["spec"] == {"size": 3, "mode": "a"}
    assert made["metadata"]["generation"] == 1
    assert api.post(f"{WIDGETS}?fieldValidation=Strict", widget("x", size=3, extra=1)).status == 400
    assert api.post(WIDGETS, widget("x")).causes == [("spec.size", "FieldValueRequired")]
    assert api.post(WIDGETS, widget("x", size=0)).causes == [("spec.size", "FieldValueInvalid")]
    assert api.post(WIDGETS, widget("x", size="3")).causes == [("spec.size", "FieldValueTypeInvalid")]
    assert api.post(WIDGETS, widget("x", size=3, mode="c")).causes == [("spec.mode", "FieldValueNotSupported")]
    patched = api.patch(f"{WIDGETS}/w", {"spec": {"size": 4}}, "strategic-merge-patch+json")
    assert (patched.status, patched.body["reason"]) == (415, "UnsupportedMediaType")
    ready = api.patch(f"{WIDGETS}/w/status", {"status": {"ok": True}}).body
    assert (ready["status"], ready["metadata"]["generation"]) == ({"ok": True}, 1)


def test_a_crd_of_a_protected_group_must_say_who_approved_it(api: Api):
    crd = widget_crd()
    group = "gateway.networking.k8s.io"
    crd["spec"]["group"], crd["metadata"]["name"] = group, f"{crd['spec']['names']['plural']}.{group}"
    refused = api.post(CRDS, crd)
    assert refused.status == 422
    assert [c["field"] for c in refused.body["details"]["causes"]] == [
        "metadata.annotations[api-approved.kubernetes.io]"
    ]
    crd["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, a test"}
    assert api.post(CRDS, crd).status == 201


def test_deleting_a_crd_deletes_its_objects(api: Api):
    api.post(CRDS, widget_crd())
    api.post(WIDGETS, widget("w", size=3))
    api.delete(f"{CRDS}/widgets.lab.example.com")
    _until(lambda: api.get(WIDGETS).status == 404)
    api.post(CRDS, widget_crd())
    assert api.get(WIDGETS).body["items"] == []


def _until(done, seconds: float = 3.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.01)


# Deleting


def test_finalizers_hold_an_object_back(api: Api):
    body = config_map("a")
    body["metadata"]["finalizers"] = ["lab.example.com/hold"]
    api.post(CONFIG_MAPS, body)
    held = api.delete(f"{CONFIG_MAPS}/a").body
    assert held["metadata"]["finalizers"] == ["lab.example.com/hold"]
    assert "deletionTimestamp" in api.get(f"{CONFIG_MAPS}/a").body["metadata"]
    api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": None}})
    assert api.get(f"{CONFIG_MAPS}/a").status == 404


@pytest.mark.parametrize(("policy", "left"), [("Background", 404), ("Foreground", 404), ("Orphan", 200)])
def test_dependents_follow_their_owner(api: Api, policy: str, left: int):
    owner = api.post(CONFIG_MAPS, config_map("owner")).body
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    body = config_map("child")
    body["metadata"]["ownerReferences"] = [reference]
    api.post(CONFIG_MAPS, body)
    api.delete(f"{CONFIG_MAPS}/owner", {"propagationPolicy": policy})
    _until(lambda: api.get(f"{CONFIG_MAPS}/owner").status == 404)
    _until(lambda: api.get(f"{CONFIG_MAPS}/child").status == left)
    if left == 200:
        assert "ownerReferences" not in api.get(f"{CONFIG_MAPS}/child").body["metadata"]


def test_a_namespace_empties_before_it_goes(api: Api):
    api.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
    body = {"metadata": {"name": "held", "finalizers": ["lab.example.com/hold"]}}
    api.post("/api/v1/namespaces/team/configmaps", body)
    api.post("/api/v1/namespaces/team/configmaps", {"metadata": {"name": "free"}})
    api.delete("/api/v1/namespaces/team")
    _until(lambda: api.get("/api/v1/namespaces/team/configmaps/free").status == 404)
    assert api.get("/api/v1/namespaces/team").body["status"] == {"phase": "Terminating"}
    refused = api.post("/api/v1/namespaces/team/configmaps", {"metadata": {"name": "late"}})
    assert (refused.status, refused.body["reason"]) == (403, "Forbidden")
    api.patch("/api/v1/namespaces/team/configmaps/held", {"metadata": {"finalizers": None}})
    _until(lambda: api.get("/api/v1/namespaces/team").status == 404)


def test_a_scheduled_pod_waits_for_its_kubelet(api: Api):
    api.post(PODS, pod("p"))
    assert api.post(f"{PODS}/p/binding", {"target": {"kind": "Node", "name": "n1"}}).status == 201
    assert api.post(f"{PODS}/p/binding", {"target": {"kind": "Node", "name": "n2"}}).status == 409
    assert api.delete(f"{PODS}/p").body["metadata"]["deletionGracePeriodSeconds"] == 30
    assert api.get(f"{PODS}/p").status == 200
    api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert api.get(f"{PODS}/p").status == 404


@pytest.mark.parametrize(("path", "body", "kind"), [(PODS, pod("x"), "Pod"), (CONFIG_MAPS, config_map("x"), "Status")])
def test_what_a_delete_answers(api: Api, path: str, body: dict[str, object], kind: str):
    api.post(path, body)
    assert api.delete(f"{path}/x").body["kind"] == kind


def test_delete_preconditions(api: Api):
    api.post(CONFIG_MAPS, config_map("a"))
    assert api.delete(f"{CONFIG_MAPS}/a", {"preconditions": {"uid": "other"}}).status == 409
    assert api.get(f"{CONFIG_MAPS}/a").status == 200


def test_delete_collection(api: Api):
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        api.post(CONFIG_MAPS, {"metadata": {"name": name, "labels": {"l": label}}})
    assert api.delete(f"{CONFIG_MAPS}?labelSelector=l%3Dx").body["status"] == "Success"
    assert [o["metadata"]["name"] for o in api.get(CONFIG_MAPS).body["items"]] == ["c"]


# Users, counts, faults, switches


def test_tokens_and_counts(served: Served, api: Api, name: str):
    assert api.request("GET", "/version", Authorization="Bearer nonsense").status == 401
    api.get(CONFIG_MAPS)
    api.post(CONFIG_MAPS, config_map("a"))
    api.post(f"{CONFIG_MAPS}?dryRun=All", config_map("b"))
    api.delete(f"{CONFIG_MAPS}/a")
    served.api(name, "agent").post(CONFIG_MAPS, config_map("mine"))
    counts = served.lab.clusters.get(name).meter.counts()
    assert (counts.reads, counts.writes, counts.deletes, counts.dry_runs) == (1, 1, 1, 1)


def test_a_cluster_that_is_not_there_is_unavailable(served: Served, api: Api):
    api.base = "/clusters/nowhere"
    answer = api.get("/version")
    assert (answer.status, answer.body["reason"]) == (503, "ServiceUnavailable")


def test_faults(served: Served, api: Api, name: str):
    faults = served.lab.clusters.get(name).faults
    faults.unauthorized = True
    assert api.get("/version").status == 401
    assert served.api(name, "agent").get("/version").status == 200
    faults.unauthorized, faults.slow = False, 0.2
    started = time.monotonic()
    assert api.get("/version").status == 200
    assert time.monotonic() - started >= 0.2
    faults.slow, faults.drop_connections = 0.0, True
    with pytest.raises((RemoteDisconnected, ConnectionError)):
        api.get("/version")
    faults.drop_connections = False


def test_critical_pods_need_a_quota_on_gke(served: Served, name: str):
    api = served.add(name, critical_pods_quota=True)
    critical = pod("p", priorityClassName="system-node-critical")
    refused = api.post(PODS, critical)
    assert (refused.status, refused.body["reason"]) == (403, "Forbidden")
    assert "insufficient quota to match these scopes" in refused.body["message"]
    assert api.post("/api/v1/namespaces/kube-system/pods", critical).status == 201
    term = {
        "scopeName": "PriorityClass",
        "operator": "In",
        "values": ["system-node-critical", "system-cluster-critical"],
    }
    quota = {"metadata": {"name": "q"}, "spec": {"scopeSelector": {"matchExpressions": [term]}, "hard": {"pods": "9"}}}
    api.post("/api/v1/namespaces/default/resourcequotas", quota)
    assert api.post(PODS, critical).status == 201


def test_an_unknown_priority_class_is_refused(api: Api):
    answer = api.post(PODS, pod("p", priorityClassName="high"))
    assert answer.body["message"] == 'pods "p" is forbidden: no PriorityClass with name high was found'


@pytest.mark.parametrize(
    ("path", "tolerations", "status"),
    [
        (DAEMON_SETS, [{"operator": "Exists"}], 403),
        (DAEMON_SETS, [{"key": "nvidia.com/gpu", "operator": "Exists"}], 201),
        ("/apis/apps/v1/namespaces/kube-system/daemonsets", [{"operator": "Exists"}], 201),
    ],
)
def test_keyless_tolerations_on_aks(
    served: Served, name: str, path: str, tolerations: list[dict[str, str]], status: int
):
    api = served.add(name, refuse_keyless_tolerations=True)
    assert api.post(path, daemon_set("d", tolerations=tolerations)).status == status


@pytest.mark.parametrize("name", ["default", "kube-public", "kube-system"])
def test_namespaces_that_stay(api: Api, name: str):
    answer = api.delete(f"/api/v1/namespaces/{name}")
    assert (answer.status, answer.body["reason"]) == (403, "Forbidden")


_REQUEST = {"name": "r", "exactly": {"deviceClassName": "dra.cpu"}}


@pytest.mark.parametrize(
    ("devices", "causes"),
    [
        ({"requests": [_REQUEST]}, []),
        ({"requests": [_REQUEST, _REQUEST]}, [("spec.devices.requests[1]", "FieldValueDuplicate")]),
        ({"requests": [{"name": "r"}]}, [("spec.devices.requests[0]", "FieldValueRequired")]),
        (
            {"requests": [{"name": "r", "exactly": {"deviceClassName": "a", "count": -1}}]},
            [("spec.devices.requests[0].exactly.count", "FieldValueInvalid")],
        ),
        (
            {"requests": [{"name": "r", "exactly": {"count": 1}}]},
            [("spec.devices.requests[0].exactly.deviceClassName", "FieldValueRequired")],
        ),
        (
            {"requests": [_REQUEST], "constraints": [{"requests": ["x"], "matchAttribute": "dra.cpu/n"}]},
            [("spec.devices.constraints[0].requests[0]", "FieldValueInvalid")],
        ),
    ],
)
def test_claims(api: Api, devices: dict[str, object], causes: list[tuple[str, str]]):
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    answer = api.post(path, {"metadata": {"name": "c"}, "spec": {"devices": devices}})
    assert answer.status == (422 if causes else 201)
    if causes:
        assert answer.causes == causes


def test_a_distinct_attribute_is_refused_where_the_gate_is_off(served: Served, name: str):
    api = served.add(name, "v1.35.4")
    devices = {"requests": [_REQUEST], "constraints": [{"distinctAttribute": "dra.cpu/n"}]}
    body = {"metadata": {"name": "c"}, "spec": {"devices": devices}}
    answer = api.post("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims?dryRun=All", body)
    assert answer.causes == [("spec.devices.constraints[0].matchAttribute", "FieldValueRequired")]


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({}, None),
        ({"allNodes": True}, ("spec", "FieldValueInvalid")),
        ({"nodeName": None}, ("spec", "FieldValueRequired")),
        ({"pool": {"name": "n", "generation": 1}}, ("spec.pool.resourceSliceCount", "FieldValueInvalid")),
        ({"devices": [{"name": f"d{i}"} for i in range(129)]}, ("spec.devices", "FieldValueTooMany")),
    ],
)
def test_slices(api: Api, change: dict[str, object], cause: tuple[str, str] | None):
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "dra.cpu", "nodeName": "n", "pool": pool, "devices": [{"name": "d"}], **change}
    answer = api.post("/apis/resource.k8s.io/v1/resourceslices", {"metadata": {"name": "s"}, "spec": spec})
    assert answer.status == (201 if cause is None else 422)
    if cause is not None:
        assert answer.causes == [cause]


def test_data_has_a_limit(api: Api):
    big = {"metadata": {"name": "a"}, "data": {"k": "x" * 1048577}}
    assert api.post(CONFIG_MAPS, big).causes == [("data", "FieldValueTooLong")]


def test_how_often_a_daemon_sets_template_changed(api: Api):
    key = "deprecated.daemonset.template.generation"
    assert api.post(DAEMON_SETS, daemon_set("d")).body["metadata"]["annotations"] == {key: "1"}
    patch = {"spec": {"template": {"metadata": {"labels": {"x": "y"}}}}}
    assert api.patch(f"{DAEMON_SETS}/d", patch).body["metadata"]["annotations"] == {key: "2"}
    assert api.patch(f"{DAEMON_SETS}/d", {"spec": {"minReadySeconds": 1}}).body["metadata"]["annotations"] == {key: "2"}
