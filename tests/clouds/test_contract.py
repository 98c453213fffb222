"""What every cloud's adapter promises, against its simulated cloud over loopback."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import pytest

from modelplane_dagster import errors
from modelplane_dagster.sources import SOURCES
from resources.clouds import make_cloud
from resources.clouds.seam import ClusterRef, Progress
from resources.lab.clouds.state import CloudState, Delays, Fault, Hooks
from tests.clouds.rows import ROWS, Row
from tests.clouds.serve import serving

FAST = Delays(cluster=0.1, pool=0.1, update=0.02, delete=0.05)
POOL = "pool/demo/{}"


@dataclass
class Bench:
    row: Row
    state: CloudState
    cloud: object
    ref: ClusterRef
    ready: list

    def control_plane(self) -> Progress:
        source = SOURCES[self.row.source]
        return self.cloud.ensure_control_plane(self.ref, source.control_plane_request(self.row.view))

    def pool(self, pool=None) -> Progress:
        pool = pool or self.row.pool
        request = SOURCES[self.row.source].pool_request(self.row.view, pool)
        return self.cloud.ensure_pool(self.ref, pool.name, request)

    def creations(self) -> int:
        return sum(n for (_, what), n in self.state.counts.items() if what in self.row.create)

    def writes(self) -> int:
        totals = self.state.totals()
        return totals["write"] + totals["delete"]

    @property
    def subject(self) -> str:
        return POOL.format(self.row.pool.name)

    def seen(self):
        return self.cloud.observe(self.ref).pools[0]


def until(ask, *, seconds=30.0):
    """The first answer that is ready; fails when none is in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = ask()
        if answer.state == "ready":
            return answer
        time.sleep(0.02)
    pytest.fail(f"still {answer} after {seconds} s")


def until_raises(kind, ask, *, seconds=30.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            ask()
        except kind as error:
            return error
        time.sleep(0.02)
    return pytest.fail(f"no {kind.__name__} in {seconds} s")


@pytest.fixture(params=ROWS, ids=lambda row: row.source)
def bench(request, tmp_path):
    row, ready = request.param, []
    hooks = Hooks(ready=lambda name, version: ready.append((name, version)))
    extra = {"dress": row.dress} if row.dress else {}
    state = CloudState(row.source, tmp_path, delays=FAST, traits=row.traits, hooks=hooks, **extra)
    with serving(row.app(state)) as url:
        cloud = make_cloud(row.source, endpoint=url, account=row.account)
        yield Bench(row, state, cloud, ClusterRef("demo", row.source, row.location), ready)


@pytest.fixture
def running(bench):
    until(bench.control_plane)
    until(bench.pool)
    return bench


def test_account(bench):
    assert bench.cloud.whoami() == bench.row.account


def test_absent_cluster_is_none(bench):
    assert bench.cloud.observe(bench.ref) is None


def test_first_pass_asks_and_waits(bench):
    first = bench.control_plane()
    assert (first.state, first.changed) == ("pending", True)
    assert "demo" in first.waits_for


def test_cluster_and_pool_become_ready(running):
    seen = running.cloud.observe(running.ref)
    assert (seen.name, seen.state, seen.ours, seen.account) == ("demo", "ready", True, running.row.account)
    assert [(p.name, p.state, p.ours) for p in seen.pools] == [(running.row.pool.name, "ready", True)]
    pool = seen.pools[0]
    assert (pool.count, pool.joined) == (running.row.pool.count, running.row.pool.count)
    assert {k: pool.labels.get(k) for k in running.row.pool.labels} == dict(running.row.pool.labels)
    assert set(running.row.pool.taints) <= set(pool.taints)
    assert seen.system_pool is not None
    assert seen.system_pool.taints == ()
    assert running.ready == [("demo", running.state.cluster("demo").version)]


def test_ready_means_with_the_system_pool(bench):
    def step():
        seen = bench.cloud.observe(bench.ref)
        if seen is None or seen.state != "ready":
            bench.control_plane()
            return Progress("pending")
        return Progress("ready")

    def system_pool():
        pool = bench.cloud.observe(bench.ref).system_pool
        return Progress("ready" if pool is not None and pool.state == "ready" else "pending")

    until(step)
    until(system_pool)


def test_repeat_writes_nothing(running):
    before = running.writes()
    assert running.control_plane() == Progress("ready")
    assert running.pool() == Progress("ready")
    # A system pool of its own is made in the same way as the others.
    assert running.creations() == (2 if running.row.apart else 1)
    assert running.writes() == before


def test_state_outlives_the_daemon(running, tmp_path):
    again = CloudState(running.row.source, tmp_path, delays=FAST)
    assert again.cluster("demo") == running.state.cluster("demo")


def test_lost_reply_makes_one_pool(bench):
    until(bench.control_plane)
    before = bench.creations()
    bench.state.set_fault(bench.subject, Fault.LOST_REPLY)
    first = bench.pool()
    assert (first.state, first.changed) == ("pending", True)
    until(bench.pool)
    assert [p.name for p in bench.cloud.observe(bench.ref).pools] == [bench.row.pool.name]
    assert bench.state.faults() == {}
    assert bench.creations() - before <= 2
    assert len(bench.state.cluster("demo").pools) == 2


def test_label_and_taint_drift_is_repaired(running):
    name = next(p.name for p in running.state.cluster("demo").pools.values() if p.true_name == running.row.pool.name)
    sim = running.state.pool("demo", name)
    key = next(k for k in running.row.pool.labels if k != "modelplane.ai/pool")
    sim.labels[key] = "other"
    sim.labels["team"] = "blue"
    sim.taints.clear()
    changed = running.pool()
    assert (changed.state, changed.changed) == ("pending", True)
    until(running.pool)
    pool = running.seen()
    assert pool.labels[key] == running.row.pool.labels[key]
    assert pool.labels["team"] == "blue"
    assert set(running.row.pool.taints) <= set(pool.taints)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [(Fault.NO_CAPACITY, errors.CloudCapacityError), (Fault.QUOTA, errors.CloudQuotaError)],
)
def test_refused_machines(bench, fault, kind):
    until(bench.control_plane)
    bench.state.set_fault(bench.subject, fault)
    error = until_raises(kind, bench.pool)
    assert bench.row.pool.name in error.message
    assert error.code
    bench.state.clear_fault(bench.subject, fault)
    end = time.monotonic() + 5
    while time.monotonic() < end:
        try:
            if bench.pool().state == "ready":
                break
        except kind:
            pass
        time.sleep(0.02)
    assert bench.seen().state == "ready"


