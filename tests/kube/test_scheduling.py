from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelplane_dagster.kube.objects import NodeFacts, PodPlacement, Requirement, Taint, Term, Toleration
from modelplane_dagster.kube.scheduling import (
    by_name,
    daemon_should_run,
    daemon_tolerations,
    group_nodes,
    labels_of_interest,
    matches_selector,
    may_run,
    requirement_holds,
    tolerates,
    untolerated,
    why_not,
)

GPU = Taint("nvidia.com/gpu", "present", "NoSchedule")
CORDON = "node.kubernetes.io/unschedulable"


@pytest.mark.parametrize(
    ("toleration", "taint", "covered"),
    [
        (Toleration("nvidia.com/gpu", "Exists"), GPU, True),
        (Toleration("nvidia.com/gpu", "Exists", "", "NoSchedule"), GPU, True),
        (Toleration("nvidia.com/gpu", "Exists", "", "NoExecute"), GPU, False),
        (Toleration("nvidia.com/gpu", "Exists", "other"), GPU, True),
        (Toleration("nvidia.com/gpu", "Equal", "present"), GPU, True),
        (Toleration("nvidia.com/gpu", "", "present"), GPU, True),
        # The trap of a daemon that reports DESIRED 1, READY 1 on the system node alone.
        (Toleration("nvidia.com/gpu", "Equal", "true"), GPU, False),
        (Toleration("nvidia.com/gpu", "Equal", "Present"), GPU, False),
        (Toleration("nvidia.com/gpu", "Equal"), GPU, False),
        (Toleration("amd.com/gpu", "Exists"), GPU, False),
        (Toleration("", "Exists"), GPU, True),
        (Toleration("", "Exists", "", "NoSchedule"), GPU, True),
        (Toleration("", "Exists", "", "NoExecute"), GPU, False),
        (Toleration("nvidia.com/gpu", "In", "present"), GPU, False),
        (Toleration("score", "Lt", "10"), Taint("score", "9"), True),
        (Toleration("score", "Lt", "10"), Taint("score", "10"), False),
        (Toleration("score", "Gt", "10"), Taint("score", "11"), True),
        (Toleration("score", "Gt", "10"), Taint("score", "9"), False),
        (Toleration("score", "Gt", "-1"), Taint("score", "0"), True),
        (Toleration("score", "Gt", "ten"), Taint("score", "11"), False),
        (Toleration("score", "Lt", "10"), Taint("score", "nine"), False),
        (Toleration("score", "Lt", "9223372036854775808"), Taint("score", "1"), False),
        (Toleration("score", "Lt", "1_0"), Taint("score", "1"), False),
    ],
)
def test_a_toleration_covers_a_taint(toleration: Toleration, taint: Taint, covered: bool) -> None:
    assert tolerates(toleration, taint) is covered


def test_every_taint_that_keeps_out_needs_a_toleration() -> None:
    evict, prefer = Taint("maintenance", "", "NoExecute"), Taint("slow", "", "PreferNoSchedule")
    tolerations = (Toleration("nvidia.com/gpu", "Exists"),)
    assert untolerated(tolerations, (prefer, evict, GPU)) == (evict,)
    assert untolerated((), (prefer, evict, GPU)) == (evict, GPU)
    assert untolerated((), (evict, GPU), ("NoExecute",)) == (evict,)
    assert untolerated((), (prefer,)) == ()


@pytest.mark.parametrize(
    ("operator", "values", "label", "holds"),
    [
        ("In", ("a", "b"), "b", True),
        ("In", ("a",), "b", False),
        ("In", ("a",), None, False),
        ("In", (), "a", False),
        ("In", ("",), "", True),
        ("NotIn", ("a",), "b", True),
        ("NotIn", ("a",), "a", False),
        ("NotIn", ("a",), None, True),
        ("NotIn", (), "a", False),
        ("Exists", (), "", True),
        ("Exists", (), None, False),
        ("Exists", ("a",), "a", False),
        ("DoesNotExist", (), None, True),
        ("DoesNotExist", (), "a", False),
        ("DoesNotExist", ("a",), None, False),
        ("Gt", ("3",), "4", True),
        ("Gt", ("3",), "3", False),
        ("Gt", ("3",), "many", False),
        ("Gt", ("3",), None, False),
        ("Gt", ("3", "4"), "9", False),
        ("Gt", ("x",), "9", False),
        ("Gt", ("3",), "9223372036854775808", False),
        ("Gt", ("3",), "+4", True),
        ("Gt", ("3",), " 4", False),
        ("Lt", ("3",), "-1", True),
        ("Lt", ("3",), "3", False),
        ("Near", ("3",), "3", False),
    ],
)
def test_a_requirement_holds(operator: str, values: tuple[str, ...], label: str | None, holds: bool) -> None:
    labels = {} if label is None else {"k": label}
    assert requirement_holds(Requirement("k", operator, values), labels) is holds


