"""Civo's adapter against the simulated Civo."""

from __future__ import annotations

import pytest

from modelplane_dagster.errors import (
    CloudCapacityError,
    CloudCredentialsError,
    CloudInvalidError,
    CloudNameTakenError,
    CloudQuotaError,
)
from modelplane_dagster.kube.objects import Taint
from modelplane_dagster.sources import civo as source
from resources.clouds.civo import CivoCloud
from resources.clouds.seam import InstanceType, Progress
from resources.lab.clouds import civo as simulator
from resources.lab.clouds.state import Fault
from tests.clouds.keyed import CIVO_CPU, CIVO_GPU, KEYED, LIMITS, made, up, with_pool
from tests.clouds.serve import serving
from tests.clouds.serving import until_ready, wait_for
from tests.clouds.views import cluster, cpu_pool, gpu_pool

GPU, CPU = CIVO_GPU, CIVO_CPU
REF, VIEW = KEYED["Civo"].ref, KEYED["Civo"].view


@pytest.fixture
def keyed():
    return KEYED["Civo"]


def put(api, state, name, **body):
    path = f"/v2/kubernetes/clusters/{state.cluster('demo').id}/pools/{name}"
    assert api.put(path, json={"region": "LON1", **body}).status_code == 200


def test_requests_are_written_in_civos_words():
    assert source.pool_request(VIEW, GPU) == {
        "pool": {
            "region": "LON1",
            "id": "gpu-l40s",
            "count": 1,
            "size": "an.g1.l40s.kube.x1",
            "labels": {"modelplane.ai/pool": "gpu-l40s", "modelplane.ai/gpu": "nvidia-l40s"},
            "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
        },
        "autoscaling": {"min": 1, "max": 4},
    }
    assert source.pool_request(VIEW, CPU) == {
        "pool": {
            "region": "LON1",
            "id": "cpu",
            "count": 2,
            "size": "g4p.kube.medium",
            "labels": {"modelplane.ai/pool": "cpu", "modelplane.ai/cpu": "true"},
            "taints": [{"key": "modelplane.ai/cpu", "value": "true", "effect": "NoSchedule"}],
        }
    }
    assert source.control_plane_request(cluster("Civo", GPU, version="1.34.1-k3s1", location="LON1")) == {
        "network": {"label": "modelplane-dagster-demo", "region": "LON1"},
        "firewall": {"name": "modelplane-dagster-demo", "region": "LON1", "create_rules": True},
        "cluster": {
            "name": "demo",
            "region": "LON1",
            "kubernetes_version": "1.34.1-k3s1",
            "cluster_type": "k3s",
            "cni_plugin": "cilium",
            "applications": "-traefik2-nodeport",
            "tags": "modelplane-dagster",
            "pools": [{"id": "system", "count": 2, "size": "g4p.kube.small"}],
        },
        "system_pool": {
            "region": "LON1",
            "count": 2,
            "labels": {"modelplane.ai/pool": "system"},
            "taints": [],
        },
    }
    assert "kubernetes_version" not in source.control_plane_request(VIEW)["cluster"]


@pytest.mark.parametrize(
    ("pool", "codes"),
    [
        (GPU, []),
        (CPU, []),
        (gpu_pool("gpu-l40s", machine={"size": "g4s.kube.large"}, accelerator="nvidia-l40s"), ["InstanceMismatch"]),
        (cpu_pool("cpu", machine={"size": "g4g.kube.small"}), ["InstanceMismatch"]),
        (cpu_pool("cpu", machine={"size": "g4p.small"}), ["InstanceMismatch"]),
        (
            gpu_pool("gpu-l40s", machine={"size": "an.g1.h100.kube.x1"}, accelerator="nvidia-l40s", count=0),
            ["MinNodesUnsupported"],
        ),
        (
            gpu_pool("gpu-l40s", machine={"size": "an.g1.h100.kube.x1"}, accelerator="nvidia-l40s", fabric="EFA"),
            ["FabricUnsupported"],
        ),
    ],
)
def test_a_pool_that_civo_cant_make_is_found(pool, codes):
    found = source.check_pool(VIEW, pool)
    assert [f.code for f in found] == codes
    assert {f.subject for f in found} <= {f"pool/demo/{pool.name}"}


