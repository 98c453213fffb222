"""The plan's JSON: its shape is a contract, its bytes are the same for the same input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from modelplane_dagster.manifests.fleet import build_fleet
from modelplane_dagster.plan import fingerprint, plan_fleet
from modelplane_dagster.plan_json import plan_document
from tests.made import NV, cls, cluster, cpus, deployment, engine, fleet, member, nvidia, pool, request, text

ROOT = Path(__file__).resolve().parents[2]
GPU = request('device.driver == "gpu.nvidia.com"', 1, "gpu")
OBJECTS = (
    cls("l4", nvidia(), source="EKS"),
    cls("cpu", cpus(), source="EKS"),
    cluster("east", "EKS", pool("gpu", "l4", minNodeCount=1, maxNodeCount=4), pool("cpu", "cpu")),
    cluster("west", "EKS", pool("p", "missing"), region="us-west-2"),
    deployment("m", engine(member(GPU))),
)


def document() -> dict[str, Any]:
    return plan_document(plan_fleet(fleet(*OBJECTS)))


def test_the_whole_of_a_cluster() -> None:
    found = document()["clusters"][0]
    components = {c["key"]: c for c in found.pop("components")}
    placement = found.pop("placement")
    assert found == {
        "name": "east",
        "source": "EKS",
        "kubernetesVersion": "1.36",
        "account": "default",
        "claimedDrivers": ["dra.cpu", "gpu.nvidia.com"],
        "supportedDrivers": ["dra.cpu", "dra.net", "gpu.nvidia.com"],
        "gate": {"verdict": "pass", "findings": []},
        "pools": [
            {
                "name": "gpu",
                "className": "l4",
                "role": "GPU",
                "drivers": ["gpu.nvidia.com"],
                "labels": {"modelplane.ai/pool": "gpu", "modelplane.ai/gpu": "nvidia"},
                "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
                "nodes": {"count": 1, "min": 1, "max": 4},
                "provider": found["pools"][0]["provider"],
                "servedBy": [
                    "node-feature-discovery",
                    "gpu-operator",
                    "nvsentinel",
                    "cluster-autoscaler",
                    "dra-driver-critical-pods-quota",
                    "nvidia-dra-driver-gpu",
                ],
            },
            {
                "name": "cpu",
                "className": "cpu",
                "role": "CPU",
                "drivers": ["dra.cpu"],
                "labels": {"modelplane.ai/pool": "cpu", "modelplane.ai/cpu": "true"},
                "taints": [{"key": "modelplane.ai/cpu", "value": "true", "effect": "NoSchedule"}],
                "nodes": {"count": 1, "min": None, "max": None},
                "provider": found["pools"][1]["provider"],
                "servedBy": ["dra-driver-cpu"],
            },
        ],
        "schedulablePools": [
            {
                "name": "gpu",
                "nodes": 1,
                "devices": [
                    {
                        "name": "gpu",
                        "claim": "DRA",
                        "driver": NV,
                        "deviceClassName": NV,
                        "count": 1,
                        "attributes": {},
                        "capacity": {"memory": {"value": "23034Mi"}},
                    }
                ],
            },
            {
                "name": "cpu",
                "nodes": 1,
                "devices": [
                    {
                        "name": "cpus",
                        "claim": "DRA",
                        "driver": "dra.cpu",
                        "deviceClassName": "dra.cpu",
                        "count": 1,
                        "attributes": {},
                        "capacity": {"cpu": {"value": "6"}},
                    }
                ],
            },
        ],
        "cpuMode": "grouped",
    }
    own = components["dra-driver-cpu"]
    assert set(own) == {
        "key", "release", "namespace", "chart", "version", "drivers", "install", "reason", "dependsOn", "values",
    }  # fmt: skip
    assert (own["drivers"], own["install"], own["reason"]) == (["dra.cpu"], True, "serves dra.cpu of pool cpu")
    assert [c["reason"] for c in components.values() if not c["install"]] == [
        "left out: no pool for which its fabric is EFA"
    ]
    assert placement["findings"] == []
    assert [w for w in placement["workloads"] if w["component"] == "dra-driver-cpu"] == [
        {"component": "dra-driver-cpu", "kind": "DaemonSet", "name": "mp-dra-driver-cpu", "reaches": ["cpu"]}
    ]


def test_a_cluster_of_unknown_class() -> None:
    found = document()["clusters"][1]
    (reason,) = found["gate"].pop("findings")
    assert found == {
        "name": "west",
        "source": "EKS",
        "kubernetesVersion": None,
        "account": "default",
        "claimedDrivers": None,
        "supportedDrivers": ["dra.cpu", "dra.net", "gpu.nvidia.com"],
        "gate": {"verdict": "unknown"},
        "pools": [],
        "components": [],
        "placement": {"workloads": [], "findings": []},
        "schedulablePools": [],
        "cpuMode": None,
    }
    assert set(reason) == {"code", "severity", "subject", "message", "fix", "file", "line", "column"}
    assert (reason["code"], reason["file"], reason["line"]) == ("ClassNotFound", "fleet.yaml", 8)


def test_deployments_and_the_rest() -> None:
    found = document()
    assert list(found) == ["fingerprint", "clusters", "deployments", "actions", "orphans", "findings"]
    assert found["deployments"] == [
        {
            "name": "m",
            "namespace": "models",
            "verdict": "placed",
            "replicas": [
                {
                    "cluster": "east",
                    "engines": [
                        {
                            "name": "engine",
                            "members": [
                                {
                                    "role": "Standalone",
                                    "pool": "gpu",
                                    "requests": [
                                        {
                                            "name": "gpu",
                                            "exactly": {
                                                "deviceClassName": NV,
                                                "allocationMode": "ExactCount",
                                                "count": 1,
                                                "selectors": [{"cel": {"expression": GPU["selectors"][0]["cel"]}}],
                                            },
                                        }
                                    ],
                                }
                            ],
                        }
                    ],
                }
            ],
            "findings": [],
        }
    ]
    assert found["actions"][0] == {
        "op": "create",
        "subject": "cluster/east",
        "reason": "nothing was observed; made if it isn't there",
    }
    assert (found["orphans"], [f["code"] for f in found["findings"]]) == ([], ["ClassNotFound"])


def test_a_clean_plan_has_the_contracts_keys_alone() -> None:
    clean = plan_document(plan_fleet(fleet(*(o for o in OBJECTS if o["metadata"]["name"] != "west"))))
    assert list(clean) == ["fingerprint", "clusters", "deployments", "actions", "orphans"]


def test_the_fingerprint_covers_everything_but_itself() -> None:
    found = document()
    assert found["fingerprint"] == fingerprint(found)
    assert fingerprint({**found, "orphans": [{}]}) != found["fingerprint"]


def test_the_order_of_files_and_objects_changes_nothing() -> None:
    files = [(f"{n}.yaml", text(o)) for n, o in enumerate(OBJECTS)]
    plans = [
        orjson.dumps(plan_document(plan_fleet(build_fleet(order))))
        for order in (files, files[::-1], files[2:] + files[:2])
    ]
    assert plans[0] == plans[1] == plans[2]


@pytest.mark.parametrize("form", ["json", "text"])
def test_two_processes_print_the_same_bytes(form: str, tmp_path: Path) -> None:
    printed = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "MODELPLANE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "modelplane_dagster", "plan", "fleet", "recipes", "examples/refused"]
        done = subprocess.run([*command, "--format", form], cwd=ROOT, env=env, capture_output=True, check=False)
        assert done.returncode == 3, done.stderr
        printed.add(done.stdout)
    assert len(printed) == 1


@pytest.mark.parametrize(
    "spelt",
    [
        '{"int": 99999999999999999999}',
        '{"string": "\\ud800"}',
        '{"int": -9223372036854775809}',
    ],
)
def test_values_that_no_json_holds_are_findings_or_printed(spelt: str) -> None:
    body = json.dumps(cls("k", nvidia(), source="EKS")).replace(
        '"capacity"', f'"attributes": {{"a": {spelt}}}, "capacity"'
    )
    made = build_fleet([("a.yaml", body.encode()), ("b.yaml", text(cluster("c", "EKS", pool("p", "k"))))])
    assert orjson.loads(orjson.dumps(plan_document(plan_fleet(made))))["fingerprint"].startswith("sha256:")