def test_slow_pool_is_pending(bench):
    until(bench.control_plane)
    bench.state.set_fault(bench.subject, Fault.SLOW_POOL)
    bench.pool()
    time.sleep(0.3)
    assert bench.pool().state == "pending"
    bench.state.clear_fault(bench.subject, Fault.SLOW_POOL)
    until(bench.pool)


def test_throttling_is_retryable(bench):
    bench.state.set_fault(f"cloud/{bench.row.source}", Fault.THROTTLING, times=50)
    with pytest.raises(errors.CloudRetryableError):
        bench.cloud.observe(bench.ref)


def test_name_taken(running):
    stranger = replace(running.ref, owner="someone-else")
    before = running.writes()
    request = SOURCES[running.row.source].control_plane_request(running.row.view)
    with pytest.raises(errors.CloudNameTakenError):
        running.cloud.ensure_control_plane(stranger, request)
    with pytest.raises(errors.CloudNameTakenError):
        running.cloud.ensure_pool(
            stranger,
            running.row.pool.name,
            SOURCES[running.row.source].pool_request(running.row.view, running.row.pool),
        )
    with pytest.raises(errors.CloudNameTakenError):
        running.cloud.delete_cluster(stranger)
    assert running.writes() == before


def test_another_account_is_refused_before_any_write(bench):
    elsewhere = replace(bench.ref, account="elsewhere")
    request = SOURCES[bench.row.source].control_plane_request(bench.row.view)
    with pytest.raises(errors.CloudCredentialsError):
        bench.cloud.ensure_control_plane(elsewhere, request)
    assert bench.writes() == 0


def test_size_of_a_fixed_pool_follows(running):
    bigger = replace(running.row.pool, count=running.row.pool.count + 1)
    assert running.pool(bigger).changed
    until(lambda: running.pool(bigger))
    assert running.seen().count == running.row.pool.count + 1


def test_size_of_an_autoscaled_pool_is_left_alone(bench):
    pool = replace(bench.row.pool, count=1, minimum=1, maximum=5)
    until(bench.control_plane)
    until(lambda: bench.pool(pool))
    name = next(p.name for p in bench.state.cluster("demo").pools.values() if p.true_name == pool.name)
    bench.state.change_pool("demo", name, size=4)
    time.sleep(0.1)
    before = bench.writes()
    assert bench.pool(pool) == Progress("ready")
    assert bench.writes() == before
    assert bench.seen().count == 4


def test_pool_is_deleted(running):
    assert running.cloud.delete_pool(running.ref, running.row.pool.name).changed
    until(lambda: running.cloud.delete_pool(running.ref, running.row.pool.name))
    assert running.cloud.observe(running.ref).pools == ()


def test_cluster_is_deleted(running):
    assert running.cloud.delete_cluster(running.ref).changed
    until(lambda: running.cloud.delete_cluster(running.ref))
    assert running.cloud.observe(running.ref) is None


def test_credentials(bench):
    with pytest.raises(errors.NotReadyError):
        bench.cloud.credentials(bench.ref)
    until(bench.control_plane)
    config = bench.cloud.credentials(bench.ref)
    assert config["clusters"][0]["cluster"]["server"] == "https://demo.invalid"
    assert config["current-context"] == config["contexts"][0]["name"]


def test_offers(bench):
    types = bench.cloud.instance_types(bench.ref, (bench.row.known_type, "no-such-type"))
    assert set(types) == {bench.row.known_type}
    assert types[bench.row.known_type].gpu_vendor == "nvidia"
    assert bench.row.version in bench.cloud.versions(bench.ref)


def test_nodes_carry_the_pools_labels(running):
    nodes = running.state.desired_nodes("demo")
    own = [n for n in nodes if n.pool == running.row.pool.name]
    assert len(own) == running.row.pool.count
    assert all(set(running.row.pool.labels.items()) <= set(n.labels.items()) for n in own)
    assert all(set(running.row.pool.taints) <= set(n.taints) for n in own)
    system = [n for n in nodes if n.pool == "system"]
    assert system
    assert all(n.taints == () for n in system)
