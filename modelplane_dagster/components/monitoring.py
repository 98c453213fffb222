"""Metrics on every cluster, and what the clouds with an NVIDIA recipe add to them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.components.gateway import ENVOY_NAMESPACE
from modelplane_dagster.components.pins import PINS
from modelplane_dagster.components.placing import CONTROL_PLANE, LINUX, MASTER, Entry
from modelplane_dagster.components.substrate import deployment, hook_job
from modelplane_dagster.components.types import Component, CustomResource, DeclaredWorkload, Knob, Reach, Same, Values
from modelplane_dagster.drivers import DRIVER_TAINT_KEYS

NAMESPACE = "monitoring"
NAME = "kube-prometheus"
SERVICE = f"{NAME}-prometheus"
NODE_EXPORTER = "prometheus-node-exporter"
PROXY_STATS_PORT = 19001
_API = "monitoring.coreos.com/v1"
PROMETHEUS = CustomResource(
    _API,
    "Prometheus",
    "prometheuses",
    namespaced=True,
    values_root="prometheus.prometheusSpec",
    name=SERVICE,
)
OPERATOR_CRDS: tuple[CustomResource, ...] = (
    CustomResource(_API, "Prometheus", "prometheuses", namespaced=True),
    CustomResource(_API, "PodMonitor", "podmonitors", namespaced=True),
    CustomResource(_API, "ServiceMonitor", "servicemonitors", namespaced=True),
    CustomResource(_API, "PrometheusRule", "prometheusrules", namespaced=True),
    CustomResource(_API, "Probe", "probes", namespaced=True),
    CustomResource("monitoring.coreos.com/v1alpha1", "ScrapeConfig", "scrapeconfigs", namespaced=True),
)


def every_node(view: ClusterView) -> list[Entry]:
    """Tolerations by name for a workload that belongs on every node: the taints of drivers, ours and the platform
    team's, of pools, and those that control planes and system pools carry. Any effect of each key."""
    keys = {*DRIVER_TAINT_KEYS, CONTROL_PLANE["key"], MASTER["key"], "CriticalAddonsOnly"}
    keys |= {e.taint for e in view.external if e.taint}
    keys |= {t.key for p in view.pools for t in p.taints} | view.kept_taints
    return [{"key": key, "operator": "Exists"} for key in sorted(keys)]


def _proxy_job() -> dict[str, Any]:
    """Envoy's own numbers, on a port that its pods don't declare."""
    return {
        "job_name": "gateway-proxy",
        "metrics_path": "/stats/prometheus",
        "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": [ENVOY_NAMESPACE]}}],
        "relabel_configs": [
            {
                "source_labels": ["__meta_kubernetes_pod_label_app_kubernetes_io_component"],
                "regex": "proxy",
                "action": "keep",
            },
            {
                "source_labels": ["__meta_kubernetes_pod_ip"],
                "regex": "(.+)",
                "replacement": f"$1:{PROXY_STATS_PORT}",
                "target_label": "__address__",
                "action": "replace",
            },
        ],
    }


def _stack_values(view: ClusterView, *, own_crds: bool) -> Values:
    return {
        "fullnameOverride": NAME,
        "crds": {"enabled": own_crds},
        "grafana": {"enabled": False},
        "alertmanager": {"enabled": False},
        "kube-state-metrics": {"fullnameOverride": "kube-state-metrics"},
        # The exporter's default tolerates every taint, whoever set it for whatever reason.
        NODE_EXPORTER: {"fullnameOverride": NODE_EXPORTER, "tolerations": every_node(view)},
        "prometheus": {
            "prometheusSpec": {
                "podMonitorSelectorNilUsesHelmValues": False,
                "podMonitorNamespaceSelector": {},
                "serviceMonitorSelectorNilUsesHelmValues": False,
                "serviceMonitorNamespaceSelector": {},
                "additionalScrapeConfigs": [_proxy_job()],
            }
        },
    }


def _with_crds(view: ClusterView) -> Values:
    return _stack_values(view, own_crds=True)


def _without_crds(view: ClusterView) -> Values:
    return _stack_values(view, own_crds=False)


