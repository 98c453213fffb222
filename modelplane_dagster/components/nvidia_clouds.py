"""What the clouds with an NVIDIA recipe (EKS, GKE, AKS) add to the NVIDIA stack: health of GPU nodes, node packages, and
on AKS the container toolkit's isolation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.components.nvidia import CRITICAL, OPERATOR_NAMESPACE, PRESENT, TAGS
from modelplane_dagster.components.pins import PINS
from modelplane_dagster.components.placing import driver_tolerations, pool_affinity, pool_names, pools_for
from modelplane_dagster.components.substrate import deployment, hook_job
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

_LABEL = "nvsentinel.dgxc.nvidia.com"
DRIVER_INSTALLED = {f"{_LABEL}/driver.installed": "true"}
MONITORS = ("gpu-health-monitor", "syslog-health-monitor", "metadata-collector", "platformConnector")


def _nvsentinel_values(runtime_class: str) -> Callable[[ClusterView], Values]:
    def values(view: ClusterView) -> Values:
        affinity = pool_affinity(pool_names(view, pools_for(view, NVIDIA)))
        made: Values = {
            "global": {"tolerations": driver_tolerations(view, NVIDIA)},
            "labeler": {"assumeDriverInstalled": True},
            "networkPolicy": {"enabled": False},
            # The global affinity would bind the labeler as well, which doesn't tolerate the pools' taint.
            **{name: {"affinity": affinity} for name in MONITORS},
        }
        if runtime_class:
            made["metadata-collector"]["runtimeClassName"] = runtime_class
        return made

    return values


def _monitor(name: str, chart: str, selector: dict[str, str], reach: Reach) -> DeclaredWorkload:
    return DeclaredWorkload(
        kind="DaemonSet",
        name=name,
        reach=reach,
        node_selector=Knob("global.nodeSelector", {}, selector),
        affinity=Knob(f"{chart}.affinity", {}),
        tolerations=Knob("global.tolerations", []),
        pod_labels={"app.kubernetes.io/name": chart if chart in name else "nvsentinel"},
        ports={"metrics": 2112},
    )


def _nvsentinel_workloads() -> tuple[DeclaredWorkload, ...]:
    health = "global.gpuHealthMonitor.enabled"
    logs = "global.syslogHealthMonitor.enabled"
    kata = f"{_LABEL}/kata.enabled"

    def dcgm(version: str) -> DeclaredWorkload:
        label = {f"{_LABEL}/dcgm.version": version}
        reach = Reach("where", label)
        name = f"gpu-health-monitor-dcgm-{version}"
        monitor = _monitor(name, "gpu-health-monitor", {**DRIVER_INSTALLED, **label}, reach)
        return replace(monitor, enabled=health, cpu_request="100m")

    def syslog(suffix: str, flag: str, reach: Reach) -> DeclaredWorkload:
        selector = {**DRIVER_INSTALLED, kata: flag}
        return replace(
            _monitor(f"syslog-health-monitor-{suffix}", "syslog-health-monitor", selector, reach), enabled=logs
        )

    labeler = DeclaredWorkload(
        kind="Deployment",
        name="labeler",
        node_selector=Knob("global.systemNodeSelector", {}),
        affinity=Knob("global.affinity", {}),
        tolerations=Knob("global.systemNodeTolerations", []),
        enabled="global.labeler.enabled",
    )
    return (
        replace(_monitor("platform-connectors", "platformConnector", {}, Reach("only")), cpu_request="200m"),
        dcgm("3.x"),
        dcgm("4.x"),
        syslog("regular", "false", Reach("only")),
        syslog("kata", "true", Reach("where", {kata: "true"})),
        # On the host's network, where its port is the node's own.
        replace(
            _monitor("metadata-collector", "metadata-collector", {PRESENT: "true", **DRIVER_INSTALLED}, Reach("only")),
            host_network=True,
            host_ports=(2112,),
        ),
        labeler,
    )


def nvsentinel(*, runtime_class: str = "") -> Component:
    """Watches GPU nodes; it changes nothing on them as pinned here (quarantine, drain and repair are off by default).
    `runtime_class` is the NVIDIA runtime's where the cloud names it otherwise than the chart."""
    labels = {**DRIVER_INSTALLED, f"{_LABEL}/kata.enabled": "false", f"{_LABEL}/dcgm.version": "4.x"}
    return Component(
        key="nvsentinel",
        release="mp-nvsentinel",
        namespace="nvsentinel",
        pin=PINS["nvsentinel"],
        drivers=TAGS,
        depends_on=("cert-manager", "gpu-operator", "prometheus-operator-crds"),
        values=_nvsentinel_values(runtime_class),
        settings={
            "labeler.assumeDriverInstalled": "boolean",
            "networkPolicy.enabled": "boolean",
            "metadata-collector.runtimeClassName": "string",
            "global.dryRun": "boolean",
            "global.image.tag": "string",
            "global.imagePullSecrets": "array",
            "platformConnector.resources": "object",
        },
        workloads=_nvsentinel_workloads(),
        grants=(Grant(labels=labels, driver=NVIDIA, needs={PRESENT: "true"}),),
    )


