from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given as given_by
from hypothesis import settings
from hypothesis import strategies as st

from modelplane_dagster.kube.allocator import Unallocatable
from modelplane_dagster.kube.claims import drop_consumable_capacity
from modelplane_dagster.kube.objects import NodeFacts
from tests.kube.bodies import (
    N1,
    allocated,
    claim_body,
    class_body,
    device,
    given,
    gpus,
    request,
    run,
    selectors,
    slice_body,
)

NONE_LEFT = Unallocatable("cannot allocate all claims")


def test_an_allocation_is_what_the_api_stores() -> None:
    body = claim_body(
        "c", request(count=2), config=[{"requests": ["gpu"], "opaque": {"driver": "d", "parameters": {}}}]
    )
    classes = [class_body("gpu.nvidia.com")]
    classes[0]["spec"]["config"] = [{"opaque": {"driver": "d", "parameters": {"x": 1}}}]
    outcome = run([body], [slice_body("s", gpus(3))], classes=classes)
    assert allocated(body, outcome)["status"]["allocation"] == {
        "devices": {
            "results": [
                {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0"},
                {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-1"},
            ],
            "config": [
                {"source": "FromClass", "requests": ["gpu"], "opaque": {"driver": "d", "parameters": {"x": 1}}},
                {"source": "FromClaim", "requests": ["gpu"], "opaque": {"driver": "d", "parameters": {}}},
            ],
        },
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]},
    }  # fmt: skip


def test_the_node_selector_follows_the_slices() -> None:
    term = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}
    by_label = slice_body("s", gpus(1), pool="p", nodeSelector={"nodeSelectorTerms": [term]})
    everywhere = slice_body("t", [device("x")], driver="gpu.amd.com", pool="q", allNodes=True)
    both = claim_body("c", request(), request("amd", "gpu.amd.com"))
    assert allocated(both, run([both], [by_label, everywhere]))["status"]["allocation"]["nodeSelector"] == {
        "nodeSelectorTerms": [term]
    }
    amd = claim_body("c", request("amd", "gpu.amd.com"))
    assert "nodeSelector" not in allocated(amd, run([amd], [everywhere]))["status"]["allocation"]
    assert run([both], [by_label, everywhere], node=NodeFacts("n2", {"pool": "b"})) == NONE_LEFT


@pytest.mark.parametrize(
    ("wanted", "slices", "expected"),
    [
        pytest.param({}, [slice_body("s", gpus(2))], ["gpu=gpu-0"], id="one by default"),
        pytest.param({"count": 3}, [slice_body("s", gpus(2))], None, id="too few"),
        pytest.param({}, [slice_body("s", gpus(1), nodeName="n2")], None, id="another node's"),
        pytest.param({}, [slice_body("s", gpus(1), driver="gpu.amd.com")], None, id="another class's"),
        pytest.param(
            {"count": 2},
            [slice_body("b", [device("y")], slices=2), slice_body("a", [device("x")], slices=2)],
            ["gpu=x", "gpu=y"],
            id="over two slices",
        ),
        pytest.param({}, [slice_body("s", gpus(1), slices=2)], None, id="an incomplete pool is skipped"),
        pytest.param(
            {},
            [slice_body("a", gpus(1), slices=2), slice_body("b", [device("other")], pool="whole")],
            ["gpu=other"],
            id="another pool serves",
        ),
        pytest.param(
            {},
            [slice_body("s", gpus(1)), slice_body("t", [device("new")], generation=2)],
            ["gpu=new"],
            id="an old generation is gone",
        ),
        pytest.param({"allocationMode": "All"}, [slice_body("s", gpus(2))], ["gpu=gpu-0", "gpu=gpu-1"], id="all"),
        pytest.param(
            {"allocationMode": "All"}, [slice_body("s", gpus(1), driver="gpu.amd.com")], None, id="all of none"
        ),
        pytest.param(
            {"selectors": selectors('device.attributes["gpu.nvidia.com"].index > 0', "device.driver != 'x'")},
            [slice_body("s", [device(f"g{i}", attributes={"index": {"int": i}}) for i in range(3)])],
            ["gpu=g1"],
            id="selected",
        ),
    ],
)
def test_one_request(wanted: dict[str, Any], slices: list[dict[str, Any]], expected: list[str] | None) -> None:
    outcome = run([claim_body("c", request(**wanted))], slices)
    if expected is None:
        assert outcome == NONE_LEFT
    else:
        assert given(outcome) == {"c": expected}


