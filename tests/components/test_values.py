"""The values that the sheets prescribe, source by source."""

from __future__ import annotations

import json

import pytest

from modelplane_dagster.cluster import SOURCES
from modelplane_dagster.components.join import join
from modelplane_dagster.components.lists import components_for
from modelplane_dagster.components.nvidia_clouds import HARDENING
from tests.components.worlds import cpu, full, nvidia, view

NV_TOLERATED = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


def in_pools(*names):
    term = {"matchExpressions": [{"key": "modelplane.ai/pool", "operator": "In", "values": list(names)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def values(source, key, world=None):
    return join(world or view(source, nvidia(), cpu()), components_for(source)).get(key).values


@pytest.mark.parametrize(
    ("source", "root"),
    [
        ("EKS", "/"),
        ("GKE", "/home/kubernetes/bin/nvidia"),
        ("AKS", "/"),
        ("Nebius", "/"),
        ("Vultr", "/"),
        ("Civo", "/run/nvidia/driver"),
        ("Existing", "/"),
    ],
)
def test_nvidia_dra_driver(source, root):
    assert values(source, "nvidia-dra-driver-gpu") == {
        "gpuResourcesEnabledOverride": True,
        "nvidiaDriverRoot": root,
        "resources": {"gpus": {"enabled": True}, "computeDomains": {"enabled": False}},
        "kubeletPlugin": {"affinity": in_pools("l4"), "tolerations": NV_TOLERATED},
    }


OPERATOR = {
    "nfd": {"enabled": False},
    "devicePlugin": {"enabled": False},
    "driver": {"enabled": False},
    "toolkit": {"enabled": False},
    "gdrcopy": {"enabled": False},
    "dcgm": {"enabled": True},
    "daemonsets": {"tolerations": NV_TOLERATED},
}
GKE_TOOLKIT = {
    "enabled": True,
    "installDir": "/home/kubernetes/bin/nvidia",
    "env": [
        {"name": "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED", "value": "false"},
        {"name": "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS", "value": "true"},
    ],
}


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        ("EKS", {}),
        ("GKE", {"toolkit": GKE_TOOLKIT, "hostPaths": {"driverInstallDir": "/home/kubernetes/bin/nvidia"}}),
        ("AKS", {"operator": {"runtimeClass": "nvidia-container-runtime"}}),
        ("Civo", {"driver": {"enabled": True}, "dcgm": {"enabled": False}}),
    ],
)
def test_gpu_operator(source, changes):
    assert values(source, "gpu-operator") == OPERATOR | changes


@pytest.mark.parametrize("source", [s for s in SOURCES if s != "Vultr"])
def test_node_feature_discovery(source):
    assert values(source, "node-feature-discovery") == {
        "worker": {"affinity": in_pools("l4"), "tolerations": NV_TOLERATED}
    }


def test_nvsentinel_binds_its_monitors_and_not_its_controller():
    monitor = {"affinity": in_pools("l4")}
    assert values("EKS", "nvsentinel") == {
        "global": {"tolerations": NV_TOLERATED},
        "labeler": {"assumeDriverInstalled": True},
        "networkPolicy": {"enabled": False},
        "gpu-health-monitor": monitor,
        "syslog-health-monitor": monitor,
        "metadata-collector": monitor,
        "platformConnector": monitor,
    }
    assert values("AKS", "nvsentinel")["metadata-collector"] == {
        **monitor,
        "runtimeClassName": "nvidia-container-runtime",
    }


@pytest.mark.parametrize(
    ("source", "own"),
    [
        ("EKS", False),
        ("GKE", False),
        ("AKS", False),
        ("Nebius", True),
        ("Vultr", True),
        ("Civo", True),
        ("Existing", True),
    ],
)
def test_prometheus_brings_its_crds_where_nothing_else_does(source, own):
    made = values(source, "kube-prometheus-stack")
    assert made["crds"] == {"enabled": own}
    assert (made["grafana"], made["alertmanager"]) == ({"enabled": False}, {"enabled": False})
    spec = made["prometheus"]["prometheusSpec"]
    assert spec["podMonitorSelectorNilUsesHelmValues"] is False
    assert spec["podMonitorNamespaceSelector"] == {}
    (job,) = spec["additionalScrapeConfigs"]
    assert job["metrics_path"] == "/stats/prometheus"
    assert "$1:19001" in [r.get("replacement") for r in job["relabel_configs"]]


def test_amd_operator_brings_nothing_but_itself():
    assert values("Existing", "amd-gpu-operator", full("Existing")) == {
        "node-feature-discovery": {"enabled": False},
        "kmm": {"enabled": False, "watch": False},
        "remediation": {"enabled": False, "installCRDs": False},
        "crds": {"defaultCR": {"install": False, "upgrade": False}},
        "draDriver": {"deviceClass": {"create": True}},
    }


def test_aws_dranet_takes_its_pools_as_instance_labels():
    world = view("EKS", nvidia("b", fabric="EFA"), nvidia("a", fabric="EFA"), nvidia("plain"))
    assert values("EKS", "aws-dranet", world) == {
        "supportedInstanceLabels": {"keys": ["modelplane.ai/pool"], "values": ["a", "b"]},
        "tolerations": NV_TOLERATED,
    }


def test_autoscalers():
    pools = (nvidia("b", minimum=0, maximum=4), nvidia("a", count=2, maximum=3), nvidia("fixed"))
    assert values("EKS", "cluster-autoscaler", view("EKS", *pools, location="us-west-2")) == {
        "cloudProvider": "aws",
        "awsRegion": "us-west-2",
        "autoDiscovery": {"clusterName": "c"},
        "rbac": {"serviceAccount": {"name": "cluster-autoscaler"}},
    }
    assert values("Civo", "cluster-autoscaler", view("Civo", *pools)) == {
        "cloudProvider": "civo",
        "autoscalingGroups": [
            {"name": "a", "minSize": 2, "maxSize": 3},
            {"name": "b", "minSize": 1, "maxSize": 4},
        ],
        "secretKeyRefNameOverride": "civo-api-access",
    }


def test_envoy_gateway_delegates_to_the_ai_gateway():
    config = values("Nebius", "envoy-gateway")["config"]["envoyGateway"]
    assert config["extensionApis"] == {"enableBackend": True}
    manager = config["extensionManager"]
    assert manager["service"]["fqdn"] == {
        "hostname": "ai-gateway-controller.envoy-ai-gateway-system.svc.cluster.local",
        "port": 1063,
    }
    assert manager["backendResources"] == [
        {"group": "inference.networking.k8s.io", "kind": "InferencePool", "version": "v1"}
    ]


def test_manifests_of_the_gateway():
    joined = join(view("Nebius"), components_for("Nebius"))
    (proxy,) = joined.get("gateway-proxy").manifests
    assert proxy["spec"]["provider"]["kubernetes"]["envoyService"] == {"externalTrafficPolicy": "Cluster"}
    (issuer,) = joined.get("gateway-selfsigned-issuer").manifests
    assert (issuer["metadata"]["namespace"], issuer["spec"]) == ("modelplane-system", {"selfSigned": {}})
    (crd,) = joined.get("gaie-crds").manifests
    assert crd["metadata"]["name"] == "inferencepools.inference.networking.k8s.io"
    assert "api-approved.kubernetes.io" in crd["metadata"]["annotations"]


@pytest.mark.parametrize("source", SOURCES)
def test_everything_that_goes_over_the_wire_is_json(source):
    for joined in join(full(source), components_for(source)).installed:
        json.dumps([joined.values, list(joined.prepares), list(joined.manifests)])
        for manifest in (*joined.prepares, *joined.manifests):
            assert {"apiVersion", "kind", "metadata"} <= manifest.keys()


def test_infiniband_is_shared_on_its_pools_alone():
    world = view("AKS", nvidia("ib", fabric="InfiniBand"), nvidia("plain"))
    (policy,) = join(world, components_for("AKS")).get("network-operator").manifests
    assert policy["spec"]["nodeAffinity"] == in_pools("ib")["nodeAffinity"]
    assert policy["spec"]["tolerations"] == NV_TOLERATED
    assert json.loads(policy["spec"]["rdmaSharedDevicePlugin"]["config"]) == {
        "configList": [{"resourceName": "hca_shared_devices_a", "rdmaHcaMax": 1000, "selectors": {"vendors": ["15b3"]}}]
    }


def test_the_hardening_daemon_is_confined():
    (daemon,) = join(full("AKS"), components_for("AKS")).get("gpu-operator-toolkit-hardening").manifests
    spec = daemon["spec"]["template"]["spec"]
    assert daemon["metadata"]["name"] == HARDENING
    assert (spec["affinity"], spec["tolerations"]) == (in_pools("ib", "l4", "l4cpu"), NV_TOLERATED)
