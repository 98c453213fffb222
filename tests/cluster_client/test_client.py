from __future__ import annotations

import pytest

from modelplane_dagster.errors import (
    ClusterBusyError,
    ConfigError,
    ConflictError,
    KubernetesError,
    NotReadyError,
    UnreadableError,
)
from resources.kubernetes import Calls, ClusterClient
from tests.cluster_client.server import CUT, DROP, Script, scripted


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr("resources.kubernetes_requests.time.sleep", lambda _seconds: None)


def client(script: Script) -> ClusterClient:
    return ClusterClient(script.kubeconfig(), name="one")


def node(name):
    return {"metadata": {"name": name}}


def status(code, reason, message, **details):
    return {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}


def test_a_list_follows_the_pages_and_names_the_kind_of_each_item():
    first = {"items": [node("a")], "metadata": {"continue": "more", "resourceVersion": "7"}}
    last = {"items": [node("b")], "metadata": {"resourceVersion": "7"}}
    with scripted((200, first), (200, last)) as script:
        one = client(script)
        assert one.list("v1", "Node", labels="a=b", page=1) == [
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}},
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b"}},
        ]
        assert [path for _, path, _, _ in script.asked] == [
            "/api/v1/nodes?limit=1&labelSelector=a%3Db",
            "/api/v1/nodes?limit=1&labelSelector=a%3Db&continue=more",
        ]
        assert one.calls == Calls(reads=2)


def test_a_list_that_expires_between_pages_is_read_again_from_the_start():
    first = {"items": [node("a"), node("gone")], "metadata": {"continue": "more"}}
    expired = (410, status(410, "Expired", "the continue token is too old"))
    whole = {"items": [node("a"), node("b")], "metadata": {"resourceVersion": "9"}}
    with scripted((200, first), expired, (200, whole)) as script:
        one = client(script)
        items, version = one.list_versioned("v1", "Node", page=2)
        assert ([i["metadata"]["name"] for i in items], version) == (["a", "b"], "9")
        assert [path for _, path, _, _ in script.asked] == [
            "/api/v1/nodes?limit=2",
            "/api/v1/nodes?limit=2&continue=more",
            "/api/v1/nodes",
        ]
        assert one.lists == {("Node", ""): 1}


def test_a_list_that_keeps_expiring_is_unreadable():
    expired = (410, status(410, "Expired", "too old"))
    with scripted(expired, expired) as script, pytest.raises(UnreadableError, match="a list of Node expired"):
        client(script).list("v1", "Node")


def test_a_namespace_that_is_terminating_is_waited_for():
    causes = [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]
    answer = status(403, "Forbidden", "unable to create new content in namespace n", causes=causes)
    with scripted((403, answer)) as script, pytest.raises(NotReadyError, match="namespace n"):
        client(script).create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}})


CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}}


def test_what_holds_a_namespace_is_told():
    causes = [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]
    answer = status(403, "Forbidden", "unable to create new content in namespace n", causes=causes)
    conditions = [
        {"type": "NamespaceDeletionContentFailure", "status": "False", "message": "All content successfully deleted"},
        {
            "type": "NamespaceFinalizersRemaining",
            "status": "True",
            "message": "Some content has finalizers: x.example/y",
        },
        {"type": "NamespaceContentRemaining", "status": "True", "message": "Some resources are remaining: pods."},
    ]
    leaving = {
        "metadata": {"name": "n", "deletionTimestamp": "2026-11-30T00:00:00Z"},
        "status": {"conditions": conditions},
    }
    with scripted((403, answer), (200, leaving)) as script, pytest.raises(NotReadyError) as caught:
        client(script).apply(CONFIG_MAP)
    text = (
        "Cluster one: namespace n is being deleted, and nothing can be made in it; Some resources are remaining: pods; Some "
        "content has finalizers: x.example/y."
    )
    found = [(f.code, f.subject, f.message) for f in caught.value.findings]
    assert found == [("NamespaceTerminating", "cluster/one", text)]


@pytest.mark.parametrize(
    ("code", "text", "told"),
    [
        (500, 'Internal error occurred: failed calling webhook "guard.ops.example": no endpoints', ["WebhookDown"]),
        (403, 'admission webhook "guard.ops.example" denied the request: no', []),
        (403, 'User "trial" cannot patch resource "configmaps"', ["PermissionMissing"]),
    ],
)
def test_what_a_webhook_says_is_no_matter_of_permissions(code, text, told):
    answers = [(code, status(code, "Any", text))] * 4
    with scripted(*answers) as script, pytest.raises(KubernetesError) as caught:
        client(script).apply(CONFIG_MAP)
    assert caught.value.message == f"Cluster one: ConfigMap n/c: {text}"
    assert [f.code for f in caught.value.findings] == told