def test_all_fails_on_a_pool_that_is_being_updated_or_invalid() -> None:
    body = claim_body("c", request(allocationMode="All"))
    updating = run([body], [slice_body("s", gpus(1), slices=2)])
    assert updating == Unallocatable("gpu asks for all devices, and the pool n1 is being updated", aborted=True)
    invalid = run([body], [slice_body("s", [device("x"), device("x")])])
    assert invalid == Unallocatable(
        "gpu asks for all devices, and the pool n1 is invalid: it names the device x twice", aborted=True
    )


def test_an_invalid_pool_is_skipped_and_named() -> None:
    slices = [slice_body("s", [device("x"), device("x")]), slice_body("t", [device("y")], pool="z")]
    assert given(run([claim_body("c", request())], slices)) == {"c": ["gpu=y"]}
    assert run([claim_body("c", request())], slices[:1]) == Unallocatable(
        "the pool n1 of gpu.nvidia.com is invalid: it names the device x twice"
    )


def test_all_of_more_than_a_claim_holds_is_an_error() -> None:
    outcome = run([claim_body("c", request(allocationMode="All"))], [slice_body("s", gpus(33))])
    assert outcome == Unallocatable("the claim c asks for 33 devices, and a claim holds 32", aborted=True)


def test_all_needs_every_device_free() -> None:
    slices = [slice_body("s", gpus(2))]
    first = claim_body("first", request())
    held = allocated(first, run([first], slices))
    assert run([claim_body("c", request(allocationMode="All"))], slices, held=[held]) == NONE_LEFT


def test_what_a_claim_holds_the_next_one_does_not_get() -> None:
    slices = [slice_body("s", gpus(2))]
    bodies = [claim_body(f"c{i}", request()) for i in range(3)]
    held: list[dict[str, Any]] = []
    for body in bodies[:2]:
        held.append(allocated(body, run([body], slices, held=held)))
    assert [h["status"]["allocation"]["devices"]["results"][0]["device"] for h in held] == ["gpu-0", "gpu-1"]
    assert run([bodies[2]], slices, held=held) == NONE_LEFT


