"""The NVIDIA device stack: the DRA driver on every source, the GPU operator where a source needs its parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.components.namespaces import namespace_objects
from modelplane_dagster.components.pins import PINS
from modelplane_dagster.components.placing import (
    CONTROL_PLANE,
    MASTER,
    driver_tolerations,
    pool_affinity,
    pool_names,
    pools_for,
    tolerate,
)
from modelplane_dagster.components.types import (
    Component,
    CustomResource,
    DeclaredWorkload,
    Grant,
    Knob,
    Reach,
    Same,
    Values,
)
from modelplane_dagster.drivers import NVIDIA

TAGS = frozenset({NVIDIA})
TAINT_KEY = "nvidia.com/gpu"
NVIDIA_TAINT = tolerate(TAINT_KEY)
DRIVER_NAMESPACE = "nvidia-dra-driver"
OPERATOR_NAMESPACE = "gpu-operator"
CRITICAL = "system-node-critical"
NFD_LABELS = ("pci-10de", "pci-0302_10de", "pci-0300_10de")
PRESENT = "nvidia.com/gpu.present"

CLUSTER_POLICY = CustomResource(
    "nvidia.com/v1", "ClusterPolicy", "clusterpolicies", namespaced=False, values_root="", name="cluster-policy"
)


def _label_terms() -> dict[str, Any]:
    """The chart's own affinity of the kubelet plugin: hardware labels, any of five. A list of ours replaces it."""
    pairs = [(f"feature.node.kubernetes.io/{name}.present", "true") for name in NFD_LABELS]
    pairs += [("feature.node.kubernetes.io/cpu-model.vendor_id", "NVIDIA"), (PRESENT, "true")]
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]} for key, value in pairs]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


QUOTA_KEY = "dra-driver-critical-pods-quota"


def _driver_values(root: str) -> Callable[[ClusterView], Values]:
    def values(view: ClusterView) -> Values:
        return {
            # The chart refuses to render without it: a device plugin beside it would hand out the same GPUs. Every list
            # that holds this component turns the device plugin off, or the cloud does.
            "gpuResourcesEnabledOverride": True,
            "nvidiaDriverRoot": root,
            "resources": {"gpus": {"enabled": True}, "computeDomains": {"enabled": False}},
            "kubeletPlugin": {
                # By hardware labels alone it follows any node that a foreign labeller marks.
                "affinity": pool_affinity(pool_names(view, pools_for(view, NVIDIA))),
                "tolerations": driver_tolerations(view, NVIDIA),
            },
        }

    return values


_CONTROLLER_TOLERATIONS = [
    tolerate(CONTROL_PLANE["key"]),
    tolerate(MASTER["key"]),
    {"key": "CriticalAddonsOnly", "operator": "Exists"},
]


def _driver_workloads() -> tuple[DeclaredWorkload, ...]:
    name = "dra-driver-nvidia-gpu"
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/instance": f"mp-{name}"}
    return (
        DeclaredWorkload(
            kind="DaemonSet",
            name=f"{name}-kubelet-plugin",
            reach=Reach("only"),
            node_selector=Knob("kubeletPlugin.nodeSelector", {}),
            affinity=Knob("kubeletPlugin.affinity", _label_terms()),
            tolerations=Knob("kubeletPlugin.tolerations", [NVIDIA_TAINT]),
            publishes=NVIDIA,
            priority_class=CRITICAL,
            pod_labels={**labels, f"{name}-component": "kubelet-plugin"},
        ),
        DeclaredWorkload(
            kind="Deployment",
            name=f"{name}-controller",
            node_selector=Knob("controller.nodeSelector", {}),
            affinity=Knob("controller.affinity", {}),
            tolerations=Knob("controller.tolerations", _CONTROLLER_TOLERATIONS),
            priority_class=CRITICAL,
            pod_labels={**labels, f"{name}-component": "controller"},
            enabled="resources.computeDomains.enabled",
        ),
        DeclaredWorkload(
            kind="Deployment",
            name=f"{name}-webhook",
            node_selector=Knob("webhook.nodeSelector", {}),
            affinity=Knob("webhook.affinity", {}),
            tolerations=Knob("webhook.tolerations", []),
            pod_labels={**labels, f"{name}-component": "webhook"},
            enabled="webhook.enabled",
            enabled_default=False,
        ),
    )


