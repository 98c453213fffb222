"""The kubeconfig that a simulated cloud hands out for one of its clusters."""

from __future__ import annotations

import base64
from typing import Any

import yaml

from resources.lab.clouds.state import Endpoint


def kubeconfig(name: str, endpoint: Endpoint) -> str:
    """YAML with one context. Fields that the endpoint leaves empty are left out."""
    cluster: dict[str, Any] = {"server": endpoint.server}
    if endpoint.ca_pem:
        cluster["certificate-authority-data"] = base64.b64encode(endpoint.ca_pem.encode()).decode()
    user = {"token": endpoint.token} if endpoint.token else {}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        },
        sort_keys=False,
    )