def _nodewright_values() -> Values:
    return {
        "fullnameOverride": "skyhook-operator",
        "limitRange": {
            "default": {"cpu": "1", "memory": "1Gi"},
            "defaultRequest": {"cpu": "500m", "memory": "512Mi"},
        },
    }


NODEWRIGHT_OPERATOR = Component(
    key="nodewright-operator",
    release="mp-nodewright",
    namespace="skyhook",
    pin=PINS["nodewright-operator"],
    values=Same(_nodewright_values()),
    settings={
        "fullnameOverride": "string",
        "limitRange.default": "object",
        "limitRange.defaultRequest": "object",
        "controllerManager.manager.resources": "object",
        "controllerManager.manager.env.copyDirRoot": "string",
        "controllerManager.manager.env.reapplyOnReboot": "string",
        "controllerManager.replicas": "integer",
        "imagePullSecret": "string",
    },
    workloads=(
        replace(
            deployment("skyhook-operator-controller-manager", "controllerManager"),
            node_selector=Knob("controllerManager.selectors", {}),
            # Its chart takes match expressions there, not an affinity; nothing of ours sets it.
            affinity=Knob(),
        ),
        replace(
            hook_job("skyhook-operator-cleanup", "controllerManager", "pre-delete"),
            node_selector=Knob("controllerManager.selectors", {}),
            affinity=Knob(),
            enabled="cleanup.enabled",
        ),
    ),
    crds=(CustomResource("skyhook.nvidia.com/v1alpha1", "Skyhook", "skyhooks", namespaced=False),),
    takes_along="its hook deletes every Skyhook and DeploymentPolicy",
)

HARDENING = "nvidia-toolkit-hardening"
HARDENING_IMAGE = "docker.io/library/busybox:1.36.1"
_ASSERT = """\
while true; do
  if chroot /host nvidia-ctk config --in-place \\
      --set accept-nvidia-visible-devices-envvar-when-unprivileged=false \\
      --set accept-nvidia-visible-devices-as-volume-mounts=true; then
    touch /tmp/asserted
  else
    rm -f /tmp/asserted
  fi
  sleep 60
done
"""


def _hardening(view: ClusterView) -> tuple[dict[str, Any], ...]:
    """AKS's own toolkit lets any container name the GPUs that it wants in an environment variable, past every claim.
    The daemon takes that away on the host, again each minute, and is ready only while it holds."""
    labels = {"app.kubernetes.io/name": HARDENING}
    container = {
        "name": "assert",
        "image": HARDENING_IMAGE,
        "command": ["/bin/sh", "-c", _ASSERT],
        "securityContext": {"privileged": True},
        "readinessProbe": {"exec": {"command": ["test", "-f", "/tmp/asserted"]}, "periodSeconds": 10},
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "32Mi"}},
        "volumeMounts": [{"name": "host", "mountPath": "/host"}],
    }
    spec = {
        "priorityClassName": CRITICAL,
        "affinity": pool_affinity(pool_names(view, pools_for(view, NVIDIA))),
        "tolerations": driver_tolerations(view, NVIDIA),
        "containers": [container],
        "volumes": [{"name": "host", "hostPath": {"path": "/", "type": "Directory"}}],
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    return (
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": HARDENING, "namespace": OPERATOR_NAMESPACE, "labels": labels},
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        },
    )


TOOLKIT_HARDENING = Component(
    key="gpu-operator-toolkit-hardening",
    namespace=OPERATOR_NAMESPACE,
    drivers=TAGS,
    depends_on=("gpu-operator",),
    manifests=_hardening,
    workloads=(
        DeclaredWorkload(
            kind="DaemonSet",
            name=HARDENING,
            reach=Reach("only"),
            priority_class=CRITICAL,
            cpu_request="10m",
            pod_labels={"app.kubernetes.io/name": HARDENING},
        ),
    ),
)
