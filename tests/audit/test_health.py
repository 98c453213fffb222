"""Whether each pool's devices are there, and which link of the chain is broken where they aren't."""

from dataclasses import replace

import pytest

from modelplane_dagster.audit.cpu_room import charges
from modelplane_dagster.audit.health import NodeDevices, PoolHealth, audit_health
from modelplane_dagster.audit.live import LivePod
from modelplane_dagster.cluster import ExternalDriver
from modelplane_dagster.known import Unknown
from modelplane_dagster.kube.objects import Taint
from tests.audit.worlds import (
    AMD,
    CPU,
    NOW,
    NV,
    NVCPU,
    PCI,
    cpu_groups,
    cpus,
    device,
    gpus,
    live,
    node,
    pool,
    published,
    running,
    slice_of,
    stack,
    told,
    view,
    workloads_of,
)

SYSTEM = node("sys-1")


def health(cluster, nodes, *, workloads=None, slices=None, pods=None, **more):
    parts = stack(cluster)
    there = workloads_of(parts) if workloads is None else workloads
    slices = published(nodes, cluster.pools) if slices is None else slices
    return audit_health(cluster, parts, live((*nodes, SYSTEM), there, pods, slices, **more))


def test_every_node_of_every_pool_publishes_what_its_class_declares():
    cluster = view(NV, AMD, CPU, NVCPU)
    nodes = (
        node("nv-1", NV, capacity="32"),
        node("amd-1", AMD, capacity="32"),
        node("cpu-1", CPU),
        node("nvcpu-1", NVCPU, capacity="64"),
    )
    assert health(cluster, nodes) == (
        PoolHealth("nv", "ready", 1, 1, (NodeDevices("nv-1", "gpu.nvidia.com", 8),), ()),
        PoolHealth("amd", "ready", 1, 1, (NodeDevices("amd-1", "gpu.amd.com", 8),), ()),
        PoolHealth("cpu", "ready", 1, 1, (NodeDevices("cpu-1", "dra.cpu", 1),), ()),
        PoolHealth(
            "nvcpu",
            "ready",
            1,
            1,
            (NodeDevices("nvcpu-1", "dra.cpu", 2), NodeDevices("nvcpu-1", "gpu.nvidia.com", 8)),
            (),
        ),
    )


@pytest.mark.parametrize(
    ("pool_view", "nodes", "state", "codes"),
    [
        (NV, (), "pending", ["NodesMissing", "PoolPending"]),
        (replace(NV, count=0, minimum=0, maximum=3), (), "idle", ["PoolIdle"]),
        (NV, (node("nv-1", NV, ready=False),), "pending", ["PoolPending"]),
        (NV, (node("nv-1", NV, created=NOW - 10),), "pending", ["PoolPending"]),
        (replace(NV, count=2), (node("nv-1", NV),), "ready", ["NodesMissing"]),
        (NV, (node("nv-1", NV), node("nv-2", NV, created=NOW - 10, labels={PCI: None})), "ready", []),
        (NV, (node("nv-1", NV, unschedulable=True),), "ready", []),
    ],
)
def test_states(pool_view, nodes, state, codes):
    (result,) = health(view(pool_view), nodes)
    assert (result.state, [f.code for f in result.findings]) == (state, codes)


NV_SLICES = published((node("nv-1", NV),), (NV,))
PLUGIN = "kubelet-plugin"


def _without(workloads, name):
    return [w for w in workloads if w.name != name]


