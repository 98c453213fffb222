"""Where replicas go: the rules of the API, ties, what runs already, room, engines of several members."""

from __future__ import annotations

from typing import Any

import pytest

from modelplane_dagster.findings import Finding
from modelplane_dagster.manifests.fleet import Fleet
from modelplane_dagster.observed import ObservedReplica
from modelplane_dagster.placement import ClusterOffer, HeldReplica, Placement, place_all
from modelplane_dagster.resolve import resolve
from tests.made import cls, cluster, cpus, deployment, engine, fleet, member, nvidia, pool, request

GPU = request('device.driver == "gpu.nvidia.com"', 1, "gpu")
EIGHT = request('device.driver == "gpu.nvidia.com"', 8, "gpu")
BIG = request(
    'device.driver == "gpu.nvidia.com" && device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("70Gi")) >= 0'
)
ONE = cls("one", nvidia(1), source="EKS")
TWO = cls("two", nvidia(2), source="EKS")
H100 = cls("h100", nvidia(8, "80Gi"), source="EKS")


def offers(made: Fleet, **more: dict[str, Any]) -> list[ClusterOffer]:
    """Every cluster, admitted and not looked at, unless `more` says otherwise by name."""
    found = []
    for name in made.clusters:
        view = resolve(made, name, default_version="1.36").view
        assert view is not None
        found.append(ClusterOffer(**{"view": view, "admitted": True, "nodes": None, **more.get(name, {})}))
    return found


def replica(*members: str, name: str = "m") -> ObservedReplica:
    """One that runs: `engine/role=pool` each."""
    return ObservedReplica("models", name, dict(m.split("=") for m in members), ready=1, desired=1)


def place(made: Fleet, *, held: tuple[HeldReplica, ...] = (), **more: dict[str, Any]) -> Placement:
    (found,) = [p for p in place_all(made, offers(made, **more), held=held) if p.name == "m"]
    return found


def where(placement: Placement) -> list[str]:
    """`cluster engine/role=pool ...` a replica."""
    return [
        f"{r.cluster} {' '.join(f'{e.name}/{m.role}={m.pool}' for e in r.engines for m in e.members)}"
        for r in placement.replicas
    ]


def codes(findings: tuple[Finding, ...]) -> list[str]:
    return [f.code for f in findings]


SIMPLE = engine(member(GPU))
ON = "engine/Standalone="


@pytest.mark.parametrize(
    ("clusters", "replicas", "expected"),
    [
        # All alike: by name.
        ({"b": 1, "a": 1, "c": 1}, 1, ["a"]),
        # Most free nodes first.
        ({"a": 1, "b": 3, "c": 2}, 1, ["b"]),
        # Fewest own replicas first, whatever is free.
        ({"a": 1, "b": 9, "c": 2}, 3, ["a", "b", "c"]),
        ({"a": 1, "b": 9, "c": 2}, 4, ["a", "b", "b", "c"]),
        ({"a": 1, "b": 9, "c": 2}, 6, ["a", "b", "b", "b", "c", "c"]),
    ],
)
def test_ties(clusters: dict[str, int], replicas: int, expected: list[str]) -> None:
    made = fleet(
        ONE,
        *(cluster(n, "EKS", pool("p", "one", nodes)) for n, nodes in clusters.items()),
        deployment("m", SIMPLE, replicas=replicas),
    )
    placement = place(made)
    assert (placement.verdict, [r.cluster for r in placement.replicas]) == ("placed", expected)


def test_deployments_see_the_room_that_others_left() -> None:
    made = fleet(
        ONE,
        cluster("a", "EKS", pool("p", "one", 1)),
        deployment("l", SIMPLE),
        deployment("m", SIMPLE),
    )
    first, second = place_all(made, offers(made))
    assert (first.name, first.verdict, second.name, second.verdict) == ("l", "placed", "m", "unplaced")
    assert [(f.code, f.message) for f in second.findings] == [
        ("NoNodesFree", "0 of 1 replicas of m are placed: the pools that match have no node free.")
    ]