def node(name: str = "n1", **facts: object) -> NodeFacts:
    return NodeFacts(name, **facts)  # type: ignore[arg-type]  # one place for all the fields


A, B = Requirement("a", "Exists"), Requirement("b", "Exists")
NAME_N1 = Requirement("metadata.name", "In", ("n1",))


@pytest.mark.parametrize(
    ("placement", "labels", "selected"),
    [
        (PodPlacement(), {}, True),
        (PodPlacement({"a": "1"}), {"a": "1", "b": "2"}, True),
        (PodPlacement({"a": "1", "b": "2"}), {"a": "1"}, False),
        (PodPlacement({"a": "1"}), {"a": "2"}, False),
        (PodPlacement({"a": ""}), {}, False),
        (PodPlacement(affinity=()), {"a": "1"}, False),
        (PodPlacement(affinity=(Term(),)), {"a": "1"}, False),
        (PodPlacement(affinity=(Term(), Term((A,)))), {"a": "1"}, True),
        (PodPlacement(affinity=(Term((A,)), Term((B,)))), {"b": "1"}, True),
        (PodPlacement(affinity=(Term((A, B)),)), {"b": "1"}, False),
        (PodPlacement({"c": "1"}, (Term((A,)),)), {"a": "1"}, False),
        (PodPlacement(affinity=(Term(fields=(NAME_N1,)),)), {}, True),
        (PodPlacement(affinity=(Term((A,), (NAME_N1,)),)), {}, False),
        (PodPlacement(affinity=(Term(fields=(Requirement("metadata.name", "NotIn", ("n1",)),)),)), {}, False),
        (PodPlacement(affinity=(Term(fields=(Requirement("metadata.name", "NotIn", ("n2",)),)),)), {}, True),
        (PodPlacement(affinity=(Term(fields=(Requirement("metadata.name", "In", ("n1", "n2")),)),)), {}, False),
        (PodPlacement(affinity=(Term(fields=(Requirement("metadata.name", "Exists"),)),)), {}, False),
        (PodPlacement(affinity=(Term(fields=(Requirement("spec.nodeName", "In", ("n1",)),)),)), {}, False),
    ],
)
def test_selectors_and_required_affinity_select_together(
    placement: PodPlacement, labels: dict[str, str], selected: bool
) -> None:
    assert matches_selector(placement, node(labels=labels)) is selected


EXISTS = Toleration("nvidia.com/gpu", "Exists")


@pytest.mark.parametrize(
    ("placement", "where", "pod", "daemon", "reason"),
    [
        (PodPlacement(), node(), True, True, None),
        (
            PodPlacement(),
            node(taints=(GPU,)),
            False,
            False,
            "it doesn't tolerate the taint nvidia.com/gpu=present:NoSchedule",
        ),
        (PodPlacement(tolerations=(EXISTS,)), node(taints=(GPU,)), True, True, None),
        (PodPlacement(), node(unschedulable=True), False, True, f"it doesn't tolerate the taint {CORDON}:NoSchedule"),
        (
            PodPlacement(tolerations=(Toleration(CORDON, "Exists", "", "NoSchedule"),)),
            node(unschedulable=True),
            True,
            True,
            None,
        ),
        (
            PodPlacement(),
            node(taints=(Taint("node.kubernetes.io/not-ready", "", "NoExecute"),)),
            False,
            True,
            "it doesn't tolerate the taint node.kubernetes.io/not-ready:NoExecute",
        ),
        (PodPlacement(node_name="n2"), node(), False, False, "its nodeName is n2"),
        (PodPlacement(node_name="n1"), node(), True, True, None),
        (
            PodPlacement({"modelplane.ai/cpu": "true"}),
            node(labels={"modelplane.ai/cpu": "false"}),
            False,
            False,
            "its nodeSelector asks for modelplane.ai/cpu=true, and the node has modelplane.ai/cpu=false",
        ),
        (
            PodPlacement({"a": "1"}),
            node(taints=(GPU,)),
            False,
            False,
            "its nodeSelector asks for a=1, and the node lacks that label",
        ),
        (PodPlacement(affinity=()), node(), False, False, "its node affinity has no terms"),
        (
            PodPlacement(affinity=(Term((Requirement("modelplane.ai/pool", "In", ("h100", "l4")),)),)),
            node(labels={"modelplane.ai/pool": "cpu"}),
            False,
            False,
            "its node affinity asks for modelplane.ai/pool In [h100, l4], and the node has modelplane.ai/pool=cpu",
        ),
        (
            PodPlacement(affinity=(Term((A,)), Term((B,)))),
            node(),
            False,
            False,
            "none of its node affinity's terms selects the node",
        ),
    ],
)
def test_where_pods_and_daemons_may_run(
    placement: PodPlacement, where: NodeFacts, pod: bool, daemon: bool, reason: str | None
) -> None:
    assert may_run(placement, where) is pod
    assert daemon_should_run(placement, where) is daemon
    assert why_not(placement, where) == reason
    assert (why_not(placement, where, daemon=True) is None) is daemon