def test_every_write_that_leaves_asks_whether_the_cluster_is_still_ours():
    """A reply lost twice: the third attempt comes when another writer may have the cluster, and isn't sent."""
    asked = []

    def ours():
        asked.append(1)
        if len(asked) == 3:
            raise ClusterBusyError("another writer")

    with scripted((DROP, {}), (DROP, {}), (200, CONFIG_MAP)) as script:
        one = client(script)
        one.guard(ours)
        with pytest.raises(ClusterBusyError, match="another writer"):
            one.apply(CONFIG_MAP)
        assert len(script.asked) == 2
        assert one.get("v1", "ConfigMap", "c", namespace="n") == CONFIG_MAP
        assert len(asked) == 3


def test_a_refusal_of_the_user_says_what_to_grant():
    text = 'secrets is forbidden: User "trial" cannot list resource "secrets" in API group ""'
    with scripted((403, status(403, "Forbidden", text))) as script, pytest.raises(KubernetesError) as caught:
        client(script).list("v1", "Secret")
    assert [(f.code, f.subject, f.message) for f in caught.value.findings] == [
        ("PermissionMissing", "cluster/one", f"Cluster one: {text}")
    ]


def test_a_missing_object_is_none_and_a_failed_read_is_not():
    with scripted(
        (404, status(404, "NotFound", "no")), (403, status(403, "Forbidden", "nodes is forbidden"))
    ) as script:
        one = client(script)
        assert one.get("v1", "Node", "x") is None
        with pytest.raises(KubernetesError, match="Cluster one: nodes is forbidden") as caught:
            one.list("v1", "Node")
        assert (caught.value.status, caught.value.reason) == (403, "Forbidden")


@pytest.mark.parametrize("answer", [(200, b"<html>"), (200, []), (200, {"kind": "NodeList"})])
def test_an_answer_that_is_no_list_is_unreadable(answer):
    with scripted(answer) as script, pytest.raises(UnreadableError):
        client(script).list("v1", "Node")


def test_a_list_of_a_kind_that_is_not_served_is_unreadable_rather_than_empty():
    with (
        scripted((404, status(404, "NotFound", "no"))) as script,
        pytest.raises(UnreadableError, match="serves no Thing"),
    ):
        client(script).list("x.dev/v1", "Thing")


def test_discovery_finds_custom_resources_once():
    served = {
        "resources": [
            {"name": "things/status", "kind": "Thing", "namespaced": True},
            {"name": "things", "kind": "Thing", "namespaced": True},
        ]
    }
    with scripted((200, served), (200, {"items": []}), (200, {"items": []})) as script:
        one = client(script)
        assert one.list("x.dev/v1", "Thing") == []
        assert one.list("x.dev/v1", "Thing", namespace="n") == []
        assert [path for _, path, _, _ in script.asked] == [
            "/apis/x.dev/v1",
            "/apis/x.dev/v1/things?limit=500",
            "/apis/x.dev/v1/namespaces/n/things?limit=500",
        ]


@pytest.mark.parametrize("fault", [(DROP, {}), (CUT, {}), (429, {}), (500, {}), (503, {})])
def test_reads_and_applies_are_repeated(fault):
    with scripted(fault, (200, node("a")), fault, (200, node("a"))) as script:
        one = client(script)
        assert one.get("v1", "Node", "a") == node("a")
        assert one.apply({"apiVersion": "v1", "kind": "Node", **node("a")}) == node("a")
        assert one.calls == Calls(reads=2, writes=2)


@pytest.mark.parametrize(("fault", "asked"), [((DROP, {}), 1), ((503, {}), 1), ((429, {}), 2)])
def test_a_create_is_repeated_only_where_it_was_not_taken(fault, asked):
    with scripted(fault, (201, node("a"))) as script:
        one = client(script)
        if asked == 1:
            with pytest.raises(KubernetesError):
                one.create({"apiVersion": "v1", "kind": "Node", **node("a")})
        else:
            one.create({"apiVersion": "v1", "kind": "Node", **node("a")})
        assert len(script.asked) == asked