def test_the_system_pool_gets_the_labels_that_its_cluster_lost(cloud, state):
    cloud.ensure_control_plane(REF, source.control_plane_request(VIEW))
    assert state.pool("demo", "system").labels == {}
    wait_for(lambda: state.pool("demo", "system").joined == 2, "the system pool's nodes")
    assert cloud.observe(REF).state == "creating"
    up(cloud)
    assert cloud.observe(REF).state == "ready"
    assert state.pool("demo", "system").labels == {"modelplane.ai/pool": "system"}
    assert state.counts[("write", "PUT update-pool")] == 1


def test_what_is_sent_is_the_request_with_ids_added(cloud, sent):
    up(cloud), with_pool(cloud), with_pool(cloud, CPU)
    asked = source.control_plane_request(VIEW)
    network, firewall, cluster, *pools = [body for path, body in sent if not path.endswith("/pools/system")]
    assert network == asked["network"]
    assert firewall == {**asked["firewall"], "network_id": cluster["network_id"]}
    assert cluster == {**asked["cluster"], "network_id": cluster["network_id"], "firewall_id": cluster["firewall_id"]}
    assert cluster["network_id"] != cluster["firewall_id"] != ""
    assert pools == [source.pool_request(VIEW, GPU)["pool"], source.pool_request(VIEW, CPU)["pool"]]


def test_observe_tells_the_cluster_with_its_pools(cloud):
    assert cloud.observe(REF) is None
    up(cloud), with_pool(cloud)
    seen = cloud.observe(REF)
    assert (seen.name, seen.state, seen.version, seen.ours) == ("demo", "ready", "1.34.1-k3s1", True)
    assert seen.account == "lab-civo-account"
    assert (seen.system_pool.name, seen.system_pool.state, seen.system_pool.joined) == ("system", "ready", 2)
    (pool,) = seen.pools
    assert (pool.name, pool.state, pool.count, pool.joined, pool.minimum, pool.maximum, pool.ours) == (
        "gpu-l40s",
        "ready",
        1,
        1,
        None,
        None,
        True,
    )
    assert dict(pool.labels) == {"modelplane.ai/pool": "gpu-l40s", "modelplane.ai/gpu": "nvidia-l40s"}
    assert pool.taints == (Taint("nvidia.com/gpu", "present"),)


def test_drift_is_repaired_and_foreign_keys_stay(cloud, state, api):
    up(cloud), with_pool(cloud)
    put(
        api,
        state,
        "gpu-l40s",
        labels={"modelplane.ai/pool": "gpu-l40s", "modelplane.ai/gpu": "wrong", "team": "red"},
        taints=[{"key": "mine", "value": "x", "effect": "NoExecute"}],
    )
    assert any(p.changed for p in with_pool(cloud))
    (seen,) = cloud.observe(REF).pools
    assert dict(seen.labels) == {
        "modelplane.ai/pool": "gpu-l40s",
        "modelplane.ai/gpu": "nvidia-l40s",
        "team": "red",
    }
    assert seen.taints == (Taint("mine", "x", "NoExecute"), Taint("nvidia.com/gpu", "present", "NoSchedule"))
    assert with_pool(cloud) == [Progress("ready")]


def test_a_pool_that_lost_all_its_labels_gets_them_back(cloud, state, api):
    up(cloud), with_pool(cloud)
    put(api, state, "gpu-l40s", labels={}, taints=[])
    with_pool(cloud)
    (seen,) = cloud.observe(REF).pools
    assert dict(seen.labels) == {"modelplane.ai/pool": "gpu-l40s", "modelplane.ai/gpu": "nvidia-l40s"}


def test_an_autoscaled_size_is_left_and_a_fixed_one_restored(cloud, state, api):
    up(cloud), with_pool(cloud), with_pool(cloud, CPU)
    put(api, state, "gpu-l40s", count=3, labels={"modelplane.ai/pool": "gpu-l40s"}, taints=[])
    put(api, state, "cpu", count=3, labels=dict(CPU.labels), taints=[t.as_dict() for t in CPU.taints])
    with_pool(cloud), with_pool(cloud, CPU)
    assert {p.name: (p.count, p.joined) for p in cloud.observe(REF).pools} == {"gpu-l40s": (3, 3), "cpu": (2, 2)}


