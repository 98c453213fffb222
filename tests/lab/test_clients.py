"""The real clients against the lab: helm, kubectl and the official Python client."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config, watch
from kubernetes.dynamic import DynamicClient

from modelplane_dagster.errors import ConfigError
from resources.tools import helm_path, kubectl_path
from tests.lab.objects import daemon_set, widget, widget_crd
from tests.lab.server import Served

pytestmark = pytest.mark.lab
Run = Callable[..., subprocess.CompletedProcess[str]]


def _binary(find: Callable[[], Path]) -> str:
    try:
        return str(find())
    except ConfigError as error:
        pytest.skip(error.message)


@pytest.fixture
def tool(served: Served, name: str, tmp_path: Path) -> Run:
    """Runs helm or kubectl as a user of a fresh cluster, with folders of its own."""
    served.add(name)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "KUBECONFIG": str(served.kubeconfig(name, "user", tmp_path / "kubeconfig")),
    }

    def run(command: str, *args: str, fails: bool = False, given: str = "") -> subprocess.CompletedProcess[str]:
        binary = _binary(helm_path if command == "helm" else kubectl_path)
        done = subprocess.run(
            [binary, *args], env=env, input=given, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode != 0) == fails, done.stderr + done.stdout
        return done

    return run


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """A CRD, a custom resource, a ServiceAccount, a ConfigMap, a DaemonSet and a DeviceClass."""
    folder = tmp_path / "toy"
    (folder / "templates").mkdir(parents=True)
    (folder / "crds").mkdir()
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: toy\nversion: 0.1.0\n")
    (folder / "values.yaml").write_text("taint: nvidia.com/gpu\nselector: {}\n")
    (folder / "crds" / "widgets.yaml").write_text(yaml.safe_dump(widget_crd()))
    made = daemon_set("toy", tolerations=[{"key": "TAINT", "operator": "Exists"}], serviceAccountName="toy")
    objects = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "toy"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "toy"}, "data": {"taint": "TAINT"}},
        widget("toy", size=3),
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "toy.example.com"},
            "spec": {"selectors": [{"cel": {"expression": 'device.driver == "toy.example.com"'}}]},
        },
        made,
    ]
    text = yaml.safe_dump_all(objects).replace("TAINT", "{{ .Values.taint }}")
    text += "      {{- with .Values.selector }}\n      nodeSelector: {{ toYaml . | nindent 8 }}\n      {{- end }}\n"
    (folder / "templates" / "all.yaml").write_text(text)
    return folder


INSTALL = ("upgrade", "--install", "toy", "-n", "toys", "--create-namespace", "-o", "json")


def test_helm_installs_upgrades_rolls_back_and_uninstalls(tool: Run, chart: Path):
    first = json.loads(tool("helm", *INSTALL, str(chart)).stdout)
    assert (first["info"]["status"], first["version"]) == ("deployed", 1)
    second = json.loads(tool("helm", *INSTALL, str(chart), "--set", "taint=amd.com/gpu").stdout)
    assert second["version"] == 2
    get = ("get", "-n", "toys", "-o", "json")
    spec = json.loads(tool("kubectl", *get, "ds", "toy").stdout)["spec"]["template"]["spec"]
    assert spec["tolerations"] == [{"key": "amd.com/gpu", "operator": "Exists"}]
    assert json.loads(tool("kubectl", *get, "widget", "toy").stdout)["spec"] == {"size": 3, "mode": "a"}
    tool("helm", "rollback", "toy", "1", "-n", "toys")
    assert json.loads(tool("kubectl", *get, "cm", "toy").stdout)["data"] == {"taint": "nvidia.com/gpu"}
    history = json.loads(tool("helm", "history", "toy", "-n", "toys", "-o", "json").stdout)
    assert [h["status"] for h in history] == ["superseded", "superseded", "deployed"]
    listed = json.loads(tool("helm", "list", "-A", "-o", "json").stdout)
    assert [(r["name"], r["namespace"], r["revision"]) for r in listed] == [("toy", "toys", "3")]
    tool("helm", "uninstall", "toy", "-n", "toys", "--wait")
    assert json.loads(tool("kubectl", *get, "ds,cm,widget").stdout)["items"] == []


def test_helm_meets_another_managers_change(tool: Run, chart: Path):
    tool("helm", *INSTALL, str(chart))
    patch = json.dumps({"data": {"taint": "by-hand"}})
    tool("kubectl", "patch", "cm", "toy", "-n", "toys", "--field-manager=ops", "-p", patch)
    refused = tool("helm", *INSTALL, str(chart), "--set", "taint=amd.com/gpu", fails=True)
    assert 'conflict with "ops"' in refused.stderr
    forced = tool("helm", *INSTALL, str(chart), "--set", "taint=amd.com/gpu", "--force-conflicts")
    assert json.loads(forced.stdout)["info"]["status"] == "deployed"


def test_helm_passes_on_what_the_api_says_of_a_wrong_type(tool: Run, chart: Path):
    refused = tool("helm", *INSTALL, str(chart), "--set", "selector.gpu=true", fails=True)
    assert "expected string" in refused.stderr


def test_helm_dry_run_on_the_server_writes_nothing(served: Served, name: str, tool: Run, chart: Path):
    tool("kubectl", "create", "namespace", "toys")
    tool("kubectl", "create", "-f", str(chart / "crds" / "widgets.yaml"))
    before = served.lab.clusters.get(name).meter.counts().writes
    tool("helm", *INSTALL, str(chart), "--dry-run=server")
    assert served.lab.clusters.get(name).meter.counts().writes == before


NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "labels": {"modelplane.ai/pool": "p"}},
    "status": {
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ok"}],
        "allocatable": {"cpu": "7500m", "memory": "31Gi", "pods": "110"},
        "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
    },
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p1"},
    "spec": {
        "nodeName": "n1",
        "containers": [{"name": "c", "image": "reg.example.com/a:1", "resources": {"requests": {"cpu": "2"}}}],
    },
}


def test_kubectl_reads_and_writes(tool: Run):
    kubectl = ("kubectl",)
    tool(*kubectl, "create", "-f", "-", given=json.dumps(NODE))
    tool(*kubectl, "apply", "-f", "-", given=json.dumps(POD))
    tool(*kubectl, "taint", "node", "n1", "nvidia.com/gpu=present:NoSchedule")
    tool(*kubectl, "label", "node", "n1", "a=b")
    tool(*kubectl, "cordon", "n1")
    nodes = tool(*kubectl, "get", "nodes", "-o", "wide").stdout.splitlines()
    assert nodes[0].split()[:5] == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert nodes[1].split()[:3] == ["n1", "Ready,SchedulingDisabled", "<none>"]
    both = tool(*kubectl, "get", "nodes,pods", "-A").stdout
    assert "node/n1" in both
    assert "pod/p1" in both
    node = tool(*kubectl, "describe", "node", "n1").stdout
    assert "nvidia.com/gpu=present:NoSchedule" in node
    assert "2 (26%)" in node
    assert "reg.example.com/a:1" in tool(*kubectl, "describe", "pod", "p1").stdout
    tool(*kubectl, "delete", "pod", "p1", "--force", "--grace-period=0")
    assert tool(*kubectl, "get", "pods", "-o", "name").stdout == ""


def test_kubectl_sends_protobuf(tool: Run):
    tool("kubectl", "create", "namespace", "team")
    tool("kubectl", "create", "secret", "generic", "s", "-n", "team", "--from-literal=a=b")
    tool("kubectl", "create", "configmap", "c", "-n", "team", "--from-literal=a=b")
    tool("kubectl", "create", "serviceaccount", "bob", "-n", "team")
    assert (
        tool("kubectl", "get", "secret", "s", "-n", "team", "-o", "jsonpath={.type} {.data.a}").stdout == "Opaque Yg=="
    )
    assert tool("kubectl", "get", "cm", "c", "-n", "team", "-o", "jsonpath={.data.a}").stdout == "b"
    tool("kubectl", "delete", "namespace", "team", "--timeout=10s")
    assert "team" not in tool("kubectl", "get", "ns", "-o", "name").stdout


def test_kubectl_applies_on_the_server_and_diffs(tool: Run):
    body = json.dumps(daemon_set("d"))
    tool("kubectl", "apply", "--server-side", "-f", "-", given=body)
    assert tool("kubectl", "diff", "--server-side", "-f", "-", given=body).stdout == ""
    tool("kubectl", "set", "image", "ds/d", "main=reg.example.com/app:2")
    refused = tool("kubectl", "apply", "--server-side", "-f", "-", given=body, fails=True)
    assert "conflict with" in refused.stderr
    wrong = daemon_set("e", nodeSelectr={})
    assert "unknown field" in tool("kubectl", "create", "-f", "-", given=json.dumps(wrong), fails=True).stderr
    tool("kubectl", "wait", "--for=jsonpath={.status.phase}=Active", "ns/default", "--timeout=5s")


def test_the_official_client(served: Served, name: str):
    served.add(name)
    api = config.new_client_from_config_dict(served.lab.clusters.kubeconfig(name, "product"))
    core = client.CoreV1Api(api)
    body: Any = {"metadata": {"name": "a"}, "data": {"k": "1"}}
    assert core.create_namespaced_config_map("default", body).data == {"k": "1"}
    assert core.patch_namespaced_config_map("a", "default", {"data": {"k": "2"}}).data == {"k": "2"}
    with pytest.raises(client.ApiException) as refused:
        core.create_namespaced_config_map("default", body)
    assert (refused.value.status, json.loads(refused.value.body)["reason"]) == (409, "AlreadyExists")
    names = [e["object"].metadata.name for e in watch.Watch().stream(core.list_namespace, timeout_seconds=1)]
    assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]
    dynamic = DynamicClient(api)
    sets = dynamic.resources.get(api_version="apps/v1", kind="DaemonSet")
    made = sets.server_side_apply(daemon_set("d"), name="d", namespace="default", field_manager="me")
    assert made.metadata.generation == 1
    assert core.delete_namespaced_config_map("a", "default").status == "Success"
    api.close()
