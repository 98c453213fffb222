"""What others hold: a field of ours or of helm's, a webhook that is down, a namespace that won't go. Each is named, nothing is
forced, and we go on when they let go."""

from __future__ import annotations

import time
from typing import Any

import pytest
import yaml

from tests.kubernetes.faults.ground import DEPLOYMENT, NAMESPACE, Ground, kept, late, until

pytestmark = pytest.mark.kubernetes
ENGINE = "small-0-engine"


def engine(**container: Any) -> dict[str, Any]:
    """The engine's Deployment with one field of its container, as `ops` applies it; without one, it lets go."""
    body: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": ENGINE, "namespace": NAMESPACE},
    }
    if container:
        body["spec"] = {"template": {"spec": {"containers": [{"name": "engine", **container}]}}}
    return body


def test_a_field_of_ours_that_another_manager_took(made: Ground) -> None:
    with kept(made), made.client("ops") as api:
        api.apply(engine(args=["--port=9999"]), force=True)
        made.live.write("small.yaml", DEPLOYMENT.replace("--port=8000", "--port=8001"))
        subject, message, fix = late(made.live.reconcile("6s"))["ComponentsConflict"]
        assert (subject, message) == (
            "deployment/faults/small",
            'Cluster metal: Deployment faults/small-0-engine: ops owns .spec.template.spec.containers[name="engine"].args.',
        )
        assert fix.startswith("Have ops let go of what is named")
        found = api.get("apps/v1", "Deployment", ENGINE, namespace=NAMESPACE) or {}
        assert found["spec"]["template"]["spec"]["containers"][0]["args"] == ["--port=9999"]
        # Both want the same: ops shares the field, and lets go of it without taking it away.
        api.apply(engine(args=["--port=8001"]))
        assert made.live.reconcile("60s").clean().status == 0
        api.apply(engine())
        made.live.write("small.yaml", DEPLOYMENT)


def test_a_field_of_helms_that_another_manager_took(made: Ground) -> None:
    release, namespace = "mp-dra-driver-cpu", "dra-driver-cpu"
    overlay = made.live.folder.parent / "overlay.yaml"
    with kept(made, upgraded=release), made.client("ops") as api:
        settings = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{release}-settings", "namespace": namespace},
        }
        data = (api.get("v1", "ConfigMap", f"{release}-settings", namespace=namespace) or {}).get("data") or {}
        assert data
        key = min(data)
        api.apply({**settings, "data": {key: '"theirs"'}}, force=True)
        overlay.write_text(yaml.safe_dump({"dra-driver-cpu": {"values": {"image": {"tag": "v0.3.0-site"}}}}))
        site = made.live.with_env(MODELPLANE_COMPONENTS=str(overlay))
        found = late(site.reconcile("8s"))
        subject, message, fix = found["ComponentsConflict"]
        assert subject == "component/metal/dra-driver-cpu"
        assert f"ConfigMap {namespace}/{release}-settings" in message
        assert f"ops owns .data.{key}" in message
        assert "Have ops let go" in fix
        assert (
            ((api.get("v1", "ConfigMap", f"{release}-settings", namespace=namespace) or {})["data"])[key] == '"theirs"'
        )
        api.apply(settings)
        assert site.reconcile("60s").clean().status == 0


def hook(*resources: str) -> dict[str, Any]:
    rule = {
        "apiGroups": ["apps", ""],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": list(resources),
    }
    guard = {
        "name": "guard.ops.example",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": 5,
        "clientConfig": {"service": {"name": "guard", "namespace": "default"}},
        "rules": [rule],
    }
    metadata = {"name": "ops-guard"}
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    return {**kind, "metadata": metadata, "webhooks": [guard]}


def test_a_webhook_that_is_down_keeps_our_change_away(made: Ground) -> None:
    with kept(made), made.client("ops") as api:
        body = api.apply(hook("deployments", "daemonsets"))
        time.sleep(1)
        try:
            made.live.write("small.yaml", DEPLOYMENT.replace("--port=8000", "--port=8001"))
            subject, message, fix = late(made.live.reconcile("6s"))["WebhookDown"]
        finally:
            api.delete(body["apiVersion"], body["kind"], "ops-guard")
            made.live.write("small.yaml", DEPLOYMENT)
        assert subject == "cluster/metal"
        assert message.startswith(
            "Cluster metal: Deployment faults/small-0-engine: Internal error occurred: failed calling webhook "
            '"guard.ops.example"'
        )
        assert fix.startswith("Bring the webhook's service back")


def test_a_webhook_that_is_down_keeps_a_daemons_pods_away(made: Ground) -> None:
    """Nothing of ours is refused, and yet the driver is gone."""
    with kept(made), made.client("ops") as api:
        body = api.apply(hook("pods"))
        time.sleep(1)
        try:
            for pod in api.list("v1", "Pod", namespace="dra-driver-cpu"):
                api.delete("v1", "Pod", pod["metadata"]["name"], namespace="dra-driver-cpu", grace=0)
            until(lambda: not api.list("v1", "Pod", namespace="dra-driver-cpu"), "the daemon's pod gone")
            found = late(made.live.reconcile("8s"))
        finally:
            api.delete(body["apiVersion"], body["kind"], "ops-guard")
        assert found["DaemonMissing"][0] == "pool/metal/cpu"
        subject, message, _ = found["WebhookDown"]
        assert subject == "cluster/metal"
        assert message.startswith("Cluster metal: DaemonSet dra-driver-cpu/mp-dra-driver-cpu: Error creating: ")
        assert '"guard.ops.example"' in message


def test_a_namespace_that_wont_go(made: Ground) -> None:
    with kept(made, but=NAMESPACE), made.client("ops") as api:
        held = {"name": "held", "namespace": NAMESPACE, "finalizers": ["ops.example/wait"]}
        api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": held, "data": {}})
        api.delete("v1", "Namespace", NAMESPACE)
        until(lambda: not api.list("apps/v1", "Deployment", namespace=NAMESPACE), "the engine gone")
        until(
            lambda: "ops.example/wait" in str((api.get("v1", "Namespace", NAMESPACE) or {}).get("status")), "the reason"
        )
        try:
            subject, message, fix = late(made.live.reconcile("6s"))["NamespaceTerminating"]
        finally:
            api.patch(("v1", "ConfigMap", NAMESPACE, "held"), {"metadata": {"finalizers": None}})
        assert subject == "cluster/metal"
        assert message == (
            "Cluster metal: namespace faults is being deleted, and nothing can be made in it; Some resources are remaining: "
            "configmaps. has 1 resource instances; Some content in the namespace has finalizers remaining: ops.example/wait "
            "in 1 resource instances."
        )
        assert fix.startswith("Remove what is named")
        until(lambda: api.get("v1", "Namespace", NAMESPACE) is None, "the namespace gone")