def _nv(what):
    """One broken link at a time on the one node of a pool: the reading's parts."""
    cluster = view(NV)
    good = node("nv-1", NV)
    there = workloads_of(stack(cluster))
    pods = running(there, (good, SYSTEM))
    plugin = next(p for p in pods if p.name == f"{PLUGIN}-nv-1")
    rest = [p for p in pods if p is not plugin]
    newer = slice_of("gpu.nvidia.com", "nv-1", gpus(8), name="new", generation=2, count=2)
    return {
        "label": {"node": node("nv-1", NV, labels={PCI: None}), "slices": []},
        "taint": {"node": node("nv-1", NV, taints=[*NV.taints, Taint("dedicated", "gpu")]), "slices": []},
        "no daemon": {"workloads": _without(there, PLUGIN), "slices": []},
        "no pod": {"pods": rest, "slices": []},
        "stale": {"pods": rest},
        "not ready": {"pods": [*rest, replace(plugin, ready=False, phase="Pending")], "slices": []},
        "dead plugin": {"pods": [*rest, replace(plugin, ready=False)]},
        "no slice": {"slices": []},
        "other node": {"slices": published((node("nv-9", NV),), (NV,))},
        "incomplete": {"slices": [*NV_SLICES, newer]},
        "too few": {"slices": [slice_of("gpu.nvidia.com", "nv-1", gpus(7))]},
        "replaced": {"pods": [*pods, replace(plugin, name="old", ready=False, terminating=True)]},
    }[what]


@pytest.mark.parametrize(
    ("what", "code", "message"),
    [
        (
            "label",
            "LabelMissing",
            (
                f"link label: DaemonSet kubelet-plugin stays off: its nodeSelector asks for {PCI}=true, and the node lacks "
                "that label"
            ),
        ),
        (
            "taint",
            "DaemonMissing",
            "link daemon: DaemonSet kubelet-plugin stays off: it doesn't tolerate the taint dedicated=gpu:NoSchedule",
        ),
        ("no daemon", "DaemonMissing", "link daemon: the cluster has no DaemonSet kubelet-plugin"),
        (
            "no pod",
            "DaemonMissing",
            "link daemon: DaemonSet kubelet-plugin selects the node, and no pod of it is there",
        ),
        (
            "stale",
            "DaemonMissing",
            (
                "link daemon: DaemonSet kubelet-plugin selects the node, and no pod of it is there; the slices that still "
                "reach the node are stale"
            ),
        ),
        (
            "not ready",
            "DriverNotReady",
            "link driver: pod nvidia-dra-driver/kubelet-plugin-nv-1 isn't ready (phase Pending)",
        ),
        (
            "dead plugin",
            "DriverNotReady",
            (
                "link driver: pod nvidia-dra-driver/kubelet-plugin-nv-1 isn't ready (phase Running); the slices that still "
                "reach the node are stale"
            ),
        ),
        ("no slice", "SliceMissing", "link slice: no slice of the newest generation reaches the node"),
        ("other node", "SliceMissing", "link slice: no slice of the newest generation reaches the node"),
        ("incomplete", "SliceIncomplete", "link incomplete: pool nv-1, generation 2: it holds 1 of 2 slices"),
        ("too few", "DevicesMissing", "link devices: it publishes 7 devices, and class class-nv declares 8"),
    ],
)
def test_the_broken_link_is_named(what, code, message):
    parts = _nv(what)
    nodes = (parts.pop("node", node("nv-1", NV)),)
    (result,) = health(view(NV), nodes, **{"slices": NV_SLICES, **parts})
    assert result.state == "unhealthy"
    assert [(f.code, f.subject, f.message) for f in result.findings] == [
        (code, "pool/c/nv", f"gpu.nvidia.com on node nv-1 of pool nv, {message}.")
    ]


def test_a_daemon_that_is_being_replaced_is_ready():
    (result,) = health(view(NV), (node("nv-1", NV),), **_nv("replaced"))
    assert (result.state, result.findings) == ("ready", ())


def test_nodes_that_break_alike_share_a_finding():
    nodes = tuple(node(f"nv-{i}", NV, labels={PCI: None}) for i in range(1, 8))
    (result,) = health(view(NV), nodes, slices=[])
    assert [f.code for f in result.findings] == ["LabelMissing"]
    assert "nodes nv-1, nv-2, nv-3, nv-4, nv-5 and 2 more of pool nv" in result.findings[0].message


@pytest.mark.parametrize("part", ["nodes", "workloads", "pods", "slices"])
def test_what_couldn_t_be_read_concludes_nothing(part):
    cluster = view(NV)
    parts = stack(cluster)
    reading = replace(
        live((node("nv-1", NV), SYSTEM), workloads_of(parts), None, NV_SLICES), **{part: Unknown("timed out")}
    )
    (result,) = audit_health(cluster, parts, reading)
    assert (result.state, told(result.findings)) == ("unknown", [("ReadFailed", "cluster/c")])
    assert result.nodes == (0 if part == "nodes" else 1)


