"""The bodies that the adapters send, written out whole: the plan prints these very objects."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modelplane_dagster import drivers
from modelplane_dagster.cluster import Accelerator
from modelplane_dagster.sources import SOURCES
from tests.clouds import views

EKS_CPU = {"instanceType": "m6i.4xlarge", "diskSizeGb": 80}
EKS_GPU = {"instanceType": "g6.xlarge", "diskSizeGb": 100}
GKE_CPU = {"machineType": "n2-standard-16", "diskSizeGb": 80}
GKE_GPU = {"machineType": "g2-standard-8", "diskSizeGb": 100}
AKS_CPU = {"vmSize": "Standard_D16s_v5", "diskSizeGb": 80}
AKS_GPU = {"vmSize": "Standard_NC24ads_A100_v4", "diskSizeGb": 100}

TAGS = {"modelplane-owner": "modelplane-dagster", "modelplane-cluster": "demo"}


def tags(pool):
    return {**TAGS, "modelplane-pool": pool}


EKS_CPU_BODY = {
    "clusterName": "demo",
    "nodegroupName": "cpus",
    "amiType": "AL2023_x86_64_STANDARD",
    "capacityType": "ON_DEMAND",
    "scalingConfig": {"minSize": 2, "maxSize": 2, "desiredSize": 2},
    "labels": {"modelplane.ai/pool": "cpus", "modelplane.ai/cpu": "true"},
    "taints": [{"key": "modelplane.ai/cpu", "value": "true", "effect": "NO_SCHEDULE"}],
    "tags": tags("cpus"),
    "instanceTypes": ["m6i.4xlarge"],
    "diskSize": 80,
}
EKS_GPU_BODY = {
    "clusterName": "demo",
    "nodegroupName": "l4s",
    "amiType": "AL2023_x86_64_NVIDIA",
    "capacityType": "ON_DEMAND",
    "scalingConfig": {"minSize": 1, "maxSize": 1, "desiredSize": 1},
    "labels": {"modelplane.ai/pool": "l4s", "modelplane.ai/gpu": "nvidia-l4"},
    "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}],
    "tags": tags("l4s"),
    "instanceTypes": ["g6.xlarge"],
    "diskSize": 100,
}
GKE_CPU_BODY = {
    "name": "cpus",
    "initialNodeCount": 2,
    "config": {
        "machineType": "n2-standard-16",
        "diskSizeGb": 80,
        "imageType": "COS_CONTAINERD",
        "oauthScopes": ["https://www.googleapis.com/auth/cloud-platform"],
        "labels": {"modelplane.ai/pool": "cpus", "modelplane.ai/cpu": "true"},
        "taints": [{"key": "modelplane.ai/cpu", "value": "true", "effect": "NO_SCHEDULE"}],
        "resourceLabels": tags("cpus"),
    },
}
GKE_GPU_BODY = {
    "name": "l4s",
    "initialNodeCount": 1,
    "locations": ["us-central1-a", "us-central1-b"],
    "config": {
        "machineType": "g2-standard-8",
        "diskSizeGb": 100,
        "imageType": "COS_CONTAINERD",
        "oauthScopes": ["https://www.googleapis.com/auth/cloud-platform"],
        "labels": {
            "modelplane.ai/pool": "l4s",
            "modelplane.ai/gpu": "nvidia-l4",
            "cloud.google.com/gke-nvidia-gpu-dra-driver": "true",
        },
        "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}],
        "resourceLabels": tags("l4s"),
        "accelerators": [
            {
                "acceleratorType": "nvidia-l4",
                "acceleratorCount": "1",
                "gpuDriverInstallationConfig": {"gpuDriverVersion": "DEFAULT"},
            }
        ],
    },
}
AKS_CPU_BODY = {
    "properties": {
        "mode": "User",
        "osType": "Linux",
        "vmSize": "Standard_D16s_v5",
        "osDiskSizeGB": 80,
        "count": 2,
        "enableAutoScaling": False,
        "nodeLabels": {"modelplane.ai/pool": "cpus", "modelplane.ai/cpu": "true"},
        "nodeTaints": ["modelplane.ai/cpu=true:NoSchedule"],
        "tags": tags("cpus"),
    }
}
AKS_GPU_BODY = {
    "properties": {
        "mode": "User",
        "osType": "Linux",
        "vmSize": "Standard_NC24ads_A100_v4",
        "osDiskSizeGB": 100,
        "count": 1,
        "enableAutoScaling": False,
        "nodeLabels": {"modelplane.ai/pool": "l4s", "modelplane.ai/gpu": "nvidia-l4"},
        "nodeTaints": ["nvidia.com/gpu=present:NoSchedule"],
        "tags": tags("l4s"),
        "gpuProfile": {"driver": "Install", "nvidia": {"managementMode": "Unmanaged"}},
    }
}

BOTH = (drivers.CPU, drivers.NVIDIA)
BOTH_LABELS = {"modelplane.ai/pool": "l4s", "modelplane.ai/gpu": "nvidia-l4", "modelplane.ai/cpu": "true"}
NO_ACCELERATOR_LABELS = {"modelplane.ai/pool": "l4s", "modelplane.ai/gpu": "nvidia"}


def with_(body, *path, value):
    """A copy of the body with one field set."""
    key, *rest = path
    return {**body, key: with_(body[key], *rest, value=value) if rest else value}


EKS_CASES = {
    "CPU": (views.cpu_pool(machine=EKS_CPU), EKS_CPU_BODY),
    "NVIDIA": (views.gpu_pool(machine=EKS_GPU), EKS_GPU_BODY),
    "NVIDIA without accelerator": (
        views.gpu_pool(machine=EKS_GPU, accelerator=None),
        with_(EKS_GPU_BODY, "labels", value=NO_ACCELERATOR_LABELS),
    ),
    "NVIDIA with dra.cpu": (
        views.gpu_pool(machine=EKS_GPU, drivers=BOTH, labels=BOTH_LABELS),
        with_(EKS_GPU_BODY, "labels", value=BOTH_LABELS),
    ),
    "autoscaled": (
        views.cpu_pool(machine=EKS_CPU, minimum=1, maximum=5),
        with_(EKS_CPU_BODY, "scalingConfig", value={"minSize": 1, "maxSize": 5, "desiredSize": 2}),
    ),
    "from zero": (
        views.gpu_pool(machine=EKS_GPU, minimum=0, maximum=3),
        with_(EKS_GPU_BODY, "scalingConfig", value={"minSize": 0, "maxSize": 3, "desiredSize": 1}),
    ),
    "empty": (
        views.gpu_pool(machine=EKS_GPU, count=0),
        with_(EKS_GPU_BODY, "scalingConfig", value={"minSize": 0, "maxSize": 1, "desiredSize": 0}),
    ),
    "zones": (
        views.cpu_pool(machine=EKS_CPU, zones=("us-east-1b",)),
        {**EKS_CPU_BODY, "zones": ["us-east-1b"]},
    ),
    "EFA": (
        views.gpu_pool("p4s", machine={"instanceType": "p4d.24xlarge"}, accelerator="nvidia-a100", fabric="EFA"),
        {
            "clusterName": "demo",
            "nodegroupName": "p4s",
            "amiType": "AL2023_x86_64_NVIDIA",
            "capacityType": "ON_DEMAND",
            "scalingConfig": {"minSize": 1, "maxSize": 1, "desiredSize": 1},
            "labels": {"modelplane.ai/pool": "p4s", "modelplane.ai/gpu": "nvidia-a100"},
            "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}],
            "tags": tags("p4s"),
            "launchTemplate": {"name": "demo-p4s"},
            "launchTemplateData": {
                "InstanceType": "p4d.24xlarge",
                "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 100}}],
                "NetworkInterfaces": [
                    {"NetworkCardIndex": 0, "DeviceIndex": 0, "InterfaceType": "efa"},
                    {"NetworkCardIndex": 1, "DeviceIndex": 1, "InterfaceType": "efa-only"},
                    {"NetworkCardIndex": 2, "DeviceIndex": 1, "InterfaceType": "efa-only"},
                    {"NetworkCardIndex": 3, "DeviceIndex": 1, "InterfaceType": "efa-only"},
                ],
            },
        },
    ),
    "capacity block": (
        views.gpu_pool(
            "p5s",
            machine={"instanceType": "p5.48xlarge", "diskSizeGb": 500},
            accelerator="nvidia-h100",
            capacity_block="cr-0a1b",
            zones=("us-east-1a",),
        ),
        {
            "clusterName": "demo",
            "nodegroupName": "p5s",
            "amiType": "AL2023_x86_64_NVIDIA",
            "capacityType": "CAPACITY_BLOCK",
            "scalingConfig": {"minSize": 1, "maxSize": 1, "desiredSize": 1},
            "labels": {"modelplane.ai/pool": "p5s", "modelplane.ai/gpu": "nvidia-h100"},
            "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}],
            "tags": tags("p5s"),
            "zones": ["us-east-1a"],
            "launchTemplate": {"name": "demo-p5s"},
            "launchTemplateData": {
                "InstanceType": "p5.48xlarge",
                "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 500}}],
                "InstanceMarketOptions": {"MarketType": "capacity-block"},
                "CapacityReservationSpecification": {
                    "CapacityReservationPreference": "capacity-reservations-only",
                    "CapacityReservationTarget": {"CapacityReservationId": "cr-0a1b"},
                },
            },
        },
    ),
}

ZONES = ("us-central1-a", "us-central1-b")
GKE_L4S = views.gpu_pool(machine=GKE_GPU, zones=ZONES, count=2)
GKE_CASES = {
    "CPU": (views.cpu_pool(machine=GKE_CPU), GKE_CPU_BODY),
    "NVIDIA": (GKE_L4S, GKE_GPU_BODY),
    "an odd count in two zones": (replace(GKE_L4S, count=3), with_(GKE_GPU_BODY, "initialNodeCount", value=2)),
    "NVIDIA with dra.cpu": (
        replace(GKE_L4S, drivers=BOTH, labels=BOTH_LABELS),
        with_(
            GKE_GPU_BODY,
            "config",
            "labels",
            value={**BOTH_LABELS, "cloud.google.com/gke-nvidia-gpu-dra-driver": "true"},
        ),
    ),
    "several accelerators": (
        replace(GKE_L4S, accelerator=Accelerator("nvidia-l4", 4)),
        with_(
            GKE_GPU_BODY,
            "config",
            "accelerators",
            value=[
                {
                    "acceleratorType": "nvidia-l4",
                    "acceleratorCount": "4",
                    "gpuDriverInstallationConfig": {"gpuDriverVersion": "DEFAULT"},
                }
            ],
        ),
    ),
    "autoscaled": (
        views.cpu_pool(machine=GKE_CPU, minimum=1, maximum=6),
        {
            **GKE_CPU_BODY,
            "autoscaling": {
                "enabled": True,
                "totalMinNodeCount": 1,
                "totalMaxNodeCount": 6,
                "locationPolicy": "ANY",
            },
        },
    ),
    "from zero": (
        replace(GKE_L4S, minimum=0, maximum=4),
        {
            **GKE_GPU_BODY,
            "autoscaling": {
                "enabled": True,
                "totalMinNodeCount": 0,
                "totalMaxNodeCount": 4,
                "locationPolicy": "ANY",
            },
        },
    ),
}

AKS_CASES = {
    "CPU": (views.cpu_pool(machine=AKS_CPU), AKS_CPU_BODY),
    "NVIDIA": (views.gpu_pool(machine=AKS_GPU), AKS_GPU_BODY),
    "NVIDIA without accelerator": (
        views.gpu_pool(machine=AKS_GPU, accelerator=None),
        with_(AKS_GPU_BODY, "properties", "nodeLabels", value=NO_ACCELERATOR_LABELS),
    ),
    "NVIDIA with dra.cpu": (
        views.gpu_pool(machine=AKS_GPU, drivers=BOTH, labels=BOTH_LABELS),
        with_(AKS_GPU_BODY, "properties", "nodeLabels", value=BOTH_LABELS),
    ),
    "autoscaled": (
        views.cpu_pool(machine=AKS_CPU, minimum=1, maximum=5),
        {"properties": {**AKS_CPU_BODY["properties"], "enableAutoScaling": True, "minCount": 1, "maxCount": 5}},
    ),
    "from zero": (
        views.cpu_pool(machine=AKS_CPU, count=0, minimum=0, maximum=5),
        {
            "properties": {
                **AKS_CPU_BODY["properties"],
                "count": 0,
                "enableAutoScaling": True,
                "minCount": 0,
                "maxCount": 5,
            }
        },
    ),
    "zones": (
        views.cpu_pool(machine=AKS_CPU, zones=("1", "2")),
        {"properties": {**AKS_CPU_BODY["properties"], "availabilityZones": ["1", "2"]}},
    ),
}

EXISTING_CASES = {
    "CPU": (
        views.cpu_pool(machine={}),
        {
            "labels": {"modelplane.ai/pool": "cpus", "modelplane.ai/cpu": "true"},
            "taints": [{"key": "modelplane.ai/cpu", "value": "true", "effect": "NoSchedule"}],
        },
    ),
}

CASES = {"EKS": EKS_CASES, "GKE": GKE_CASES, "AKS": AKS_CASES, "Existing": EXISTING_CASES}


@pytest.mark.parametrize(("source", "case"), [(s, c) for s, cases in CASES.items() for c in cases])
def test_pool_request(source, case):
    pool, body = CASES[source][case]
    assert SOURCES[source].pool_request(views.cluster(source, pool), pool) == body


def test_eks_control_plane():
    assert SOURCES["EKS"].control_plane_request(views.cluster("EKS")) == {
        "name": "demo",
        "version": "1.36",
        "accessConfig": {"authenticationMode": "API_AND_CONFIG_MAP", "bootstrapClusterCreatorAdminPermissions": True},
        "resourcesVpcConfig": {"endpointPublicAccess": True, "endpointPrivateAccess": True},
        "tags": TAGS,
        "systemNodegroup": {
            "clusterName": "demo",
            "nodegroupName": "system",
            "amiType": "AL2023_x86_64_STANDARD",
            "instanceTypes": ["m6i.xlarge"],
            "capacityType": "ON_DEMAND",
            "scalingConfig": {"minSize": 1, "maxSize": 2, "desiredSize": 1},
            "labels": {"modelplane.ai/pool": "system"},
            "taints": [],
            "tags": tags("system"),
        },
    }


def test_gke_control_plane():
    assert SOURCES["GKE"].control_plane_request(views.cluster("GKE", version="")) == {
        "name": "demo",
        "initialClusterVersion": "1.35",
        "releaseChannel": {"channel": "REGULAR"},
        "ipAllocationPolicy": {"useIpAliases": True},
        "resourceLabels": TAGS,
        "nodePools": [
            {
                "name": "system",
                "initialNodeCount": 1,
                "autoscaling": {"enabled": True, "minNodeCount": 1, "maxNodeCount": 2},
                "config": {
                    "machineType": "e2-standard-4",
                    "diskSizeGb": 100,
                    "oauthScopes": ["https://www.googleapis.com/auth/cloud-platform"],
                    "labels": {"modelplane.ai/pool": "system"},
                    "resourceLabels": tags("system"),
                },
            }
        ],
    }


def test_aks_control_plane():
    view = replace(views.cluster("AKS", version="1.34", location="westeurope"), name="a" * 53 + "-long")
    body = SOURCES["AKS"].control_plane_request(view)
    properties = body["properties"]
    assert (body["location"], properties["kubernetesVersion"]) == ("westeurope", "1.34")
    assert properties["dnsPrefix"] == "a" * 53
    assert properties["nodeResourceGroup"] == f"modelplane-{'a' * 53}-long-nodes"
    assert properties["agentPoolProfiles"] == [
        {
            "name": "system",
            "mode": "System",
            "osType": "Linux",
            "vmSize": "Standard_D4s_v5",
            "osDiskSizeGB": 100,
            "count": 1,
            "enableAutoScaling": True,
            "minCount": 1,
            "maxCount": 2,
            "nodeLabels": {"modelplane.ai/pool": "system"},
            "tags": {
                "modelplane-owner": "modelplane-dagster",
                "modelplane-cluster": "a" * 53 + "-long",
                "modelplane-pool": "system",
            },
        }
    ]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("gpus", "gpus"),
        ("twelveletter", "twelveletter"),
        ("gpu-l40s", "gpul40cd168d"),
        ("gpu-l40s-second", "gpul40f80475"),
        ("8xh100", "xh100b3f666"),
        ("42", "p73475c"),
    ],
)
def test_aks_pool_names(name, short):
    assert SOURCES["AKS"].pool_name(views.cpu_pool(name, machine=AKS_CPU)) == short
    assert len(short) <= 12


@pytest.mark.parametrize("source", ["EKS", "GKE", "Existing"])
def test_other_pool_names_stay(source):
    assert SOURCES[source].pool_name(views.cpu_pool("gpu-l40s", machine={})) == "gpu-l40s"
