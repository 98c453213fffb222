"""Where a running cluster's workloads may run and do run, against what the tags ask and what the plan says."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelplane_dagster.audit.live import LivePod, Owner
from modelplane_dagster.audit.live_audit import audit_live
from modelplane_dagster.audit.plan_audit import audit_plan
from modelplane_dagster.components.types import Knob, Reach
from modelplane_dagster.known import Unknown
from modelplane_dagster.kube.objects import Taint
from tests.audit.worlds import (
    AMD,
    AMD_TAINT,
    CPU,
    CPU_DRIVER,
    EXPORTER,
    NFD,
    NOW,
    NV,
    NV_DRIVER,
    NVCPU,
    PCI,
    STACK,
    cpus,
    daemon,
    device,
    exists,
    foreign,
    in_pools,
    joined,
    live,
    node,
    pool,
    running,
    stack,
    template,
    told,
    view,
    workloads_of,
)

CLUSTER = view(NV, AMD, CPU, NVCPU)
NODES = (
    node("nv-1", NV),
    node("nv-2", NV),
    node("amd-1", AMD),
    node("cpu-1", CPU),
    node("nvcpu-1", NVCPU),
    node("sys-1"),
)


def changed(workloads, name, **spec):
    """The workload as another chart would make it."""
    return [replace(w, placement=template(**spec)) if w.name == name else w for w in workloads]


def test_a_cluster_as_planned_has_no_findings_and_the_plans_rows():
    parts = stack(CLUSTER)
    audit = audit_live(CLUSTER, parts, live(NODES, workloads_of(parts)))
    assert audit.findings == ()
    assert audit.rows == audit_plan(CLUSTER, parts).rows


def test_desired_one_ready_one_proves_nothing():
    """The daemon's toleration misses the pool; on the system node it is ready. Chart and declaration say the same."""
    cluster = view(CPU)
    parts = stack(cluster, CPU_DRIVER, dra_driver_cpu={"values": {"tolerations": []}})
    audit = audit_live(cluster, parts, live((node("cpu-1", CPU), node("sys-1")), workloads_of(parts)))
    assert [(f.code, f.subject, f.message) for f in audit.findings] == [
        (
            "StackMissesPool",
            "pool/c/cpu",
            (
                "dra-driver-cpu: DaemonSet mp-dra-driver-cpu (desired 1, ready 1) must run on every node of pool cpu and "
                "doesn't on cpu-1: it doesn't tolerate the taint modelplane.ai/cpu=true:NoSchedule."
            ),
        ),
        (
            "StackStrays",
            "pool/c/system",
            "dra-driver-cpu: DaemonSet mp-dra-driver-cpu serves cpu alone and runs on sys-1 of the nodes of no pool.",
        ),
    ]


WORKLOADS = workloads_of(stack(CLUSTER))
CPU_TEMPLATE = {
    "nodeSelector": {"modelplane.ai/cpu": "true"},
    "tolerations": exists("modelplane.ai/cpu", "nvidia.com/gpu"),
}


