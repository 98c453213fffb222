"""The clouds behind one seam. A cloud's SDK is imported only when its adapter is made."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from modelplane_dagster.errors import ConfigError
from resources.clouds.seam import Cloud

_ADAPTERS = {
    "EKS": ("resources.clouds.eks", "EksCloud"),
    "GKE": ("resources.clouds.gke", "GkeCloud"),
    "AKS": ("resources.clouds.aks", "AksCloud"),
    "Nebius": ("resources.clouds.nebius", "NebiusCloud"),
    "Vultr": ("resources.clouds.vultr", "VultrCloud"),
    "Civo": ("resources.clouds.civo", "CivoCloud"),
}


def make_cloud(
    source: str,
    *,
    endpoint: str | None = None,
    account: str | None = None,
    secrets: Mapping[str, str] | None = None,
) -> Cloud:
    """The adapter of a source. `endpoint` is None for the real cloud and otherwise the URL of a simulated one, which
    takes any credentials. `account` is the project, subscription or account that credentials lead to, None for the
    default chain's own. `secrets` holds the keys of the secret that the credentials name, None for the default chain.

    Raises ConfigError for a source that provisions nothing, and CloudCredentialsError for unusable credentials."""
    if source not in _ADAPTERS:
        raise ConfigError(f"The source {source} has no cloud to reach; {', '.join(_ADAPTERS)} have one.")
    module, name = _ADAPTERS[source]
    return getattr(import_module(module), name)(endpoint=endpoint, account=account, secrets=secrets)
