"""Fast networks, where a pool asks for one: EFA on EKS as DRA devices, InfiniBand on AKS."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from modelplane_dagster.cluster import ClusterView, PoolView
from modelplane_dagster.components.nvidia import CRITICAL, NVIDIA_TAINT, TAGS
from modelplane_dagster.components.pins import PINS
from modelplane_dagster.components.placing import (
    CONTROL_PLANE,
    MASTER,
    pool_affinity,
    pool_names,
    taint_tolerations,
)
from modelplane_dagster.components.substrate import hook_job
from modelplane_dagster.components.types import (
    Component,
    CustomResource,
    DeclaredWorkload,
    Grant,
    Knob,
    Reach,
    Same,
    Values,
    When,
)
from modelplane_dagster.drivers import NVIDIA, POOL_LABEL

EFA_NAMESPACE = "kube-system"
NETWORK_NAMESPACE = "network-operator"
NIC_LABEL = {"feature.node.kubernetes.io/pci-15b3.present": "true"}
# The operator's own mark that no driver of its is loading on the node; it sets it on every node with such a NIC.
NO_WAIT = {"network.nvidia.com/operator.mofed.wait": "false"}
RDMA_RESOURCE = "hca_shared_devices_a"


def efa_pools(view: ClusterView) -> tuple[PoolView, ...]:
    return tuple(p for p in view.pools if p.fabric == "EFA")


def infiniband_pools(view: ClusterView) -> tuple[PoolView, ...]:
    return tuple(p for p in view.pools if p.fabric == "InfiniBand" and NVIDIA in p.drivers)


def _efa_values(view: ClusterView) -> Values:
    """The chart's list of instance types holds many without a GPU, so that by default it lands on CPU pools too; and a
    node selector takes one pool only. The lists take pools, and keep what the template adds."""
    pools = efa_pools(view)
    return {
        "supportedInstanceLabels": {"keys": [POOL_LABEL], "values": pool_names(view, pools)},
        "tolerations": taint_tolerations(view, pools),
    }


def _not_auto() -> dict[str, Any]:
    expression = {"key": "eks.amazonaws.com/compute-type", "operator": "NotIn", "values": ["auto"]}
    terms = [{"matchExpressions": [expression]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


# A few of the chart's list, which names every type with an EFA card.
_EFA_TYPES = ["p4d.24xlarge", "p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge", "c7i.48xlarge", "m7i.48xlarge"]

AWS_DRANET = Component(
    key="aws-dranet",
    release="mp-aws-dranet",
    namespace=EFA_NAMESPACE,
    pin=PINS["aws-dranet"],
    when=When("its fabric is EFA", efa_pools),
    values=_efa_values,
    settings={
        "deviceClass.create": "boolean",
        "deviceClass.name": "string",
        "filter": "string",
        "healthPort": "integer",
        "priorityClassName": "string",
        "image.repository": "string",
        "image.tag": "string",
        "imagePullSecrets": "array",
        "resources": "object",
    },
    workloads=(
        DeclaredWorkload(
            kind="DaemonSet",
            name="mp-aws-dranet",
            reach=Reach("only"),
            node_selector=Knob("nodeSelector", {}),
            affinity=Knob(
                "supportedInstanceLabels",
                {"keys": ["node.kubernetes.io/instance-type"], "values": _EFA_TYPES},
                _not_auto(),
                form="label lists",
            ),
            tolerations=Knob("tolerations", [], [{"key": "CriticalAddonsOnly", "operator": "Exists"}]),
            priority_class=CRITICAL,
            host_network=True,
            host_ports=(9177,),
            cpu_request="100m",
            pod_labels={"app.kubernetes.io/name": "aws-dranet", "app.kubernetes.io/instance": "mp-aws-dranet"},
        ),
    ),
    device_classes=("efa.networking.k8s.aws",),
    # It serves the driver dra.net, which EKS declares external: no class claims it without the fabric.
)

NIC_CLUSTER_POLICY = CustomResource("mellanox.com/v1alpha1", "NicClusterPolicy", "nicclusterpolicies", namespaced=False)


def _network_values() -> Values:
    """Our Node Feature Discovery labels; the chart's rule for NICs stays, and needs its CRDs."""
    return {
        "nfd": {"enabled": False, "deployNodeFeatureRules": True},
        "sriovNetworkOperator": {"enabled": False},
        "maintenanceOperator": {"enabled": False},
    }