def test_the_one_with_the_fewest_clusters_to_choose_from_goes_first() -> None:
    made = fleet(
        ONE,
        cluster("a", "EKS", pool("p", "one"), labels={"region": "east"}),
        cluster("b", "EKS", pool("p", "one"), labels={"region": "west"}),
        deployment("anywhere", SIMPLE),
        deployment("m", SIMPLE, select={"region": "east"}),
    )
    found = place_all(made, offers(made))
    assert [(p.name, [r.cluster for r in p.replicas]) for p in found] == [("anywhere", ["b"]), ("m", ["a"])]


def test_two_replicas_share_a_node_that_has_the_devices() -> None:
    made = fleet(TWO, cluster("a", "EKS", pool("p", "two", 1)), deployment("m", SIMPLE, replicas=2))
    assert where(place(made)) == [f"a {ON}p", f"a {ON}p"]


def test_copies_take_room_each() -> None:
    made = fleet(ONE, cluster("a", "EKS", pool("p", "one", 3)), deployment("m", engine(member(GPU), copies=4)))
    assert (place(made).verdict, codes(place(made).findings)) == ("unplaced", ["NoNodesFree"])
    made = fleet(ONE, cluster("a", "EKS", pool("p", "one", 4)), deployment("m", engine(member(GPU), copies=4)))
    assert where(place(made)) == [f"a {ON}p"]


@pytest.mark.parametrize(
    ("own", "verdict"),
    [
        ({"nodes": 0}, "unplaced"),
        ({"nodes": 0, "minNodeCount": 0, "maxNodeCount": 1}, "placed"),
        ({"nodes": 1, "minNodeCount": 1, "maxNodeCount": 1}, "placed"),
    ],
)
def test_an_autoscaled_pool_grows_to_its_bound(own: dict[str, int], verdict: str) -> None:
    nodes = own.pop("nodes")
    made = fleet(ONE, cluster("a", "EKS", pool("p", "one", nodes, **own)), deployment("m", SIMPLE))
    # Its ready nodes don't bound it, those of a fixed pool do.
    ready = {"p": nodes}
    assert place(made, a={"nodes": ready}).verdict == verdict


def test_what_is_ready_bounds_a_fixed_pool() -> None:
    made = fleet(ONE, cluster("a", "EKS", pool("p", "one", 2)), deployment("m", SIMPLE, replicas=2))
    assert [place(made, a={"nodes": {"p": n}}).verdict for n in (2, 1, 0)] == ["placed", "unplaced", "unplaced"]


# Selectors and taints of clusters


def test_the_selector_chooses_by_labels() -> None:
    made = fleet(
        ONE,
        cluster("a", "EKS", pool("p", "one"), labels={"tier": "dev"}),
        cluster("b", "EKS", pool("p", "one"), labels={"tier": "prod"}),
        deployment("m", SIMPLE, select={"tier": "prod"}),
    )
    assert where(place(made)) == [f"b {ON}p"]


def test_no_cluster_has_the_labels() -> None:
    made = fleet(ONE, cluster("a", "EKS", pool("p", "one")), deployment("m", SIMPLE, select={"tier": "prod"}))
    assert [(f.code, f.message) for f in place(made).findings] == [
        ("NoClusterMatches", "0 of 1 replicas of m are placed: no cluster has the labels tier=prod.")
    ]


TOLERATION = {"key": "maintenance", "operator": "Exists"}


@pytest.mark.parametrize(
    ("effect", "tolerations", "running", "expected"),
    [
        ("NoSchedule", [], False, ["b"]),
        ("NoSchedule", [TOLERATION], False, ["a"]),
        # What runs stays under NoSchedule and is drained by NoExecute.
        ("NoSchedule", [], True, ["a"]),
        ("NoExecute", [], True, ["b"]),
        ("NoExecute", [TOLERATION], True, ["a"]),
        ("NoExecute", [{"key": "maintenance", "value": "no", "operator": "Equal"}], True, ["b"]),
        ("NoExecute", [{**TOLERATION, "effect": "NoSchedule"}], True, ["b"]),
        ("NoExecute", [{"operator": "Exists"}], False, ["a"]),
    ],
)
def test_taints_of_clusters(effect: str, tolerations: Any, running: bool, expected: list[str]) -> None:
    made = fleet(
        ONE,
        cluster("a", "EKS", pool("p", "one"), taints=[{"key": "maintenance", "value": "yes", "effect": effect}]),
        cluster("b", "EKS", pool("p", "one")),
        deployment("m", SIMPLE, tolerations=tolerations),
    )
    there = {"replicas": (replica(f"{ON}p"),)} if running else {}
    assert [r.cluster for r in place(made, a=there).replicas] == expected


