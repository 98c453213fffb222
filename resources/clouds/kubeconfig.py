"""Kubeconfigs as mappings, made from what a cloud tells about a cluster's API."""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PLUGIN = Path(__file__).with_name("kube_token.py")


def kubeconfig(
    name: str, server: str, user: Mapping[str, Any], *, ca_pem: str = "", user_name: str = ""
) -> dict[str, Any]:
    """One cluster, one user, one current context. Without `ca_pem` the system's own authorities are trusted; without
    `user_name` the user is called as the cluster is."""
    called = user_name or name
    cluster: dict[str, Any] = {"server": server}
    if ca_pem:
        cluster["certificate-authority-data"] = base64.b64encode(ca_pem.encode()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": called, "user": dict(user)}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": called}}],
        "current-context": name,
    }


def exec_user(*arguments: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A user whose token our own plugin fetches anew whenever it has expired."""
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(PLUGIN), *arguments],
            "env": [{"name": k, "value": v} for k, v in sorted((env or {}).items())],
            "interactiveMode": "Never",
        }
    }


# A simulated cluster takes any token and none expires.
LAB_USER: Mapping[str, Any] = {"token": "lab"}
