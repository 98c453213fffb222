"""Vultr's adapter against the simulated VKE."""

from __future__ import annotations

import pytest

from modelplane_dagster.errors import (
    CloudInvalidError,
    CloudNameTakenError,
)
from modelplane_dagster.kube.objects import Taint
from modelplane_dagster.sources import vultr as source
from resources.clouds.seam import InstanceType, Progress
from resources.lab.clouds.state import Fault
from tests.clouds.keyed import KEYED, VULTR_CPU, VULTR_GPU, made, up, with_pool
from tests.clouds.views import cpu_pool, gpu_pool

GPU, CPU = VULTR_GPU, VULTR_CPU
REF, VIEW = KEYED["Vultr"].ref, KEYED["Vultr"].view


@pytest.fixture
def keyed():
    return KEYED["Vultr"]


def test_requests_are_written_in_vultrs_words():
    assert source.pool_request(VIEW, GPU) == {
        "node_quantity": 1,
        "label": "gpu-l40s",
        "plan": "vcg-l40s-16c-180g-48vram",
        "tag": "modelplane-dagster",
        "auto_scaler": True,
        "min_nodes": 1,
        "max_nodes": 4,
        "labels": {
            "modelplane.ai/pool": "gpu-l40s",
            "modelplane.ai/gpu": "nvidia-l40s",
            "nvidia.com/gpu.deploy.device-plugin": "false",
        },
        "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
    }
    assert source.pool_request(VIEW, CPU) == {
        "node_quantity": 2,
        "label": "cpu",
        "plan": "vhf-8c-32gb",
        "tag": "modelplane-dagster",
        "auto_scaler": False,
        "labels": {"modelplane.ai/pool": "cpu", "modelplane.ai/cpu": "true"},
        "taints": [{"key": "modelplane.ai/cpu", "value": "true", "effect": "NoSchedule"}],
    }
    assert source.control_plane_request(VIEW) == {
        "label": "demo",
        "region": "ewr",
        "version": "v1.36.1+3",
        "ha_controlplanes": False,
        "enable_firewall": False,
        "node_pools": [
            {
                "node_quantity": 1,
                "label": "system",
                "plan": "vc2-6c-16gb",
                "tag": "modelplane-dagster",
                "auto_scaler": True,
                "min_nodes": 1,
                "max_nodes": 2,
                "labels": {"modelplane.ai/pool": "system"},
            }
        ],
    }


@pytest.mark.parametrize(
    ("pool", "codes"),
    [
        (GPU, []),
        (CPU, []),
        (gpu_pool("gpu-l40s", machine={"plan": "vc2-4c-8gb"}, accelerator="nvidia-l40s"), ["InstanceMismatch"]),
        (cpu_pool("cpu", machine={"plan": "vcg-l40s-16c-180g-48vram"}), ["InstanceMismatch"]),
        (
            gpu_pool(
                "gpu-l40s", machine={"plan": "vcg-a16-6c-64g-16vram"}, accelerator="nvidia-l40s", minimum=0, maximum=2
            ),
            ["MinNodesUnsupported"],
        ),
        (
            gpu_pool(
                "gpu-l40s", machine={"plan": "vcg-a16-6c-64g-16vram"}, accelerator="nvidia-l40s", fabric="InfiniBand"
            ),
            ["FabricUnsupported"],
        ),
        (gpu_pool("system", machine={"plan": "vcg-a16-6c-64g-16vram"}, accelerator="nvidia-l40s"), ["InvalidName"]),
    ],
)
def test_a_pool_that_vultr_cant_make_is_found(pool, codes):
    found = source.check_pool(VIEW, pool)
    assert [f.code for f in found] == codes
    assert {f.subject for f in found} <= {f"pool/demo/{pool.name}"}


def test_what_is_sent_is_the_request(cloud, sent):
    up(cloud), with_pool(cloud), with_pool(cloud, CPU)
    clusters = [body for path, body in sent if path == "/v2/kubernetes/clusters"]
    pools = [body for path, body in sent if path.endswith("/node-pools")]
    assert clusters == [source.control_plane_request(VIEW)]
    assert pools == [source.pool_request(VIEW, GPU), source.pool_request(VIEW, CPU)]


