from __future__ import annotations

import json

import pytest
import yaml

from modelplane_dagster.cli.main import run
from modelplane_dagster.telemetry import collector_config
from tests.shared import shared

CLASS = """
apiVersion: modelplane.ai/v1alpha1
kind: InferenceClass
metadata: {name: cpus}
spec:
  devices:
  - name: cpu
    driver: dra.cpu
    deviceClassName: dra.cpu
    count: 1
    capacity: {cpu: {value: "6"}}
"""
CLUSTER = """
apiVersion: modelplane.ai/v1alpha1
kind: InferenceCluster
metadata: {name: home}
spec:
  cluster:
    source: Existing
    existing:
      secretRef: {name: home-kubeconfig, key: kubeconfig}
  nodePools:
  - {name: pool, className: %s}
"""


@pytest.fixture
def fleet(tmp_path):
    def make(class_name="cpus"):
        (tmp_path / "fleet.yaml").write_text(f"{CLASS}---{CLUSTER % class_name}")
        return ["--fleet", str(tmp_path)]

    return make


def test_yaml_and_json_hold_one_configuration(fleet, capfdbinary):
    expected = collector_config("home", frozenset({"dra.cpu"}))
    assert run(["telemetry", "home", *fleet()]) == 0
    assert yaml.safe_load(capfdbinary.readouterr().out) == expected
    assert run(["telemetry", "home", *fleet(), "--format", "json"]) == 0
    assert json.loads(capfdbinary.readouterr().out) == expected
    assert expected["service"]["pipelines"].keys() == {"metrics/cpu"}


def test_unknown_claims_are_never_an_empty_configuration(fleet, capfd):
    assert run(["telemetry", "home", *fleet("absent")]) == 1
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "ClassNotFound" in captured.err


def test_an_unknown_cluster_is_an_unusable_argument(fleet, capfd):
    assert run(["telemetry", "away", *fleet()]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "there is home" in captured.err


def test_a_fleet_written_for_modelplane(capfd):
    assert run(["telemetry", "eks-us-east", "--fleet", str(shared("manifests", "getting-started", "eks"))]) == 0
    config = yaml.safe_load(capfd.readouterr().out)
    assert config["service"]["pipelines"].keys() == {"metrics/gpu"}
    assert set(config["processors"]) == {"metricstransform/modelplane-gpu-nvidia", "resource/cluster", "batch"}