# Why a replica has no place: cluster a has the pool, b a pool that is too small.
SHUT = [{"key": "maintenance", "value": "yes", "effect": "NoSchedule"}]
GONE = [{"key": "maintenance", "value": "yes", "effect": "NoExecute"}, {"key": "team", "effect": "NoSchedule"}]
ON_A = "pools that match are on clusters whose taints it doesn't tolerate: a (maintenance=yes:NoSchedule)."
ON_BOTH = ON_A.replace("Schedule)", "Execute, team:NoSchedule), c (maintenance=yes:NoSchedule)")
FULL = "the pools that match have no node free; others are on clusters whose taints it doesn't tolerate: a"
TOO_SMALL = [("NoPoolMatches", "no pool satisfies its device requests.")]


@pytest.mark.parametrize(
    ("taints", "select", "more", "expected"),
    [
        ({"a": SHUT}, {}, {}, [("ClusterTainted", ON_A)]),
        ({"a": GONE, "c": SHUT}, {}, {}, [("ClusterTainted", ON_BOTH)]),
        # Room is what is missing where it may go; the taint is named all the same.
        ({"a": SHUT}, {}, {"c": {"nodes": {"p": 0}}}, [("NoNodesFree", f"{FULL} (maintenance=yes:NoSchedule).")]),
        (
            {"a": SHUT},
            {},
            {"c": {"admitted": False}},
            [
                ("ClusterTainted", ON_A),
                ("ClusterNotReady", "no pool of an admitted cluster matches; c is refused."),
            ],
        ),
        # The taint or the refusal of a cluster without such pools, or that isn't selected, is no reason.
        ({"a": SHUT, "b": SHUT}, {"tier": "b"}, {}, TOO_SMALL),
        ({}, {"tier": "b"}, {"b": {"admitted": False}, "c": {"admitted": False}}, TOO_SMALL),
        (
            {},
            {},
            {"a": {"unread": "no answer", "may_hold": frozenset()}, "c": {"admitted": False}},
            [
                (
                    "ClusterNotReady",
                    "no pool of an admitted cluster matches; c is refused, and what runs on a can't be read.",
                )
            ],
        ),
    ],
)
def test_why_it_has_no_place(
    taints: dict[str, Any], select: dict[str, str], more: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    """Clusters a and b, and c where the case speaks of it; b's pool has one GPU, and two are asked for."""
    classes = {"a": "two", "b": "one", "c": "two"}
    names = [n for n in classes if n != "c" or n in taints or n in more]
    made = fleet(
        ONE,
        TWO,
        *(cluster(n, "EKS", pool("p", classes[n]), labels={"tier": n}, taints=taints.get(n, [])) for n in names),
        deployment("m", engine(member(request('device.driver == "gpu.nvidia.com"', 2, "gpu"))), select=select),
    )
    placement = place(made, **more)
    assert placement.verdict == "unplaced"
    assert [(f.code, f.message) for f in placement.findings] == [
        (code, f"0 of 1 replicas of m are placed: {why}") for code, why in expected
    ]


LIFT = "Take the taint off cluster {} (spec.taints), or add to the deployment's template tolerations: [{}]."
LIFT_ALL = LIFT.replace("taint off", "taints off")
TOLERATED = ["{key: maintenance, operator: Exists}", "{key: team, operator: Exists}"]


@pytest.mark.parametrize(
    ("taints", "fix"),
    [
        ({"a": SHUT}, LIFT.format("a", TOLERATED[0])),
        # The cluster with the fewest taints is the nearest.
        ({"a": GONE, "b": SHUT}, LIFT.format("b", TOLERATED[0])),
        ({"a": GONE}, LIFT_ALL.format("a", ", ".join(TOLERATED))),
    ],
)
def test_the_fix_writes_out_the_tolerations(taints: dict[str, Any], fix: str) -> None:
    made = fleet(
        ONE, *(cluster(n, "EKS", pool("p", "one"), taints=t) for n, t in taints.items()), deployment("m", SIMPLE)
    )
    assert [f.fix for f in place(made).findings] == [fix]


def test_a_replica_that_runs_there_opens_a_tainted_cluster_to_no_other() -> None:
    made = fleet(ONE, cluster("a", "EKS", pool("p", "one", 3), taints=SHUT), deployment("m", SIMPLE, replicas=2))
    placement = place(made, a={"replicas": (replica(f"{ON}p"),)})
    assert (where(placement), codes(placement.findings)) == ([f"a {ON}p"], ["ClusterTainted"])


# What runs already


def test_a_replica_that_runs_stays_where_it_is() -> None:
    made = fleet(
        ONE,
        cluster("a", "EKS", pool("p", "one", 9)),
        cluster("b", "EKS", pool("p", "one"), pool("q", "one")),
        deployment("m", SIMPLE),
    )
    assert where(place(made, b={"replicas": (replica(f"{ON}q"),)})) == [f"b {ON}q"]


@pytest.mark.parametrize(
    "more",
    [
        {"admitted": False},
        {"nodes": {"p": 0}},
        {"admitted": False, "nodes": {"p": 0}},
    ],
)
def test_it_stays_when_its_cluster_is_refused_or_its_nodes_are_not_ready(more: dict[str, Any]) -> None:
    made = fleet(
        ONE,
        cluster("a", "EKS", pool("p", "one")),
        cluster("b", "EKS", pool("p", "one")),
        deployment("m", SIMPLE),
    )
    placement = place(made, b={"replicas": (replica(f"{ON}p"),), **more})
    assert (placement.verdict, where(placement), placement.findings) == ("placed", [f"b {ON}p"], ())


def test_a_refused_cluster_takes_nothing_new() -> None:
    made = fleet(ONE, cluster("a", "EKS", pool("p", "one")), deployment("m", SIMPLE))
    placement = place(made, a={"admitted": False})
    assert (placement.verdict, where(placement)) == ("unplaced", [])
    assert [(f.code, f.message) for f in placement.findings] == [
        ("ClusterNotReady", "0 of 1 replicas of m are placed: no pool of an admitted cluster matches; a is refused.")
    ]


def test_what_runs_takes_its_room_before_anything_new() -> None:
    made = fleet(ONE, cluster("a", "EKS", pool("p", "one")), deployment("l", SIMPLE), deployment("m", SIMPLE))
    found = place_all(made, offers(made, a={"replicas": (replica(f"{ON}p"),)}))
    assert [(p.name, p.verdict) for p in found] == [("l", "unplaced"), ("m", "placed")]


def test_it_moves_to_another_pool_when_its_own_is_gone_or_no_longer_does() -> None:
    made = fleet(
        ONE,
        H100,
        cluster("a", "EKS", pool("small", "one"), pool("big", "h100")),
        deployment("m", engine(member(BIG))),
    )
    for gone in ("small", "vanished"):
        assert where(place(made, a={"replicas": (replica(f"{ON}{gone}"),)})) == [f"a {ON}big"]


def test_fewer_replicas_keep_the_first_by_name() -> None:
    made = fleet(
        ONE,
        *(cluster(n, "EKS", pool("p", "one")) for n in "abc"),
        deployment("m", SIMPLE, replicas=2),
    )
    there = {"replicas": (replica(f"{ON}p"),)}
    assert [r.cluster for r in place(made, a=there, b=there, c=there).replicas] == ["a", "b"]


def test_a_replica_that_may_run_where_nobody_can_look_counts() -> None:
    made = fleet(
        ONE, cluster("a", "EKS", pool("p", "one")), cluster("b", "EKS", pool("p", "one")), deployment("m", SIMPLE)
    )
    placement = place(made, b={"unread": "the API drops connections"})
    assert (placement.verdict, where(placement)) == ("unplaced", [])
    assert [(f.code, f.message) for f in placement.findings] == [
        (
            "ReplicaHeld",
            (
                "A replica of m on cluster b counts and is left as it is: whether a replica runs there can't be read: the API "
                "drops connections."
            ),
        )
    ]


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        ({("models", "m")}, []),
        ({("models", "other"), ("others", "m")}, [f"a {ON}p"]),
        (set(), [f"a {ON}p"]),
        # A record that never noted it says nothing.
        (None, []),
    ],
)
def test_only_what_was_ever_given_to_an_unread_cluster_may_run_there(recorded: Any, expected: list[str]) -> None:
    made = fleet(
        ONE, cluster("a", "EKS", pool("p", "one")), cluster("b", "EKS", pool("p", "one")), deployment("m", SIMPLE)
    )
    may_hold = None if recorded is None else frozenset(recorded)
    placement = place(made, b={"unread": "the API drops connections", "may_hold": may_hold})
    assert (where(placement), codes(placement.findings)) == (expected, [] if expected else ["ReplicaHeld"])
    # An API that doesn't answer may answer again.
    assert not any(f.lasts for f in placement.findings)


