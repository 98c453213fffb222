"""One look at a cluster: each kind listed once, and a list that fails is unknown, never empty."""

from __future__ import annotations

import pytest

from modelplane_dagster.errors import KubernetesError, ModelplaneError, UnreadableError
from modelplane_dagster.known import Known, Unknown
from resources.observe import observe_cluster
from resources.reading import Reading

FAILURES = {
    "forbidden": KubernetesError("nodes is forbidden", status=403),
    "not served": KubernetesError("the server could not find the requested resource", status=404),
    "gone away": UnreadableError("the API doesn't answer"),
}


class FakeClient:
    """Answers every list with nothing but what is given; `failing` kinds raise."""

    def __init__(self, failing=None, items=None):
        self.failing = failing or {}
        self.items = items or {}
        self.lists = []

    def list(self, api_version, kind, *, labels=""):
        self.lists.append((kind, labels))
        if kind in self.failing:
            raise self.failing[kind]
        return self.items.get(kind, [])

    def kinds_served(self, api_version):
        return frozenset({"LeaderWorkerSet", "EnvoyProxy"})

    def server_version(self):
        return "v1.36.3"


def look(client):
    kinds = (("apps/v1", "DaemonSet"), ("gateway.envoyproxy.io/v1alpha1", "EnvoyProxy"))
    return observe_cluster("one", cloud=None, client=lambda: client, components=(), kinds=kinds, record=None)


def test_no_kind_is_listed_twice():
    client = FakeClient()
    seen = look(client)
    assert sorted(kind for kind, _ in client.lists) == [
        *("ConfigMap", "CustomResourceDefinition", "DaemonSet", "Deployment", "DeviceClass", "EnvoyProxy"),
        *("LeaderWorkerSet", "Namespace", "Node", "Pod", "ResourceClaim", "ResourceQuota", "ResourceSlice"),
        *("Secret", "StatefulSet"),
    ]
    assert seen.unread() == ()


def test_what_is_ours_is_taken_from_the_whole_list():
    bodies = [{"metadata": {"name": n, "labels": labels}} for n, labels in (("a", {"k": "v"}), ("b", {}), ("c", None))]
    reading = Reading(FakeClient(items={"Namespace": bodies}))
    assert [b["metadata"]["name"] for b in reading.list("v1", "Namespace", labels="k")] == ["a"]


@pytest.mark.parametrize("why", FAILURES)
@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("Node", lambda seen: seen.live.nodes),
        ("Pod", lambda seen: seen.live.pods),
        ("ResourceSlice", lambda seen: seen.live.slices),
        ("ResourceClaim", lambda seen: seen.live.claims),
        ("DeviceClass", lambda seen: seen.live.device_classes),
        ("DaemonSet", lambda seen: seen.live.workloads),
        ("Namespace", lambda seen: seen.live.namespaces),
        ("Secret", lambda seen: seen.components),
        ("ConfigMap", lambda seen: seen.components),
        ("Deployment", lambda seen: seen.replicas),
    ],
)
def test_a_list_that_fails_leaves_its_part_unknown_and_the_others_known(kind, part, why):
    failure = FAILURES[why]
    client = FakeClient(failing={kind: failure})
    seen = look(client)
    assert part(seen) == Unknown(failure.message)
    other = seen.live.quotas if kind != "ResourceQuota" else seen.live.nodes
    assert other == Known(())
    assert [k for k, _ in client.lists].count(kind) == 1


def test_a_failure_is_the_same_for_all_who_ask():
    client = FakeClient(failing={"Deployment": FAILURES["forbidden"]})
    reading = Reading(client)
    for labels in ("", "k", ""):
        with pytest.raises(ModelplaneError, match="forbidden"):
            reading.list("apps/v1", "Deployment", labels=labels)
    assert client.lists == [("Deployment", "")]
