"""Small objects, and where they stand."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

Body = dict[str, Any]


def core(ns: str, kind: str = "configmaps", name: str = "") -> str:
    return f"/api/v1/namespaces/{ns}/{kind}" + (f"/{name}" if name else "")


def apps(ns: str, kind: str = "daemonsets", name: str = "") -> str:
    return f"/apis/apps/v1/namespaces/{ns}/{kind}" + (f"/{name}" if name else "")


def claims(ns: str, name: str = "") -> str:
    return f"/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaims" + (f"/{name}" if name else "")


CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> Body:
    metadata = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def pod(name: str, **spec: Any) -> Body:
    containers = [{"name": "main", "image": "reg.example.com/app:1"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def template(name: str, **spec: Any) -> Body:
    containers = [{"name": "main", "image": "reg.example.com/app:1"}]
    return {"metadata": {"labels": {"app": name}}, "spec": {"containers": containers, **spec}}


def daemon_set(name: str, **spec: Any) -> Body:
    inner = {"selector": {"matchLabels": {"app": name}}, "template": template(name, **spec)}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name}, "spec": inner}


def deployment(name: str, replicas: int = 1, **spec: Any) -> Body:
    inner = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template(name, **spec)}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": inner}


def claim(name: str, *requests: Body, **devices: Any) -> Body:
    wanted = list(requests) or [{"name": "r", "exactly": {"deviceClassName": "x.example.com"}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": wanted, **devices}},
    }


def crd(group: str, **version: Any) -> Body:
    """Widgets, with a schema that demands a size of at least one."""
    size = {"type": "integer", "minimum": 1}
    spec = {
        "type": "object",
        "required": ["size"],
        "properties": {"size": size, "mode": {"type": "string", "enum": ["a", "b"], "default": "a"}},
    }
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    served = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
        **version,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [served],
        },
    }


def until(what: Callable[[], Any], seconds: float = 20.0) -> Any:
    """The first true answer."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, f"not in {seconds:.0f} s"
        time.sleep(0.05)
    return found
