from __future__ import annotations

import pytest

from modelplane_dagster.telemetry import AMD_MAPPING, MAPPINGS, NVIDIA_MAPPING, collector_config

RELABEL = [
    {"source_labels": ["__meta_kubernetes_pod_phase"], "regex": "Succeeded|Failed", "action": "drop"},
    {"source_labels": ["__meta_kubernetes_pod_node_name"], "target_label": "node"},
    {"source_labels": ["__meta_kubernetes_node_label_modelplane_ai_pool"], "target_label": "modelplane_pool"},
]
EXPORTERS = {
    "prometheus": {
        "endpoint": "0.0.0.0:8889",
        "add_metric_suffixes": False,
        "resource_to_telemetry_conversion": {"enabled": True},
    }
}
CLUSTER = {"attributes": [{"key": "modelplane.cluster", "value": "lab", "action": "upsert"}]}


def receiver(job, honor, sources, regex):
    return {
        "config": {
            "scrape_configs": [
                {
                    "job_name": job,
                    "honor_labels": honor,
                    "scrape_interval": "15s",
                    "kubernetes_sd_configs": [{"role": "pod", "attach_metadata": {"node": True}}],
                    "relabel_configs": [{"source_labels": sources, "regex": regex, "action": "keep"}, *RELABEL],
                }
            ]
        }
    }


def renamed(source, target, scale=None):
    made = {"include": source, "match_type": "strict", "action": "update", "new_name": f"modelplane_gpu_{target}"}
    if scale is not None:
        made["operations"] = [{"action": "experimental_scale_value", "experimental_scale": scale}]
    return made


