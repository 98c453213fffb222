"""Nebius's adapter against the simulated mk8s, through the real SDK over gRPC."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from nebius.aio.service_error import RequestError
from nebius.api.nebius.common.v1 import ResourceMetadata
from nebius.api.nebius.mk8s.v1 import (
    NodeGroupAutoscalingSpec,
    NodeGroupServiceClient,
    NodeGroupSpec,
    UpdateNodeGroupRequest,
)

from modelplane_dagster.errors import (
    CloudBusyError,
    CloudCapacityError,
    CloudCredentialsError,
    CloudInvalidError,
    CloudQuotaError,
    CloudRetryableError,
)
from modelplane_dagster.kube.objects import Taint
from modelplane_dagster.sources import nebius as source
from resources.clouds import nebius_api
from resources.clouds.kubeconfig import PLUGIN
from resources.clouds.nebius import NebiusCloud
from resources.clouds.nebius_shapes import trouble
from resources.clouds.rest import Limits
from resources.clouds.seam import ClusterRef, InstanceType, Progress
from resources.lab.clouds.nebius import NebiusSim
from resources.lab.clouds.state import Fault
from tests.clouds.serve import serving
from tests.clouds.serving import make_state, until_ready, wait_for
from tests.clouds.views import cluster, cpu_pool, gpu_pool

REF = ClusterRef("demo", "Nebius")
H100 = {"platform": "gpu-h100-sxm", "preset": "8gpu-128vcpu-1600gb", "diskSizeGb": 200, "driversPreset": "cuda13.0"}
GPU = gpu_pool("gpu-h100", machine=H100, accelerator="nvidia-h100", minimum=0, maximum=4)
CPU = cpu_pool("cpu", machine={"platform": "cpu-d3", "preset": "16vcpu-64gb", "diskSizeGb": 100})
FABRIC = gpu_pool("ib", machine=H100, accelerator="nvidia-h100", fabric="InfiniBand", infiniband="fabric-2")
VIEW = cluster("Nebius", GPU, CPU, FABRIC, version="1.34", location="")
MARKS = {"modelplane-owner": "modelplane-dagster", "modelplane-cluster": "demo"}
LIMITS = Limits(timeout=5.0, attempts=2)


@pytest.fixture
def state(tmp_path):
    return make_state("Nebius", tmp_path, recovers=True, nodes_follow=False)


@pytest.fixture
def sim(state):
    return NebiusSim(state)


@pytest.fixture
def cloud(sim):
    with serving(sim) as url:
        yield NebiusCloud(endpoint=url, account="project-e00lab", limits=LIMITS)


def up(cloud):
    request = source.control_plane_request(VIEW)
    return until_ready(lambda: cloud.ensure_control_plane(REF, request))


def with_pool(cloud, pool):
    request = source.pool_request(VIEW, pool)
    return until_ready(lambda: cloud.ensure_pool(REF, pool.name, request))


def group_template(pool, **more):
    return {
        "resources": {"platform": pool.machine["platform"], "preset": pool.machine["preset"]},
        "boot_disk": {"type": "NETWORK_SSD", "size_gibibytes": pool.machine["diskSizeGb"]},
        "metadata": {"labels": dict(pool.labels)},
        **more,
    }


GPU_TAINTS = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}]
GPU_SETTINGS = {"drivers_preset": "cuda13.0", "dra": True}


@pytest.mark.parametrize(
    ("pool", "body"),
    [
        (
            GPU,
            {
                "node_group": {
                    "metadata": {"name": "gpu-h100", "labels": MARKS},
                    "spec": {
                        "version": "1.34",
                        "autoscaling": {"min_node_count": 0, "max_node_count": 4},
                        "template": group_template(GPU, taints=GPU_TAINTS, gpu_settings=GPU_SETTINGS),
                    },
                }
            },
        ),
        (
            CPU,
            {
                "node_group": {
                    "metadata": {"name": "cpu", "labels": MARKS},
                    "spec": {
                        "version": "1.34",
                        "fixed_node_count": 2,
                        "template": group_template(
                            CPU, taints=[{"key": "modelplane.ai/cpu", "value": "true", "effect": "NO_SCHEDULE"}]
                        ),
                    },
                }
            },
        ),
        (
            FABRIC,
            {
                "gpu_cluster": {
                    "metadata": {"name": "demo-ib", "labels": MARKS},
                    "spec": {"infiniband_fabric": "fabric-2"},
                },
                "node_group": {
                    "metadata": {"name": "ib", "labels": MARKS},
                    "spec": {
                        "version": "1.34",
                        "fixed_node_count": 1,
                        "template": group_template(FABRIC, taints=GPU_TAINTS, gpu_settings=GPU_SETTINGS),
                    },
                },
            },
        ),
    ],
    ids=["gpu", "cpu", "infiniband"],
)
def test_pool_requests_are_written_in_nebius_words(pool, body):
    assert source.pool_request(VIEW, pool) == body


def test_control_plane_request():
    assert source.control_plane_request(VIEW) == {
        "network": {"metadata": {"name": "demo", "labels": MARKS}},
        "subnet": {
            "metadata": {"name": "demo", "labels": MARKS},
            "spec": {"ipv4_private_pools": {"use_network_pools": True}},
        },
        "cluster": {
            "metadata": {"name": "demo", "labels": MARKS},
            "spec": {"control_plane": {"version": "1.34", "endpoints": {"public_endpoint": {}}}},
        },
        "node_group": {
            "metadata": {"name": "system", "labels": MARKS},
            "spec": {
                "version": "1.34",
                "autoscaling": {"min_node_count": 1, "max_node_count": 2},
                "template": {
                    "resources": {"platform": "cpu-d3", "preset": "4vcpu-16gb"},
                    "boot_disk": {"type": "NETWORK_SSD", "size_gibibytes": 100},
                    "metadata": {"labels": {"modelplane.ai/pool": "system"}},
                },
            },
        },
    }


@pytest.mark.parametrize(
    ("pool", "codes"),
    [
        (GPU, []),
        (CPU, []),
        (FABRIC, []),
        (gpu_pool("x", machine={"platform": "cpu-d3", "preset": "4vcpu-16gb"}), ["InstanceMismatch"]),
        (cpu_pool("x", machine=H100), ["InstanceMismatch"]),
        (gpu_pool("x", machine=H100, fabric="InfiniBand"), ["FabricRequired"]),
        (gpu_pool("x", machine=H100, fabric="EFA"), ["FabricUnsupported"]),
        (gpu_pool("x", machine=H100, capacity_block="cr-0a"), ["CapacityBlockUnsupported"]),
    ],
)
def test_a_pool_that_nebius_cant_make_is_found(pool, codes):
    assert [f.code for f in source.check_pool(VIEW, pool)] == codes


def test_what_is_sent_is_the_request_with_ids_added(cloud, state):
    up(cloud)
    with_pool(cloud, CPU)
    sent = state.pool("demo", "cpu").body["spec"]
    asked = source.pool_request(VIEW, CPU)["node_group"]["spec"]
    # protobuf's JSON has 64-bit numbers as strings.
    assert {**sent, "fixed_node_count": int(sent["fixed_node_count"])} == {
        **asked,
        "template": {**asked["template"], "boot_disk": {"type": "NETWORK_SSD", "size_gibibytes": "100"}},
    }


def test_an_infiniband_pool_joins_its_gpu_cluster_and_takes_it_along(cloud, state, sim):
    up(cloud)
    with_pool(cloud, FABRIC)
    (fabric,) = sim.houses["GpuCluster"].values()
    assert fabric["spec"] == {"infiniband_fabric": "fabric-2"}
    assert state.pool("demo", "ib").body["spec"]["template"]["gpu_cluster"] == {"id": fabric["metadata"]["id"]}
    before = state.totals()["write"]
    assert with_pool(cloud, FABRIC) == [Progress("ready")]
    assert state.totals()["write"] == before
    until_ready(lambda: cloud.delete_pool(REF, "ib"))
    assert sim.houses["GpuCluster"] == {}


def test_a_pool_at_zero_is_ready(cloud):
    up(cloud)
    with_pool(cloud, GPU)
    (pool,) = cloud.observe(REF).pools
    assert (pool.state, pool.count, pool.joined, pool.minimum, pool.maximum) == ("ready", 0, 0, 0, 4)
    assert with_pool(cloud, GPU) == [Progress("ready")]


def test_running_without_nodes_isnt_ready(cloud, state):
    up(cloud)
    state.set_fault("pool/demo/cpu", Fault.SLOW_POOL)
    cloud.ensure_pool(REF, "cpu", source.pool_request(VIEW, CPU))
    waiting = cloud.ensure_pool(REF, "cpu", source.pool_request(VIEW, CPU))
    assert waiting == Progress("pending", "pool cpu of cluster demo: 0 of 2 nodes are ready")
    assert cloud.observe(REF).pools[0].state == "creating"


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (Fault.NO_CAPACITY, CloudCapacityError, "not enough resources for cpu-d3/16vcpu-64gb now"),
        (Fault.QUOTA, CloudQuotaError, "quota compute.instance.gpu is exceeded for cpu-d3/16vcpu-64gb"),
    ],
)
def test_events_tell_capacity_from_quota(cloud, state, fault, error, words):
    up(cloud)
    state.set_fault("pool/demo/cpu", fault)
    request = source.pool_request(VIEW, CPU)
    cloud.ensure_pool(REF, "cpu", request)
    wait_for(lambda: state.pool("demo", "cpu").failure, "the failure")
    with pytest.raises(error) as caught:
        cloud.ensure_pool(REF, "cpu", request)
    assert caught.value.code == "RESOURCE_EXHAUSTED"
    assert words in caught.value.message
    assert cloud.observe(REF).pools[0].message == words
    assert state.counts[("delete", "NodeGroupService/Delete")] == 0
    state.clear_fault("pool/demo/cpu", fault)
    with_pool(cloud, CPU)


@pytest.mark.parametrize(
    ("occurred", "words"),
    [
        ({}, "no room"),
        ({"occurred_at": "2026-03-01T11:30:00Z"}, "no room"),
        ({"occurred_at": "2026-03-01T10:30:00Z"}, ""),
    ],
)
def test_an_event_that_is_over_says_nothing(occurred, words):
    status = {"events": [{"last_occurrence": {"level": "ERROR", "message": "no room", **occurred}}]}
    assert trouble(status, now=datetime(2026, 3, 1, 12, tzinfo=UTC))[1] == words


def test_changed_labels_miss_standing_nodes_and_the_pass_says_so(cloud, state):
    up(cloud)
    with_pool(cloud, CPU)
    state.pool("demo", "cpu").labels["modelplane.ai/cpu"] = "false"
    state.pool("demo", "cpu").born[0]["labels"]["modelplane.ai/cpu"] = "false"
    state.pool("demo", "cpu").taints.clear()
    (first, *_) = with_pool(cloud, CPU)
    assert first.changed
    assert first.waits_for == (
        "pool cpu of cluster demo to be updated; its standing nodes keep theirs of modelplane.ai/cpu"
    )
    (pool,) = cloud.observe(REF).pools
    assert (pool.labels["modelplane.ai/cpu"], pool.provider["nodesFollow"]) == ("true", False)
    assert pool.taints == (Taint("modelplane.ai/cpu", "true"),)
    nodes = [n for n in state.desired_nodes("demo") if n.pool == "cpu"]
    assert [n.labels["modelplane.ai/cpu"] for n in nodes] == ["false", "true"]


def test_an_update_keeps_everything_else_of_the_group(cloud, state):
    up(cloud)
    with_pool(cloud, GPU)
    before = json.loads(json.dumps(state.pool("demo", "gpu-h100").body["spec"]["template"]))
    wider = gpu_pool("gpu-h100", machine=H100, accelerator="nvidia-h100", minimum=0, maximum=6)
    assert with_pool(cloud, wider)[0].changed
    pool = state.pool("demo", "gpu-h100")
    after = pool.body["spec"]
    assert after["autoscaling"] == {"max_node_count": "6"}
    for key in ("resources", "boot_disk", "gpu_settings"):
        assert after["template"][key] == before[key]
    assert pool.labels == dict(GPU.labels)
    assert pool.tags == MARKS


def test_the_simulator_honours_the_reset_mask(cloud, state):
    """What the adapter must never send: a part of the group alone takes the rest away."""
    up(cloud)
    with_pool(cloud, GPU)
    client = NodeGroupServiceClient(cloud._api._sdk)
    part = UpdateNodeGroupRequest(
        metadata=ResourceMetadata(id=state.pool("demo", "gpu-h100").id),
        spec=NodeGroupSpec(autoscaling=NodeGroupAutoscalingSpec(max_node_count=6)),
    )
    with pytest.raises(RequestError) as caught:
        client.update(part, timeout=5.0, auth_timeout=5.0).wait()
    assert caught.value.status.code.name == "INVALID_ARGUMENT"
    assert "template.resources" in caught.value.status.message


def test_an_update_over_another_ones_is_busy(cloud, state):
    up(cloud)
    with_pool(cloud, CPU)
    (group,) = [g for g in cloud._api.listed("node_group", state.cluster("demo").id) if g["metadata"]["name"] == "cpu"]
    state.change_pool("demo", "cpu", labels={"team": "red"})
    with pytest.raises(CloudBusyError) as caught:
        cloud._api.update_node_group(group)
    assert caught.value.code == "ABORTED"


def test_another_machine_is_refused(cloud):
    up(cloud)
    with_pool(cloud, CPU)
    other = cpu_pool("cpu", machine={"platform": "cpu-e2", "preset": "4vcpu-16gb"})
    with pytest.raises(CloudInvalidError) as caught:
        cloud.ensure_pool(REF, "cpu", source.pool_request(VIEW, other))
    assert caught.value.code == "resources-immutable"


def test_a_lost_reply_makes_one_of_each(cloud, state):
    state.set_fault("cluster/demo", Fault.LOST_REPLY)
    up(cloud)
    state.set_fault("pool/demo/cpu", Fault.LOST_REPLY)
    with_pool(cloud, CPU)
    assert [c.name for c in state.clusters()] == ["demo"]
    assert [p.name for p in state.cluster("demo").pools.values()] == ["system", "cpu"]
    assert state.faults() == {}


def test_an_unreachable_cloud_is_retryable_in_bounded_time():
    gone = NebiusCloud(endpoint="grpc://127.0.0.1:9", account="project-e00lab", limits=Limits(timeout=0.3, attempts=2))
    with pytest.raises(CloudRetryableError):
        gone.observe(REF)


def test_lists_are_read_to_their_last_page(cloud, state, monkeypatch):
    monkeypatch.setattr(nebius_api, "_PAGE", 1)
    up(cloud)
    with_pool(cloud, CPU)
    seen = cloud.observe(REF)
    assert (seen.system_pool.name, [p.name for p in seen.pools]) == ("system", ["cpu"])


def test_deletion_goes_from_groups_to_network(cloud, state, sim):
    up(cloud)
    with_pool(cloud, CPU)
    until_ready(lambda: cloud.delete_cluster(REF))
    assert cloud.observe(REF) is None
    assert sim.houses == {"Network": {}, "Subnet": {}, "GpuCluster": {}}
    deletes = state.totals()["delete"]
    assert deletes == 5
    assert cloud.delete_cluster(REF) == Progress("ready")
    assert state.totals()["delete"] == deletes


def test_offers(cloud):
    names = ("gpu-h100-sxm", "gpu-h100-sxm/8gpu-128vcpu-1600gb", "cpu-d3/16vcpu-64gb", "no-such")
    assert dict(cloud.instance_types(REF, names)) == {
        "gpu-h100-sxm": InstanceType("gpu-h100-sxm", 16, 204800, 1, "nvidia"),
        "gpu-h100-sxm/8gpu-128vcpu-1600gb": InstanceType("gpu-h100-sxm/8gpu-128vcpu-1600gb", 128, 1638400, 8, "nvidia"),
        "cpu-d3/16vcpu-64gb": InstanceType("cpu-d3/16vcpu-64gb", 16, 65536),
    }
    assert cloud.versions(REF) == ("1.34", "1.33")


def test_a_project_is_needed_and_must_be_reached(sim):
    with serving(sim) as url:
        with pytest.raises(CloudCredentialsError) as caught:
            NebiusCloud(endpoint=url, limits=LIMITS).observe(REF)
        assert caught.value.code == "project"
        with pytest.raises(CloudCredentialsError) as caught:
            NebiusCloud(endpoint=url, account="project-other", limits=LIMITS).observe(REF)
        assert caught.value.code == "PERMISSION_DENIED"


def test_a_secret_that_isnt_a_credentials_file_is_refused_without_showing_it():
    cloud = NebiusCloud(account="p", secrets={"credentials.json": '{"subject-credentials": {"alg": "none"}}'})
    with pytest.raises(CloudCredentialsError) as caught:
        cloud.whoami()
    assert caught.value.code == "credentials-file"
    assert "none" not in caught.value.message


def test_the_token_plugin_finds_the_sdk_beside_our_module_of_its_name():
    done = subprocess.run(
        [sys.executable, str(PLUGIN), "nebius"],
        env={"NEBIUS_IAM_TOKEN": "from-the-environment"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    answer = json.loads(done.stdout)
    assert (answer["kind"], answer["status"]["token"]) == ("ExecCredential", "from-the-environment")


def test_no_service_is_one_that_nebius_takes_away():
    """The SDK warns of such a service on stderr with every command."""
    services = {name: c for name, c in vars(nebius_api).items() if name.endswith("ServiceClient")}
    assert len(services) == 7
    assert {
        name: c.__service_deprecation_details__ for name, c in services.items() if c.__service_deprecation_details__
    } == {}
