"""The real helm and kubectl, with the calls that the product, its docs and its users make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes.api.bodies import config_map, core, crd, daemon_set, until
from tests.kubernetes.api.conftest import Run
from tests.kubernetes.wire import Wire

pytestmark = pytest.mark.lab


@pytest.fixture
def chart(tmp_path: Path, ns: str) -> Path:
    """A CRD, a custom resource, a ServiceAccount, a ConfigMap, a DaemonSet and a DeviceClass."""
    group = f"{ns}.example.com"
    folder = tmp_path / "toy"
    (folder / "templates").mkdir(parents=True)
    (folder / "crds").mkdir()
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: toy\nversion: 0.1.0\n")
    (folder / "values.yaml").write_text("taint: nvidia.com/gpu\nnode: api\n")
    (folder / "crds" / "widgets.yaml").write_text(yaml.safe_dump(crd(group)))
    tolerations = [{"key": "TAINT", "operator": "Exists"}]
    made = daemon_set("toy", tolerations=tolerations, serviceAccountName="toy", nodeSelector={"for": "NODE"})
    selector = {"cel": {"expression": f'device.driver == "{group}"'}}
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "toy"}},
        config_map("toy", taint="TAINT"),
        {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "toy"}, "spec": {"size": 3}},
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": group},
            "spec": {"selectors": [selector]},
        },
        made,
    ]
    text = yaml.safe_dump_all(objects).replace("TAINT", "{{ .Values.taint }}").replace("NODE", "{{ .Values.node }}")
    (folder / "templates" / "all.yaml").write_text(text)
    return folder


def install(ns: str, chart: Path, *more: str) -> tuple[str, ...]:
    return ("upgrade", "--install", "toy", str(chart), "-n", ns, "-o", "json", "--wait", "--timeout", "60s", *more)


def test_helm_installs_waits_upgrades_and_uninstalls(tool: Run, chart: Path, ns: str, api: Wire) -> None:
    first = json.loads(tool("helm", *install(ns, chart)).stdout)
    assert (first["info"]["status"], first["version"]) == ("deployed", 1)
    assert api.get(f"/apis/apps/v1/namespaces/{ns}/daemonsets/toy").ok()["status"]["numberReady"] == 1
    assert api.get(f"/apis/{ns}.example.com/v1/namespaces/{ns}/widgets/toy").ok()["spec"] == {"size": 3, "mode": "a"}
    second = json.loads(tool("helm", *install(ns, chart, "--set", "taint=amd.com/gpu")).stdout)
    assert second["version"] == 2
    spec = api.get(f"/apis/apps/v1/namespaces/{ns}/daemonsets/toy").ok()["spec"]["template"]["spec"]
    assert spec["tolerations"] == [{"key": "amd.com/gpu", "operator": "Exists"}]
    history = json.loads(tool("helm", "history", "toy", "-n", ns, "-o", "json").stdout)
    assert [(h["revision"], h["status"]) for h in history] == [(1, "superseded"), (2, "deployed")]
    values = json.loads(tool("helm", "get", "values", "toy", "-n", ns, "-o", "json").stdout)
    assert values == {"taint": "amd.com/gpu"}
    listed = json.loads(tool("helm", "list", "-n", ns, "-o", "json").stdout)
    assert [(r["name"], r["revision"], r["status"]) for r in listed] == [("toy", "2", "deployed")]
    tool("helm", "rollback", "toy", "1", "-n", ns, "--wait", "--timeout", "60s")
    assert api.get(core(ns, name="toy")).ok()["data"] == {"taint": "nvidia.com/gpu"}
    tool("helm", "uninstall", "toy", "-n", ns, "--wait", "--timeout", "60s")
    assert api.get(core(ns, name="toy")).status == 404
    assert api.get(f"/apis/resource.k8s.io/v1/deviceclasses/{ns}.example.com").status == 404


def test_helm_makes_its_namespace(tool: Run, chart: Path, ns: str, api: Wire) -> None:
    fresh = f"{ns}-new"
    tool("helm", *install(fresh, chart, "--create-namespace"))
    assert api.get(f"/api/v1/namespaces/{fresh}").ok()["metadata"]["labels"]["name"] == fresh
    secrets = api.get(core(fresh, "secrets"), labelSelector="owner=helm,name=toy,status=deployed").ok()["items"]
    assert [(s["type"], s["metadata"]["name"]) for s in secrets] == [
        ("helm.sh/release.v1", "sh.helm.release.v1.toy.v1")
    ]


def test_helm_meets_another_managers_change(tool: Run, chart: Path, ns: str, api: Wire) -> None:
    tool("helm", *install(ns, chart))
    api.patch(core(ns, name="toy"), {"data": {"taint": "by-hand"}}, fieldManager="ops").ok()
    refused = tool("helm", *install(ns, chart, "--set", "taint=amd.com/gpu"), fails=True)
    assert 'conflict with "ops"' in refused.stderr
    history = json.loads(tool("helm", "history", "toy", "-n", ns, "-o", "json").stdout)
    assert [h["status"] for h in history] == ["deployed", "failed"]
    forced = json.loads(tool("helm", *install(ns, chart, "--set", "taint=amd.com/gpu", "--force-conflicts")).stdout)
    assert forced["info"]["status"] == "deployed"


def test_helm_gives_up_on_what_never_gets_ready(tool: Run, ns: str, tmp_path: Path) -> None:
    folder = tmp_path / "stuck"
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: stuck\nversion: 0.1.0\n")
    body = daemon_set("stuck", nodeSelector={"for": "api"}, initContainers=None)
    body |= {"kind": "Deployment"}
    body["spec"]["template"]["spec"] = {
        "nodeSelector": {"no": "where"},
        "containers": [{"name": "main", "image": "reg.example.com/app:1"}],
    }
    (folder / "templates" / "all.yaml").write_text(yaml.safe_dump(body))
    refused = tool(
        "helm", "upgrade", "--install", "stuck", str(folder), "-n", ns, "--wait", "--timeout", "4s", fails=True
    )
    assert "Deployment" in refused.stderr
    history = json.loads(tool("helm", "history", "stuck", "-n", ns, "-o", "json").stdout)
    assert [h["status"] for h in history] == ["failed"]


def test_helm_says_what_the_api_says(tool: Run, chart: Path, ns: str) -> None:
    text = (chart / "templates" / "all.yaml").read_text()
    (chart / "templates" / "all.yaml").write_text(text.replace("nodeSelector:", "nodeSelectr:"))
    refused = tool("helm", *install(ns, chart), fails=True)
    assert "nodeSelectr" in refused.stderr


def test_helms_dry_run_on_the_server_writes_nothing(tool: Run, chart: Path, ns: str, api: Wire) -> None:
    tool("kubectl", "create", "-f", str(chart / "crds" / "widgets.yaml"))
    until(lambda: api.get(f"/apis/{ns}.example.com/v1/widgets").status == 200)
    tool("helm", "upgrade", "--install", "toy", str(chart), "-n", ns, "--dry-run=server")
    assert api.get(core(ns, name="toy")).status == 404
    assert api.get(core(ns, "secrets")).ok()["items"] == []


def test_kubectl_reads(tool: Run, ns: str, api: Wire) -> None:
    api.post(core(ns), config_map("a", {"k": "v"}, x="1")).ok()
    assert tool("kubectl", "get", "configmap", "-n", ns, "a", "-o", "jsonpath={.data.x}").stdout == "1"
    assert tool("kubectl", "get", "cm", "-n", ns, "-l", "k=v", "-o", "name").stdout == "configmap/a\n"
    lines = tool("kubectl", "get", "cm", "a", "-n", ns).stdout.splitlines()
    assert lines[0].split() == ["NAME", "DATA", "AGE"]
    assert lines[1].split()[:2] == ["a", "1"]
    nodes = tool("kubectl", "get", "nodes", "-L", "for").stdout.splitlines()
    assert nodes[0].split() == ["NAME", "STATUS", "ROLES", "AGE", "VERSION", "FOR"]
    missing = tool("kubectl", "get", "cm", "none", "-n", ns, fails=True)
    assert missing.stderr == 'Error from server (NotFound): configmaps "none" not found\n'
    slices = tool("kubectl", "get", "nodes,resourceslices", "-o", "json")
    assert json.loads(slices.stdout)["kind"] == "List"


@pytest.mark.parametrize("kind", ["node", "pod", "daemonset", "deployment", "configmap", "namespace", "resourceclaim"])
def test_kubectl_describes(tool: Run, ns: str, api: Wire, kind: str) -> None:
    from tests.kubernetes.api.bodies import claim, claims, deployment, pod

    made: dict[str, tuple[str, Any]] = {
        "pod": (core(ns, "pods"), pod("x", nodeSelector={"no": "where"})),
        "daemonset": (f"/apis/apps/v1/namespaces/{ns}/daemonsets", daemon_set("x", nodeSelector={"no": "where"})),
        "deployment": (f"/apis/apps/v1/namespaces/{ns}/deployments", deployment("x", 0)),
        "configmap": (core(ns), config_map("x", a="b")),
        "resourceclaim": (claims(ns), claim("x")),
    }
    if kind in made:
        api.post(*made[kind]).ok()
    name = {"node": "api-node", "namespace": ns}.get(kind, "x")
    text = tool("kubectl", "describe", kind, name, "-n", ns).stdout
    assert text.splitlines()[0].split() == ["Name:", name]


def test_kubectl_writes(tool: Run, ns: str, api: Wire) -> None:
    body = yaml.safe_dump(config_map("a", x="1"))
    assert tool("kubectl", "apply", "-n", ns, "-f", "-", given=body).stdout == "configmap/a created\n"
    assert tool("kubectl", "apply", "-n", ns, "-f", "-", given=body).stdout == "configmap/a unchanged\n"
    changed = yaml.safe_dump(config_map("a", x="2"))
    assert tool("kubectl", "apply", "-n", ns, "-f", "-", given=changed).stdout == "configmap/a configured\n"
    tool("kubectl", "label", "cm", "a", "k=v", "-n", ns)
    assert api.get(core(ns, name="a")).ok()["metadata"]["labels"] == {"k": "v"}
    tool("kubectl", "annotate", "cm", "a", "k=v", "-n", ns)
    tool("kubectl", "patch", "cm", "a", "-n", ns, "-p", '{"data":{"y":"1"}}')
    assert api.get(core(ns, name="a")).ok()["data"] == {"x": "2", "y": "1"}
    tool("kubectl", "create", "secret", "generic", "s", "--from-literal=k=v", "-n", ns)
    tool("kubectl", "create", "namespace", f"{ns}-kubectl")
    tool("kubectl", "delete", "cm", "a", "-n", ns)
    assert api.get(core(ns, name="a")).status == 404


def test_kubectl_applies_on_the_server(tool: Run, ns: str) -> None:
    first = yaml.safe_dump(config_map("a", x="1"))
    told = tool("kubectl", "apply", "--server-side", "--field-manager=me", "-n", ns, "-f", "-", given=first).stdout
    assert told == "configmap/a serverside-applied\n"
    second = yaml.safe_dump(config_map("a", x="2"))
    refused = tool(
        "kubectl", "apply", "--server-side", "--field-manager=you", "-n", ns, "-f", "-", given=second, fails=True
    )
    assert 'conflict with "me"' in refused.stderr
    tool(
        "kubectl",
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=you",
        "-n",
        ns,
        "-f",
        "-",
        given=second,
    )


def test_kubectl_diffs(tool: Run, ns: str) -> None:
    body = yaml.safe_dump(config_map("a", x="1"))
    tool("kubectl", "apply", "-n", ns, "-f", "-", given=body)
    assert tool("kubectl", "diff", "-n", ns, "-f", "-", given=body).stdout == ""
    changed = yaml.safe_dump(config_map("a", x="2"))
    told = tool("kubectl", "diff", "-n", ns, "-f", "-", given=changed, fails=True).stdout
    assert '-  x: "1"' in told
    assert '+  x: "2"' in told


def test_kubectl_waits(tool: Run, ns: str, api: Wire) -> None:
    api.post(f"/apis/apps/v1/namespaces/{ns}/daemonsets", daemon_set("d", nodeSelector={"for": "api"})).ok()
    tool("kubectl", "wait", "-n", ns, "ds/d", "--for=jsonpath={.status.numberReady}=1", "--timeout=30s")
    tool("kubectl", "rollout", "status", "-n", ns, "ds/d", "--timeout=30s")
    tool("kubectl", "wait", "-n", ns, "pod", "-l", "app=d", "--for=condition=Ready", "--timeout=30s")
    tool("kubectl", "delete", "ds", "d", "-n", ns, "--wait")


def test_kubectl_taints_and_cordons(tool: Run, api: Wire, ns: str) -> None:
    name = f"node-{ns}"
    api.post("/api/v1/nodes", {"metadata": {"name": name}}).ok()
    tool("kubectl", "taint", "node", name, "k=v:NoSchedule")
    tool("kubectl", "cordon", name)
    spec = api.get(f"/api/v1/nodes/{name}").ok()["spec"]
    assert {"key": "k", "value": "v", "effect": "NoSchedule"} in spec["taints"]
    assert spec["unschedulable"] is True
    api.delete(f"/api/v1/nodes/{name}").ok()
