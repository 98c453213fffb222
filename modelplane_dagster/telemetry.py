"""The OpenTelemetry collector's configuration for one cluster: what it scrapes, by claimed drivers, and what each
vendor's series are called afterwards. A cluster that claims nothing with metrics gets no pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from modelplane_dagster.drivers import AMD, CPU, NVIDIA

Config = dict[str, Any]

GPU_JOB = "modelplane-gpu"
CPU_JOB = "modelplane-cpu"
SCRAPE_INTERVAL = "15s"
ENDPOINT = "0.0.0.0:8889"
TENSOR = "modelplane_gpu_tensor_active_ratio"


class Unit(StrEnum):
    """What an exporter gives a series in; `SCALE` brings it to the base unit of the target's name."""

    BYTES = "Bytes"
    MEBIBYTES = "Mebibytes"
    RATIO = "Ratio"
    PERCENT = "Percent"
    JOULES = "Joules"
    MILLIJOULES = "Millijoules"
    MICROJOULES = "Microjoules"
    WATTS = "Watts"
    CELSIUS = "Celsius"


SCALE: dict[Unit, float] = {
    Unit.MEBIBYTES: 1024 * 1024,
    Unit.PERCENT: 0.01,
    Unit.MILLIJOULES: 0.001,
    Unit.MICROJOULES: 0.000001,
}


@dataclass(frozen=True, slots=True)
class Mapped:
    """One series: the exporter's name and unit, and the name that it gets. `counts` says that the target only ever
    grows, `gauge_at_source` that the exporter types it as a gauge all the same."""

    source: str
    target: str
    from_unit: Unit
    counts: bool = False
    gauge_at_source: bool = False


@dataclass(frozen=True, slots=True)
class Mapping:
    """A vendor's series under the names that all vendors share."""

    name: str
    driver: str
    series: tuple[Mapped, ...]

    def as_dict(self) -> Config:
        rows = [{"source": s.source, "target": s.target, "fromUnit": s.from_unit.value} for s in self.series]
        return {"name": self.name, "driver": self.driver, "metrics": rows}


@dataclass(frozen=True, slots=True)
class Exporter:
    """How an exporter's pods are told: a pod label (as the service discovery spells it), and the container port."""

    driver: str
    label: str
    value: str
    port: str


NVIDIA_MAPPING = Mapping(
    "modelplane-gpu-nvidia",
    NVIDIA,
    (
        Mapped("DCGM_FI_DEV_FB_USED", "modelplane_gpu_memory_used_bytes", Unit.MEBIBYTES),
        Mapped("DCGM_FI_DEV_FB_FREE", "modelplane_gpu_memory_free_bytes", Unit.MEBIBYTES),
        Mapped("DCGM_FI_DEV_GPU_UTIL", "modelplane_gpu_utilization_ratio", Unit.PERCENT),
        Mapped("DCGM_FI_DEV_MEM_COPY_UTIL", "modelplane_gpu_memory_utilization_ratio", Unit.PERCENT),
        Mapped("DCGM_FI_DEV_POWER_USAGE", "modelplane_gpu_power_watts", Unit.WATTS),
        Mapped(
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "modelplane_gpu_energy_joules_total", Unit.MILLIJOULES, counts=True
        ),
        Mapped("DCGM_FI_DEV_GPU_TEMP", "modelplane_gpu_temperature_celsius", Unit.CELSIUS),
        Mapped("DCGM_FI_DEV_MEMORY_TEMP", "modelplane_gpu_memory_temperature_celsius", Unit.CELSIUS),
        # The exporter calls it a percentage and gives 0 to 1. AMD's exporter has nothing like it.
        Mapped("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", TENSOR, Unit.RATIO),
    ),
)

AMD_MAPPING = Mapping(
    "modelplane-gpu-amd",
    AMD,
    (
        # The exporter writes MB; whether it means MB or MiB isn't settled, and MiB is what its sizes look like.
        Mapped("gpu_used_vram", "modelplane_gpu_memory_used_bytes", Unit.MEBIBYTES),
        Mapped("gpu_free_vram", "modelplane_gpu_memory_free_bytes", Unit.MEBIBYTES),
        Mapped("gpu_gfx_activity", "modelplane_gpu_utilization_ratio", Unit.PERCENT),
        Mapped("gpu_umc_activity", "modelplane_gpu_memory_utilization_ratio", Unit.PERCENT),
        # The one name for power that both MI2xx and MI3xx have.
        Mapped("gpu_power_usage", "modelplane_gpu_power_watts", Unit.WATTS),
        # Accumulated, and typed as a gauge like everything of this exporter.
        Mapped(
            "gpu_energy_consumed",
            "modelplane_gpu_energy_joules_total",
            Unit.MICROJOULES,
            counts=True,
            gauge_at_source=True,
        ),
        # MI2xx has the edge temperature instead, which isn't the same place.
        Mapped("gpu_junction_temperature", "modelplane_gpu_temperature_celsius", Unit.CELSIUS),
        Mapped("gpu_memory_temperature", "modelplane_gpu_memory_temperature_celsius", Unit.CELSIUS),
    ),
)