def test_observe_tells_the_cluster_with_its_pools(cloud):
    assert cloud.observe(REF) is None
    up(cloud)
    with_pool(cloud)
    seen = cloud.observe(REF)
    assert (seen.name, seen.state, seen.version, seen.ours) == ("demo", "ready", "v1.36.1+3", True)
    assert (seen.account, seen.message) == ("lab@vultr.invalid", "")
    assert (seen.system_pool.name, seen.system_pool.state, seen.system_pool.joined) == ("system", "ready", 1)
    (pool,) = seen.pools
    assert (pool.name, pool.state, pool.count, pool.joined, pool.minimum, pool.maximum, pool.ours) == (
        "gpu-l40s",
        "ready",
        1,
        1,
        1,
        4,
        True,
    )
    assert dict(pool.labels)["nvidia.com/gpu.deploy.device-plugin"] == "false"
    assert pool.taints == (Taint("nvidia.com/gpu", "present"),)


def test_drift_is_repaired_and_foreign_keys_stay(cloud, state, api):
    up(cloud)
    with_pool(cloud)
    pool = state.pool("demo", "gpu-l40s")
    path = f"/v2/kubernetes/clusters/{state.cluster('demo').id}/node-pools/{pool.id}"
    rows = {r["key"]: r["id"] for r in api.get(f"{path}/labels").json()["labels"]}
    api.delete(f"{path}/labels/{rows['modelplane.ai/gpu']}")
    api.post(f"{path}/labels", json={"key": "modelplane.ai/gpu", "value": "wrong"})
    api.post(f"{path}/labels", json={"key": "team", "value": "red"})
    taint = api.get(f"{path}/taints").json()["taints"][0]["id"]
    api.delete(f"{path}/taints/{taint}")
    api.post(f"{path}/taints", json={"key": "mine", "value": "x", "effect": "NoExecute"})
    api.patch(path, json={"max_nodes": 9})
    assert any(p.changed for p in with_pool(cloud))
    (seen,) = cloud.observe(REF).pools
    assert dict(seen.labels) == {
        "modelplane.ai/pool": "gpu-l40s",
        "modelplane.ai/gpu": "nvidia-l40s",
        "nvidia.com/gpu.deploy.device-plugin": "false",
        "team": "red",
    }
    assert seen.taints == (Taint("mine", "x", "NoExecute"), Taint("nvidia.com/gpu", "present", "NoSchedule"))
    assert (seen.minimum, seen.maximum) == (1, 4)
    assert with_pool(cloud) == [Progress("ready")]


def test_an_autoscaled_size_is_left_and_a_fixed_one_restored(cloud, state, api):
    up(cloud)
    with_pool(cloud)
    with_pool(cloud, CPU)
    for name in ("gpu-l40s", "cpu"):
        pool = state.pool("demo", name)
        api.patch(f"/v2/kubernetes/clusters/{state.cluster('demo').id}/node-pools/{pool.id}", json={"node_quantity": 3})
    with_pool(cloud)
    with_pool(cloud, CPU)
    assert {p.name: p.count for p in cloud.observe(REF).pools} == {"gpu-l40s": 3, "cpu": 2}


def test_a_taint_with_another_value_is_no_drift(cloud, state, api):
    up(cloud)
    with_pool(cloud)
    pool = state.pool("demo", "gpu-l40s")
    path = f"/v2/kubernetes/clusters/{state.cluster('demo').id}/node-pools/{pool.id}"
    api.delete(f"{path}/taints/{api.get(f'{path}/taints').json()['taints'][0]['id']}")
    api.post(f"{path}/taints", json={"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"})
    assert not any(p.changed for p in with_pool(cloud))


def test_another_plan_is_refused(cloud):
    up(cloud)
    with_pool(cloud)
    other = {**source.pool_request(VIEW, GPU), "plan": "vcg-a40-12c-60g-24vram"}
    with pytest.raises(CloudInvalidError) as caught:
        cloud.ensure_pool(REF, "gpu-l40s", other)
    assert caught.value.code == "plan-immutable"


