"""Node Feature Discovery: labels the hardware that the GPU stacks' controllers look for."""

from __future__ import annotations

from dataclasses import replace

from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.components.pins import PINS
from modelplane_dagster.components.placing import (
    CONTROL_PLANE,
    driver_tolerations,
    pool_affinity,
    pool_names,
    pools_for,
)
from modelplane_dagster.components.substrate import deployment, hook_job
from modelplane_dagster.components.types import (
    Component,
    CustomResource,
    DeclaredWorkload,
    Grant,
    Knob,
    Reach,
    Values,
    WorkloadKind,
)
from modelplane_dagster.drivers import AMD, NVIDIA

GROUP = "nfd.k8s-sigs.io/v1alpha1"
RELEASE = "mp-node-feature-discovery"
WORKER = f"{RELEASE}-worker"
NVIDIA_CARD = {"feature.node.kubernetes.io/pci-0302_10de.present": "true"}
# Class 12xx, "processing accelerator"; the subclass of AMD's Instinct cards is taken to be 00.
AMD_CARD = {"feature.node.kubernetes.io/pci-1200_1002.present": "true"}


def _values(view: ClusterView) -> Values:
    """The worker tolerates nothing by default. A pool that it can't reach gets no label, hence no daemon of the
    operators, while everything looks healthy; so it tolerates the taints of every pool that it is bound to."""
    names = pool_names(view, pools_for(view, NVIDIA, AMD))
    return {"worker": {"affinity": pool_affinity(names), "tolerations": driver_tolerations(view, NVIDIA, AMD)}}


def _workload(kind: WorkloadKind, role: str) -> DeclaredWorkload:
    labels = {"app.kubernetes.io/name": "node-feature-discovery", "app.kubernetes.io/instance": RELEASE, "role": role}
    return replace(
        deployment(f"{RELEASE}-{role}", role),
        kind=kind,
        pod_labels=labels,
        ports={"http": 8080},
        enabled=f"{role}.enable",
    )


MASTER_TOLERATIONS = Knob("master.tolerations", [CONTROL_PLANE])

NODE_FEATURE_DISCOVERY = Component(
    key="node-feature-discovery",
    release=RELEASE,
    namespace="node-feature-discovery",
    pin=PINS["node-feature-discovery"],
    drivers=frozenset({NVIDIA, AMD}),
    values=_values,
    settings={
        "worker.config": "object",
        "worker.priorityClassName": "string",
        "worker.labels": "object",
        "worker.resources": "object",
        "master.resources": "object",
        "gc.resources": "object",
        "image.repository": "string",
        "image.tag": "string",
        "imagePullSecrets": "array",
        "prometheus.enable": "boolean",
    },
    workloads=(
        replace(_workload("DaemonSet", "worker"), reach=Reach("only"), cpu_request="5m"),
        replace(_workload("Deployment", "master"), tolerations=MASTER_TOLERATIONS),
        _workload("Deployment", "gc"),
        replace(
            hook_job(f"{RELEASE}-prune", "master", "post-delete"),
            tolerations=MASTER_TOLERATIONS,
            enabled="postDeleteCleanup",
        ),
    ),
    grants=(
        Grant(labels=NVIDIA_CARD, driver=NVIDIA, by=WORKER),
        Grant(labels=AMD_CARD, driver=AMD, by=WORKER),
    ),
    crds=(
        CustomResource(GROUP, "NodeFeature", "nodefeatures", namespaced=True),
        CustomResource(GROUP, "NodeFeatureGroup", "nodefeaturegroups", namespaced=True),
        CustomResource(GROUP, "NodeFeatureRule", "nodefeaturerules", namespaced=False),
    ),
    crds_need_apply=True,
    takes_along="its hook strips Node Feature Discovery's labels from every node of the cluster; its CRDs stay",
)