MAPPINGS: tuple[Mapping, ...] = (NVIDIA_MAPPING, AMD_MAPPING)

GPU_EXPORTERS: tuple[Exporter, ...] = (
    Exporter(NVIDIA, "app", "nvidia-dcgm-exporter", "metrics"),
    Exporter(AMD, "app_kubernetes_io_name", "metrics-exporter", "exporter-port"),
)
# The driver serves health and metrics on one port.
CPU_EXPORTER = Exporter(CPU, "app_kubernetes_io_name", "dra-driver-cpu", "healthz")


def collector_config(cluster: str, claimed: frozenset[str]) -> Config:
    """The configuration for a cluster that claims exactly `claimed`: receivers, processors, exporters and pipelines,
    all empty where no claimed driver has metrics. Whoever doesn't know what is claimed must not ask."""
    exporters = tuple(e for e in GPU_EXPORTERS if e.driver in claimed)
    mappings = tuple(m for m in MAPPINGS if m.driver in claimed)
    receivers: Config = {}
    pipelines: Config = {}
    cluster_name = "resource/cluster"
    if exporters:
        # Exporters name the workload that uses the device: without honor_labels they would become exported_pod.
        receivers["prometheus/gpu"] = _receiver(GPU_JOB, exporters, honor_labels=True)
        rename = [name for m in mappings for name in _processors(m)]
        pipelines["metrics/gpu"] = _pipeline("prometheus/gpu", [*rename, cluster_name])
    if CPU in claimed:
        receivers["prometheus/cpu"] = _receiver(CPU_JOB, (CPU_EXPORTER,), honor_labels=False)
        pipelines["metrics/cpu"] = _pipeline("prometheus/cpu", [cluster_name])
    processors = {name: body for m in mappings for name, body in _processors(m).items()}
    if pipelines:
        attribute = {"key": "modelplane.cluster", "value": cluster, "action": "upsert"}
        processors |= {cluster_name: {"attributes": [attribute]}, "batch": {}}
    return {
        "receivers": receivers,
        "processors": processors,
        "exporters": {"prometheus": _EXPORTER} if pipelines else {},
        "service": {"pipelines": pipelines},
    }


# Suffixes stay off, so that a series is called what its mapping says.
_EXPORTER: Config = {
    "endpoint": ENDPOINT,
    "add_metric_suffixes": False,
    "resource_to_telemetry_conversion": {"enabled": True},
}


def _pipeline(receiver: str, processors: list[str]) -> Config:
    return {"receivers": [receiver], "processors": [*processors, "batch"], "exporters": ["prometheus"]}


def _receiver(job: str, exporters: Iterable[Exporter], *, honor_labels: bool) -> Config:
    scrape = {
        "job_name": job,
        "honor_labels": honor_labels,
        "scrape_interval": SCRAPE_INTERVAL,
        # Pods, not services: AMD's service answers on its own node alone.
        "kubernetes_sd_configs": [{"role": "pod", "attach_metadata": {"node": True}}],
        "relabel_configs": _relabel(tuple(exporters)),
    }
    return {"config": {"scrape_configs": [scrape]}}


def _relabel(exporters: tuple[Exporter, ...]) -> list[Config]:
    labels = sorted({e.label for e in exporters})
    sources = [f"__meta_kubernetes_pod_label_{label}" for label in labels]
    keep = {
        "source_labels": [*sources, "__meta_kubernetes_pod_container_port_name"],
        "regex": "|".join(_pattern(e, labels) for e in exporters),
        "action": "keep",
    }
    return [
        keep,
        {"source_labels": ["__meta_kubernetes_pod_phase"], "regex": "Succeeded|Failed", "action": "drop"},
        {"source_labels": ["__meta_kubernetes_pod_node_name"], "target_label": "node"},
        {"source_labels": ["__meta_kubernetes_node_label_modelplane_ai_pool"], "target_label": "modelplane_pool"},
    ]


def _pattern(exporter: Exporter, labels: list[str]) -> str:
    """What the joined source labels of the exporter's pods read; any value of a label that isn't its own."""
    parts = [exporter.value if label == exporter.label else "[^;]*" for label in labels]
    return ";".join([*parts, exporter.port])


def _processors(mapping: Mapping) -> Config:
    """The collector's processors that a mapping becomes, by name, in the order in which they run."""
    made: Config = {f"metricstransform/{mapping.name}": {"transforms": [_transform(s) for s in mapping.series]}}
    statements = [*_sums(mapping)]
    if statements:
        made[f"transform/{mapping.name}"] = {
            "error_mode": "ignore",
            "metric_statements": [{"context": "metric", "statements": statements}],
        }
    return made


def _transform(series: Mapped) -> Config:
    made: Config = {"include": series.source, "match_type": "strict", "action": "update", "new_name": series.target}
    scale = SCALE.get(series.from_unit)
    if scale is not None:
        made["operations"] = [{"action": "experimental_scale_value", "experimental_scale": scale}]
    return made


def _sums(mapping: Mapping) -> Iterator[str]:
    for series in mapping.series:
        if series.counts and series.gauge_at_source:
            yield f'convert_gauge_to_sum("cumulative", true) where metric.name == "{series.target}"'
