"""The pod that dagster-k8s makes of a run, from the shipped values and the jobs' own tags; no cluster is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster_k8s import DagsterK8sJobConfig, construct_dagster_k8s_job
from dagster_k8s.job import get_user_defined_k8s_config

from tests.definitions.manifests import CLASSES, GOOD, fleet
from tests.definitions.worlds import build

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
VALUES: dict[str, Any] = yaml.safe_load((DEPLOY / "values.yaml").read_text())
CODE = VALUES["dagster-user-deployments"]["deployments"][0]


@pytest.mark.parametrize("name", ["converge", "observe"])
def test_a_run_is_one_pod_with_the_locations_environment(name: str) -> None:
    job = build(fleet(CLASSES, GOOD)).resolve_job_def(name)
    config = DagsterK8sJobConfig(
        job_image=f"{CODE['image']['repository']}:{CODE['image']['tag']}",
        dagster_home="/opt/dagster/dagster_home",
        service_account_name=VALUES["runLauncher"]["config"]["k8sRunLauncher"]["runK8sConfig"]["podSpecConfig"][
            "serviceAccountName"
        ],
        env_vars=[f"{k}={v}" for k, v in CODE["env"].items()],
        env_secrets=[s["name"] for s in CODE["envSecrets"]],
        volumes=CODE["volumes"],
        volume_mounts=CODE["volumeMounts"],
    )
    made = construct_dagster_k8s_job(
        config,
        ["dagster", "api", "execute_run"],
        "run-1",
        user_defined_k8s_config=get_user_defined_k8s_config(job.tags),
    ).to_dict()
    pod = made["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert made["spec"]["ttl_seconds_after_finished"] == 3600
    assert pod["service_account_name"] == "modelplane-runs"
    assert container["image"] == "registry.example.com/modelplane-dagster:0.1.0"
    assert container["resources"] == {
        "claims": None,
        "limits": {"memory": "2Gi"},
        "requests": {"cpu": "250m", "memory": "512Mi"},
    }
    environment = {e["name"]: e["value"] for e in container["env"] if e["name"].startswith("MODELPLANE_")}
    assert environment == {
        "MODELPLANE_TARGET": "live",
        "MODELPLANE_HOME": "/var/lib/modelplane",
        "MODELPLANE_SECRETS": "/etc/modelplane/secrets",
        "MODELPLANE_WEBSERVER": "http://dagster-dagster-webserver",
        "MODELPLANE_RECONCILE": "1",
    }
    assert [e["secret_ref"]["name"] for e in container["env_from"]] == ["modelplane-clouds"]
    assert [v["name"] for v in pod["volumes"]] == ["home", "secrets"]
    assert {m["name"]: m["mount_path"] for m in container["volume_mounts"]} == {
        "home": "/var/lib/modelplane",
        "secrets": "/etc/modelplane/secrets",
    }


def test_the_code_server_is_one_that_reloads() -> None:
    assert CODE["codeServerArgs"] == ["-m", "modelplane_dagster.definitions"]
    assert "dagsterApiGrpcArgs" not in CODE


def test_rbac_makes_the_account_and_the_claim_that_the_values_name() -> None:
    made = {(d["kind"], d["metadata"]["name"]) for d in yaml.safe_load_all((DEPLOY / "rbac.yaml").read_text())}
    assert made == {("ServiceAccount", "modelplane-runs"), ("PersistentVolumeClaim", "modelplane-home")}
