"""The state behind the simulated clouds, by a clock that the test moves."""

from __future__ import annotations

from modelplane_dagster.kube.objects import Taint
from resources.lab.clouds.state import CloudState, Delays, Endpoint, Fault, Hooks, SimPool, Traits


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def pool(name="gpus", size=2, **fields):
    given = {
        "id": "",
        "labels": {"modelplane.ai/pool": name},
        "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
        "machine": "m",
        "zones": ["z1", "z2"],
        "tags": {},
        "body": {},
    }
    return SimPool(name=name, size=size, **(given | fields))


def started(tmp_path, **options):
    clock = Clock()
    options.setdefault("delays", Delays(cluster=10, pool=5, update=1, delete=2))
    state = CloudState("EKS", tmp_path, clock=clock, **options)
    state.add_cluster("c", version="1.36", location="r", tags={"o": "us"}, body={})
    return clock, state


def test_lifecycle_follows_the_clock(tmp_path):
    clock, state = started(tmp_path)
    state.add_pool("c", pool())
    seen = []
    for step in (0, 10, 5):
        clock.now += step
        cluster = state.cluster("c")
        seen.append((cluster.phase, cluster.pools["gpus"].phase, cluster.pools["gpus"].joined))
    assert seen == [("creating", "creating", 0), ("ready", "creating", 0), ("ready", "ready", 2)]
    state.remove_cluster("c")
    assert state.cluster("c").phase == "deleting"
    clock.now += 2
    assert state.cluster("c") is None


def test_hooks_hear_of_each_cluster_once(tmp_path):
    heard = []
    hooks = Hooks(
        ready=lambda name, version: heard.append(("ready", name, version)),
        gone=lambda name: heard.append(("gone", name)),
        endpoint=lambda name: Endpoint(f"http://{name}"),
    )
    clock, state = started(tmp_path, hooks=hooks)
    state.settle()
    assert heard == []
    clock.now += 10
    state.settle()
    state.settle()
    state.remove_cluster("c")
    clock.now += 2
    state.settle()
    assert heard == [("ready", "c", "1.36"), ("gone", "c")]


def test_a_new_process_goes_on(tmp_path):
    clock, state = started(tmp_path)
    state.add_pool("c", pool())
    state.set_fault("pool/c/gpus", Fault.NO_CAPACITY)
    state.extra["x"] = {"a": 1}
    state.save()
    heard = []
    again = CloudState(
        "EKS", tmp_path, clock=clock, hooks=Hooks(ready=lambda name, version: heard.append((name, version)))
    )
    clock.now += 15
    again.settle()
    assert heard == [("c", "1.36")]
    assert again.pool("c", "gpus").failure == "no-capacity"
    assert again.extra == {"x": {"a": 1}}
    assert again.new_id() != state.pool("c", "gpus").id


def test_failed_pools(tmp_path):
    for recovers, after in ((False, "failed"), (True, "ready")):
        clock, state = started(tmp_path / str(recovers), traits=Traits(recovers=recovers))
        state.add_pool("c", pool())
        state.set_fault("pool/c/gpus", Fault.QUOTA)
        clock.now += 15
        assert (state.pool("c", "gpus").phase, state.pool("c", "gpus").failure) == ("failed", "quota")
        assert state.desired_nodes("c") == []
        state.clear_fault("pool/c/gpus", Fault.QUOTA)
        clock.now += 1
        assert state.pool("c", "gpus").phase == after


def test_faults_that_are_used_up(tmp_path):
    _, state = started(tmp_path)
    state.set_fault("cloud/EKS", Fault.THROTTLING, times=2)
    assert [state.take_fault("cloud/EKS", Fault.THROTTLING) for _ in range(3)] == [True, True, False]
    state.set_fault("pool/c/gpus", Fault.SLOW_POOL)
    state.clear_fault("pool/c/gpus", Fault.SLOW_POOL)
    state.clear_fault("pool/c/gpus", Fault.SLOW_POOL)
    assert state.faults() == {}


def test_nodes_follow_their_pool_or_not(tmp_path):
    for follow, old in ((True, "new"), (False, "old")):
        clock, state = started(tmp_path / str(follow), traits=Traits(nodes_follow=follow))
        state.add_pool("c", pool(size=1, labels={"modelplane.ai/pool": "gpus", "age": "old"}))
        clock.now += 15
        assert len(state.desired_nodes("c")) == 1
        state.change_pool("c", "gpus", labels={"modelplane.ai/pool": "gpus", "age": "new"}, size=2)
        clock.now += 1
        assert [n.labels["age"] for n in state.desired_nodes("c")] == [old, "new"]


def test_nodes(tmp_path):
    clock, state = started(tmp_path)
    state.add_pool("c", pool(size=3))
    clock.now += 15
    nodes = state.desired_nodes("c")
    assert [(n.name, n.pool, n.machine) for n in nodes] == [
        ("c-gpus-0", "gpus", "m"),
        ("c-gpus-1", "gpus", "m"),
        ("c-gpus-2", "gpus", "m"),
    ]
    assert [n.labels["topology.kubernetes.io/zone"] for n in nodes] == ["z1", "z2", "z1"]
    assert nodes[0].taints == (Taint("k", "v", "NoSchedule"),)


def test_delays_from_the_environment():
    assert Delays.from_env({"MODELPLANE_LAB_POOL_SECONDS": "2.5", "OTHER": "1"}) == Delays(pool=2.5)
