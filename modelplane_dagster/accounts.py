"""Which account a cluster's credentials lead to, by the fleet's ClusterProviderConfig manifests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelplane_dagster.findings import Finding, finding

if TYPE_CHECKING:
    from modelplane_dagster.manifests.fleet import Fleet
    from modelplane_dagster.manifests.models import InferenceCluster
    from modelplane_dagster.manifests.provider_configs import ProviderConfig

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Account:
    """`name` is what people read: the project, the subscription, else the config's name; `default` is the cloud's own
    default chain, or, where a config named default exists, its account. `config` is None without a manifest."""

    name: str
    config: ProviderConfig | None = None

    @property
    def on_cloud(self) -> str:
        """The project or subscription as the cloud itself writes it, which its `whoami` must answer; empty where no
        manifest says: a config's name is ours, and no cloud knows it."""
        return (self.config.project or self.config.subscription) if self.config else ""


def resolve_account(fleet: Fleet, cluster: InferenceCluster) -> tuple[Account, tuple[Finding, ...]]:
    """The account, and a `CredentialsUnmapped` finding where the cluster names credentials that nothing maps."""
    source = cluster.spec.cluster.source
    if source == "Existing":
        existing = cluster.spec.cluster.existing
        return Account(f"secret {existing.secret_ref.name}/{existing.secret_ref.key}" if existing else DEFAULT), ()
    credentials = cluster.credentials
    for config in fleet.provider_configs:
        if config.provider == source and config.name == credentials.name and config.kind == credentials.type:
            return Account(config.project or config.subscription or config.name, config), ()
    if credentials.name == DEFAULT:
        return Account(DEFAULT), ()
    unmapped = finding(
        "CredentialsUnmapped",
        f"cluster/{cluster.name}",
        f"{source} cluster {cluster.name} names the {credentials.type} {credentials.name}, and the fleet holds none of that name.",
        place=fleet.place("InferenceCluster", cluster.name, ("spec", "cluster", source.lower(), "credentials", "name")),
    )
    return Account(credentials.name), (unmapped,)