@pytest.mark.parametrize(
    ("name", "spec", "message", "fix"),
    [
        pytest.param(
            "mp-dra-driver-cpu",
            {**CPU_TEMPLATE, "tolerations": exists("modelplane.ai/cpu")},
            "dra-driver-cpu: DaemonSet mp-dra-driver-cpu is expected on pool nvcpu, and not seen there: it doesn't "
            "tolerate the taint nvidia.com/gpu=present:NoSchedule.",
            "Correct the tolerations in the chart of dra-driver-cpu or in its declaration, so that both say the same.",
            id="a toleration lost",
        ),
        pytest.param(
            "mp-dra-driver-cpu",
            {"tolerations": CPU_TEMPLATE["tolerations"]},
            "dra-driver-cpu: DaemonSet mp-dra-driver-cpu is not expected on pools nv, system, and seen there, though by "
            "the plan its nodeSelector asks for modelplane.ai/cpu=true, and the node lacks that label.",
            "Correct the nodeSelector in the chart of dra-driver-cpu or in its declaration, so that both say the same.",
            id="a selector lost",
        ),
        pytest.param(
            "mp-nfd-worker",
            {"affinity": in_pools("nv", "nvcpu"), "tolerations": exists("nvidia.com/gpu", "amd.com/gpu")},
            "node-feature-discovery: DaemonSet mp-nfd-worker is expected on pool amd, and not seen there: its node "
            "affinity asks for modelplane.ai/pool In [nv, nvcpu], and the node has modelplane.ai/pool=amd.",
            "Correct the node affinity in the chart of node-feature-discovery or in its declaration, so that both say "
            "the same.",
            id="a pool lost from the affinity",
        ),
        pytest.param(
            "mp-amd-dra-driver",
            {"nodeSelector": {"modelplane.ai/pool": "amd"}},
            "amd-gpu-operator: DaemonSet mp-amd-dra-driver is expected on pool amd, and not seen there: it doesn't "
            "tolerate the taint amd.com/gpu=present:NoSchedule.",
            "Correct the tolerations in the chart of amd-gpu-operator or in its declaration, so that both say the same.",
            id="an operator's daemon",
        ),
        pytest.param(
            "mp-nfd-master",
            {"nodeSelector": {"role": "infra"}},
            "node-feature-discovery: Deployment mp-nfd-master is expected on pool system, and not seen there: its "
            "nodeSelector asks for role=infra, and the node lacks that label.",
            "Correct the nodeSelector in the chart of node-feature-discovery or in its declaration, so that both say "
            "the same.",
            id="a controller",
        ),
    ],
)
def test_a_changed_chart_is_one_disagreement(name, spec, message, fix):
    audit = audit_live(CLUSTER, stack(CLUSTER), live(NODES, changed(WORKLOADS, name, **spec)))
    assert [(f.code, f.message, f.fix) for f in audit.findings] == [("PlanDisagrees", message, fix)]


def test_a_changed_declaration_is_one_disagreement():
    wrong = replace(CPU_DRIVER.workloads[0], tolerations=Knob("speltWrong", exists("modelplane.ai/cpu")))
    parts = stack(CLUSTER, EXPORTER, NFD, NV_DRIVER, replace(CPU_DRIVER, workloads=(wrong,)))
    right = stack(CLUSTER, EXPORTER, NFD, NV_DRIVER, CPU_DRIVER)
    audit = audit_live(CLUSTER, parts, live(NODES, workloads_of(right)))
    assert told(audit.findings) == [("PlanDisagrees", "component/c/dra-driver-cpu")]
    assert "is not expected on pool nvcpu, and seen there" in audit.findings[0].message


def test_a_renamed_daemon_is_one_disagreement():
    renamed = [replace(w, name="dracpu") if w.name == "mp-dra-driver-cpu" else w for w in WORKLOADS]
    audit = audit_live(CLUSTER, stack(CLUSTER), live(NODES, renamed))
    assert [(f.code, f.subject, f.message) for f in audit.findings] == [
        (
            "PlanDisagrees",
            "component/c/dra-driver-cpu",
            (
                "dra-driver-cpu: DaemonSet mp-dra-driver-cpu is expected on pools cpu, nvcpu, and the release runs DaemonSet "
                "dracpu instead."
            ),
        )
    ]


def test_a_difference_that_moves_nothing_is_none():
    spec = {**CPU_TEMPLATE, "tolerations": exists("modelplane.ai/cpu", "nvidia.com/gpu", "elsewhere")}
    assert (
        audit_live(CLUSTER, stack(CLUSTER), live(NODES, changed(WORKLOADS, "mp-dra-driver-cpu", **spec))).findings == ()
    )