def test_an_unread_cluster_holds_up_nothing_that_it_couldnt_run() -> None:
    made = fleet(
        ONE,
        cls("cpu", cpus(), source="EKS"),
        cluster("a", "EKS", pool("p", "one")),
        cluster("b", "EKS", pool("p", "cpu")),
        deployment("m", SIMPLE),
    )
    assert where(place(made, b={"unread": "the API drops connections"})) == [f"a {ON}p"]


def test_a_replica_on_a_cluster_of_unknown_manifests_counts() -> None:
    made = fleet(ONE, cluster("a", "EKS", pool("p", "one")), deployment("m", SIMPLE, replicas=2))
    placement = place(made, held=(HeldReplica("broken", "models", "m"), HeldReplica("broken", "models", "other")))
    assert (placement.verdict, where(placement)) == ("unplaced", [f"a {ON}p"])
    assert [(f.code, f.lasts) for f in placement.findings] == [("ReplicaHeld", True)]


# Engines of several members, and several engines

LEADER, WORKER = member(EIGHT, role="Leader"), member(EIGHT, role="Worker", worker={"nodes": 2})


def test_a_gang_takes_one_pool_where_one_has_room() -> None:
    made = fleet(
        H100,
        cluster("a", "EKS", pool("small", "h100", 2), pool("big", "h100", 3)),
        deployment("m", engine(LEADER, WORKER)),
    )
    assert where(place(made)) == ["a engine/Leader=big engine/Worker=big"]