NVIDIA_TRANSFORMS = {
    "transforms": [
        renamed("DCGM_FI_DEV_FB_USED", "memory_used_bytes", 1048576),
        renamed("DCGM_FI_DEV_FB_FREE", "memory_free_bytes", 1048576),
        renamed("DCGM_FI_DEV_GPU_UTIL", "utilization_ratio", 0.01),
        renamed("DCGM_FI_DEV_MEM_COPY_UTIL", "memory_utilization_ratio", 0.01),
        renamed("DCGM_FI_DEV_POWER_USAGE", "power_watts"),
        renamed("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "energy_joules_total", 0.001),
        renamed("DCGM_FI_DEV_GPU_TEMP", "temperature_celsius"),
        renamed("DCGM_FI_DEV_MEMORY_TEMP", "memory_temperature_celsius"),
        renamed("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "tensor_active_ratio"),
    ]
}
AMD_TRANSFORMS = {
    "transforms": [
        renamed("gpu_used_vram", "memory_used_bytes", 1048576),
        renamed("gpu_free_vram", "memory_free_bytes", 1048576),
        renamed("gpu_gfx_activity", "utilization_ratio", 0.01),
        renamed("gpu_umc_activity", "memory_utilization_ratio", 0.01),
        renamed("gpu_power_usage", "power_watts"),
        renamed("gpu_energy_consumed", "energy_joules_total", 0.000001),
        renamed("gpu_junction_temperature", "temperature_celsius"),
        renamed("gpu_memory_temperature", "memory_temperature_celsius"),
    ]
}
AMD_SUMS = {
    "error_mode": "ignore",
    "metric_statements": [
        {
            "context": "metric",
            "statements": [
                'convert_gauge_to_sum("cumulative", true) where metric.name == "modelplane_gpu_energy_joules_total"'
            ],
        }
    ],
}
APP = "__meta_kubernetes_pod_label_app"
NAME = "__meta_kubernetes_pod_label_app_kubernetes_io_name"
PORT = "__meta_kubernetes_pod_container_port_name"
CPU_RECEIVER = receiver("modelplane-cpu", False, [NAME, PORT], "dra-driver-cpu;healthz")


def pipeline(receiver_name, *processors):
    return {
        "receivers": [receiver_name],
        "processors": [*processors, "resource/cluster", "batch"],
        "exporters": ["prometheus"],
    }


CASES = {
    "nothing": (
        frozenset(),
        {"receivers": {}, "processors": {}, "exporters": {}, "service": {"pipelines": {}}},
    ),
    "a driver without metrics": (
        frozenset({"dra.net"}),
        {"receivers": {}, "processors": {}, "exporters": {}, "service": {"pipelines": {}}},
    ),
    "NVIDIA": (
        frozenset({"gpu.nvidia.com"}),
        {
            "receivers": {
                "prometheus/gpu": receiver("modelplane-gpu", True, [APP, PORT], "nvidia-dcgm-exporter;metrics")
            },
            "processors": {
                "metricstransform/modelplane-gpu-nvidia": NVIDIA_TRANSFORMS,
                "resource/cluster": CLUSTER,
                "batch": {},
            },
            "exporters": EXPORTERS,
            "service": {
                "pipelines": {"metrics/gpu": pipeline("prometheus/gpu", "metricstransform/modelplane-gpu-nvidia")}
            },
        },
    ),
    "AMD": (
        frozenset({"gpu.amd.com"}),
        {
            "receivers": {
                "prometheus/gpu": receiver("modelplane-gpu", True, [NAME, PORT], "metrics-exporter;exporter-port")
            },
            "processors": {
                "metricstransform/modelplane-gpu-amd": AMD_TRANSFORMS,
                "transform/modelplane-gpu-amd": AMD_SUMS,
                "resource/cluster": CLUSTER,
                "batch": {},
            },
            "exporters": EXPORTERS,
            "service": {
                "pipelines": {
                    "metrics/gpu": pipeline(
                        "prometheus/gpu", "metricstransform/modelplane-gpu-amd", "transform/modelplane-gpu-amd"
                    )
                }
            },
        },
    ),
    "CPUs": (
        frozenset({"dra.cpu"}),
        {
            "receivers": {"prometheus/cpu": CPU_RECEIVER},
            "processors": {"resource/cluster": CLUSTER, "batch": {}},
            "exporters": EXPORTERS,
            "service": {"pipelines": {"metrics/cpu": pipeline("prometheus/cpu")}},
        },
    ),
    "all": (
        frozenset({"dra.cpu", "gpu.amd.com", "gpu.nvidia.com"}),
        {
            "receivers": {
                "prometheus/gpu": receiver(
                    "modelplane-gpu",
                    True,
                    [APP, NAME, PORT],
                    "nvidia-dcgm-exporter;[^;]*;metrics|[^;]*;metrics-exporter;exporter-port",
                ),
                "prometheus/cpu": CPU_RECEIVER,
            },
            "processors": {
                "metricstransform/modelplane-gpu-nvidia": NVIDIA_TRANSFORMS,
                "metricstransform/modelplane-gpu-amd": AMD_TRANSFORMS,
                "transform/modelplane-gpu-amd": AMD_SUMS,
                "resource/cluster": CLUSTER,
                "batch": {},
            },
            "exporters": EXPORTERS,
            "service": {
                "pipelines": {
                    "metrics/gpu": pipeline(
                        "prometheus/gpu",
                        "metricstransform/modelplane-gpu-nvidia",
                        "metricstransform/modelplane-gpu-amd",
                        "transform/modelplane-gpu-amd",
                    ),
                    "metrics/cpu": pipeline("prometheus/cpu"),
                }
            },
        },
    ),
}


@pytest.mark.parametrize(("claimed", "expected"), CASES.values(), ids=CASES.keys())
def test_the_configuration_follows_from_what_is_claimed(claimed, expected):
    config = collector_config("lab", claimed)
    assert config == expected
    for name, part in expected["service"]["pipelines"].items():
        # The order of processors counts: rename first, then retype by the new name.
        assert config["service"]["pipelines"][name]["processors"] == part["processors"]


def test_amd_series_have_nvidias_names_but_for_the_tensor_activity():
    nvidia = {s.target for s in NVIDIA_MAPPING.series}
    assert nvidia - {s.target for s in AMD_MAPPING.series} == {"modelplane_gpu_tensor_active_ratio"}
    assert {s.target for s in AMD_MAPPING.series} < nvidia


def test_the_mappings_are_named_and_give_their_units():
    assert [m.name for m in MAPPINGS] == ["modelplane-gpu-nvidia", "modelplane-gpu-amd"]
    assert AMD_MAPPING.as_dict()["metrics"][5] == {
        "source": "gpu_energy_consumed",
        "target": "modelplane_gpu_energy_joules_total",
        "fromUnit": "Microjoules",
    }
    assert [m["fromUnit"] for m in NVIDIA_MAPPING.as_dict()["metrics"]] == [
        "Mebibytes",
        "Mebibytes",
        "Percent",
        "Percent",
        "Watts",
        "Millijoules",
        "Celsius",
        "Celsius",
        "Ratio",
    ]
