"""Each source's cluster as the product made it, read by Kubernetes' own client: what runs where, and who got which device."""

from __future__ import annotations

import pytest

from tests.kubernetes.legs.conftest import Fleet
from tests.kubernetes.legs.fleet import AMD, CPU, DORMANT, DRIVERS, EVERYWHERE, GPU, KEYS, LEGS, NAMESPACE, Leg
from tests.kubernetes.legs.reading import is_ready, taint_keys

pytestmark = [pytest.mark.kubernetes, pytest.mark.parametrize("leg", LEGS, ids=lambda leg: leg.source)]

DEVICES = {
    # (leg, pool): the devices of each node, and what a claim of the leg's engine is given of them.
    ("EKS", GPU): (["gpu-0"], ["gpu-0"]),
    ("EKS", CPU): (["cpudevnuma000"], ["cpudevnuma000"]),
    ("GKE", GPU): (["gpu-0"], ["gpu-0"]),
    ("GKE", CPU): ([f"cpudev{n:03}" for n in range(2, 8)], [f"cpudev{n:03}" for n in range(2, 8)]),
    ("AKS", GPU): (["gpu-0"], ["gpu-0"]),
    ("AKS", CPU): ([f"cpudev{n:03}" for n in range(2, 8)], [f"cpudev{n:03}" for n in range(2, 8)]),
    ("Nebius", GPU): (["gpu-0"], ["gpu-0"]),
    ("Nebius", CPU): ([f"cpudev{n:03}" for n in range(2, 16)], [f"cpudev{n:03}" for n in range(2, 16)]),
    ("Vultr", GPU): (["gpu-0"], ["gpu-0"]),
    ("Vultr", CPU): (["cpudevnuma000"], ["cpudevnuma000"]),
    ("Civo", GPU): (["gpu-0"], ["gpu-0"]),
    ("Civo", CPU): ([f"cpudev{n:03}" for n in range(2, 8)], [f"cpudev{n:03}" for n in range(2, 8)]),
    ("Existing", GPU): ([f"gpu-{n}" for n in range(8)], ["gpu-0"]),
    ("Existing", CPU): (["cpudevnuma000", "cpudevnuma001"], ["cpudevnuma000"]),
    ("Existing", AMD): ([f"gpu-{n}" for n in range(8)], ["gpu-0"]),
}


def test_nodes_are_shaped_as_their_cloud_makes_them(fleet: Fleet, leg: Leg) -> None:
    nodes = fleet.read(leg).nodes()
    assert [name for name, n in nodes.items() if not set(leg.labels) <= n["metadata"]["labels"].keys()] == []
    of_pool: dict[str, list[str]] = {}
    for name, pool in fleet.read(leg).pool_of().items():
        of_pool.setdefault(pool, []).append(name)
    for pool, count in leg.nodes.items():
        assert [taint_keys(nodes[name]) for name in of_pool.pop(pool)] == [{KEYS[pool]}] * count
    # What is left is the system pool, or the owner's own room: nothing keeps a controller off.
    (others,) = of_pool.values()
    assert {frozenset(taint_keys(nodes[name])) for name in others} == {frozenset()}


def test_each_stack_runs_on_every_node_of_its_pools_and_on_no_other(fleet: Fleet, leg: Leg) -> None:
    pool_of = fleet.read(leg).pool_of()
    expected = {(d.namespace, d.name): {n for n, p in pool_of.items() if p in d.pools} for d in leg.daemons}
    expected[("monitoring", EVERYWHERE)] = set(pool_of)
    landed = fleet.read(leg).landed()
    assert {k: v for k, v in landed.items() if k[1] not in DORMANT} == expected
    assert {k: v for k, v in landed.items() if k[1] in DORMANT and v} == {}


def test_nothing_tolerates_what_it_mustn_t(fleet: Fleet, leg: Leg) -> None:
    """By the templates: the DaemonSet controller adds tolerations of its own to each pod."""
    serves = {d.name: {KEYS[p] for p in d.pools} for d in leg.daemons}
    every = set(KEYS.values())
    keyless, strange = [], []
    for kind, _, name, spec in fleet.read(leg).templates():
        tolerated = spec.get("tolerations", ())
        keyless += [name for t in tolerated if not t.get("key")]
        if kind != "DaemonSet" and spec.get("resourceClaims"):
            continue  # An engine, which may stand on any pool that its claim is served on.
        allowed = every if name == EVERYWHERE else serves.get(name, set())
        # NVIDIA's labeller and AMD's share one list, and a dormant daemon that of its chart.
        if name == "mp-node-feature-discovery-worker" or name in DORMANT:
            allowed = allowed | {KEYS[GPU]}
        strange += [(name, t["key"]) for t in tolerated if t.get("key") in every - allowed]
    assert keyless == []
    assert strange == []


def test_slices_are_on_every_node_of_the_pool(fleet: Fleet, leg: Leg) -> None:
    pool_of = fleet.read(leg).pool_of()
    seen = {
        (s["spec"]["nodeName"], s["spec"]["driver"]): [d["name"] for d in s["spec"]["devices"]]
        for s in fleet.read(leg).slices()
    }
    assert seen == {(n, DRIVERS[p]): DEVICES[leg.source, p][0] for n, p in pool_of.items() if p in leg.pools}


def test_an_engine_of_each_kind_holds_its_devices_on_its_pool(fleet: Fleet, leg: Leg) -> None:
    reading = fleet.read(leg)
    pool_of, claims = reading.pool_of(), reading.claims(NAMESPACE)
    seen = {}
    for pod in reading.pods(NAMESPACE):
        assert is_ready(pod), pod["status"]
        name = pod["metadata"]["labels"]["modelplane.ai/deployment"]
        (status,) = pod["status"]["resourceClaimStatuses"]
        results = claims[status["resourceClaimName"]]["status"]["allocation"]["devices"]["results"]
        # A driver names its pool of devices after the node.
        assert {r["pool"] for r in results} == {pod["spec"]["nodeName"]}
        amounts = [r["consumedCapacity"] for r in results if "consumedCapacity" in r]
        devices = sorted(r["device"] for r in results)
        seen[name] = (pool_of[pod["spec"]["nodeName"]], {r["driver"] for r in results}, devices, amounts)
    given = {p: DEVICES[leg.source, p][1] for p in leg.pools}
    shared = {p: [{"dra.cpu/cpu": str(leg.cpus)}] if p == CPU and leg.grouped else [] for p in leg.pools}
    assert seen == {f"{leg.name}-{p}": (p, {DRIVERS[p]}, given[p], shared[p]) for p in leg.pools}


def test_the_product_s_own_audits_are_clean(fleet: Fleet, leg: Leg) -> None:
    seen = fleet.observed(leg)
    assert (seen["state"], seen["pools"]) == ("converged", dict.fromkeys(leg.pools, "ready"))
    ran = fleet.site.run("plan", str(fleet.folder(leg)), "--observe", "--format", "json").clean()
    (cluster,) = ran.json["clusters"]
    assert (ran.status, [f for f in cluster["placement"]["findings"] if f["severity"] != "info"]) == (0, [])
    assert {a["op"] for a in ran.json["actions"]} == {"none"}


def test_everything_serves(fleet: Fleet, leg: Leg) -> None:
    states = {d["name"]: d["state"] for d in fleet.reconciled["deployments"]}
    assert {name: state for name, state in states.items() if name.startswith(f"{leg.name}-")} == {
        f"{leg.name}-{p}": "serving" for p in leg.pools
    }
