from __future__ import annotations

import pytest

from modelplane_dagster.kube.objects import NodeFacts, Taint
from modelplane_dagster.kube.slices import Slice, newest_pools, slice_reach
from modelplane_dagster.kube.versions import SemverError, SemverValue
from tests.kube.bodies import N1, device, gpus, slice_body

POOL_A = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}]}


@pytest.mark.parametrize(
    ("spec", "reached"),
    [
        ({"nodeName": "n1"}, ["n1"]),
        ({"allNodes": True}, ["n1", "n2"]),
        ({"nodeSelector": POOL_A}, ["n1"]),
        ({"nodeSelector": {"nodeSelectorTerms": []}}, []),
        ({"nodeName": ""}, []),
    ],
)
def test_a_slice_reaches_its_nodes(spec: dict[str, object], reached: list[str]) -> None:
    one = Slice.parse(slice_body("s", gpus(1), **spec))
    nodes = [N1, NodeFacts("n2", {"pool": "b"})]
    assert [n.name for n in nodes if slice_reach(one, n)] == reached


def test_each_device_may_have_its_own_reach() -> None:
    devices = [device("x", nodeName="n1"), device("y", nodeSelector=POOL_A), device("z", allNodes=True), device("none")]
    one = Slice.parse(slice_body("s", devices, perDeviceNodeSelection=True))
    (pool,) = newest_pools([one])
    other = NodeFacts("n2", {"pool": "b"})
    assert [d.name for _, d in pool.reached(N1)] == ["x", "y", "z"]
    assert [d.name for _, d in pool.reached(other)] == ["z"]
    assert (slice_reach(one, N1), slice_reach(one, other)) == (True, True)
    alone = Slice.parse(slice_body("s", devices[:1], perDeviceNodeSelection=True))
    assert (slice_reach(alone, N1), slice_reach(alone, other)) == (True, False)


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    bodies = [
        slice_body("old-1", gpus(2), generation=1, slices=2),
        slice_body("new-b", [device("b")], generation=2, slices=2),
        slice_body("old-2", gpus(1), generation=1, slices=2),
        slice_body("new-a", [device("a")], generation=2, slices=2),
        slice_body("other", gpus(1), driver="gpu.amd.com", pool="n1", slices=2),
    ]
    pools = newest_pools([Slice.parse(b) for b in bodies])
    seen = [(p.driver, p.generation, [s.name for s in p.slices], p.complete, p.usable) for p in pools]
    assert seen == [
        ("gpu.amd.com", 1, ["other"], False, False),
        ("gpu.nvidia.com", 2, ["new-a", "new-b"], True, True),
    ]


def test_a_device_named_twice_spoils_its_pool() -> None:
    bodies = [slice_body("s1", gpus(2), slices=2), slice_body("s2", gpus(1), slices=2)]
    (pool,) = newest_pools([Slice.parse(b) for b in bodies])
    assert (pool.complete, pool.duplicates, pool.usable) == (True, ("gpu-0",), False)


def test_a_device_is_read_whole() -> None:
    body = device(
        "gpu-0",
        attributes={"model": {"string": "H100"}, "index": {"int": 0}, "ok": {"bool": False}, "v": {"version": "1.2.3"}, "l": {"strings": ["x"]}},
        capacity={"memory": {"value": "80Gi", "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}}},
        taints=[{"key": "gpu.nvidia.com/unhealthy", "effect": "NoExecute"}],
        allowMultipleAllocations=True,
        consumesCounters=[{"counterSet": "gpu-0", "counters": {"memory": {"value": "40Gi"}}}],
    )  # fmt: skip
    (parsed,) = Slice.parse(slice_body("s", [body])).devices
    assert dict(parsed.facts.attributes) == {"model": "H100", "index": 0, "ok": False, "v": SemverValue("1.2.3")}
    assert dict(parsed.facts.capacity) == {"memory": "80Gi"}
    assert (parsed.facts.allow_multiple, parsed.taints) == (True, (Taint("gpu.nvidia.com/unhealthy", "", "NoExecute"),))
    assert parsed.consumes == (("gpu-0", "memory", "40Gi"),)
    assert (parsed.policies["memory"].default, parsed.policies["memory"].step) == ("1Gi", "1Gi")
    with pytest.raises(SemverError):
        Slice.parse(slice_body("s", [device("x", attributes={"v": {"version": "580.95"}})]))