def dra_driver(root: str, *, after: tuple[str, ...] = ()) -> Component:
    """`root` is where the NVIDIA driver lies on the host; `after` what else must be healthy first."""
    return Component(
        key="nvidia-dra-driver-gpu",
        release="mp-dra-driver-nvidia-gpu",
        namespace=DRIVER_NAMESPACE,
        pin=PINS["nvidia-dra-driver-gpu"],
        drivers=TAGS,
        publishes=NVIDIA,
        depends_on=(QUOTA_KEY, *after),
        values=_driver_values(root),
        settings={
            "gpuResourcesEnabledOverride": "boolean",
            "nvidiaDriverRoot": "string",
            "resources.gpus.enabled": "boolean",
            "kubeletPlugin.priorityClassName": "string",
            "kubeletPlugin.podAnnotations": "object",
            "kubeletRegistrarDirectoryPath": "string",
            "kubeletPluginsDirectoryPath": "string",
            "image.repository": "string",
            "image.tag": "string",
            "imagePullSecrets": "array",
        },
        workloads=_driver_workloads(),
        device_classes=("gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com"),
        crds=(CustomResource("resource.nvidia.com/v1beta1", "ComputeDomain", "computedomains", namespaced=True),),
        crds_need_apply=True,
    )


CRITICAL_PODS_QUOTA = Component(
    key=QUOTA_KEY,
    namespace=DRIVER_NAMESPACE,
    drivers=TAGS,
    manifests=Same(namespace_objects(DRIVER_NAMESPACE, (dra_driver("/"),))),
    # The DRA driver's namespace, and room there for its system-node-critical pods.
)


@dataclass(frozen=True, slots=True)
class OperatorParts:
    """What the GPU operator brings on one source. `install_dir` is where the driver lies on the host where it isn't
    the operator's default; `dcgm` runs the host engine that NVSentinel's monitor talks to; `runtime_class` is the NVIDIA
    runtime's where the cloud's own toolkit names it."""

    driver: bool = False
    toolkit: bool = False
    dcgm: bool = False
    install_dir: str = ""
    runtime_class: str = ""


# Without them any container names the GPUs that it wants in an environment variable, past every claim.
TOOLKIT_ISOLATION = (
    ("ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED", "false"),
    ("ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS", "true"),
)


def _operator_values(parts: OperatorParts) -> Callable[[ClusterView], Values]:
    def values(view: ClusterView) -> Values:
        made: Values = {
            # Our own Node Feature Discovery labels; two of them would contradict each other on the same labels.
            "nfd": {"enabled": False},
            # The DRA driver hands out the GPUs; a device plugin beside it would hand them out twice.
            "devicePlugin": {"enabled": False},
            "driver": {"enabled": parts.driver},
            "toolkit": _toolkit(parts),
            "gdrcopy": {"enabled": False},
            "dcgm": {"enabled": parts.dcgm},
            "daemonsets": {"tolerations": driver_tolerations(view, NVIDIA)},
        }
        if parts.install_dir:
            made["hostPaths"] = {"driverInstallDir": parts.install_dir}
        if parts.runtime_class:
            made["operator"] = {"runtimeClass": parts.runtime_class}
        return made

    return values


def _toolkit(parts: OperatorParts) -> Values:
    if not parts.toolkit:
        return {"enabled": False}
    values: Values = {"enabled": True, "env": [{"name": name, "value": value} for name, value in TOOLKIT_ISOLATION]}
    if parts.install_dir:
        values["installDir"] = parts.install_dir
    return values


def _operand(name: str, label: str, enabled: str, *, on: bool = True) -> DeclaredWorkload:
    """A DaemonSet that the operator makes from the ClusterPolicy. Nothing confines it to pools: it follows the deploy
    label, which the operator sets on nodes where Node Feature Discovery saw an NVIDIA card."""
    return DeclaredWorkload(
        kind="DaemonSet",
        name=name,
        reach=Reach("only"),
        origin="operator",
        resource=CLUSTER_POLICY,
        node_selector=Knob(fixed={f"nvidia.com/gpu.deploy.{label}": "true"}),
        tolerations=Knob("daemonsets.tolerations", [NVIDIA_TAINT], empty="keeps default"),
        priority_class=CRITICAL,
        pod_labels={"app": name},
        enabled=enabled,
        enabled_default=on,
    )