def _exporter_affinity() -> dict[str, Any]:
    """The chart keeps the exporter off nodes that aren't machines."""
    expressions = [
        {"key": "eks.amazonaws.com/compute-type", "operator": "NotIn", "values": ["fargate"]},
        {"key": "type", "operator": "NotIn", "values": ["virtual-kubelet"]},
    ]
    terms = [{"matchExpressions": expressions}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _stack_workloads() -> tuple[DeclaredWorkload, ...]:
    exporter = DeclaredWorkload(
        kind="DaemonSet",
        name=NODE_EXPORTER,
        reach=Reach("all"),
        node_selector=Knob(f"{NODE_EXPORTER}.nodeSelector", LINUX),
        affinity=Knob(f"{NODE_EXPORTER}.affinity", _exporter_affinity()),
        tolerations=Knob(f"{NODE_EXPORTER}.tolerations", [{"operator": "Exists", "effect": "NoSchedule"}]),
        host_network=True,
        host_ports=(9100,),
        pod_labels={"app.kubernetes.io/name": NODE_EXPORTER},
        ports={"http-metrics": 9100},
        enabled="nodeExporter.enabled",
    )
    server = DeclaredWorkload(
        kind="StatefulSet",
        name=f"prometheus-{SERVICE}",
        origin="operator",
        resource=PROMETHEUS,
        node_selector=Knob("nodeSelector", {}),
        affinity=Knob("affinity", {}),
        tolerations=Knob("tolerations", []),
        pod_labels={"app.kubernetes.io/name": "prometheus", "prometheus": SERVICE},
        ports={"http-web": 9090},
    )
    patch = "prometheusOperator.admissionWebhooks.patch"
    webhooks = "prometheusOperator.admissionWebhooks.enabled"
    return (
        exporter,
        deployment(f"{NAME}-operator", "prometheusOperator"),
        replace(
            deployment("kube-state-metrics", "kube-state-metrics", selector=LINUX),
            enabled="kubeStateMetrics.enabled",
        ),
        server,
        replace(hook_job(f"{NAME}-admission-create", patch, "pre-install, pre-upgrade"), enabled=webhooks),
        replace(hook_job(f"{NAME}-admission-patch", patch, "post-install, post-upgrade"), enabled=webhooks),
    )


_STACK_SETTINGS = {
    "fullnameOverride": "string",
    "crds.enabled": "boolean",
    "grafana.enabled": "boolean",
    "alertmanager.enabled": "boolean",
    "kube-state-metrics.fullnameOverride": "string",
    f"{NODE_EXPORTER}.fullnameOverride": "string",
    "global.imageRegistry": "string",
    "global.imagePullSecrets": "array",
    **{
        f"prometheus.prometheusSpec.{name}": shape
        for name, shape in {
            "podMonitorSelectorNilUsesHelmValues": "boolean",
            "podMonitorNamespaceSelector": "object",
            "serviceMonitorSelectorNilUsesHelmValues": "boolean",
            "serviceMonitorNamespaceSelector": "object",
            "additionalScrapeConfigs": "array",
            "remoteWrite": "array",
            "resources": "object",
            "retention": "string",
            "storageSpec": "object",
            "externalLabels": "object",
        }.items()
    },
}


def kube_prometheus_stack(*, own_crds: bool) -> Component:
    """`own_crds` is False where a component of their own brings the operator's CRDs first, because others need them
    before this chart is up."""
    return Component(
        key="kube-prometheus-stack",
        release="mp-kube-prometheus-stack",
        namespace=NAMESPACE,
        pin=PINS["kube-prometheus-stack"],
        depends_on=() if own_crds else ("prometheus-operator-crds",),
        values=_with_crds if own_crds else _without_crds,
        settings=_STACK_SETTINGS,
        workloads=_stack_workloads(),
        crds=OPERATOR_CRDS if own_crds else (),
        crds_need_apply=own_crds,
    )


PROMETHEUS_OPERATOR_CRDS = Component(
    key="prometheus-operator-crds",
    release="mp-prometheus-operator-crds",
    namespace=NAMESPACE,
    pin=PINS["prometheus-operator-crds"],
    crds=OPERATOR_CRDS,
)


def _rule(series: str, name: str) -> dict[str, Any]:
    """One custom metric of a pod, read from the last minute of a DCGM series."""
    return {
        "seriesQuery": f'{series}{{namespace!="",pod!=""}}',
        "resources": {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}},
        "name": {"matches": series, "as": name},
        "metricsQuery": "last_over_time(<<.Series>>{<<.LabelMatchers>>}[1m])",
    }


def _adapter_values() -> Values:
    custom = [
        _rule("DCGM_FI_DEV_GPU_UTIL", "gpu_utilization"),
        _rule("DCGM_FI_DEV_FB_USED", "gpu_memory_used"),
        _rule("DCGM_FI_DEV_POWER_USAGE", "gpu_power_usage"),
    ]
    return {
        "prometheus": {"url": f"http://{SERVICE}", "port": 9090},
        "rules": {"default": False, "custom": custom},
    }


PROMETHEUS_ADAPTER = Component(
    key="prometheus-adapter",
    release="mp-prometheus-adapter",
    namespace=NAMESPACE,
    pin=PINS["prometheus-adapter"],
    depends_on=("kube-prometheus-stack",),
    values=Same(_adapter_values()),
    settings={
        "prometheus.url": "string",
        "prometheus.port": "integer",
        "rules.default": "boolean",
        "rules.custom": "array",
        "rules.external": "array",
        "replicas": "integer",
        "resources": "object",
        "metricsRelistInterval": "string",
        "image.repository": "string",
        "image.tag": "string",
    },
    workloads=(deployment("mp-prometheus-adapter"),),
)


_EPHEMERAL_VALUES: Values = {
    "deploy_type": "Deployment",
    "prometheus": {"enable": True, "release": "mp-kube-prometheus-stack"},
}


EPHEMERAL_STORAGE_METRICS = Component(
    key="k8s-ephemeral-storage-metrics",
    release="mp-k8s-ephemeral-storage-metrics",
    namespace=NAMESPACE,
    pin=PINS["k8s-ephemeral-storage-metrics"],
    depends_on=("kube-prometheus-stack", "prometheus-operator-crds"),
    values=Same(_EPHEMERAL_VALUES),
    settings={
        "deploy_type": "string",
        "log_level": "string",
        "prometheus.enable": "boolean",
        "prometheus.release": "string",
        "metrics": "object",
        "image.imageRepository": "string",
        "image.imageTag": "string",
    },
    workloads=(deployment("k8s-ephemeral-storage-metrics"),),
)