def _nic_policy(view: ClusterView) -> tuple[dict[str, Any], ...]:
    """The host's own InfiniBand driver, shared with pods as an RDMA resource. The operator can load another driver,
    and drains nodes to do so; a site that needs it sets up a policy of its own."""
    pools = infiniband_pools(view)
    shared = {"resourceName": RDMA_RESOURCE, "rdmaHcaMax": 1000, "selectors": {"vendors": ["15b3"]}}
    node_affinity = pool_affinity(pool_names(view, pools))["nodeAffinity"]
    spec = {
        "nodeAffinity": node_affinity,
        "tolerations": taint_tolerations(view, pools),
        "rdmaSharedDevicePlugin": {
            "image": "k8s-rdma-shared-dev-plugin",
            "repository": "nvcr.io/nvidia/mellanox",
            "version": "network-operator-v26.4.0",
            "config": json.dumps({"configList": [shared]}),
        },
    }
    return (
        {
            "apiVersion": NIC_CLUSTER_POLICY.api_version,
            "kind": NIC_CLUSTER_POLICY.kind,
            "metadata": {"name": "nic-cluster-policy"},
            "spec": spec,
        },
    )


_OPERATOR_TOLERATIONS = Knob("operator.tolerations", [MASTER, CONTROL_PLANE])

NETWORK_OPERATOR = Component(
    key="network-operator",
    release="mp-network-operator",
    namespace=NETWORK_NAMESPACE,
    pin=PINS["network-operator"],
    # It belongs to the NVIDIA stack of the pools that also have the fabric, and so may depend on what labels them.
    drivers=TAGS,
    when=When("its fabric is InfiniBand and it claims gpu.nvidia.com", infiniband_pools),
    depends_on=("node-feature-discovery",),
    values=Same(_network_values()),
    settings={
        "nfd.enabled": "boolean",
        "nfd.deployNodeFeatureRules": "boolean",
        "sriovNetworkOperator.enabled": "boolean",
        "maintenanceOperator.enabled": "boolean",
        "operator.resources": "object",
        "operator.repository": "string",
        "operator.image": "string",
        "imagePullSecrets": "array",
    },
    resource_settings={
        "rdmaSharedDevicePlugin.image": "string",
        "rdmaSharedDevicePlugin.repository": "string",
        "rdmaSharedDevicePlugin.version": "string",
        "rdmaSharedDevicePlugin.config": "string",
    },
    manifests=_nic_policy,
    workloads=(
        DeclaredWorkload(
            kind="Deployment",
            name="mp-network-operator",
            node_selector=Knob("operator.nodeSelector", {}),
            affinity=Knob("operator.affinity", {}),
            tolerations=_OPERATOR_TOLERATIONS,
        ),
        replace(
            hook_job("network-operator-upgrade-crd", "operator", "pre-install, pre-upgrade"),
            tolerations=_OPERATOR_TOLERATIONS,
            enabled="upgradeCRDs",
        ),
        DeclaredWorkload(
            kind="DaemonSet",
            name="rdma-shared-dp-ds",
            reach=Reach("only"),
            origin="operator",
            resource=NIC_CLUSTER_POLICY,
            node_selector=Knob(fixed={**NIC_LABEL, **NO_WAIT}),
            affinity=Knob("nodeAffinity", form="node affinity"),
            tolerations=Knob("tolerations", [], [NVIDIA_TAINT]),
            priority_class=CRITICAL,
            host_network=True,
            pod_labels={"app": "rdma-shared-dp"},
        ),
    ),
    grants=(
        Grant(labels=NIC_LABEL, driver=NVIDIA),
        Grant(labels=NO_WAIT, driver=NVIDIA, needs=NIC_LABEL),
    ),
    crds=(NIC_CLUSTER_POLICY,),
)