def test_a_gang_is_split_where_no_pool_has_room_for_all() -> None:
    made = fleet(
        H100,
        cluster("a", "EKS", pool("one", "h100", 1), pool("two", "h100", 2)),
        deployment("m", engine(LEADER, WORKER)),
    )
    assert where(place(made)) == ["a engine/Leader=one engine/Worker=two"]


def test_members_that_ask_for_different_devices_stand_on_pools_of_their_own() -> None:
    made = fleet(
        ONE,
        H100,
        cluster("a", "EKS", pool("small", "one"), pool("big", "h100", 2)),
        deployment(
            "m",
            engine(
                member(
                    request('device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("30Gi")) < 0'), role="Leader"
                ),
                member(BIG, role="Worker", worker={"nodes": 2}),
            ),
        ),
    )
    assert where(place(made)) == ["a engine/Leader=small engine/Worker=big"]


def test_a_split_gang_without_room_has_no_node_free() -> None:
    made = fleet(
        H100,
        cluster("a", "EKS", pool("one", "h100", 1), pool("two", "h100", 1)),
        deployment("m", engine(LEADER, WORKER)),
    )
    assert codes(place(made).findings) == ["NoNodesFree"]


def test_a_member_that_asks_for_nothing_stands_beside_the_other() -> None:
    made = fleet(
        H100,
        cluster("a", "EKS", pool("p", "h100", 2)),
        deployment("m", engine(member(role="Leader"), member(EIGHT, role="Worker", worker={"nodes": 2}))),
    )
    placement = place(made)
    assert where(placement) == ["a engine/Leader=p engine/Worker=p"]
    assert placement.replicas[0].engines[0].members[0].requests == ()