def test_a_node_without_its_label_is_no_disagreement():
    nodes = (*NODES, node("nv-3", NV, labels={PCI: None}))
    audit = audit_live(CLUSTER, stack(CLUSTER), live(nodes, WORKLOADS))
    assert [(f.code, f.subject, f.message) for f in audit.findings] == [
        (
            "StackMissesPool",
            "pool/c/nv",
            (
                "nvidia-dra-driver-gpu: DaemonSet kubelet-plugin (desired 1, ready 1) must run on every node of pool nv and "
                f"doesn't on nv-3: its nodeSelector asks for {PCI}=true, and the node lacks that label."
            ),
        )
    ]


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        pytest.param(
            node("stray", labels={"modelplane.ai/cpu": "true"}),
            [("StackStrays", "pool/c/system")],
            id="a foreign label",
        ),
        pytest.param(
            node("nv-3", NV, taints=[*NV.taints, Taint("dedicated", "gpu")]),
            [("StackMissesPool", "pool/c/nv")] * 3,
            id="an extra taint keeps three daemons out",
        ),
        pytest.param(
            node("cpu-2", CPU, taints=[Taint("modelplane.ai/cpu", "other")]), [], id="any value of a taint with Exists"
        ),
        pytest.param(node("nv-3", NV, taints=[]), [], id="a pool's node without its taint"),
        pytest.param(node("nv-3", NV, unschedulable=True), [], id="a cordoned node counts, and is reached"),
        pytest.param(
            node("nv-3", NV, labels={PCI: None}, unschedulable=True),
            [("StackMissesPool", "pool/c/nv")],
            id="a cordoned node counts, and is missed",
        ),
        pytest.param(node("nv-3", NV, labels={PCI: None}, ready=False), [], id="not ready"),
        pytest.param(node("nv-3", NV, labels={PCI: None}, terminating=True), [], id="terminating"),
        pytest.param(node("nv-3", NV, labels={PCI: None}, created=NOW - 299), [], id="within the grace period"),
        pytest.param(
            node("nv-3", NV, labels={PCI: None}, created=NOW - 300), [("StackMissesPool", "pool/c/nv")], id="after it"
        ),
    ],
)
def test_nodes(extra, expected):
    audit = audit_live(CLUSTER, stack(CLUSTER), live((*NODES, extra), WORKLOADS))
    assert told(audit.findings) == expected


def test_landing_nodes_come_from_the_pods():
    pods = running(WORKLOADS, NODES)
    gone = [p for p in pods if p.name != "kubelet-plugin-nv-2"]
    audit = audit_live(CLUSTER, stack(CLUSTER), live(NODES, WORKLOADS, gone))
    assert [(f.code, f.subject) for f in audit.findings] == [("StackMissesPool", "pool/c/nv")]
    assert "doesn't on nv-2: its template selects it, and no pod of it is there" in audit.findings[0].message
    left = [*pods, LivePod(namespace="dra-driver-cpu", name="left", node="sys-1", owner="uid-mp-dra-driver-cpu")]
    assert told(audit_live(CLUSTER, stack(CLUSTER), live(NODES, WORKLOADS, left)).findings) == [
        ("StackStrays", "pool/c/system")
    ]
    going = [*pods, replace(left[-1], terminating=True)]
    assert audit_live(CLUSTER, stack(CLUSTER), live(NODES, WORKLOADS, going)).findings == ()


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ((), [("PoolPending", "pool/c/nv")]),
        ((node("nv-1", NV, ready=False),), [("PoolPending", "pool/c/nv")]),
        ((node("nv-1", NV, created=NOW - 1), node("nv-2", NV, terminating=True)), [("PoolPending", "pool/c/nv")]),
        ((node("nv-1", NV, ready=False), node("nv-2", NV)), []),
    ],
)
def test_pools_that_can_t_be_judged(nodes, expected):
    cluster = view(NV)
    parts = stack(cluster)
    audit = audit_live(cluster, parts, live((*nodes, node("sys-1")), workloads_of(parts)))
    assert told(audit.findings) == expected


def test_a_pool_that_may_stand_at_zero_is_idle():
    idle = replace(NV, count=0, minimum=0, maximum=3)
    parts = stack(view(idle))
    audit = audit_live(view(idle), parts, live((node("sys-1"),), workloads_of(parts)))
    assert told(audit.findings) == [("PoolIdle", "pool/c/nv")]


