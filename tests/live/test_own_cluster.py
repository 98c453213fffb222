"""A cluster of one's own from its kubeconfig to the last trace, as the README tells it."""

from __future__ import annotations

import pytest

from tests.e2e.site import eventually
from tests.live.clusters import names

pytestmark = [pytest.mark.lab, pytest.mark.dagster]
# One list a kind, the discovery of four groups of custom resources, and the version.
READS = 24


def test_a_plan_reads_and_writes_nothing(fresh):
    before = names(fresh.client())
    ran = fresh.live.run("plan", str(fresh.live.folder), "--observe", "--format", "json").clean()
    assert (ran.status, [a["subject"] for a in ran.json["actions"] if a["op"] == "install"][-1]) == (
        0,
        "component/mine/trust-manager",
    )
    assert names(fresh.client()) == before
    assert list(fresh.live.home.glob("records/*")) == []


def test_a_converged_cluster_is_read_once_a_kind_and_never_written(converged):
    own, _ = converged
    asked = own.lab.status()["clusters"][0]
    ran = own.live.reconcile().clean()
    since = own.lab.status()["clusters"][0]
    calls = ran.json["calls"]
    assert (ran.status, ran.json["passes"], calls["writes"], calls["deletes"], calls["helmProcesses"]) == (
        0,
        0,
        0,
        0,
        0,
    )
    lists = calls["clusters"]["mine"]["lists"]
    assert {kind: n for kind, n in lists.items() if n != 1} == {}
    assert {"Node", "Pod", "DaemonSet", "Deployment", "Namespace", "ResourceSlice", "Secret"} <= set(lists)
    assert calls["reads"] <= READS
    if own.kind == "embedded":
        # What we say we asked is what the server was asked; a real one doesn't count.
        assert since["reads"] - asked["reads"] == calls["reads"]
    assert (since["writes"], since["deletes"]) == (asked["writes"], asked["deletes"])


def test_the_summary_tells_the_calls(converged):
    own, _ = converged
    ran = own.live.run("reconcile", str(own.live.folder)).clean()
    text = " ".join(ran.out.split())
    assert f"To clusters: {READS} reads, 0 writes, 0 deletes, 0 helm processes." in text


def test_explain_names_what_serves_the_pool(converged):
    own, _ = converged
    ran = own.live.run("explain", "mine/cpu").clean()
    assert (ran.status, "served by dra-driver-cpu" in ran.out) == (0, True)


def test_a_field_of_another_manager_is_a_finding_and_never_taken(converged):
    """Somebody takes a field of an object that we applied, and our next apply would change it."""
    own, _ = converged
    other, label, mark = own.client("ops"), "pod-security.kubernetes.io/enforce", "modelplane.ai/digest"
    bare = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dra-driver-cpu"}}
    taken = {"name": "dra-driver-cpu", "labels": {label: "baseline"}, "annotations": {mark: "another"}}
    other.apply({**bare, "metadata": taken}, force=True)
    ran = own.live.reconcile("4s").clean()
    fields = f".metadata.annotations.{mark}, .metadata.labels.{label}"
    message = f"Cluster mine: Namespace dra-driver-cpu: ops owns {fields}."
    assert (ran.status, ran.json["failures"]) == (4, [message])
    assert other.get("v1", "Namespace", "dra-driver-cpu")["metadata"]["labels"][label] == "baseline"
    # Let go of, it is ours again.
    other.apply(bare)
    assert own.live.reconcile().json["verdict"] == "converged"


def test_nothing_is_left_but_what_is_said(converged):
    own, before = converged
    (own.live.folder / "mine.yaml").rename(own.live.folder / "mine.away")
    told = own.live.run("prune", "cluster/mine", "--format", "json").clean().json
    ran = own.live.run("prune", "cluster/mine", "--fingerprint", told["fingerprint"], "--format", "json").clean()
    assert ran.status == 0
    crds, spaces = (line.split()[3:] for line in told["stays"])
    said = {f"CustomResourceDefinition /{name}" for name in crds} | {f"Namespace /{name}" for name in spaces}
    assert said <= names(own.client()) - before

    def others() -> set[str]:
        """What is in those namespaces goes with them, and a group's APIService with its kinds."""
        left = names(own.client()) - before - said
        return {n for n in left if not n.startswith("APIService ") and n.split(" ")[1].split("/")[0] not in spaces}

    # The slices of a driver go a moment after its last pod.
    eventually(lambda: not others(), within=30.0)
    assert list(own.live.home.glob("records/*")) == []
    client = own.client()
    for kind, api_version, chosen in (
        ("CustomResourceDefinition", "apiextensions.k8s.io/v1", crds),
        ("Namespace", "v1", spaces),
    ):
        for name in chosen:
            client.delete(api_version, kind, name)
    eventually(lambda: names(client) - before == set(), within=60.0)