def test_repeats_are_bounded_and_end_in_unreadable():
    with scripted(*[(DROP, {})] * 4) as script:
        with pytest.raises(UnreadableError, match="Cluster one: the API doesn't answer"):
            client(script).get("v1", "Node", "a")
        assert len(script.asked) == 4


def test_a_refused_connection_is_unreadable():
    with scripted() as script:
        gone = script.kubeconfig()
    with pytest.raises(UnreadableError):
        ClusterClient(gone).server_version()


@pytest.mark.parametrize("details", [{"name": "c", "kind": "configmaps"}, {}])
def test_an_apply_conflict_names_object_manager_and_fields(details):
    causes = [
        {"reason": "FieldManagerConflict", "message": 'conflict with "ops" using apps/v1', "field": ".spec.b"},
        {"reason": "FieldManagerConflict", "message": 'conflict with "ops" using apps/v1', "field": ".spec.a"},
        {"reason": "FieldManagerConflict", "message": 'conflict with "helm"', "field": ".data.x"},
    ]
    answer = status(409, "Conflict", "Apply failed", **details, causes=causes)
    with scripted((409, answer)) as script:
        with pytest.raises(ConflictError) as caught:
            client(script).apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}})
        assert str(caught.value) == "Cluster one: ConfigMap n/c: helm owns .data.x; ops owns .spec.a, .spec.b."
        assert caught.value.owners == ("helm", "ops")
        assert script.asked[0][:3] == (
            "PATCH",
            "/api/v1/namespaces/n/configmaps/c?fieldManager=modelplane-dagster&force=false",
            "application/apply-patch+yaml",
        )


def test_a_dry_run_says_so_and_counts_as_a_read():
    with scripted((201, {})) as script:
        one = client(script)
        one.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}}, dry_run=True)
        assert script.asked[0][1].endswith("?fieldManager=modelplane-dagster&dryRun=All")
        assert one.calls == Calls(reads=1)


def test_delete_tells_gone_from_taken_and_guards_by_uid():
    with scripted(
        (200, {}), (404, status(404, "NotFound", "no")), (409, status(409, "Conflict", "uid differs"))
    ) as script:
        one = client(script)
        assert one.delete("v1", "Pod", "p", namespace="n", uid="u") is True
        assert one.delete("v1", "Pod", "p", namespace="n") is False
        with pytest.raises(ConflictError, match="uid differs"):
            one.delete("v1", "Pod", "p", namespace="n", uid="u")
        assert script.asked[0][3]["preconditions"] == {"uid": "u"}
        assert one.calls == Calls(deletes=3)


def test_patches_carry_their_type():
    with scripted((200, {}), (200, {})) as script:
        one = client(script)
        one.patch(("v1", "Node", "", "a"), {"metadata": {}}, status=True)
        one.patch(("v1", "Node", "", "a"), [{"op": "remove", "path": "/x"}], how="json")
        assert [(path, content) for _, path, content, _ in script.asked] == [
            ("/api/v1/nodes/a/status?fieldManager=modelplane-dagster", "application/merge-patch+json"),
            ("/api/v1/nodes/a?fieldManager=modelplane-dagster", "application/json-patch+json"),
        ]


def test_a_watch_gives_events_until_it_ends():
    lines = (
        b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}\n{"type":"DELETED","object":{"metadata":{"name":"a"}}}\n'
    )
    with scripted((200, lines)) as script:
        assert list(client(script).watch("v1", "Pod", version="3", seconds=1)) == [
            ("ADDED", node("a")),
            ("DELETED", node("a")),
        ]
        assert script.asked[0][1] == "/api/v1/pods?watch=1&timeoutSeconds=1&resourceVersion=3"


def test_a_watch_from_too_long_ago_says_so():
    line = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'
    with scripted((200, line)) as script, pytest.raises(KubernetesError) as caught:
        list(client(script).watch("v1", "Pod", version="3"))
    assert (caught.value.status, caught.value.reason) == (410, "Expired")


@pytest.mark.parametrize("kubeconfig", [{}, {"clusters": []}])
def test_a_kubeconfig_that_names_no_cluster_is_the_users_to_fix(kubeconfig):
    with pytest.raises(ConfigError):
        ClusterClient(kubeconfig)


def test_a_namespaced_item_needs_its_namespace():
    with scripted() as script, pytest.raises(ConfigError):
        client(script).get("v1", "Pod", "p")
