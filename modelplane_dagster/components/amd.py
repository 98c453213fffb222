"""The AMD device stack: the GPU operator in DRA mode, and a DeviceConfig of ours for each pool."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.components.nfd import AMD_CARD
from modelplane_dagster.components.pins import PINS
from modelplane_dagster.components.placing import (
    CONTROL_PLANE,
    MASTER,
    Entry,
    driver_tolerations,
    pool_names,
    pools_for,
    tolerate,
)
from modelplane_dagster.components.substrate import deployment
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
from modelplane_dagster.drivers import AMD, POOL_LABEL

NAMESPACE = "kube-amd-gpu"
RELEASE = "mp-gpu-operator-charts"
CRITICAL = "system-node-critical"
UNHEALTHY = tolerate("amd-gpu-unhealthy")
HARDWARE = {"feature.node.kubernetes.io/amd-gpu": "true"}
API = "amd.com/v1alpha1"
EXPORTER_PORT = 5000

# The chart's defaults are `latest`. The driver image before v1.0.1 publishes nothing with amdgpu 6.19.14 and newer.
DRA_IMAGE = "docker.io/rocm/k8s-gpu-dra-driver:v1.0.1"
EXPORTER_IMAGE = "docker.io/rocm/device-metrics-exporter:v1.5.1"
LABELLER_IMAGE = "docker.io/rocm/k8s-device-plugin:labeller-1.31.0.10"

DEVICE_CONFIG = CustomResource(API, "DeviceConfig", "deviceconfigs", namespaced=True)


def _values() -> Values:
    return {
        "node-feature-discovery": {"enabled": False},
        "kmm": {"enabled": False, "watch": False},
        "remediation": {"enabled": False, "installCRDs": False},
        # The chart doesn't apply later edits of its own DeviceConfig, and one for all pools can select by hardware only.
        "crds": {"defaultCR": {"install": False, "upgrade": False}},
        "draDriver": {"deviceClass": {"create": True}},
    }


def device_config_name(pool: str) -> str:
    """The name of a pool's DeviceConfig, and the prefix of its daemons' names."""
    return f"mp-{pool}"


def _device_config(pool: str, tolerations: list[Entry]) -> dict[str, Any]:
    """The operator leaves driver management and the device plugin on where a field is missing, and its DRA driver off:
    each is said. The selector is a map of equalities, so that it takes one resource a pool."""
    return {
        "apiVersion": API,
        "kind": "DeviceConfig",
        "metadata": {"name": device_config_name(pool), "namespace": NAMESPACE, "labels": {POOL_LABEL: pool}},
        "spec": {
            "selector": {POOL_LABEL: pool},
            "driver": {"enable": False},
            "devicePlugin": {
                "enableDevicePlugin": False,
                "enableNodeLabeller": True,
                "nodeLabellerImage": LABELLER_IMAGE,
                "nodeLabellerTolerations": tolerations,
            },
            "draDriver": {"enable": True, "image": DRA_IMAGE, "tolerations": tolerations},
            "metricsExporter": {
                "enable": True,
                "image": EXPORTER_IMAGE,
                "port": EXPORTER_PORT,
                "tolerations": tolerations,
            },
            "testRunner": {"enable": False},
            "configManager": {"enable": False},
        },
    }


def _manifests(view: ClusterView) -> tuple[dict[str, Any], ...]:
    tolerations = driver_tolerations(view, AMD)
    names: Iterable[str] = pool_names(view, pools_for(view, AMD))
    return tuple(_device_config(name, tolerations) for name in names)


def _daemon(suffix: str, tolerations: str, enabled: str) -> DeclaredWorkload:
    """A DaemonSet that the operator makes from a DeviceConfig; it tolerates nothing by default. Two of its kinds carry
    the label `daemonset-name` with the same value, so it tells no kind apart."""
    return DeclaredWorkload(
        kind="DaemonSet",
        name=f"{{cr}}-{suffix}",
        reach=Reach("only"),
        origin="operator",
        resource=DEVICE_CONFIG,
        node_selector=Knob("selector", HARDWARE),
        tolerations=Knob(tolerations, []),
        priority_class=CRITICAL,
        pod_labels={"daemonset-name": "{cr}"},
        enabled=enabled,
    )


def _daemons() -> tuple[DeclaredWorkload, ...]:
    return (
        replace(
            _daemon("dra-driver", "draDriver.tolerations", "draDriver.enable"),
            pod_labels={"daemonset-name": "{cr}-dra-driver"},
            publishes=AMD,
            enabled_default=False,
        ),
        _daemon("node-labeller", "devicePlugin.nodeLabellerTolerations", "devicePlugin.enableNodeLabeller"),
        replace(
            _daemon("metrics-exporter", "metricsExporter.tolerations", "metricsExporter.enable"),
            tolerations=Knob("metricsExporter.tolerations", [], [UNHEALTHY]),
            pod_labels={"daemonset-name": "{cr}", "app.kubernetes.io/name": "metrics-exporter"},
            ports={"exporter-port": EXPORTER_PORT},
            cpu_request="500m",
            enabled_default=False,
        ),
        _daemon("device-plugin", "devicePlugin.devicePluginTolerations", "devicePlugin.enableDevicePlugin"),
    )


def _hook(name: str, hook: str) -> DeclaredWorkload:
    """The hooks ignore the nodeSelector, and leave out the toleration that the template adds for the controller."""
    return DeclaredWorkload(
        kind="Job",
        name=name,
        affinity=Knob("controllerManager.affinity", {}),
        tolerations=Knob("controllerManager.manager.tolerations", [MASTER, CONTROL_PLANE]),
        hook=hook,
    )


def _controllers() -> tuple[DeclaredWorkload, ...]:
    tolerations = Knob(
        "controllerManager.manager.tolerations", [MASTER, CONTROL_PLANE], [UNHEALTHY], empty="drops fixed"
    )
    upgrade = "pre-upgrade, pre-rollback"
    return (
        replace(
            deployment(f"{RELEASE}-controller-manager", "controllerManager"),
            tolerations=tolerations,
        ),
        replace(
            deployment("amd-gpu-operator-workflow-controller", "remediation.controller"),
            tolerations=Knob(fixed=[UNHEALTHY]),
            priority_class="amd-gpu-operator-workflow-controller-pc",
            enabled="remediation.enabled",
        ),
        _hook("pre-upgrade-check", upgrade),
        replace(_hook("upgrade-crd", upgrade), enabled="upgradeCRD"),
        _hook("delete-leftover-deviceconfigs", "pre-delete"),
        _hook("delete-custom-resource-definitions", "post-delete"),
    )


AMD_GPU_OPERATOR = Component(
    key="amd-gpu-operator",
    release=RELEASE,
    namespace=NAMESPACE,
    pin=PINS["amd-gpu-operator"],
    drivers=frozenset({AMD}),
    publishes=AMD,
    # The chart holds a NodeFeatureRule: without Node Feature Discovery's CRDs its install fails at once.
    depends_on=("cert-manager", "node-feature-discovery"),
    values=Same(_values()),
    settings={
        "node-feature-discovery.enabled": "boolean",
        "kmm.enabled": "boolean",
        "kmm.watch": "boolean",
        "remediation.installCRDs": "boolean",
        "crds.defaultCR.install": "boolean",
        "crds.defaultCR.upgrade": "boolean",
        "draDriver.deviceClass.create": "boolean",
        "installdefaultNFDRule": "boolean",
        "controllerManager.manager.image.repository": "string",
        "controllerManager.manager.image.tag": "string",
        "controllerManager.manager.resources": "object",
    },
    resource_settings={
        "driver.enable": "boolean",
        "devicePlugin.nodeLabellerImage": "string",
        "draDriver.image": "string",
        "metricsExporter.image": "string",
        "metricsExporter.port": "integer",
        "testRunner.enable": "boolean",
        "configManager.enable": "boolean",
    },
    manifests=_manifests,
    workloads=(*_controllers(), *_daemons()),
    grants=(Grant(labels=HARDWARE, driver=AMD, needs=AMD_CARD),),
    device_classes=("gpu.amd.com",),
    crds=(DEVICE_CONFIG,),
    takes_along="its hooks delete every DeviceConfig in every namespace, and the CRDs deviceconfigs and remediationworkflowstatuses",
    # The DeviceConfigs are ours, one a pool; deleting one removes that pool's daemons.
)