def test_admin_access_ignores_usage_and_adds_none() -> None:
    slices = [slice_body("s", gpus(1))]
    user = claim_body("user", request())
    held = [allocated(user, run([user], slices))]
    admin = claim_body("admin", request(adminAccess=True, allocationMode="All"))
    held.append(allocated(admin, run([admin], slices, held=held)))
    assert held[1]["status"]["allocation"]["devices"]["results"] == [
        {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0", "adminAccess": True}
    ]
    assert given(run([user], slices, held=held[1:])) == {"user": ["gpu=gpu-0"]}


def test_the_first_available_alternative_is_taken() -> None:
    prefer = {
        "name": "gpu",
        "firstAvailable": [
            {"name": "amd", "deviceClassName": "gpu.amd.com"},
            {"name": "two", "deviceClassName": "gpu.nvidia.com", "count": 2},
            {"name": "one", "deviceClassName": "gpu.nvidia.com"},
        ],
    }
    assert given(run([claim_body("c", prefer)], [slice_body("s", gpus(2))])) == {
        "c": ["gpu/two=gpu-0", "gpu/two=gpu-1"]
    }
    assert given(run([claim_body("c", prefer)], [slice_body("s", gpus(1))])) == {"c": ["gpu/one=gpu-0"]}
    # A later request takes a device away from the first choice.
    both = claim_body("c", prefer, request("more"))
    assert given(run([both], [slice_body("s", gpus(2))])) == {"c": ["gpu/one=gpu-0", "more=gpu-1"]}


def numa(*nodes: Any) -> list[dict[str, Any]]:
    """Devices d0, d1, .. on these NUMA nodes; None publishes none."""
    return [
        device(f"d{i}", attributes={} if n is None else {"resource.kubernetes.io/numaNode": n})
        for i, n in enumerate(nodes)
    ]


SAME = {"matchAttribute": "resource.kubernetes.io/numaNode"}


@pytest.mark.parametrize(
    ("devices", "constraint", "expected"),
    [
        (numa({"int": 0}, {"int": 1}, {"int": 1}), SAME, ["gpu=d1", "gpu=d2"]),
        (numa({"int": 0}, {"int": 1}), SAME, None),
        (numa({"int": 0}, None, {"int": 0}), SAME, ["gpu=d0", "gpu=d2"]),
        (numa({"int": 1}, {"bool": True}, {"string": "1"}), SAME, None),
        (numa({"int": 0}, {"int": 1}), {**SAME, "requests": ["other"]}, ["gpu=d0", "gpu=d1"]),
        (numa({"int": 0}, {"int": 1}), {**SAME, "requests": ["gpu"]}, None),
        (numa({"int": 0}, {"int": 0}, {"int": 1}), {"distinctAttribute": SAME["matchAttribute"]}, ["gpu=d0", "gpu=d2"]),
    ],
)
def test_constraints(devices: list[dict[str, Any]], constraint: dict[str, Any], expected: list[str] | None) -> None:
    outcome = run([claim_body("c", request(count=2), constraints=[constraint])], [slice_body("s", devices)])
    if expected is None:
        assert outcome == NONE_LEFT
    else:
        assert given(outcome) == {"c": expected}


def test_a_constraint_finds_the_bare_name_of_the_drivers_own_attribute() -> None:
    devices = [device(f"d{i}", attributes={"board": {"string": b}}) for i, b in enumerate("xyy")]
    body = claim_body("c", request(count=2), constraints=[{"matchAttribute": "gpu.nvidia.com/board"}])
    assert given(run([body], [slice_body("s", devices)])) == {"c": ["gpu=d1", "gpu=d2"]}


def test_a_constraint_that_excludes_one_of_all_is_an_error() -> None:
    body = claim_body("c", request(allocationMode="All"), constraints=[SAME])
    outcome = run([body], [slice_body("s", numa({"int": 0}, {"int": 1}))])
    assert outcome == Unallocatable("gpu asks for all devices, and a constraint excludes one of them", aborted=True)


def test_a_constraint_names_requests_and_subrequests() -> None:
    pick = {"name": "gpu", "firstAvailable": [{"name": "a", "deviceClassName": "gpu.nvidia.com"}]}
    slices = [slice_body("s", numa({"int": 0}, {"int": 1}, {"int": 0}))]
    for names, expected in (
        (["gpu", "more"], "more=d2"),
        (["gpu/a", "more"], "more=d2"),
        (["gpu/b", "more"], "more=d1"),
    ):
        body = claim_body("c", pick, request("more"), constraints=[{**SAME, "requests": names}])
        assert given(run([body], slices)) == {"c": ["gpu/a=d0", expected]}


@pytest.mark.parametrize(
    ("tolerations", "effect", "granted"),
    [
        ([], "NoSchedule", False),
        ([], "NoExecute", False),
        ([], "None", True),
        ([{"key": "unhealthy", "operator": "Exists"}], "NoExecute", True),
        ([{"key": "unhealthy", "operator": "Exists", "effect": "NoSchedule"}], "NoExecute", False),
        ([{"key": "unhealthy", "value": "other"}], "NoSchedule", False),
    ],
)
def test_device_taints_need_tolerations(tolerations: list[dict[str, Any]], effect: str, granted: bool) -> None:
    devices = [device("x", taints=[{"key": "unhealthy", "value": "yes", "effect": effect}])]
    outcome = run([claim_body("c", request(tolerations=tolerations))], [slice_body("s", devices)])
    assert (outcome == NONE_LEFT) is not granted
    if tolerations and granted:
        assert not isinstance(outcome, Unallocatable)
        assert outcome[0].results[0].as_dict()["tolerations"] == tolerations


def test_partitions_share_their_counters() -> None:
    def part(name: str, memory: str) -> dict[str, Any]:
        return device(name, consumesCounters=[{"counterSet": "gpu", "counters": {"memory": {"value": memory}}}])

    slices = [
        # The API keeps counters and devices in slices of their own.
        slice_body("a", [], slices=2, sharedCounters=[{"name": "gpu", "counters": {"memory": {"value": "80Gi"}}}]),
        slice_body("s", [part("half-0", "40Gi"), part("half-1", "40Gi"), part("full", "80Gi")], slices=2),
    ]
    first = claim_body("first", request())
    held = [allocated(first, run([first], slices))]
    assert given(run([claim_body("c", request())], slices, held=held)) == {"c": ["gpu=half-1"]}
    assert run([claim_body("c", request(count=2))], slices, held=held) == NONE_LEFT
    assert run([claim_body("c", request(count=3))], slices) == NONE_LEFT


# --- selectors that err


def test_a_selector_error_aborts_the_allocation() -> None:
    devices = [device("x"), device("y", attributes={"index": {"int": 1}})]
    body = claim_body("c", request(selectors=selectors('device.attributes["gpu.nvidia.com"].index == 1')))
    outcome = run([body], [slice_body("s", devices)])
    assert isinstance(outcome, Unallocatable)
    assert outcome.aborted
    assert "index" in outcome.reason
    assert "device x" in outcome.reason


def test_a_device_in_use_or_of_another_class_is_not_judged() -> None:
    picky = request(selectors=selectors('device.attributes["gpu.nvidia.com"].index == 1'))
    slices = [
        slice_body("s", [device("x"), device("y", attributes={"index": {"int": 1}})]),
        slice_body("t", [device("z")], driver="gpu.amd.com"),
    ]
    first = claim_body("first", request())
    held = [allocated(first, run([first], slices))]
    assert given(run([claim_body("c", picky)], slices, held=held)) == {"c": ["gpu=y"]}


@pytest.mark.parametrize("expression", ["device.", "device.driver", 'device.vendor == "x"'])
def test_a_selector_that_does_not_compile_aborts_too(expression: str) -> None:
    outcome = run([claim_body("c", request(selectors=selectors(expression)))], [slice_body("s", gpus(1))])
    assert isinstance(outcome, Unallocatable)
    assert outcome.aborted


def test_a_missing_class_aborts() -> None:
    outcome = run([claim_body("c", request("gpu", "gpu.example.com"))], [slice_body("s", gpus(1))])
    assert outcome == Unallocatable("the device class gpu.example.com doesn't exist", aborted=True)


# --- measured on a real control plane


def cpu_slice(*capacities: str) -> dict[str, Any]:
    devices = [
        device(
            f"cpudevnuma{i:03d}",
            attributes={"dra.cpu/numCPUs": {"int": int(c)}, "resource.kubernetes.io/numaNode": {"int": i}},
            capacity={"dra.cpu/cpu": {"value": c}},
            allowMultipleAllocations=True,
        )
        for i, c in enumerate(capacities)
    ]
    return slice_body("cpu", devices, driver="dra.cpu")


def cpus(name: str, amount: str, **more: Any) -> dict[str, Any]:
    return request(name, "dra.cpu", capacity={"requests": {"dra.cpu/cpu": amount}}, **more)


def test_a_grouped_claim_takes_an_amount_and_the_rest_stays() -> None:
    slices = [cpu_slice("6")]
    first = claim_body("first", cpus("cpu", "4"))
    held = [allocated(first, run([first], slices))]
    (result,) = held[0]["status"]["allocation"]["devices"]["results"]
    assert result["consumedCapacity"] == {"dra.cpu/cpu": "4"}
    assert result["shareID"]
    second = claim_body("second", cpus("cpu", "2"))
    held.append(allocated(second, run([second], slices, held=held)))
    assert held[1]["status"]["allocation"]["devices"]["results"][0]["shareID"] != result["shareID"]
    assert run([claim_body("third", cpus("cpu", "1"))], slices, held=held) == NONE_LEFT


def test_a_full_group_leaves_nothing() -> None:
    slices = [cpu_slice("6")]
    first = claim_body("first", cpus("cpu", "6"))
    held = [allocated(first, run([first], slices))]
    assert run([claim_body("second", cpus("cpu", "6"))], slices, held=held) == NONE_LEFT


def test_a_request_without_an_amount_takes_the_whole_group() -> None:
    slices = [cpu_slice("6")]
    bare = claim_body("bare", request("cpu", "dra.cpu"))
    held = allocated(bare, run([bare], slices))
    assert held["status"]["allocation"]["devices"]["results"][0]["consumedCapacity"] == {"dra.cpu/cpu": "6"}
    assert run([claim_body("next", cpus("cpu", "1"))], slices, held=[held]) == NONE_LEFT


@pytest.mark.parametrize(("requests", "granted"), [({"dra.cpu/cpu": "7"}, False), ({"cpu": "1"}, False), ({"dra.cpu/memory": "1"}, False), ({"dra.cpu/cpu": "6"}, True)])  # fmt: skip
def test_the_key_is_the_published_one_and_the_amount_fits_one_group(requests: dict[str, str], granted: bool) -> None:
    body = claim_body("c", request("cpu", "dra.cpu", capacity={"requests": requests}))
    assert (run([body], [cpu_slice("6", "6")]) == NONE_LEFT) is not granted


def test_two_requests_may_share_a_group_and_one_request_never_gets_it_twice() -> None:
    two = claim_body("c", cpus("a", "3"), cpus("b", "3"))
    assert given(run([two], [cpu_slice("6", "6")])) == {"c": ["a=cpudevnuma000", "b=cpudevnuma000"]}
    more = claim_body("c", cpus("a", "4"), cpus("b", "3"))
    assert given(run([more], [cpu_slice("6", "6")])) == {"c": ["a=cpudevnuma000", "b=cpudevnuma001"]}
    counted = claim_body("c", cpus("a", "2", count=2))
    assert given(run([counted], [cpu_slice("6", "6")])) == {"c": ["a=cpudevnuma000", "a=cpudevnuma001"]}
    assert run([counted], [cpu_slice("6")]) == NONE_LEFT


def test_two_claims_of_one_pod_share_a_group() -> None:
    claims = [claim_body("x", cpus("cpu", "4")), claim_body("y", cpus("cpu", "2"))]
    assert given(run(claims, [cpu_slice("6")])) == {"x": ["cpu=cpudevnuma000"], "y": ["cpu=cpudevnuma000"]}
    claims[1] = claim_body("y", cpus("cpu", "3"))
    assert run(claims, [cpu_slice("6")]) == NONE_LEFT


def test_a_request_policy_rounds_up() -> None:
    def policy(**policy: Any) -> dict[str, Any]:
        capacity = {"dra.cpu/cpu": {"value": "8", "requestPolicy": policy}}
        return slice_body("s", [device("x", capacity=capacity, allowMultipleAllocations=True)], driver="dra.cpu")

    cases = [
        (policy(default="2"), None, "2"),
        (policy(default="2", validValues=["2", "4", "8"]), "3", "4"),
        (policy(default="2", validRange={"min": "2", "step": "2"}), "1", "2"),
        (policy(default="2", validRange={"min": "2", "step": "2"}), "5", "6"),
        (policy(default="2", validRange={"min": "1", "max": "4"}), "5", ""),
        (policy(default="2", validValues=["2", "4"]), "5", ""),
    ]
    for slices, asked, taken in cases:
        wanted = request("cpu", "dra.cpu") if asked is None else cpus("cpu", asked)
        outcome = run([claim_body("c", wanted)], [slices])
        if taken:
            assert not isinstance(outcome, Unallocatable)
            assert dict(outcome[0].results[0].consumed) == {"dra.cpu/cpu": taken}
        else:
            assert outcome == NONE_LEFT


def test_with_the_gate_off_the_fields_vanish_and_the_next_pod_starves() -> None:
    slices = [drop_consumable_capacity(cpu_slice("6"))]
    first = drop_consumable_capacity(claim_body("first", cpus("cpu", "2")))
    assert "allowMultipleAllocations" not in slices[0]["spec"]["devices"][0]
    assert first["spec"]["devices"]["requests"] == [{"name": "cpu", "exactly": {"deviceClassName": "dra.cpu"}}]
    held = allocated(first, run([first], slices))
    assert held["status"]["allocation"]["devices"]["results"] == [
        {"request": "cpu", "driver": "dra.cpu", "pool": "n1", "device": "cpudevnuma000"}
    ]
    second = drop_consumable_capacity(claim_body("second", cpus("cpu", "2")))
    assert run([second], slices, held=[held]) == NONE_LEFT


def test_the_gate_drops_only_its_own_fields() -> None:
    sub = {"name": "a", "deviceClassName": "dra.cpu", "count": 1}
    claim = claim_body(
        "c",
        {"name": "r", "firstAvailable": [{**sub, "capacity": {"requests": {"dra.cpu/cpu": "1"}}}]},
        constraints=[{"distinctAttribute": "x/y", "requests": ["r"]}, {"matchAttribute": "x/z"}],
    )
    template = {"kind": "ResourceClaimTemplate", "metadata": {"name": "t"}, "spec": {"spec": claim["spec"]}}
    dropped = {
        "devices": {
            "requests": [{"name": "r", "firstAvailable": [sub]}],
            "constraints": [{"requests": ["r"]}, {"matchAttribute": "x/z"}],
        }
    }
    assert drop_consumable_capacity(claim)["spec"] == dropped
    assert drop_consumable_capacity(template)["spec"] == {"spec": dropped}
    assert "capacity" in claim["spec"]["devices"]["requests"][0]["firstAvailable"][0]
    pod = {"kind": "Pod", "spec": {"capacity": 1}}
    assert drop_consumable_capacity(pod) == pod
    policy = cpu_slice("6")
    policy["spec"]["devices"][0]["capacity"]["dra.cpu/cpu"]["requestPolicy"] = {"default": "1"}
    assert drop_consumable_capacity(policy)["spec"]["devices"][0]["capacity"] == {"dra.cpu/cpu": {"value": "6"}}


def individual(count: int) -> dict[str, Any]:
    return slice_body("cpu", [device(f"cpu{i:03d}") for i in range(count)], driver="dra.cpu")


@pytest.mark.parametrize(
    "expression",
    [
        'device.attributes["dra.cpu"].numCPUs >= 4',
        'device.capacity["dra.cpu"].cpu.compareTo(quantity("4")) >= 0',
    ],
)
def test_individual_cpus_lack_what_a_group_publishes(expression: str) -> None:
    outcome = run([claim_body("c", request("cpu", "dra.cpu", selectors=selectors(expression)))], [individual(8)])
    assert isinstance(outcome, Unallocatable)
    assert outcome.aborted


def test_a_claim_holds_32_devices_over_all_its_requests_whatever_their_driver() -> None:
    slices = [individual(64)]
    too_many = run([claim_body("c", request("a", "dra.cpu", count=20), request("b", "dra.cpu", count=16))], slices)
    assert too_many == Unallocatable("the claim c asks for 36 devices, and a claim holds 32", aborted=True)
    apart = [claim_body("x", request("a", "dra.cpu", count=20)), claim_body("y", request("a", "dra.cpu", count=4))]
    assert {name: len(got) for name, got in given(run(apart, slices)).items()} == {"x": 20, "y": 4}
    exact = claim_body("c", request("a", "dra.cpu", count=32))
    assert len(given(run([exact], slices))["c"]) == 32
    nics = slice_body("net", [device(f"efa{i}") for i in range(32)], driver="dra.net", pool="net")
    node = [slice_body("gpu", gpus(8)), nics]
    mixed = claim_body("c", request("gpu", count=8), request("efa", "dra.net", count=32))
    assert run([mixed], node) == Unallocatable("the claim c asks for 40 devices, and a claim holds 32", aborted=True)


def test_a_shortage_is_seen_without_trying_every_subset() -> None:
    busy = claim_body("busy", request("a", "dra.cpu", count=1))
    slices = [individual(32)]
    held = [allocated(busy, run([busy], slices))]
    assert run([claim_body("c", request("a", "dra.cpu", count=32))], slices, held=held) == NONE_LEFT
    spread = slice_body("s", numa(*[{"int": i % 4} for i in range(64)]))
    body = claim_body("c", request(count=17), constraints=[SAME])
    assert run([body], [spread]) == NONE_LEFT


@settings(max_examples=100, deadline=None)
@given_by(
    st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=5),
    st.lists(st.tuples(st.integers(1, 2), st.booleans()), min_size=1, max_size=2),
    st.booleans(),
)
def test_a_solution_is_found_exactly_where_one_exists(
    devices: list[tuple[int, bool]], wanted: list[tuple[int, bool]], same_node: bool
) -> None:
    """Against a search that simply tries every choice of devices."""
    published = [
        device(f"d{i}", attributes={"n": {"int": n}, "big": {"bool": big}}) for i, (n, big) in enumerate(devices)
    ]
    big_only = selectors('device.attributes["gpu.nvidia.com"].big')
    requests = [
        request(f"r{i}", count=count, **({"selectors": big_only} if picky else {}))
        for i, (count, picky) in enumerate(wanted)
    ]
    constraints = [{"matchAttribute": "gpu.nvidia.com/n"}] if same_node else None
    outcome = run([claim_body("c", *requests, constraints=constraints)], [slice_body("s", published)])
    needs = [picky for count, picky in wanted for _ in range(count)]
    exists = any(
        all(devices[d][1] for d, picky in zip(choice, needs, strict=True) if picky)
        and (not same_node or len({devices[d][0] for d in choice}) == 1)
        for choice in itertools.permutations(range(len(devices)), len(needs))
    )
    assert (outcome != NONE_LEFT) is exists
    if exists:
        names = [entry.split("=")[1] for entry in given(outcome)["c"]]
        assert len(set(names)) == len(needs)


def test_another_node_gets_nothing_from_this_ones_slices() -> None:
    assert run([claim_body("c", request())], [slice_body("s", gpus(1))], node=NodeFacts("n2")) == NONE_LEFT
    assert given(run([claim_body("c", request())], [slice_body("s", gpus(1))], node=N1)) == {"c": ["gpu=gpu-0"]}