def test_the_controllers_own_tolerations() -> None:
    added = daemon_tolerations((EXISTS,))
    assert [(t.key.removeprefix("node.kubernetes.io/"), t.operator, t.effect) for t in added] == [
        ("nvidia.com/gpu", "Exists", ""),
        ("not-ready", "Exists", "NoExecute"),
        ("unreachable", "Exists", "NoExecute"),
        ("disk-pressure", "Exists", "NoSchedule"),
        ("memory-pressure", "Exists", "NoSchedule"),
        ("pid-pressure", "Exists", "NoSchedule"),
        ("unschedulable", "Exists", "NoSchedule"),
    ]
    offline = node(taints=(Taint("node.kubernetes.io/network-unavailable", "", "NoSchedule"),))
    assert not daemon_should_run(PodPlacement(), offline)
    assert daemon_should_run(PodPlacement(), offline, host_network=True)
    assert len(daemon_tolerations((), host_network=True)) == 7


def test_nodes_that_no_template_tells_apart_stand_together() -> None:
    templates = [PodPlacement({"pool": "a"}), PodPlacement(affinity=(Term((Requirement("gpu", "Exists"),)),))]
    keys = labels_of_interest(templates)
    assert keys == {"pool", "gpu"}
    nodes = [
        node("n1", labels={"pool": "a", "hostname": "n1"}),
        node("n2", labels={"pool": "a", "hostname": "n2"}),
        node("n3", labels={"pool": "a", "gpu": ""}),
        node("n4", labels={"pool": "a"}, taints=(GPU,)),
        node("n5", labels={"pool": "a"}, unschedulable=True),
    ]
    assert [[n.name for n in group] for group in group_nodes(nodes, keys)] == [["n1", "n2"], ["n3"], ["n4"], ["n5"]]
    assert [by_name(p) for p in (*templates, PodPlacement(affinity=(Term(fields=(NAME_N1,)),)))] == [False, False, True]


KEYS, VALUES = st.sampled_from(["a", "b"]), st.sampled_from(["", "1", "2"])
LABELS = st.dictionaries(KEYS, VALUES, max_size=2)
TAINTS = st.lists(
    st.builds(Taint, KEYS, VALUES, st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])), max_size=2
)
NODES = st.builds(NodeFacts, st.sampled_from(["n1", "n2"]), LABELS, TAINTS.map(tuple), st.booleans())
REQUIREMENTS = st.builds(
    Requirement,
    KEYS,
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    st.lists(VALUES, max_size=2).map(tuple),
)
PLACEMENTS = st.builds(
    PodPlacement,
    LABELS,
    st.none() | st.lists(st.builds(Term, st.lists(REQUIREMENTS, max_size=2).map(tuple)), max_size=2).map(tuple),
    st.lists(
        st.builds(Toleration, KEYS, st.sampled_from(["Exists", "Equal"]), VALUES, st.sampled_from(["", "NoSchedule"])),
        max_size=2,
    ).map(tuple),
)


@settings(max_examples=200, deadline=None)
@given(PLACEMENTS, NODES)
def test_a_reason_is_given_exactly_where_the_pod_may_not_run(placement: PodPlacement, where: NodeFacts) -> None:
    assert (why_not(placement, where) is None) is may_run(placement, where)
    assert not may_run(placement, where) or daemon_should_run(placement, where)
    everything = PodPlacement(placement.node_selector, placement.affinity, (Toleration("", "Exists"),))
    assert may_run(everything, where) is matches_selector(placement, where)


@settings(max_examples=100, deadline=None)
@given(st.lists(PLACEMENTS, max_size=3), st.lists(NODES, max_size=5))
def test_a_group_is_of_one_mind(placements: list[PodPlacement], nodes: list[NodeFacts]) -> None:
    groups = group_nodes(nodes, labels_of_interest(placements))
    assert sum(map(len, groups)) == len(nodes)
    for placement in placements:
        for group in groups:
            assert len({may_run(placement, n) for n in group}) == 1
