"""The CPU device stack: one component for every source, tagged `dra.cpu`."""

from __future__ import annotations

from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.components.pins import PINS
from modelplane_dagster.components.placing import pools_for, taint_tolerations
from modelplane_dagster.components.types import Component, DeclaredWorkload, Knob, Reach, Values
from modelplane_dagster.drivers import CPU, CPU_LABEL

# CPUs that the driver never hands out. They must exceed the kubelet's reservation plus what the daemons of the node
# request, or a pod that mirrors a full claim never fits; a site with more daemons raises it in its overlay.
RESERVED_CPUS = "0-1"


def _values(view: ClusterView) -> Values:
    """The chart's defaults tolerate every NoSchedule taint and select every node; both are replaced. The driver pins
    every container of its node to a shared pool of CPUs, so on a node of no CPU claim it does harm.

    The mode stays out where the version isn't known: the probe on the cluster decides before the first install.
    """
    config = {"reservedCPUs": RESERVED_CPUS}
    if view.cpu_mode is not None:
        config["cpuDeviceMode"] = view.cpu_mode
    return {
        "nodeSelector": {CPU_LABEL: "true"},
        # A GPU pool that claims CPUs carries the GPU's taint only: its key must be here too, or the pool is missed.
        "tolerations": taint_tolerations(view, pools_for(view, CPU)),
        "driverConfig": config,
    }


DRA_DRIVER_CPU = Component(
    key="dra-driver-cpu",
    release="mp-dra-driver-cpu",
    namespace="dra-driver-cpu",
    pin=PINS["dra-driver-cpu"],
    drivers=frozenset({CPU}),
    publishes=CPU,
    values=_values,
    settings={
        "driverConfig.reservedCPUs": "string",
        "driverConfig.cpuDeviceMode": "string",
        "driverConfig.groupBy": "string",
        "driverConfig.allocator": "string",
        "driverConfig.publishNodeAllocatableResourceMapping": "boolean",
        "healthzPort": "integer",
        "kubeletRootDir": "string",
        "image.repository": "string",
        "image.tag": "string",
        "imagePullSecrets": "array",
        "podLabels": "object",
        "resources": "object",
    },
    workloads=(
        DeclaredWorkload(
            kind="DaemonSet",
            name="mp-dra-driver-cpu",
            reach=Reach("only"),
            node_selector=Knob("nodeSelector", {}),
            affinity=Knob("affinity", {}),
            tolerations=Knob("tolerations", [{"operator": "Exists", "effect": "NoSchedule"}]),
            publishes=CPU,
            priority_class="system-node-critical",
            host_network=True,
            host_ports=(8080,),
            cpu_request="100m",
            pod_labels={
                "app.kubernetes.io/name": "dra-driver-cpu",
                "app.kubernetes.io/instance": "mp-dra-driver-cpu",
                "k8s-app": "dra-driver-cpu",
                "tier": "node",
            },
            ports={"healthz": 8080},
        ),
    ),
    device_classes=("dra.cpu",),
    # A change of mode takes a prune first: claims of one mode don't survive in the other.
)
