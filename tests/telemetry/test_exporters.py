"""The configuration finds exactly the pods that the components declare."""

from __future__ import annotations

import re

import pytest

from modelplane_dagster.components.lists import components_for
from modelplane_dagster.telemetry import collector_config

DRIVERS = ("gpu.nvidia.com", "gpu.amd.com", "dra.cpu")
EXPECTED = {
    "EKS": {"nvidia-dcgm-exporter", "mp-dra-driver-cpu"},
    "Civo": {"nvidia-dcgm-exporter", "mp-dra-driver-cpu"},
    "Existing": {"{cr}-metrics-exporter", "mp-dra-driver-cpu"},
}


def found_by(config, labels, port):
    """Whether a scrape job keeps a pod's port, as the service discovery would."""
    meta = {f"__meta_kubernetes_pod_label_{re.sub('[^a-zA-Z0-9_]', '_', k)}": v for k, v in labels.items()}
    meta["__meta_kubernetes_pod_container_port_name"] = port
    for receiver in config["receivers"].values():
        keep = receiver["config"]["scrape_configs"][0]["relabel_configs"][0]
        if re.fullmatch(keep["regex"], ";".join(meta.get(name, "") for name in keep["source_labels"])):
            return True
    return False


@pytest.mark.parametrize("source", EXPECTED)
def test_exactly_the_exporters_are_scraped(source):
    config = collector_config("lab", frozenset(DRIVERS))
    found = {
        w.name
        for c in components_for(source)
        for w in c.workloads
        for port in w.ports
        if found_by(config, w.pod_labels, port)
    }
    assert found == EXPECTED[source]