def test_a_gang_that_runs_split_stays_split() -> None:
    made = fleet(
        H100,
        cluster("a", "EKS", pool("big", "h100", 9), pool("one", "h100", 1), pool("two", "h100", 2)),
        deployment("m", engine(LEADER, WORKER)),
    )
    there = {"replicas": (replica("engine/Leader=one", "engine/Worker=two"),)}
    assert where(place(made, a=there)) == ["a engine/Leader=one engine/Worker=two"]


def test_prefill_and_decode_are_two_engines_of_one_cluster() -> None:
    prefill, decode = (
        engine(member(BIG), name="prefill", phase="Prefill"),
        engine(member(GPU), name="decode", phase="Decode"),
    )
    made = fleet(
        ONE,
        H100,
        cluster("a", "EKS", pool("small", "one")),
        cluster("b", "EKS", pool("small", "one"), pool("big", "h100")),
        deployment("m", prefill, decode, mode="PrefillDecode"),
    )
    assert where(place(made)) == ["b prefill/Standalone=big decode/Standalone=small"]


# Selectors that fail, images

TYPO = request('device.attributes["gpu.nvidia.com"].memroy == "x"', 1, "gpu")


def test_a_selector_that_fails_refuses_the_deployment() -> None:
    made = fleet(ONE, cluster("a", "EKS", pool("p", "one")), deployment("m", engine(member(TYPO))))
    placement = place(made)
    assert (placement.verdict, codes(placement.findings)) == ("refused", ["SelectorError"])


def test_a_selector_that_fails_on_one_device_of_the_driver_matches_none() -> None:
    """The allocator meets both devices, and the one that lacks the attribute aborts the claim."""
    named = {"attributes": {"model": {"string": "H100"}}}
    made = fleet(
        cls("half", nvidia(1, name="bare"), nvidia(1, **named), source="EKS"),
        cluster("a", "EKS", pool("p", "half")),
        deployment("m", engine(member(request('device.attributes["gpu.nvidia.com"].model == "H100"')))),
    )
    placement = place(made)
    assert (placement.verdict, codes(placement.findings)) == ("refused", ["SelectorError"])


def test_a_guarded_selector_matches_the_device_that_has_the_field() -> None:
    named = {"attributes": {"model": {"string": "H100"}}}
    cel = '"model" in device.attributes["gpu.nvidia.com"] && device.attributes["gpu.nvidia.com"].model == "H100"'
    made = fleet(
        cls("half", nvidia(1, name="bare"), nvidia(1, **named), source="EKS"),
        cluster("a", "EKS", pool("p", "half")),
        deployment("m", engine(member(request(cel)))),
    )
    assert where(place(made)) == [f"a {ON}p"]


def test_a_device_of_another_driver_is_no_match_and_no_error() -> None:
    cel = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("20Gi")) >= 0'
    made = fleet(
        cls("both", cpus(), nvidia(), source="EKS"),
        cluster("a", "EKS", pool("p", "both")),
        deployment("m", engine(member(request(cel)))),
    )
    placement = place(made)
    assert (where(placement), placement.findings) == ([f"a {ON}p"], ())


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("vllm/vllm-openai:v0.23.0", []),
        ("vllm/vllm-openai-rocm:v0.23.0", ["Image vllm/vllm-openai-rocm:v0.23.0 is built for amd, and pool p of a runs nvidia."]),
        ("rocm/vllm:latest", ["Image rocm/vllm:latest is built for amd, and pool p of a runs nvidia."]),
        ("public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo:v1", ["Image public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo:v1 is built for cpu, and pool p of a runs nvidia."]),
        ("registry.example.com/mine:v1", []),
    ],
)  # fmt: skip
def test_images_are_held_to_the_devices(image: str, expected: list[str]) -> None:
    made = fleet(ONE, cluster("a", "EKS", pool("p", "one")), deployment("m", engine(member(GPU, image=image))))
    placement = place(made)
    assert (placement.verdict, [f.message for f in placement.findings]) == ("placed", expected)
