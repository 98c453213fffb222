"""What follows a creation and a deletion: finalizers, owners, namespaces, workloads, claims."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kubernetes.api.bodies import apps, claim, claims, config_map, core, daemon_set, deployment, pod, until
from tests.kubernetes.wire import Wire


def test_finalizers_hold_an_object_back(api: Wire, ns: str) -> None:
    body = config_map("a")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    api.post(core(ns), body).ok()
    answer = api.delete(core(ns, name="a")).ok()
    assert answer["metadata"]["deletionTimestamp"]
    assert api.get(core(ns, name="a")).ok()["metadata"]["finalizers"] == ["example.com/hold"]
    more = api.patch(core(ns, name="a"), {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}})
    assert more.told == (422, "Invalid")
    api.patch(core(ns, name="a"), {"metadata": {"finalizers": None}}).ok()
    assert api.get(core(ns, name="a")).status == 404


@pytest.mark.parametrize(("policy", "stays"), [("Background", False), ("Foreground", False), ("Orphan", True)])
def test_dependents_follow_their_owner(api: Wire, ns: str, policy: str, stays: bool) -> None:
    owner = api.post(core(ns), config_map("owner")).ok()
    dependent = config_map("dependent")
    dependent["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "owner",
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
    ]
    api.post(core(ns), dependent).ok()
    api.delete(core(ns, name="owner"), {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy}).ok()
    until(lambda: api.get(core(ns, name="owner")).status == 404)
    if stays:
        until(lambda: "ownerReferences" not in api.get(core(ns, name="dependent")).ok()["metadata"])
    else:
        until(lambda: api.get(core(ns, name="dependent")).status == 404)


def test_a_namespace_empties_before_it_goes(api: Wire, ns: str) -> None:
    held = config_map("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    api.post(core(ns), held).ok()
    api.post(core(ns), config_map("free")).ok()
    answer = api.delete(f"/api/v1/namespaces/{ns}").ok()
    assert answer["status"]["phase"] == "Terminating"
    until(lambda: api.get(core(ns, name="free")).status == 404)
    refused = api.post(core(ns), config_map("late"))
    assert refused.told == (403, "Forbidden")
    assert "because it is being terminated" in refused.body["message"]
    assert refused.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    assert api.get(f"/api/v1/namespaces/{ns}").ok()["status"]["phase"] == "Terminating"
    api.patch(core(ns, name="held"), {"metadata": {"finalizers": None}}).ok()
    until(lambda: api.get(f"/api/v1/namespaces/{ns}").status == 404)


@pytest.mark.parametrize("name", ["default", "kube-system"])
def test_namespaces_that_stay(api: Wire, name: str) -> None:
    answer = api.delete(f"/api/v1/namespaces/{name}")
    assert answer.told == (403, "Forbidden")
    assert answer.body["message"] == f'namespaces "{name}" is forbidden: this namespace may not be deleted'


def test_a_namespace_that_isnt_there(api: Wire) -> None:
    answer = api.post(core("nowhere"), config_map("a"))
    assert answer.told == (404, "NotFound")
    assert answer.body["message"] == 'namespaces "nowhere" not found'


def test_a_daemon_set_runs_and_goes(api: Wire, ns: str) -> None:
    api.post(apps(ns), daemon_set("d", nodeSelector={"for": "api"})).ok()

    def status() -> Any:
        found = api.get(apps(ns, name="d")).ok().get("status") or {}
        return found if found.get("numberAvailable") else None

    assert until(status) == {
        "currentNumberScheduled": 1,
        "desiredNumberScheduled": 1,
        "numberAvailable": 1,
        "numberMisscheduled": 0,
        "numberReady": 1,
        "observedGeneration": 1,
        "updatedNumberScheduled": 1,
    }
    (found,) = api.get(core(ns, "pods")).ok()["items"]
    assert found["metadata"]["generateName"] == "d-"
    assert [(o["kind"], o["name"], o["controller"]) for o in found["metadata"]["ownerReferences"]] == [
        ("DaemonSet", "d", True)
    ]
    assert found["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] == {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["api-node"]}]}]
    }
    assert {t["key"].partition("/")[2]: (t["effect"], t["operator"]) for t in found["spec"]["tolerations"]} == {
        "not-ready": ("NoExecute", "Exists"),
        "unreachable": ("NoExecute", "Exists"),
        "disk-pressure": ("NoSchedule", "Exists"),
        "memory-pressure": ("NoSchedule", "Exists"),
        "pid-pressure": ("NoSchedule", "Exists"),
        "unschedulable": ("NoSchedule", "Exists"),
    }
    api.delete(apps(ns, name="d")).ok()
    until(lambda: not api.get(core(ns, "pods")).ok()["items"])


def test_a_daemon_set_without_a_node(api: Wire, ns: str) -> None:
    api.post(apps(ns), daemon_set("d", nodeSelector={"no": "where"})).ok()

    def status() -> Any:
        found = api.get(apps(ns, name="d")).ok().get("status") or {}
        return found if found.get("observedGeneration") else None

    assert until(status) == {
        "currentNumberScheduled": 0,
        "desiredNumberScheduled": 0,
        "numberMisscheduled": 0,
        "numberReady": 0,
        "observedGeneration": 1,
    }


def test_a_deployment_rolls_and_goes(api: Wire, ns: str) -> None:
    at = apps(ns, "deployments", "m")
    api.post(apps(ns, "deployments"), deployment("m", 2, nodeSelector={"for": "api"})).ok()

    def done() -> Any:
        found = api.get(at).ok()
        status = found.get("status") or {}
        settled = status.get("observedGeneration") == found["metadata"]["generation"]
        return status if settled and status.get("updatedReplicas") == status.get("availableReplicas") == 2 else None

    status = until(done)
    assert {k: status[k] for k in ("replicas", "readyReplicas", "availableReplicas", "updatedReplicas")} == {
        "replicas": 2,
        "readyReplicas": 2,
        "availableReplicas": 2,
        "updatedReplicas": 2,
    }
    assert {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]} == {
        "Available": ("True", "MinimumReplicasAvailable"),
        "Progressing": ("True", "NewReplicaSetAvailable"),
    }
    (replica_set,) = api.get(apps(ns, "replicasets")).ok()["items"]
    assert replica_set["metadata"]["ownerReferences"][0]["kind"] == "Deployment"
    containers = [{"name": "main", "image": "reg.example.com/app:2"}]
    api.patch(at, {"spec": {"template": {"spec": {"containers": containers}}}}).ok()

    def rolled() -> bool:
        images = {p["spec"]["containers"][0]["image"] for p in api.get(core(ns, "pods")).ok()["items"]}
        return bool(done()) and images == {"reg.example.com/app:2"}

    until(rolled)
    assert len(api.get(apps(ns, "replicasets")).ok()["items"]) == 2
    api.delete(at, {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}).ok()
    until(lambda: not api.get(core(ns, "pods")).ok()["items"])
    assert not api.get(apps(ns, "replicasets")).ok()["items"]


def test_a_pod_that_fits_nowhere_says_why(api: Wire, ns: str) -> None:
    api.post(core(ns, "pods"), pod("p", nodeSelector={"no": "where"})).ok()

    def scheduled() -> Any:
        conditions = (api.get(core(ns, "pods", "p")).ok().get("status") or {}).get("conditions") or ()
        return next((c for c in conditions if c["type"] == "PodScheduled"), None)

    found = until(scheduled)
    assert (found["status"], found["reason"]) == ("False", "Unschedulable")
    assert "node(s) didn't match Pod's node affinity/selector" in found["message"]

    def told() -> Any:
        events = api.get(core(ns, "events"), fieldSelector="involvedObject.name=p").ok()["items"]
        return [e for e in events if e["reason"] == "FailedScheduling"]

    assert until(told)[0]["type"] == "Warning"


def test_a_claim_is_made_from_its_template_and_allocated(api: Wire, ns: str) -> None:
    driver = f"{ns}.example.com"
    selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
    resource = "/apis/resource.k8s.io/v1"
    api.post(f"{resource}/deviceclasses", {"metadata": {"name": driver}, "spec": {"selectors": [selector]}}).ok()
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "pool": pool, "nodeName": "api-node", "devices": [{"name": "d0"}]}
    api.post(f"{resource}/resourceslices", {"metadata": {"name": driver}, "spec": spec}).ok()
    wanted = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": driver}}]}}
    template = {"metadata": {"name": "t"}, "spec": {"spec": wanted}}
    api.post(f"{resource}/namespaces/{ns}/resourceclaimtemplates", template).ok()
    entries = [{"name": "dev", "resourceClaimTemplateName": "t"}]
    api.post(core(ns, "pods"), pod("p", resourceClaims=entries)).ok()
    until(lambda: api.get(core(ns, "pods", "p")).ok()["spec"].get("nodeName") == "api-node")
    (made,) = api.get(claims(ns)).ok()["items"]
    assert made["metadata"]["name"].startswith("p-dev-")
    assert made["metadata"]["annotations"] == {"resource.kubernetes.io/pod-claim-name": "dev"}
    assert made["status"]["allocation"]["devices"]["results"] == [
        {"request": "r", "driver": driver, "pool": "p", "device": "d0"}
    ]
    assert made["status"]["allocation"]["nodeSelector"] == {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["api-node"]}]}]
    }
    uid = api.get(core(ns, "pods", "p")).ok()["metadata"]["uid"]
    assert made["status"]["reservedFor"] == [{"resource": "pods", "name": "p", "uid": uid}]
    statuses = api.get(core(ns, "pods", "p")).ok()["status"]["resourceClaimStatuses"]
    assert statuses == [{"name": "dev", "resourceClaimName": made["metadata"]["name"]}]
    api.delete(core(ns, "pods", "p"), gracePeriodSeconds="0").ok()
    until(lambda: not api.get(claims(ns)).ok()["items"])


CAPACITY = {"requests": {"dra.cpu/cpu": "6"}}


def test_a_claims_capacity_is_kept_where_the_gate_is_on(api: Wire, ns: str) -> None:
    body = claim("c", {"name": "r", "exactly": {"deviceClassName": "x", "capacity": CAPACITY}})
    made = api.post(claims(ns), body, dryRun="All").ok()
    assert made["spec"]["devices"]["requests"][0]["exactly"]["capacity"] == CAPACITY


@pytest.mark.parametrize(
    ("requests", "more", "cause"),
    [
        ([{"name": "r"}], {}, ("spec.devices.requests[0]", "FieldValueRequired")),
        (
            [{"name": "r", "exactly": {"deviceClassName": "x", "count": -1}}],
            {},
            ("spec.devices.requests[0].exactly.count", "FieldValueInvalid"),
        ),
        (
            [{"name": "r", "exactly": {"deviceClassName": "x", "allocationMode": "All", "count": 2}}],
            {},
            ("spec.devices.requests[0].exactly.count", "FieldValueInvalid"),
        ),
        (
            [{"name": "r", "exactly": {"deviceClassName": "x", "allocationMode": "Some"}}],
            {},
            ("spec.devices.requests[0].exactly.allocationMode", "FieldValueNotSupported"),
        ),
        (
            [{"name": "r", "exactly": {"deviceClassName": "x"}}] * 2,
            {},
            ("spec.devices.requests[1]", "FieldValueDuplicate"),
        ),
        (
            [{"name": "r", "exactly": {"deviceClassName": "x"}}],
            {"constraints": [{"matchAttribute": "a/b", "requests": ["other"]}]},
            ("spec.devices.constraints[0].requests[0]", "FieldValueInvalid"),
        ),
        (
            [{"name": "r", "exactly": {"deviceClassName": "x", "selectors": [{"cel": {"expression": "1 + 1"}}]}}],
            {},
            ("spec.devices.requests[0].exactly.selectors[0].cel.expression", "FieldValueInvalid"),
        ),
        (
            [{"name": "r", "exactly": {"deviceClassName": "x", "selectors": [{"cel": {"expression": "device.nam"}}]}}],
            {},
            ("spec.devices.requests[0].exactly.selectors[0].cel.expression", "FieldValueInvalid"),
        ),
    ],
)
def test_claims_are_validated(
    api: Wire, ns: str, requests: list[dict[str, Any]], more: dict[str, Any], cause: tuple[str, str]
) -> None:
    answer = api.post(claims(ns), claim("c", *requests, **more))
    assert answer.told == (422, "Invalid")
    assert cause in answer.causes


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ({}, ("spec", "FieldValueRequired")),
        ({"allNodes": True, "nodeName": "api-node"}, ("spec", "FieldValueInvalid")),
        ({"allNodes": True, "devices": [{"name": "d"}, {"name": "d"}]}, ("spec.devices[1]", "FieldValueDuplicate")),
        ({"allNodes": True, "devices": [{"name": "D"}]}, ("spec.devices[0].name", "FieldValueInvalid")),
        (
            {"allNodes": True, "pool": {"name": "p", "generation": 1, "resourceSliceCount": 0}},
            ("spec.pool.resourceSliceCount", "FieldValueInvalid"),
        ),
        (
            {"nodeSelector": {"nodeSelectorTerms": [{}, {}]}},
            ("spec.nodeSelector.nodeSelectorTerms", "FieldValueInvalid"),
        ),
        (
            {
                "allNodes": True,
                "devices": [{"name": "d"}],
                "sharedCounters": [{"name": "c", "counters": {"m": {"value": "1"}}}],
            },
            ("spec", "FieldValueInvalid"),
        ),
    ],
)
def test_slices_are_validated(api: Wire, ns: str, spec: dict[str, Any], cause: tuple[str, str]) -> None:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    body = {"metadata": {"name": f"{ns}-bad"}, "spec": {"driver": "x.example.com", "pool": pool, **spec}}
    answer = api.post("/apis/resource.k8s.io/v1/resourceslices", body)
    assert answer.told == (422, "Invalid")
    assert answer.causes == [cause]