def test_what_isn_t_there_is_missed():
    cluster = view(AMD)
    parts = stack(cluster)
    there = [w for w in workloads_of(parts) if w.name != "mp-amd-dra-driver"]
    audit = audit_live(cluster, parts, live((node("amd-1", AMD), node("sys-1")), there))
    assert [(f.code, f.message) for f in audit.findings] == [
        (
            "StackMissesPool",
            (
                "amd-gpu-operator: DaemonSet mp-amd-dra-driver must run on every node of pool amd and doesn't on amd-1: the "
                "cluster has no DaemonSet mp-amd-dra-driver."
            ),
        )
    ]
    nothing = audit_live(cluster, parts, live((node("amd-1", AMD), node("sys-1")), []))
    assert told(nothing.findings) == [
        ("StackMissesPool", "pool/c/amd"),
        ("StackMissesPool", "pool/c/amd"),
        ("StackMissesPool", "pool/c/amd"),
        ("StackMissesPool", "pool/c/system"),
    ]


@pytest.mark.parametrize("part", ["nodes", "workloads"])
def test_what_couldn_t_be_read_concludes_nothing(part):
    reading = replace(live(NODES, []), **{part: Unknown("the API answered 503")})
    audit = audit_live(CLUSTER, stack(CLUSTER), reading)
    assert audit.rows == ()
    assert [(f.code, f.subject, f.message) for f in audit.findings] == [
        ("ReadFailed", "cluster/c", f"The {part} of cluster c are unknown: the API answered 503.")
    ]


def test_without_pods_the_templates_are_judged_alone():
    reading = replace(live(NODES, WORKLOADS), pods=Unknown("the API answered 503"))
    assert told(audit_live(CLUSTER, stack(CLUSTER), reading).findings) == [("ReadFailed", "cluster/c")]


OURS = {"annotations": {"meta.helm.sh/release-name": "mp-dra-driver-cpu"}}


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        pytest.param(
            foreign("sneaky", namespace="dra-driver-cpu", **OURS),
            [("UndeclaredWorkload", "component/c/dra-driver-cpu")],
            id="a DaemonSet of our release",
        ),
        pytest.param(
            foreign("webhook", kind="Deployment", namespace="dra-driver-cpu", **OURS), [], id="a Deployment of our release"
        ),
        pytest.param(
            foreign("mp-amd-test-runner", namespace="kube-amd-gpu", owners=(Owner("DeviceConfig", "mp-amd", "u"),)),
            [("UndeclaredWorkload", "component/c/amd-gpu-operator")],
            id="an operator's DaemonSet that no declaration names",
        ),
        pytest.param(
            foreign("default-dra-driver", namespace="kube-amd-gpu", owners=(Owner("DeviceConfig", "default", "u"),)),
            [("Orphan", "component/c/amd-gpu-operator")],
            id="an operator's DaemonSet of a resource that the plan doesn't hold",
        ),
        pytest.param(
            foreign("old", annotations={"meta.helm.sh/release-name": "mp-old"}), [("Orphan", "component/c/mp-old")],
            id="a release of ours that no list holds",
        ),
        pytest.param(foreign("theirs", annotations={"meta.helm.sh/release-name": "theirs"}), [], id="a foreign release"),
        pytest.param(
            foreign("kube-proxy", template(tolerations=[{"operator": "Exists"}]), namespace="kube-system"),
            [("ForeignTolerates", "DaemonSet/kube-system/kube-proxy")],
            id="a foreign pod that tolerates everything",
        ),
    ],
)  # fmt: skip
def test_whose_a_workload_is(extra, expected):
    audit = audit_live(CLUSTER, stack(CLUSTER), live(NODES, [*WORKLOADS, extra]))
    assert told(audit.findings) == expected


def test_an_orphans_workloads_are_orphans_not_strays():
    cluster = view(CPU)
    parts = (*stack(cluster, CPU_DRIVER), joined(NV_DRIVER, cluster, install=False, reason="no pool claims it"))
    spec = {"tolerations": [{"operator": "Exists"}]}
    left = foreign(
        "kubelet-plugin",
        template(**spec),
        namespace="nvidia-dra-driver",
        annotations={"meta.helm.sh/release-name": "mp-dra-driver-nvidia-gpu"},
    )
    audit = audit_live(cluster, parts, live((node("cpu-1", CPU), node("sys-1")), [*workloads_of(parts), left]))
    assert [(f.code, f.subject, f.fix) for f in audit.findings] == [
        (
            "Orphan",
            "component/c/nvidia-dra-driver-gpu",
            "modelplane-dagster prune component/c/nvidia-dra-driver-gpu",
        )
    ]


