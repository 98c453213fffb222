"""The control plane itself: it starts, schedules, says what its gates say, and stops without a trace."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from modelplane_dagster.errors import AccessError
from resources.kubernetes import ClusterClient
from resources.lab.plane.plane import Plane

pytestmark = pytest.mark.kubernetes


def until(what: Callable[[], Any], seconds: float = 20.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, f"not in {seconds:.0f} s"
        time.sleep(0.05)
    return found


def a_node(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def test_a_daemon_set_runs_on_the_nodes_it_selects(api: ClusterClient) -> None:
    for name, labels in (("one", {"stand": "in"}), ("two", {})):
        api.create(a_node(name, **labels))
        status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}
        api.patch(("v1", "Node", "", name), {"status": status}, status=True)
    pod = {
        "metadata": {"labels": {"app": "d"}},
        "spec": {"nodeSelector": {"stand": "in"}, "containers": [{"name": "c", "image": "stand-in:1"}]},
    }
    api.create(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "d", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": pod},
        }
    )
    status = until(lambda: _ready_daemon(api))
    assert (status["desiredNumberScheduled"], status["numberReady"]) == (1, 1)
    assert [p["spec"]["nodeName"] for p in api.list("v1", "Pod", namespace="default")] == ["one"]


def _ready_daemon(api: ClusterClient) -> dict[str, Any] | None:
    found = api.get("apps/v1", "DaemonSet", "d", namespace="default") or {}
    return found.get("status") if (found.get("status") or {}).get("numberReady") else None


def test_with_the_gate_off_the_capacity_of_a_claim_is_dropped_in_silence(assets: Path, tmp_path: Path) -> None:
    with Plane(tmp_path, consumable_capacity=False, assets=assets) as old:
        client = ClusterClient(old.kubeconfig("user"), name="old")
        exactly = {"deviceClassName": "x", "capacity": {"requests": {"dra.cpu/cpu": "6"}}}
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "c", "namespace": "default"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        }
        made = client.create(claim)
        request = made["spec"]["devices"]["requests"][0]["exactly"]
        assert "capacity" not in request
        assert request["deviceClassName"] == "x"
        pids = [old.process(name).pid for name in ("etcd", "kube-apiserver", "kwok")]
        client.close()
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


def test_an_expired_certificate_is_refused(plane: Plane) -> None:
    from datetime import timedelta

    fresh = ClusterClient(plane.certificate_kubeconfig("me"), name="plane")
    assert fresh.list("v1", "Namespace")
    fresh.close()
    expired = plane.certificate_kubeconfig("me", valid=timedelta(hours=-1))
    with pytest.raises(AccessError, match="client certificate expired on"):
        ClusterClient(expired, name="plane", retries=0).list("v1", "Namespace")