TWO = pool("cpu", cpus(2, 6))


def _individual(count):
    return [{"name": f"cpu{i}"} for i in range(count)]


@pytest.mark.parametrize(
    ("mode", "devices", "lack"),
    [
        ("grouped", cpu_groups(2, 6), ""),
        ("grouped", cpu_groups(3, 8), ""),
        ("grouped", cpu_groups(1, 12), "it publishes groups of 12 CPUs, and class class-cpu declares 2 of 6"),
        ("grouped", cpu_groups(2, 5), "it publishes groups of 5, 5 CPUs, and class class-cpu declares 2 of 6"),
        ("grouped", _individual(2), "it publishes groups of none, none CPUs, and class class-cpu declares 2 of 6"),
        ("individual", _individual(12), ""),
        ("individual", _individual(11), "it publishes 11 CPUs, and class class-cpu declares 12"),
        (None, cpu_groups(2, 6), ""),
        (None, _individual(12), ""),
        (None, _individual(2), "it publishes 2 CPUs, and class class-cpu declares 12"),
    ],
)
def test_cpus_are_counted_by_mode(mode, devices, lack):
    nodes = (node("cpu-1", TWO, capacity="16"),)
    (result,) = health(view(TWO, mode=mode), nodes, slices=[slice_of("dra.cpu", "cpu-1", devices)])
    expected = [f"dra.cpu on node cpu-1 of pool cpu, link devices: {lack}."] if lack else []
    assert [f.message for f in result.findings] == expected


@pytest.mark.parametrize(
    "spec",
    [
        {"allNodes": True},
        {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "modelplane.ai/pool", "operator": "Exists"}]}]}},
        {"perDeviceNodeSelection": True},
    ],
)  # fmt: skip
def test_slices_reach_nodes_in_four_ways(spec):
    each = {"nodeName": "nv-1"} if "perDeviceNodeSelection" in spec else {}
    (result,) = health(
        view(NV), (node("nv-1", NV),), slices=[slice_of("gpu.nvidia.com", "", gpus(8, **each), name="wide", **spec)]
    )
    assert (result.state, result.devices[0].devices) == ("ready", 8)


@pytest.mark.parametrize(("kind", "expected"), [("Other", []), ("GPU", [("SliceMissing", "pool/c/nv")])])
def test_an_external_driver_of_kind_other_needn_t_publish(kind, expected):
    cluster = view(
        replace(NV, drivers=("vendor.example",), devices=(device("vendor.example"),)),
        source="Existing",
        external=(ExternalDriver("vendor.example", kind),),
    )
    (result,) = health(cluster, (node("nv-1", NV),), slices=[])
    assert told(result.findings) == expected


DECLARED = device(
    "gpu.nvidia.com",
    2,
    attributes={"architecture": {"string": "Hopper"}, "mig": {"bool": True}, "cc": {"version": "9.0.0"}},
    capacity={"memory": {"value": "80Gi"}},
)
SHOWN = {
    "attributes": {
        "gpu.nvidia.com/architecture": {"string": "Hopper"},
        "mig": {"bool": True},
        "cc": {"version": "9.0.0"},
    },
    "capacity": {"memory": {"value": "81559Mi"}},
}


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ({}, []),
        ({"capacity": {"memory": {"value": "82Gi"}}}, []),
        ({"capacity": {"memory": {"value": "79Gi"}}}, ["capacity memory: declared 80Gi, seen 79Gi"]),
        ({"capacity": {}}, ["capacity memory: declared 80Gi, seen none"]),
        (
            {"attributes": {"architecture": {"string": "Ada"}, "mig": {"int": 1}, "cc": {"version": "9.0.0"}}},
            ["attribute architecture: declared Hopper, seen Ada", "attribute mig: declared true, seen 1"],
        ),
        (
            {"attributes": {**SHOWN["attributes"], "cc": {"string": "9.0.0"}}},
            ["attribute cc: declared version 9.0.0, seen 9.0.0"],
        ),
    ],
)
def test_the_class_against_the_slices(shown, expected):
    cards = pool("nv", DECLARED)
    devices = gpus(2, **{**SHOWN, "capacity": {"memory": {"value": "80Gi"}}, **shown})
    (result,) = health(view(cards), (node("nv-1", cards),), slices=[slice_of("gpu.nvidia.com", "nv-1", devices)])
    assert result.state == "ready"
    assert [(f.code, f.message) for f in result.findings] == [
        ("ClassDiffers", f"Class class-nv, device gpu, {part} on node nv-1.") for part in expected
    ]


