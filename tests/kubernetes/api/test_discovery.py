"""Versions, discovery, OpenAPI and tables."""

from __future__ import annotations

import pytest

from tests.kubernetes.api.bodies import apps, config_map, core, daemon_set, pod, until
from tests.kubernetes.wire import Wire


def test_the_version(api: Wire) -> None:
    found = api.get("/version").ok()
    assert (found["major"], found["minor"], found["gitVersion"]) == ("1", "36", "v1.36.3")


def test_the_core_group(api: Wire) -> None:
    assert api.get("/api").ok()["versions"] == ["v1"]
    found = {r["name"]: r for r in api.get("/api/v1").ok()["resources"]}
    for name, kind, namespaced, short in (
        ("nodes", "Node", False, ["no"]),
        ("pods", "Pod", True, ["po"]),
        ("configmaps", "ConfigMap", True, ["cm"]),
        ("namespaces", "Namespace", False, ["ns"]),
        ("secrets", "Secret", True, None),
        ("events", "Event", True, ["ev"]),
        ("pods/status", "Pod", True, None),
        ("nodes/status", "Node", False, None),
    ):
        entry = found[name]
        assert (entry["kind"], entry["namespaced"], entry.get("shortNames")) == (kind, namespaced, short)
    assert set(found["pods"]["verbs"]) == {
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    }
    assert found["pods"]["singularName"] == "pod"


@pytest.mark.parametrize(
    ("group", "version", "resources"),
    [
        ("apps", "v1", {"daemonsets", "deployments", "replicasets", "statefulsets"}),
        ("batch", "v1", {"jobs", "cronjobs"}),
        ("resource.k8s.io", "v1", {"deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"}),
        ("apiextensions.k8s.io", "v1", {"customresourcedefinitions"}),
        ("rbac.authorization.k8s.io", "v1", {"roles", "rolebindings", "clusterroles", "clusterrolebindings"}),
        ("coordination.k8s.io", "v1", {"leases"}),
        ("admissionregistration.k8s.io", "v1", {"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}),
        ("storage.k8s.io", "v1", {"storageclasses", "csidrivers"}),
        ("scheduling.k8s.io", "v1", {"priorityclasses"}),
        ("policy", "v1", {"poddisruptionbudgets"}),
        ("networking.k8s.io", "v1", {"ingresses", "networkpolicies"}),
        ("autoscaling", "v2", {"horizontalpodautoscalers"}),
    ],
)
def test_groups(api: Wire, group: str, version: str, resources: set[str]) -> None:
    groups = {g["name"]: g for g in api.get("/apis").ok()["groups"]}
    assert groups[group]["preferredVersion"] == {"groupVersion": f"{group}/{version}", "version": version}
    found = api.get(f"/apis/{group}/{version}").ok()
    assert found["groupVersion"] == f"{group}/{version}"
    assert resources <= {r["name"] for r in found["resources"]}


def test_a_group_that_isnt_there(api: Wire) -> None:
    assert api.get("/apis/none.example.com/v1").status == 404


@pytest.mark.parametrize(
    ("path", "kind"),
    [("api/v1", "ConfigMap"), ("apis/apps/v1", "DaemonSet"), ("apis/resource.k8s.io/v1", "DeviceClass")],
)
def test_openapi_as_helm_reads_it(api: Wire, path: str, kind: str) -> None:
    index = api.get("/openapi/v3").ok()["paths"]
    document = api.get(index[path]["serverRelativeURL"].removeprefix(api.base)).ok()
    patches = [
        operation
        for item in document["paths"].values()
        for verb, operation in item.items()
        if verb == "patch" and operation.get("x-kubernetes-group-version-kind", {}).get("kind") == kind
    ]
    assert patches
    parameters = {p["name"] for p in patches[0].get("parameters") or ()}
    assert "fieldValidation" in parameters


TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def columns(api: Wire, path: str, **query: str) -> tuple[list[str], list[list[object]]]:
    """Names of the columns that a plain `kubectl get` shows, and the cells below them."""
    text = path + ("?" + "&".join(f"{k}={v}" for k, v in query.items()) if query else "")
    table = api.send("GET", text, Accept=TABLE).ok()
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    shown = [i for i, c in enumerate(table["columnDefinitions"]) if not c["priority"]]
    names = [table["columnDefinitions"][i]["name"] for i in shown]
    return names, [[row["cells"][i] for i in shown] for row in table["rows"] or ()]


def test_the_table_of_nodes(api: Wire) -> None:
    def ready() -> object:
        names, rows = columns(api, "/api/v1/nodes", labelSelector="for=api")
        assert names == ["Name", "Status", "Roles", "Age", "Version"]
        return rows[0][1] == "Ready" and rows[0][:3] == ["api-node", "Ready", "<none>"]

    assert until(ready)


def test_the_table_of_pods(api: Wire, ns: str) -> None:
    api.post(core(ns, "pods"), pod("p", nodeSelector={"no": "where"})).ok()
    names, rows = columns(api, core(ns, "pods"))
    assert names == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert rows[0][:3] == ["p", "0/1", "Pending"]


def test_the_table_of_daemon_sets(api: Wire, ns: str) -> None:
    api.post(apps(ns), daemon_set("d", nodeSelector={"no": "where"})).ok()
    names, rows = columns(api, apps(ns))
    assert names == ["Name", "Desired", "Current", "Ready", "Up-to-date", "Available", "Node Selector", "Age"]
    assert rows[0][:7] == ["d", 0, 0, 0, 0, 0, "no=where"]


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/api/v1/namespaces", ["Name", "Status", "Age"]),
        ("/api/v1/configmaps", ["Name", "Data", "Age"]),
        ("/api/v1/secrets", ["Name", "Type", "Data", "Age"]),
        ("/api/v1/services", ["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age"]),
        ("/api/v1/events", ["Last Seen", "Type", "Reason", "Object", "Message"]),
        ("/apis/apps/v1/deployments", ["Name", "Ready", "Up-to-date", "Available", "Age"]),
        ("/apis/apps/v1/statefulsets", ["Name", "Ready", "Age"]),
        ("/apis/apps/v1/replicasets", ["Name", "Desired", "Current", "Ready", "Age"]),
        ("/apis/batch/v1/jobs", ["Name", "Status", "Completions", "Duration", "Age"]),
        ("/apis/resource.k8s.io/v1/deviceclasses", ["Name", "Age"]),
        ("/apis/resource.k8s.io/v1/resourceclaims", ["Name", "State", "Age"]),
        ("/apis/resource.k8s.io/v1/resourceslices", ["Name", "Node", "Driver", "Pool", "Age"]),
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", ["Name", "Created At"]),
    ],
)
def test_the_columns_of(api: Wire, path: str, names: list[str]) -> None:
    assert columns(api, path)[0] == names


def test_a_table_of_one(api: Wire, ns: str) -> None:
    api.post(core(ns), config_map("a", x="1", y="2")).ok()
    assert columns(api, core(ns, name="a"))[1][0][:2] == ["a", 2]