def test_findings_are_told_of_the_pools_that_they_speak_of():
    wrong = changed(WORKLOADS, "mp-dra-driver-cpu", **{**CPU_TEMPLATE, "tolerations": exists("modelplane.ai/cpu")})
    nodes = (*NODES, node("nv-3", NV, labels={PCI: None}))
    audit = audit_live(CLUSTER, stack(CLUSTER), live(nodes, wrong))
    assert {p: [f.code for f in audit.of_pool(p)] for p in ("nv", "nvcpu", "cpu", "system")} == {
        "nv": ["StackMissesPool"],
        "nvcpu": ["PlanDisagrees"],
        "cpu": [],
        "system": [],
    }


def test_a_release_that_isn_t_upgraded_yet_is_no_disagreement():
    old = changed(WORKLOADS, "mp-dra-driver-cpu", **{**CPU_TEMPLATE, "tolerations": exists("modelplane.ai/cpu")})
    audit = audit_live(CLUSTER, stack(CLUSTER), live(NODES, old), lagging=frozenset({"dra-driver-cpu"}))
    assert told(audit.findings) == [("StackMissesPool", "pool/c/nvcpu")]


def test_a_daemon_that_the_plan_turns_off_is_undeclared():
    agent = replace(
        NV_DRIVER, workloads=(*NV_DRIVER.workloads, daemon("agent", enabled="agent.on", enabled_default=False))
    )
    cluster = view(NV)
    parts = stack(cluster, NFD, agent)
    left = foreign(
        "agent",
        template(nodeSelector={"modelplane.ai/pool": "nv"}, tolerations=exists("nvidia.com/gpu")),
        namespace="nvidia-dra-driver",
        annotations={"meta.helm.sh/release-name": "mp-dra-driver-nvidia-gpu"},
    )
    (found,) = audit_live(
        cluster, parts, live((node("nv-1", NV), node("sys-1")), [*workloads_of(parts), left])
    ).findings
    assert (found.code, found.message) == (
        "UndeclaredWorkload",
        "nvidia-dra-driver-gpu runs DaemonSet agent in nvidia-dra-driver, which the plan turns off; its template reaches nv.",
    )


def test_an_operators_leftover_asks_for_no_prune_of_the_operator():
    extra = foreign("default-dra-driver", namespace="kube-amd-gpu", owners=(Owner("DeviceConfig", "default", "u"),))
    (found,) = audit_live(CLUSTER, stack(CLUSTER), live(NODES, [*WORKLOADS, extra])).findings
    assert (found.code, found.fix) == ("Orphan", "Delete DeviceConfig default, if none needs it.")


def test_a_pool_that_the_values_still_name_is_no_stray():
    cluster = view(NV)
    kept = {"affinity": in_pools("nv", "old"), "tolerations": exists("nvidia.com/gpu")}
    parts = stack(cluster, NFD, node_feature_discovery={"values": kept})
    old = pool("old", device("gpu.nvidia.com"))
    audit = audit_live(cluster, parts, live((node("nv-1", NV), node("old-1", old)), workloads_of(parts)))
    assert audit.findings == ()
    unnamed = stack(cluster, NFD, node_feature_discovery={"values": {"tolerations": exists("nvidia.com/gpu")}})
    reading = live((node("nv-1", NV), node("old-1", old)), workloads_of(unnamed))
    assert ("StackStrays", "pool/c/old") in told(audit_live(cluster, unnamed, reading).findings)
    spared = audit_live(cluster, unnamed, reading, orphan_pools=frozenset({"old"}))
    assert "StackStrays" not in {f.code for f in spared.findings}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"nodeSelector": {"modelplane.ai/cpu": "true"}},
            [("ToleratesEverything", "component/c/dra-driver-cpu")],
        ),
        (
            {"tolerations": exists("modelplane.ai/cpu", "nvidia.com/gpu", "amd.com/gpu")},
            [
                ("StackStrays", "pool/c/amd"),
                ("StackStrays", "pool/c/nv"),
                ("StackStrays", "pool/c/system"),
                ("TolerationTooBroad", "component/c/dra-driver-cpu"),
                ("TolerationTooBroad", "component/c/dra-driver-cpu"),
            ],
        ),
    ],
)
def test_tolerations_that_the_plan_and_the_cluster_share(values, expected):
    parts = stack(CLUSTER, dra_driver_cpu={"values": values})
    assert told(audit_live(CLUSTER, parts, live(NODES, workloads_of(parts))).findings) == expected


