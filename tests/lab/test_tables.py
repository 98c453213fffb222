"""What `kubectl get` prints: columns and cells."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from resources.lab.api import jsonpath
from resources.lab.api.tables import age, duration
from tests.lab.objects import CRDS, DAEMON_SETS, PODS, WIDGETS, daemon_set, pod, widget, widget_crd
from tests.lab.server import Api

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def shown(api: Api, path: str) -> list[dict[str, object]]:
    table = api.get(path, Accept=TABLE).body
    heads = [c["name"] for c in table["columnDefinitions"]]
    return [dict(zip(heads, row["cells"], strict=True)) for row in table["rows"]]


def test_nodes(api: Api):
    node = {
        "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/worker": ""}},
        "spec": {"unschedulable": True},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {
                "kubeletVersion": "v1.36.3",
                **dict.fromkeys(
                    (
                        "architecture",
                        "bootID",
                        "containerRuntimeVersion",
                        "kernelVersion",
                        "kubeProxyVersion",
                        "machineID",
                        "operatingSystem",
                        "osImage",
                        "systemUUID",
                    ),
                    "x",
                ),
            },
        },
    }
    assert api.post("/api/v1/nodes", node).status == 201
    row = shown(api, "/api/v1/nodes")[0]
    assert row.pop("Age") in {"0s", "1s", "2s"}
    assert row == {
        "Name": "n",
        "Status": "Ready,SchedulingDisabled",
        "Roles": "worker",
        "Version": "v1.36.3",
        "Internal-IP": "10.0.0.1",
        "External-IP": "<none>",
        "OS-Image": "x",
        "Kernel-Version": "x",
        "Container-Runtime": "x",
    }


def test_pods(api: Api):
    api.post(PODS, pod("p", nodeName="n1"))
    running = {
        "phase": "Running",
        "podIP": "10.1.0.1",
        "containerStatuses": [{"name": "main", "ready": True, "restartCount": 2, "image": "i", "imageID": ""}],
    }
    api.patch(f"{PODS}/p/status", {"status": running})
    row = shown(api, PODS)[0]
    picked = {name: row[name] for name in ("Name", "Ready", "Status", "Restarts", "IP", "Node")}
    assert picked == {
        "Name": "p",
        "Ready": "1/1",
        "Status": "Running",
        "Restarts": "2",
        "IP": "10.1.0.1",
        "Node": "n1",
    }


def test_daemon_sets(api: Api):
    api.post(DAEMON_SETS, daemon_set("d", nodeSelector={"modelplane.ai/cpu": "true"}))
    api.patch(f"{DAEMON_SETS}/d/status", {"status": {"desiredNumberScheduled": 3, "numberReady": 2}})
    row = shown(api, DAEMON_SETS)[0]
    assert (row["Desired"], row["Ready"], row["Node Selector"]) == (3, 2, "modelplane.ai/cpu=true")


def test_custom_columns(api: Api):
    columns = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]
    api.post(CRDS, widget_crd(additionalPrinterColumns=columns))
    api.post(WIDGETS, widget("w", size=3))
    assert shown(api, WIDGETS) == [{"Name": "w", "Size": 3}]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (5, "5s"),
        (119, "119s"),
        (150, "2m30s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 1200, "3h20m"),
        (10 * 3600, "10h"),
        (3 * 86400 + 3600, "3d1h"),
        (30 * 86400, "30d"),
    ],
)
def test_durations(seconds: int, text: str):
    assert duration(seconds) == text


def test_age_of_nothing_is_unknown():
    assert age(None) == "<unknown>"
    assert age((datetime.now(UTC) - timedelta(hours=9)).isoformat()) == "9h"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.size", [3]),
        (".spec['size']", [3]),
        (".metadata.labels.a\\.b/c", ["x"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[0].type", ["Ready"]),
        (".status.conditions[*].type", ["Ready", "Other"]),
        (".nothing.here", []),
        ("oops", []),
    ],
)
def test_jsonpath(path: str, found: list[object]):
    obj = {
        "metadata": {"labels": {"a.b/c": "x"}},
        "spec": {"size": 3},
        "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]},
    }
    assert jsonpath.find(obj, path) == found
