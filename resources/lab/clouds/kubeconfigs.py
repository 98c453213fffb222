"""The kubeconfig that a simulated cloud hands out for one of its clusters."""

from __future__ import annotations

import yaml

from resources.clouds.kubeconfig import kubeconfig
from resources.lab.clouds.state import Endpoint


def kubeconfig_text(name: str, endpoint: Endpoint) -> str:
    """YAML; without a token the user is empty."""
    user = {"token": endpoint.token} if endpoint.token else {}
    return yaml.safe_dump(kubeconfig(name, endpoint.server, user, ca_pem=endpoint.ca_pem), sort_keys=False)