def test_a_workload_bound_to_a_node_by_name_is_judged_node_by_node():
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["nv-1"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    values = {"affinity": affinity, "tolerations": exists("nvidia.com/gpu")}
    cluster = view(NV)
    parts = stack(cluster, NV_DRIVER, nvidia_dra_driver_gpu={"values": values})
    audit = audit_live(cluster, parts, live((node("nv-1", NV), node("nv-2", NV)), workloads_of(parts)))
    assert [f.code for f in audit.findings] == ["StackMissesPool"]
    assert "doesn't on nv-2: its node affinity's matchFields select another node" in audit.findings[0].message


SELECTORS = st.sampled_from(
    [{}, {"modelplane.ai/cpu": "true"}, {PCI: "true"}, {"modelplane.ai/pool": "p0"}, {"modelplane.ai/pool": "p1"}]
)
KEYS = st.lists(st.sampled_from(["nvidia.com/gpu", "amd.com/gpu", "modelplane.ai/cpu"]), unique=True)
HARDWARE = st.sampled_from(
    [
        (device("gpu.nvidia.com"),),
        (device("gpu.amd.com"),),
        (cpus(1, 4),),
        (device("gpu.nvidia.com"), cpus(1, 4)),
        (device("gpu.amd.com"), cpus(2, 4)),
    ]
)
REACHES = st.sampled_from(["only", "at least", "all"])


@settings(max_examples=150, deadline=None)
@given(
    hardware=st.lists(HARDWARE, min_size=1, max_size=4),
    selector=SELECTORS,
    keys=KEYS,
    reach=REACHES,
    counts=st.lists(st.integers(1, 3), min_size=4, max_size=4),
)
def test_the_plan_and_a_cluster_made_from_it_agree(hardware, selector, keys, reach, counts):
    pools = tuple(pool(f"p{i}", *devices) for i, devices in enumerate(hardware))
    cluster = view(*pools)
    agent = replace(
        CPU_DRIVER,
        key="agent",
        release="mp-agent",
        drivers=frozenset({"gpu.nvidia.com", "dra.cpu"}),
        device_classes=(),
        publishes="",
        workloads=(daemon("agent", reach=Reach(reach)),),
        values=lambda _: {"nodeSelector": selector, "tolerations": exists(*keys)},
    )
    parts = stack(cluster, *STACK, agent)
    planned = audit_plan(cluster, parts)
    nodes = [node(f"{p.name}-{n}", p) for p, count in zip(pools, counts, strict=False) for n in range(count)]
    reading = live([*nodes, node("sys-1")], workloads_of(parts))
    seen = audit_live(cluster, parts, reading)
    assert seen.rows == planned.rows
    assert told(seen.findings) == told(planned.findings)


def test_amd_s_taint_value_is_matched_as_the_scheduler_does():
    """A toleration with Equal matches its value alone; nodes that carry another are missed."""
    equal = [{"key": "amd.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}]
    cluster = view(AMD)
    parts = stack(cluster)
    same = changed(
        workloads_of(parts), "mp-amd-dra-driver", nodeSelector={"modelplane.ai/pool": "amd"}, tolerations=equal
    )
    assert audit_live(cluster, parts, live((node("amd-1", AMD), node("sys-1")), same)).findings == ()
    other = node("amd-2", AMD, taints=[replace(AMD_TAINT, value="true")])
    audit = audit_live(cluster, parts, live((node("amd-1", AMD), other, node("sys-1")), same))
    assert [(f.code, f.subject) for f in audit.findings] == [("PlanDisagrees", "component/c/amd-gpu-operator")]
    assert "it doesn't tolerate the taint amd.com/gpu=true:NoSchedule" in audit.findings[0].message
