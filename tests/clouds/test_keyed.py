"""What holds for every cloud that is reached with an API key."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modelplane_dagster.errors import (
    CloudCapacityError,
    CloudCredentialsError,
    CloudQuotaError,
    CloudRetryableError,
    NotReadyError,
)
from resources.clouds.rest import newest_first
from resources.clouds.seam import Progress
from resources.lab.clouds.state import Fault
from tests.clouds.keyed import KEYED, LIMITS, made, plane_request, pool_request, up, with_pool
from tests.clouds.serve import serving
from tests.clouds.serving import until_ready

REFUSALS = pytest.mark.parametrize(
    ("fault", "error"), [(Fault.NO_CAPACITY, CloudCapacityError), (Fault.QUOTA, CloudQuotaError)]
)


@pytest.fixture(params=KEYED)
def keyed(request):
    return KEYED[request.param]


def test_create_until_ready_and_then_no_second_write(keyed, cloud, state):
    up(cloud), with_pool(cloud), with_pool(cloud, keyed.cpu)
    before = state.totals()
    assert up(cloud) == [Progress("ready")]
    assert with_pool(cloud) == [Progress("ready")]
    assert with_pool(cloud, keyed.cpu) == [Progress("ready")]
    after = state.totals()
    assert (after["write"], after["delete"]) == (before["write"], before["delete"])
    assert [made(state, what) for what in ("create-cluster", "create-pool")] == [1, 2]


def test_a_pool_waits_for_its_cluster(keyed, cloud, state):
    request = pool_request(cloud)
    assert cloud.ensure_pool(keyed.ref, "gpu-l40s", request) == Progress(
        "pending", "cluster demo, which isn't there yet"
    )
    assert cloud.ensure_control_plane(keyed.ref, plane_request(cloud)) == Progress(
        "pending", "cluster demo, just asked for", changed=True
    )
    assert cloud.ensure_pool(keyed.ref, "gpu-l40s", request) == Progress(
        "pending", f"cluster demo, which is {keyed.fresh}"
    )
    assert made(state, "create-pool") == 0


@pytest.mark.parametrize("subject", ["cluster/demo", "pool/demo/gpu-l40s"])
def test_a_lost_reply_makes_exactly_one(keyed, cloud, state, subject):
    state.set_fault(subject, Fault.LOST_REPLY)
    if subject.startswith("cluster"):
        assert cloud.ensure_control_plane(keyed.ref, plane_request(cloud)).changed
    up(cloud)
    if subject.startswith("pool"):
        assert cloud.ensure_pool(keyed.ref, "gpu-l40s", pool_request(cloud)).changed
    with_pool(cloud)
    assert [c.name for c in state.clusters()] == ["demo"]
    assert [made(state, what) for what in ("create-cluster", "create-pool")] == [1, 1]


@REFUSALS
def test_a_refused_pool_holds_up_no_other(keyed, cloud, state, fault, error):
    up(cloud)
    state.set_fault("pool/demo/gpu-l40s", fault)
    with pytest.raises(error):
        cloud.ensure_pool(keyed.ref, "gpu-l40s", pool_request(cloud))
    assert cloud.observe(keyed.ref).pools == ()
    with_pool(cloud, keyed.cpu)
    state.clear_fault("pool/demo/gpu-l40s", fault)
    with_pool(cloud)
    assert {p.name for p in cloud.observe(keyed.ref).pools} == {"gpu-l40s", "cpu"}


@REFUSALS
def test_growth_that_is_refused_is_typed_too(keyed, cloud, state, fault, error):
    up(cloud)
    with_pool(cloud, keyed.cpu)
    state.set_fault("pool/demo/cpu", fault)
    with pytest.raises(error) as caught:
        cloud.ensure_pool(keyed.ref, "cpu", pool_request(cloud, replace(keyed.cpu, count=5)))
    assert "pool cpu of cluster demo" in caught.value.message
    assert [(p.count, p.joined, p.state) for p in cloud.observe(keyed.ref).pools] == [(2, 2, "ready")]


def test_throttling_is_asked_again_a_bounded_number_of_times(keyed, cloud, state):
    state.set_fault(f"cloud/{keyed.ref.source}", Fault.THROTTLING, 2)
    assert cloud.observe(keyed.ref) is None
    state.set_fault(f"cloud/{keyed.ref.source}", Fault.THROTTLING, 3)
    with pytest.raises(CloudRetryableError) as caught:
        cloud.observe(keyed.ref)
    assert (caught.value.code, caught.value.retry_after) == ("429", 0.0)


def test_deletion_is_asked_for_once_and_gone_is_ready(keyed, cloud, state):
    up(cloud)
    with_pool(cloud)
    assert cloud.delete_pool(keyed.ref, "gpu-l40s") == Progress("pending", "the end of pool gpu-l40s", changed=True)
    until_ready(lambda: cloud.delete_pool(keyed.ref, "gpu-l40s"))
    assert state.totals()["delete"] == 1
    assert cloud.observe(keyed.ref).pools == ()
    assert cloud.delete_cluster(keyed.ref) == Progress("pending", "the end of cluster demo", changed=True)
    until_ready(lambda: cloud.delete_cluster(keyed.ref))
    assert cloud.observe(keyed.ref) is None
    deletes = state.totals()["delete"]
    assert cloud.delete_cluster(keyed.ref) == Progress("ready")
    assert cloud.delete_pool(keyed.ref, "gpu-l40s") == Progress("ready")
    assert state.totals()["delete"] == deletes


def test_credentials_are_there_once_the_cluster_is(keyed, cloud):
    with pytest.raises(NotReadyError):
        cloud.credentials(keyed.ref)
    cloud.ensure_control_plane(keyed.ref, plane_request(cloud))
    with pytest.raises(NotReadyError):
        cloud.credentials(keyed.ref)
    up(cloud)
    config = cloud.credentials(keyed.ref)
    assert config["clusters"][0]["cluster"]["server"] == "https://demo.lab.invalid:6443"
    assert config["users"][0]["user"] == {"token": "lab-token"}


@pytest.mark.parametrize("told", ["by the cluster", "by the adapter"])
def test_another_account_stops_every_write(keyed, url, state, told):
    ref = replace(keyed.ref, account="another") if told == "by the cluster" else keyed.ref
    cloud = keyed.adapter(endpoint=url, account="another", secrets={"key": "any"}, limits=LIMITS)
    for write in (
        lambda: cloud.ensure_control_plane(ref, plane_request(cloud)),
        lambda: cloud.ensure_pool(ref, "gpu-l40s", pool_request(cloud)),
        lambda: cloud.delete_pool(ref, "gpu-l40s"),
        lambda: cloud.delete_cluster(ref),
    ):
        with pytest.raises(CloudCredentialsError):
            write()
    assert state.clusters() == []


def test_a_wrong_key_is_said_without_quoting_it(keyed, state):
    with serving(keyed.simulator(state, api_key="right")) as url:
        cloud = keyed.adapter(endpoint=url, secrets={"key": "wrong"}, limits=LIMITS)
        with pytest.raises(CloudCredentialsError) as caught:
            cloud.observe(keyed.ref)
    assert "wrong" not in str(caught.value)


def test_without_a_key_the_variable_is_named(keyed, monkeypatch):
    monkeypatch.delenv(keyed.key_env, raising=False)
    with pytest.raises(CloudCredentialsError) as caught:
        keyed.adapter().whoami()
    assert keyed.key_env in caught.value.message


@pytest.mark.parametrize(
    ("given", "ordered"),
    [
        (["v1.9.2+1", "v1.36.1+3", "v1.36.1+10"], ("v1.36.1+10", "v1.36.1+3", "v1.9.2+1")),
        (["1.9.2-k3s1", "1.36.1-k3s1", "1.36.1-k3s12"], ("1.36.1-k3s12", "1.36.1-k3s1", "1.9.2-k3s1")),
    ],
)
def test_versions_are_ordered_by_their_numbers(given, ordered):
    assert newest_first(given) == ordered
