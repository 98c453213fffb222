"""Whether waiting may still mend what is in a cluster's way: by what was found, by the nodes' age, by why it wasn't read."""

from __future__ import annotations

from typing import Any

import pytest

from modelplane_dagster.findings import finding
from modelplane_dagster.known import Known, Unknown
from modelplane_dagster.observed import ObservedCluster, ObservedControlPlane, ObservedPool
from modelplane_dagster.plan import plan_fleet
from modelplane_dagster.summary import ClusterSummary, summarise
from tests.audit.worlds import NOW, foreign, gpus, live, node, slice_of, workloads_of
from tests.made import cls, cluster, fleet, nvidia, pool

GRACE = 300.0
PLANE = ObservedControlPlane("ready", "1.36", ours=True, account="")
PLAN = plan_fleet(fleet(cls("k", nvidia()), cluster("c", "Existing", pool("p", "k")))).clusters[0]
LABELS = {"modelplane.ai/pool": "p", "modelplane.ai/gpu": "nvidia"}
OLD = NOW - GRACE
NFD = foreign("nfd-worker")
PLUGIN = foreign("nvidia-device-plugin-daemonset", desired=1)
HOST = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
OURS = tuple(workloads_of(PLAN.join.components))
ROOM = node("room", labels=HOST, created=OLD)


def whole(**more: Any) -> Any:
    return node("n", labels={**HOST, **LABELS, **more.pop("labels", {})}, created=OLD, **more)


def summary(*nodes: Any, workloads: tuple[Any, ...] = (), slices: tuple[Any, ...] = (), **more: Any) -> ClusterSummary:
    known: dict[str, Any] = {part: Known({}) for part in ("pools", "components")}
    reading = live(nodes, (*OURS, *workloads), slices=slices)
    whole = {"control_plane": Known(PLANE), "replicas": Known(()), "live": reading, **known, **more}
    return summarise(PLAN, ObservedCluster(name="c", **whole), grace=GRACE)


def codes(of: ClusterSummary) -> set[str]:
    return {f.code for f in of.findings if f.severity == "error"}


def test_somebody_must_label_the_pools_nodes() -> None:
    found = summary(ROOM)
    assert (codes(found), found.at_rest) == ({"LabelMissing"}, True)


def test_devices_may_still_be_published() -> None:
    found = summary(ROOM, whole())
    assert (codes(found), found.at_rest) == ({"SliceMissing"}, False)


@pytest.mark.parametrize(
    ("more", "at_rest"),
    [
        ({"created": OLD}, True),
        # What is said of a cluster whose node is young, not ready or on its way out may pass.
        ({"created": OLD + 1}, False),
        ({"created": OLD, "ready": False}, False),
        ({"created": OLD, "terminating": True}, False),
    ],
)
def test_a_node_that_isnt_judged_yet_is_waited_for(more: dict[str, Any], at_rest: bool) -> None:
    assert summary(ROOM, node("other", labels=HOST, **more)).at_rest is at_rest


def test_a_second_nfd_lasts_and_what_else_is_on_its_way_doesnt() -> None:
    labelled = summary(ROOM, workloads=(NFD,))
    assert (codes(labelled), labelled.at_rest) == ({"LabelMissing", "SecondNfd"}, True)
    coming = summary(ROOM, whole(), workloads=(NFD,))
    assert (codes(coming), coming.at_rest) == ({"SecondNfd", "SliceMissing"}, False)


def test_a_device_plugin_beside_whole_devices_lasts() -> None:
    slices = (slice_of("gpu.nvidia.com", "n", gpus(1)),)
    found = summary(ROOM, whole(), workloads=(PLUGIN,), slices=slices)
    assert (codes(found), found.at_rest) == ({"DevicePluginBesideDra"}, True)


def test_a_pool_that_isnt_made_is_a_change_and_no_more() -> None:
    """What its step is told, such as a quota, decides whether it is waited for; its missing nodes follow."""
    system = node("s", labels={**HOST, "modelplane.ai/pool": "system"}, created=OLD)
    made = plan_fleet(fleet(cls("k", nvidia(), source="EKS"), cluster("c", "EKS", pool("p", "k")))).clusters[0]
    reading = live((system,), workloads_of(made.join.components))
    parts: dict[str, Any] = {"control_plane": Known(PLANE), "replicas": Known(()), "components": Known({})}
    standing = Known({"p": ObservedPool("p", "creating", count=1)})
    absent, creating = (
        summarise(made, ObservedCluster(name="c", live=reading, pools=pools, **parts), grace=GRACE)
        for pools in (Known({}), standing)
    )
    assert {f.code for f in absent.findings} == {f.code for f in creating.findings} == {"NodesMissing", "PoolPending"}
    assert (absent.at_rest, creating.at_rest) == (True, False)


GONE = finding("KubeconfigMissing", "cluster/c", "No kubeconfig.")
DOWN = finding("ReadFailed", "cluster/c", "No answer.")


@pytest.mark.parametrize(
    ("unknown", "at_rest"),
    [
        (Unknown("No kubeconfig.", (GONE,)), True),
        (Unknown("No answer.", (DOWN,)), False),
        (Unknown("No answer.", (GONE, DOWN)), False),
        (Unknown("No answer."), False),
        (Unknown("the API", coming=True), False),
    ],
)
def test_a_cluster_that_cant_be_read(unknown: Unknown, at_rest: bool) -> None:
    parts = dict.fromkeys(("control_plane", "pools", "components", "replicas"), unknown)
    found = summarise(PLAN, ObservedCluster(name="c", **parts), grace=GRACE)  # type: ignore[arg-type]  # a table of parts
    assert found.at_rest is at_rest


def test_a_part_that_cant_be_read_is_asked_again() -> None:
    assert summary(ROOM, components=Unknown("No answer.", (GONE,))).at_rest is False