def test_a_bad_request_isnt_taken_for_missing_capacity(cloud):
    up(cloud)
    with pytest.raises(CloudInvalidError) as caught:
        cloud.ensure_pool(REF, "gpu-l40s", {**source.pool_request(VIEW, GPU), "node_quantity": 0})
    assert type(caught.value) is CloudInvalidError


def test_a_throttled_create_makes_one(cloud, state):
    up(cloud)
    request = source.pool_request(VIEW, GPU)
    state.set_fault("cloud/Vultr", Fault.THROTTLING, 1)
    with_pool(cloud)
    assert cloud.ensure_pool(REF, "gpu-l40s", request) == Progress("ready")
    assert [p.body["label"] for p in state.cluster("demo").pools.values()] == ["system", "gpu-l40s"]


def test_someone_elses_names_are_refused(cloud, api, state):
    theirs = {
        **source.control_plane_request(VIEW),
        "node_pools": [{"node_quantity": 1, "label": "x", "plan": "vc2-4c-8gb"}],
    }
    api.post("/v2/kubernetes/clusters", json=theirs)
    assert cloud.observe(REF).ours is False
    for call in (
        lambda: cloud.ensure_control_plane(REF, source.control_plane_request(VIEW)),
        lambda: cloud.ensure_pool(REF, "gpu-l40s", source.pool_request(VIEW, GPU)),
        lambda: cloud.delete_cluster(REF),
        lambda: cloud.delete_pool(REF, "x"),
    ):
        with pytest.raises(CloudNameTakenError):
            call()
    assert len(state.clusters()) == 1
    assert state.totals()["delete"] == 0


def test_a_foreign_pool_of_the_name_is_refused(cloud, api, state):
    up(cloud)
    path = f"/v2/kubernetes/clusters/{state.cluster('demo').id}/node-pools"
    api.post(path, json={"node_quantity": 1, "label": "gpu-l40s", "plan": "vc2-4c-8gb"})
    for call in (
        lambda: cloud.ensure_pool(REF, "gpu-l40s", source.pool_request(VIEW, GPU)),
        lambda: cloud.delete_pool(REF, "gpu-l40s"),
    ):
        with pytest.raises(CloudNameTakenError):
            call()
    assert made(state, "create-pool") == 1


def test_a_label_that_repeats_leads_to_ours(cloud, api, state):
    up(cloud)
    theirs = {
        **source.control_plane_request(VIEW),
        "node_pools": [{"node_quantity": 1, "label": "x", "plan": "vc2-4c-8gb"}],
    }
    api.post("/v2/kubernetes/clusters", json=theirs)
    assert up(cloud) == [Progress("ready")]
    assert (cloud.observe(REF).ours, cloud.observe(REF).message) == (True, "")
    api.post("/v2/kubernetes/clusters", json=source.control_plane_request(VIEW))
    twin = state.clusters()[-1].id
    assert cloud.observe(REF).message == f"more clusters of ours carry this label: {twin}"


def test_lists_are_read_to_their_last_page(cloud, api, state, monkeypatch):
    monkeypatch.setattr("resources.clouds.vultr._PAGE", 2)
    for i in range(5):
        body = {**source.control_plane_request(VIEW), "label": f"other-{i}"}
        assert api.post("/v2/kubernetes/clusters", json=body).status_code == 201
    up(cloud)
    assert cloud.observe(REF).name == "demo"
    assert made(state, "create-cluster") == 6


def test_offers(cloud):
    names = ("vcg-l40s-16c-180g-48vram", "vc2-6c-16gb", "no-such-plan")
    assert dict(cloud.instance_types(REF, names)) == {
        "vcg-l40s-16c-180g-48vram": InstanceType("vcg-l40s-16c-180g-48vram", 16, 184320, 1, "nvidia"),
        "vc2-6c-16gb": InstanceType("vc2-6c-16gb", 6, 16384),
    }
    assert cloud.versions(REF) == ("v1.36.2+1", "v1.36.1+3", "v1.35.4+2", "v1.34.2+1")
    assert cloud.whoami() == "lab@vultr.invalid"