def test_a_mirrored_claim_that_never_fits_is_told_with_the_numbers():
    """Measured: 6 allocatable, a daemon of 100m, a pod that mirrors 6: never scheduled."""
    (result,) = health(view(CPU), (node("cpu-1", CPU, capacity="6"),))
    assert [(f.code, f.message) for f in result.findings] == [
        (
            "CpuNotAllocatable",
            (
                "Node cpu-1 can allocate 6 CPUs and its daemons request 0.2, which leaves 5.8; a pod that mirrors a full "
                "claim asks for 6 and never fits."
            ),
        )
    ]


def test_static_pods_count_and_ended_ones_don_t():
    cluster = view(CPU)
    there = workloads_of(stack(cluster))
    pods = running(there, (node("cpu-1", CPU), SYSTEM))
    static = LivePod(namespace="kube-system", name="proxy", node="cpu-1", cpu=1.9, mirror=True)
    (result,) = health(cluster, (node("cpu-1", CPU),), pods=[*pods, static])
    assert [f.code for f in result.findings] == ["CpuNotAllocatable"]
    over = replace(static, phase="Succeeded")
    other = LivePod(namespace="models", name="engine", node="cpu-1", cpu=6.0, owner="someone")
    (result,) = health(cluster, (node("cpu-1", CPU),), pods=[*pods, over, other])
    assert result.findings == ()


def test_claims_that_the_scheduler_charges_aren_t_mirrored():
    charged = [{**d, "nodeAllocatableResources": {"cpu": {}}} for d in cpu_groups(1, 6)]
    (result,) = health(view(CPU), (node("cpu-1", CPU, capacity="6"),), slices=[slice_of("dra.cpu", "cpu-1", charged)])
    assert result.findings == ()


CHARGED = [{**d, "nodeAllocatableResources": {"cpu": {}}} for d in cpu_groups(2, 6)]
MIXED = [CHARGED[0], cpu_groups(2, 6)[1]]


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        ({"cpu-1": CHARGED}, {"cpu": True}),
        ({"cpu-1": cpu_groups(2, 6)}, {"cpu": False}),
        ({"cpu-1": CHARGED, "cpu-2": CHARGED}, {"cpu": True}),
        # A pod may land on the node that isn't charged.
        ({"cpu-1": CHARGED, "cpu-2": cpu_groups(2, 6)}, {"cpu": False}),
        ({"cpu-1": MIXED}, {"cpu": False}),
        ({"cpu-1": [{**d, "nodeAllocatableResources": {"memory": {}}} for d in cpu_groups(2, 6)]}, {"cpu": False}),
        ({"cpu-1": [{**d, "nodeAllocatableResourceMappings": {"cpu": {}}} for d in cpu_groups(2, 6)]}, {"cpu": True}),
        # Nothing is published: nothing is known.
        ({}, {}),
        ({"nv-1": CHARGED}, {}),
    ],
)
def test_whether_the_scheduler_charges_a_pools_cpus(slices, expected):
    nodes = (node("cpu-1", CPU), node("cpu-2", CPU), node("nv-1", NV), SYSTEM)
    there = [slice_of("dra.cpu", name, devices) for name, devices in slices.items()]
    assert charges(view(NV, CPU), live(nodes, slices=there)) == expected


def test_of_what_couldnt_be_read_nothing_is_known():
    whole = live((node("cpu-1", CPU),), slices=[slice_of("dra.cpu", "cpu-1", CHARGED)])
    unread = [replace(whole, nodes=Unknown("x")), replace(whole, slices=Unknown("x")), None]
    assert [charges(view(CPU), seen) for seen in unread] == [{}, {}, {}]