def _operands() -> tuple[DeclaredWorkload, ...]:
    mps = {"nvidia.com/mps.capable": "true"}
    return (
        _operand("nvidia-driver-daemonset", "driver", "driver.enabled"),
        _operand("nvidia-container-toolkit-daemonset", "container-toolkit", "toolkit.enabled"),
        _operand("nvidia-device-plugin-daemonset", "device-plugin", "devicePlugin.enabled"),
        replace(
            _operand("nvidia-device-plugin-mps-control-daemon", "device-plugin", "devicePlugin.enabled"),
            node_selector=Knob(fixed={"nvidia.com/gpu.deploy.device-plugin": "true", **mps}),
            reach=Reach("where", mps),
        ),
        _operand("gpu-feature-discovery", "gpu-feature-discovery", "gfd.enabled"),
        replace(_operand("nvidia-dcgm", "dcgm", "dcgm.enabled", on=False), ports={"dcgm": 5555}),
        replace(
            _operand("nvidia-dcgm-exporter", "dcgm-exporter", "dcgmExporter.enabled"),
            ports={"metrics": 9400},
        ),
        replace(
            _operand("nvidia-mig-manager", "mig-manager", "migManager.enabled"),
            reach=Reach("where", {"nvidia.com/mig.capable": "true"}),
        ),
        _operand("nvidia-operator-validator", "operator-validator", ""),
        replace(
            _operand("nvidia-node-status-exporter", "node-status-exporter", "nodeStatusExporter.enabled", on=False),
            ports={"node-status": 8000},
        ),
    )


def _operator_workloads() -> tuple[DeclaredWorkload, ...]:
    tolerations = Knob("operator.tolerations", [CONTROL_PLANE])
    return (
        DeclaredWorkload(
            kind="Deployment",
            name="gpu-operator",
            node_selector=Knob("operator.nodeSelector", {}),
            affinity=Knob("operator.affinity", {}),
            tolerations=tolerations,
            priority_class=CRITICAL,
            pod_labels={"app": "gpu-operator", "app.kubernetes.io/component": "gpu-operator"},
            ports={"metrics": 8080},
        ),
        # The hook Jobs take the tolerations alone: where every node carries a pool's taint they hang until the timeout.
        DeclaredWorkload(
            kind="Job",
            name="gpu-operator-upgrade-crd",
            tolerations=tolerations,
            hook="pre-upgrade",
            enabled="operator.upgradeCRD",
        ),
        DeclaredWorkload(
            kind="Job",
            name="gpu-operator-cleanup-crd",
            tolerations=tolerations,
            hook="pre-delete",
            enabled="operator.cleanupCRD",
            enabled_default=False,
        ),
    )


def _operator_grants() -> tuple[Grant, ...]:
    """The operator labels a node once Node Feature Discovery saw the card there, and takes its labels back when that
    label goes."""
    deploy = ("dcgm", "dcgm-exporter", "gpu-feature-discovery", "operator-validator", "driver", "container-toolkit")
    labels = {f"nvidia.com/gpu.deploy.{name}": "true" for name in (*deploy, "device-plugin", "node-status-exporter")}
    seen = {"feature.node.kubernetes.io/pci-0302_10de.present": "true"}
    mig = {"nvidia.com/gpu.deploy.mig-manager": "true"}
    return (
        Grant(labels={PRESENT: "true", **labels}, driver=NVIDIA, needs=seen),
        Grant(labels=mig, driver=NVIDIA, needs={PRESENT: "true", "nvidia.com/mig.capable": "true"}),
    )


def gpu_operator(parts: OperatorParts, *, after: tuple[str, ...] = ()) -> Component:
    """The operator with the parts that one source needs; `after` names what else must be healthy first."""
    return Component(
        key="gpu-operator",
        release="mp-gpu-operator",
        namespace=OPERATOR_NAMESPACE,
        pin=PINS["gpu-operator"],
        drivers=TAGS,
        depends_on=after,
        values=_operator_values(parts),
        settings={
            "nfd.enabled": "boolean",
            "gdrcopy.enabled": "boolean",
            "hostPaths.driverInstallDir": "string",
            "toolkit.installDir": "string",
            "toolkit.env": "array",
            "driver.version": "string",
            "driver.useOpenKernelModules": "boolean",
            "driver.manager.env": "array",
            "cdi.enabled": "boolean",
            "dcgmExporter.serviceMonitor.enabled": "boolean",
            "dcgmExporter.config.name": "string",
            "daemonsets.priorityClassName": "string",
            "daemonsets.labels": "object",
            "operator.priorityClassName": "string",
            "operator.runtimeClass": "string",
            "operator.resources": "object",
            "imagePullSecrets": "array",
        },
        workloads=(*_operator_workloads(), *_operands()),
        grants=_operator_grants(),
        crds=(
            CustomResource("nvidia.com/v1", "ClusterPolicy", "clusterpolicies", namespaced=False),
            CustomResource("nvidia.com/v1alpha1", "NVIDIADriver", "nvidiadrivers", namespaced=False),
        ),
        # Its upgrade hook applies the CRDs. A ready release proves nothing of the daemons that it makes.
    )
