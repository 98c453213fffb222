"""What only one cloud does, and what the adapter makes of it."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from modelplane_dagster import errors
from modelplane_dagster.kube.objects import Taint
from modelplane_dagster.sources import SOURCES
from resources.clouds import make_cloud
from resources.clouds.seam import ClusterRef, Progress
from resources.lab.clouds import aks, eks, gke
from resources.lab.clouds.state import CloudState, Delays, Fault
from tests.clouds import views
from tests.clouds.serve import serving
from tests.clouds.test_contract import FAST, until, until_raises

EKS_REF = ClusterRef("demo", "EKS", "us-east-1")
GKE_REF = ClusterRef("demo", "GKE", "us-central1")
AKS_REF = ClusterRef("demo", "AKS", "westeurope")


class Site:
    """One simulated cloud, mounted below a path as the daemon mounts it, with its adapter."""

    def __init__(self, source, ref, app, state, cloud):
        self.source, self.ref, self.app, self.state, self.cloud = source, ref, app, state, cloud

    def control_plane(self):
        view = views.cluster(self.source, version="", location=self.ref.location)
        return self.cloud.ensure_control_plane(self.ref, SOURCES[self.source].control_plane_request(view))

    def pool(self, pool):
        view = views.cluster(self.source, pool, version="", location=self.ref.location)
        return self.cloud.ensure_pool(self.ref, pool.name, SOURCES[self.source].pool_request(view, pool))

    def seen(self, name):
        return next(p for p in self.cloud.observe(self.ref).pools if p.name == name)

    def count(self, what):
        return sum(n for (_, meaning), n in self.state.counts.items() if meaning == what)


def site(tmp_path, source, ref, module, *, delays=FAST, app=None):
    state = CloudState(source, tmp_path, delays=delays, dress=module.dress, traits=getattr(module, "TRAITS", None))
    made = app(state) if app else {"EKS": eks.EksSim, "GKE": gke.GkeSim, "AKS": aks.AksSim}[source](state)
    mounted = Starlette(routes=[Mount(f"/clouds/{source.lower()}", app=made)])
    return state, made, mounted


@pytest.fixture
def eks_site(tmp_path):
    state, app, mounted = site(tmp_path, "EKS", EKS_REF, eks)
    with serving(mounted) as url:
        yield Site("EKS", EKS_REF, app, state, make_cloud("EKS", endpoint=f"{url}/clouds/eks"))


@pytest.fixture
def gke_site(tmp_path):
    state, app, mounted = site(tmp_path, "GKE", GKE_REF, gke)
    with serving(mounted) as url:
        yield Site("GKE", GKE_REF, app, state, make_cloud("GKE", endpoint=f"{url}/clouds/gke"))


@pytest.fixture
def aks_site(tmp_path):
    state, app, mounted = site(tmp_path, "AKS", AKS_REF, aks)
    with serving(mounted) as url:
        yield Site("AKS", AKS_REF, app, state, make_cloud("AKS", endpoint=f"{url}/clouds/aks"))


EKS_POOL = views.gpu_pool(machine={"instanceType": "g6.xlarge"})
GKE_POOL = views.gpu_pool(machine={"machineType": "g2-standard-8"}, zones=("us-central1-a",))
GKE_CPUS = views.cpu_pool(machine={"machineType": "n2-standard-16"})
AKS_POOL = views.gpu_pool("gpu-a100", machine={"vmSize": "Standard_NC24ads_A100_v4"})


# EKS


def test_eks_clears_a_group_that_no_machine_joined(eks_site):
    until(eks_site.control_plane)
    eks_site.state.set_fault("pool/demo/l4s", Fault.NO_CAPACITY)
    error = until_raises(errors.CloudCapacityError, lambda: eks_site.pool(EKS_POOL))
    assert error.code == "InsufficientInstanceCapacity"
    assert eks_site.count("DELETE delete-pool") == 1


def test_eks_keeps_a_group_that_machines_joined(eks_site):
    until(eks_site.control_plane)
    until(lambda: eks_site.pool(EKS_POOL))
    eks_site.state.set_fault("pool/demo/l4s", Fault.QUOTA)
    bigger = replace(EKS_POOL, count=3)
    error = until_raises(errors.CloudQuotaError, lambda: eks_site.pool(bigger))
    assert error.code == "VcpuLimitExceeded"
    assert eks_site.count("DELETE delete-pool") == 0
    seen = eks_site.seen("l4s")
    assert (seen.state, seen.count, seen.joined) == ("degraded", 3, 1)


def test_eks_waits_for_an_update_that_runs(eks_site, monkeypatch):
    until(eks_site.control_plane)
    until(lambda: eks_site.pool(EKS_POOL))
    eks_site.state.delays = Delays(update=5.0)
    bigger = replace(EKS_POOL, count=2)
    assert eks_site.pool(bigger) == Progress("pending", "pool l4s of cluster demo to be updated", changed=True)
    assert eks_site.pool(bigger) == Progress("pending", "pool l4s of cluster demo, which is updating")
    assert eks_site.count("POST update-pool") == 1


def test_eks_names_the_missing_subnet(eks_site):
    until(eks_site.control_plane)
    elsewhere = replace(EKS_POOL, zones=("us-east-1z",))
    with pytest.raises(errors.CloudInvalidError, match="us-east-1z"):
        eks_site.pool(elsewhere)


def test_eks_makes_one_launch_template_for_efa(eks_site):
    until(eks_site.control_plane)
    pool = views.gpu_pool("p4s", machine={"instanceType": "p4d.24xlarge"}, fabric="EFA")
    eks_site.state.set_fault("pool/demo/p4s", Fault.NO_CAPACITY)
    until_raises(errors.CloudCapacityError, lambda: eks_site.pool(pool))
    eks_site.state.clear_fault("pool/demo/p4s", Fault.NO_CAPACITY)
    until(lambda: eks_site.pool(pool))
    assert eks_site.count("POST CreateLaunchTemplate") == 1
    assert [n.machine for n in eks_site.state.desired_nodes("demo") if n.pool == "p4s"] == ["p4d.24xlarge"]


def test_eks_nodes_carry_amazons_labels(eks_site):
    until(eks_site.control_plane)
    until(lambda: eks_site.pool(EKS_POOL))
    node = next(n for n in eks_site.state.desired_nodes("demo") if n.pool == "l4s")
    assert node.labels["eks.amazonaws.com/nodegroup"] == "l4s"
    assert node.labels["topology.kubernetes.io/zone"] == "us-east-1a"
    assert node.labels["node.kubernetes.io/instance-type"] == "g6.xlarge"
    assert node.taints == (Taint("nvidia.com/gpu", "present", "NoSchedule"),)


# GKE


def test_gke_takes_one_mutation_at_a_time(gke_site):
    until(gke_site.control_plane)
    assert gke_site.pool(GKE_POOL).changed
    waits = gke_site.pool(GKE_CPUS)
    assert (waits.state, waits.changed) == ("pending", False)
    assert "CREATE_NODE_POOL" in waits.waits_for
    until(lambda: gke_site.pool(GKE_CPUS))
    assert gke_site.count("POST create-pool") == 2


@pytest.mark.parametrize(
    ("count", "zones"),
    [
        (1, ["us-central1-a"]),
        (2, ["us-central1-a", "us-central1-b"]),
        (3, ["us-central1-a", "us-central1-b", "us-central1-c"]),
        (5, ["us-central1-a"]),
    ],
)
def test_gke_pool_without_zones_has_the_nodes_asked_for(gke_site, count, zones):
    until(gke_site.control_plane)
    pool = replace(GKE_CPUS, count=count)
    until(lambda: gke_site.pool(pool))
    seen = gke_site.seen("cpus")
    assert (seen.count, seen.joined, seen.provider["locations"]) == (count, count, zones)
    assert len([n for n in gke_site.state.desired_nodes("demo") if n.pool == "cpus"]) == count


def test_gke_refuses_a_count_that_its_zones_do_not_divide(gke_site):
    until(gke_site.control_plane)
    until(lambda: gke_site.pool(replace(GKE_CPUS, count=2)))
    with pytest.raises(errors.CloudInvalidError, match="2 zones"):
        gke_site.pool(replace(GKE_CPUS, count=3))
    assert gke_site.count("POST resize-pool") == 0


def test_gke_own_taint_and_labels_stay(gke_site):
    until(gke_site.control_plane)
    bare = replace(GKE_POOL, taints=())
    until(lambda: gke_site.pool(bare))
    assert gke_site.seen("l4s").taints == (Taint("nvidia.com/gpu", "present", "NoSchedule"),)
    more = replace(bare, labels={**bare.labels, "tier": "a"}, taints=(Taint("only", "x", "NoSchedule"),))
    until(lambda: gke_site.pool(more))
    seen = gke_site.seen("l4s")
    assert set(seen.taints) == {Taint("nvidia.com/gpu", "present", "NoSchedule"), Taint("only", "x", "NoSchedule")}
    assert seen.labels == {
        "modelplane.ai/pool": "l4s",
        "modelplane.ai/gpu": "nvidia-l4",
        "cloud.google.com/gke-nvidia-gpu-dra-driver": "true",
        "tier": "a",
    }


def test_gke_bounds_are_totals_and_follow(gke_site):
    until(gke_site.control_plane)
    scaled = replace(GKE_POOL, minimum=0, maximum=4)
    until(lambda: gke_site.pool(scaled))
    assert (gke_site.seen("l4s").minimum, gke_site.seen("l4s").maximum) == (0, 4)
    wider = replace(GKE_POOL, minimum=1, maximum=8)
    until(lambda: gke_site.pool(wider))
    assert (gke_site.seen("l4s").minimum, gke_site.seen("l4s").maximum) == (1, 8)
    assert gke_site.count("POST rebound-pool") == 1


# AKS


def test_aks_keeps_the_true_name_outside(aks_site):
    until(aks_site.control_plane)
    until(lambda: aks_site.pool(AKS_POOL))
    assert list(aks_site.state.cluster("demo").pools) == ["system", "gpua10587d6d"]
    seen = aks_site.seen("gpu-a100")
    assert seen.provider["name"] == "gpua10587d6d"
    aks_site.state.pool("demo", "gpua10587d6d").labels.clear()
    assert aks_site.seen("gpu-a100").labels == {}


def test_aks_may_be_asked_by_the_short_name(aks_site):
    until(aks_site.control_plane)
    view = views.cluster("AKS", AKS_POOL)
    request = SOURCES["AKS"].pool_request(view, AKS_POOL)
    until(lambda: aks_site.cloud.ensure_pool(AKS_REF, SOURCES["AKS"].pool_name(AKS_POOL), request))
    assert aks_site.pool(AKS_POOL) == Progress("ready")
    until(lambda: aks_site.cloud.delete_pool(AKS_REF, SOURCES["AKS"].pool_name(AKS_POOL)))
    assert aks_site.cloud.observe(AKS_REF).pools == ()


def test_aks_reads_the_error_from_the_operation(tmp_path):
    _, app, mounted = site(tmp_path, "AKS", AKS_REF, aks, app=lambda state: aks.AksSim(state, tell_errors=False))
    state = app.state
    with serving(mounted) as url:
        here = Site("AKS", AKS_REF, app, state, make_cloud("AKS", endpoint=f"{url}/clouds/aks"))
        until(here.control_plane)
        state.set_fault("pool/demo/gpu-a100", Fault.NO_CAPACITY)
        error = until_raises(errors.CloudCapacityError, lambda: here.pool(AKS_POOL))
    assert error.code == "AllocationFailed"
    assert "gpu-a100" in error.message


def test_aks_does_not_overwrite_what_changed_meanwhile(aks_site, monkeypatch):
    until(aks_site.control_plane)
    until(lambda: aks_site.pool(AKS_POOL))
    read = aks_site.cloud._raw_pool

    def stale(ref, name):
        raw = read(ref, name)
        aks_site.state.pool("demo", "gpua10587d6d").revision += 1
        return raw

    monkeypatch.setattr(aks_site.cloud, "_raw_pool", stale)
    with pytest.raises(errors.CloudBusyError) as raised:
        aks_site.pool(replace(AKS_POOL, count=2))
    assert raised.value.code == "PreconditionFailed"
    assert aks_site.state.pool("demo", "gpua10587d6d").size == 1


def test_aks_leaves_a_strangers_resource_group(aks_site):
    aks_site.state.extra["groups"] = {"modelplane-demo": {"name": "modelplane-demo", "tags": {}}}
    with pytest.raises(errors.CloudNameTakenError, match="modelplane-demo"):
        aks_site.control_plane()
    assert aks_site.state.totals()["write"] == 0


def test_aks_gives_a_bad_version_back(aks_site):
    view = replace(views.cluster("AKS", location="westeurope"), version="1.20")
    with pytest.raises(errors.CloudInvalidError) as raised:
        aks_site.cloud.ensure_control_plane(AKS_REF, SOURCES["AKS"].control_plane_request(view))
    assert raised.value.code == "K8sVersionNotSupported"


# All


@pytest.mark.parametrize("source", ["EKS", "GKE", "AKS"])
def test_nobody_there_is_retryable(source):
    cloud = make_cloud(source, endpoint="http://127.0.0.1:9")
    began = time.monotonic()
    with pytest.raises(errors.CloudRetryableError):
        cloud.observe(ClusterRef("demo", source, "us-east-1"))
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("source", ["EKS", "GKE", "AKS"])
def test_a_bad_secret_is_said_without_quoting_it(source):
    with pytest.raises(errors.CloudCredentialsError) as raised:
        make_cloud(source, secrets={"credentials": "not what it should be"})
    assert "not what" not in raised.value.message
    assert raised.value.__cause__ is None