def test_another_size_is_refused(cloud):
    up(cloud), with_pool(cloud)
    other = source.pool_request(
        VIEW, gpu_pool("gpu-l40s", machine={"size": "an.g1.h100.kube.x1"}, accelerator="nvidia-l40s")
    )
    with pytest.raises(CloudInvalidError) as caught:
        cloud.ensure_pool(REF, "gpu-l40s", other)
    assert caught.value.code == "size-immutable"


@pytest.mark.parametrize(
    ("fault", "error", "code"),
    [
        (Fault.NO_CAPACITY, CloudCapacityError, "out_of_capacity"),
        (Fault.QUOTA, CloudQuotaError, "quota_limit_reached"),
    ],
)
def test_capacity_and_quota_are_typed_by_code(cloud, state, fault, error, code):
    up(cloud)
    state.set_fault("pool/demo/gpu-l40s", fault)
    with pytest.raises(error) as caught:
        cloud.ensure_pool(REF, "gpu-l40s", source.pool_request(VIEW, GPU))
    assert caught.value.code == code
    assert made(state, "create-pool") == 1


def test_someone_elses_cluster_is_refused(cloud, api, state):
    body = {**source.control_plane_request(VIEW)["cluster"], "tags": "theirs"}
    assert api.post("/v2/kubernetes/clusters", json=body).status_code == 200
    assert cloud.observe(REF).ours is False
    for call in (
        lambda: cloud.ensure_control_plane(REF, source.control_plane_request(VIEW)),
        lambda: cloud.ensure_pool(REF, "gpu-l40s", source.pool_request(VIEW, GPU)),
        lambda: cloud.delete_cluster(REF),
        lambda: cloud.delete_pool(REF, "system"),
    ):
        with pytest.raises(CloudNameTakenError):
            call()
    assert (state.totals()["write"], state.totals()["delete"]) == (1, 0)


@pytest.mark.parametrize("labels", [{}, {"modelplane.ai/pool": "another"}])
def test_a_foreign_pool_of_the_name_is_refused(cloud, api, state, labels):
    up(cloud)
    path = f"/v2/kubernetes/clusters/{state.cluster('demo').id}/pools"
    body = {"region": "LON1", "id": "gpu-l40s", "count": 1, "size": "g4s.kube.medium", "labels": labels}
    assert api.post(path, json=body).status_code == 201
    with pytest.raises(CloudNameTakenError):
        cloud.ensure_pool(REF, "gpu-l40s", source.pool_request(VIEW, GPU))


def test_the_same_name_in_another_region_is_another_cluster(cloud, api):
    body = {**source.control_plane_request(VIEW)["cluster"], "region": "FRA1"}
    assert api.post("/v2/kubernetes/clusters", json=body).status_code == 200
    assert cloud.observe(REF) is None


def test_deletion_takes_network_and_firewall_along(cloud, state):
    up(cloud), with_pool(cloud)
    until_ready(lambda: cloud.delete_cluster(REF))
    kinds = ("delete-pool", "delete-cluster", "delete-firewall", "delete-network")
    assert [state.counts[("delete", f"DELETE {k}")] for k in kinds] == [0, 1, 1, 1]


def test_offers(cloud):
    assert dict(cloud.instance_types(REF, ("an.g1.l40s.kube.x2", "g4p.kube.small", "no-such-size"))) == {
        "an.g1.l40s.kube.x2": InstanceType("an.g1.l40s.kube.x2", 24, 262144, 2, "nvidia"),
        "g4p.kube.small": InstanceType("g4p.kube.small", 4, 16384),
    }
    assert cloud.versions(REF) == ("1.35.2-k3s1", "1.34.1-k3s1")
    assert cloud.whoami() == "lab-civo-account"


def test_a_wrong_key_has_civos_code(state):
    with serving(simulator.CivoSim(state, api_key="right")) as url, pytest.raises(CloudCredentialsError) as caught:
        CivoCloud(endpoint=url, secrets={"token": "wrong"}, limits=LIMITS).observe(REF)
    assert caught.value.code == "authentication_invalid_key"
