"""The outside world behind one seam: which clouds, which kubeconfigs, which charts. The lab and the live one differ here
and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from modelplane_dagster.errors import ConfigError
from modelplane_dagster.findings import finding
from resources.clouds import make_cloud
from resources.kubeconfig import parse_kubeconfig
from resources.secrets import CONTROL_NAMESPACE, Secrets, open_secrets, read_kubeconfig
from resources.settings import variable
from resources.tools import helm_path

if TYPE_CHECKING:
    from modelplane_dagster.accounts import Account
    from resources.clouds.seam import Cloud
    from resources.settings import Settings


class World(Protocol):
    """What a session reaches things through."""

    @property
    def chart_mirror(self) -> str:
        """A folder or URL prefix of chart archives; empty for the charts' own repositories."""
        ...

    def cloud(self, source: str, account: Account) -> Cloud:
        """The cloud of a source, with the account's credentials."""
        ...

    def kubeconfig(self, cluster: str, secret: tuple[str, str]) -> Mapping[str, Any]:
        """An Existing cluster's kubeconfig by its secret reference (name, key). Raises ConfigError where there is none."""
        ...

    def helm(self) -> Path:
        """The helm 4 binary."""
        ...


@dataclass(frozen=True, slots=True)
class LiveWorld:
    """Real clouds and clusters. `kubeconfigs` holds (file, context) of clusters that have a kubeconfig of their own, which
    goes before their manifest's secret reference; an empty context is the file's current one."""

    secrets: Secrets
    chart_mirror: str = ""
    kubeconfigs: Mapping[str, tuple[Path, str]] = field(default_factory=dict)

    def cloud(self, source: str, account: Account) -> Cloud:
        secret = account.config.secret if account.config else None
        found = None
        if secret is not None:
            found = {secret.key: self.secrets.read(secret.namespace, secret.name, secret.key).decode("utf-8")}
        return make_cloud(source, account=account.on_cloud or None, secrets=found)

    def kubeconfig(self, cluster: str, secret: tuple[str, str]) -> Mapping[str, Any]:
        name, key = secret
        subject = f"cluster/{cluster}"
        own = self.kubeconfigs.get(variable(cluster))
        try:
            if own is not None:
                return read_kubeconfig(own[0], subject, context=own[1])
            data = self.secrets.read(CONTROL_NAMESPACE, name, key)
        except ConfigError as error:
            if error.findings:
                raise
            found = finding("KubeconfigMissing", subject, error.message)
            raise ConfigError(error.message, findings=(found,)) from error
        folder = self.secrets.folder(CONTROL_NAMESPACE, name)
        return parse_kubeconfig(data, subject, f"{CONTROL_NAMESPACE}/{name}/{key}", folder=folder)

    def helm(self) -> Path:
        return helm_path()


def live_world(settings: Settings) -> LiveWorld:
    return LiveWorld(open_secrets(settings.secrets), settings.chart_mirror, settings.kubeconfigs)


def open_world(settings: Settings) -> World:
    """The lab's world, started on demand, or the live one."""
    if settings.target == "live":
        return live_world(settings)
    # The lab's server and its simulators are only imported where the lab is used.
    from resources.lab.world import lab_world  # noqa: PLC0415 - as above

    return lab_world(settings)
