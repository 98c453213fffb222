"""The lab as a session's world: simulated clouds behind the real SDKs, lab clusters behind real kubeconfigs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelplane_dagster.errors import ConfigError
from modelplane_dagster.findings import finding
from resources.clouds import make_cloud
from resources.lab.client import LabClient, LabError, ensure_running
from resources.tools import helm_path

if TYPE_CHECKING:
    from modelplane_dagster.accounts import Account
    from resources.clouds.seam import Cloud, CloudCluster, ClusterRef, InstanceType, Progress
    from resources.settings import Settings


# Clouds whose SDK asks for a project before it asks the cloud anything.
LAB_ACCOUNTS = {"Nebius": "project-e00lab"}


class LabCloud:
    """A cloud's own adapter; only the credentials it hands out are the lab's, which no real identity can get."""

    def __init__(self, inner: Cloud, client: LabClient) -> None:
        self.source = inner.source
        self.inner = inner
        self.client = client

    def whoami(self) -> str:
        return self.inner.whoami()

    def observe(self, ref: ClusterRef) -> CloudCluster | None:
        return self.inner.observe(ref)

    def ensure_control_plane(self, ref: ClusterRef, request: Mapping[str, Any]) -> Progress:
        return self.inner.ensure_control_plane(ref, request)

    def ensure_pool(self, ref: ClusterRef, name: str, request: Mapping[str, Any]) -> Progress:
        return self.inner.ensure_pool(ref, name, request)

    def credentials(self, ref: ClusterRef) -> dict[str, Any]:
        config = self.inner.credentials(ref)
        return {**config, "users": [{**u, "user": self._user(ref.name)} for u in config["users"]]}

    def _user(self, name: str) -> Mapping[str, Any]:
        return self.client.kubeconfig(name, "product")["users"][0]["user"]

    def delete_pool(self, ref: ClusterRef, name: str) -> Progress:
        return self.inner.delete_pool(ref, name)

    def delete_cluster(self, ref: ClusterRef) -> Progress:
        return self.inner.delete_cluster(ref)

    def instance_types(self, ref: ClusterRef, names: tuple[str, ...]) -> Mapping[str, InstanceType]:
        return self.inner.instance_types(ref, names)

    def versions(self, ref: ClusterRef) -> tuple[str, ...]:
        return self.inner.versions(ref)


@dataclass(frozen=True, slots=True)
class LabWorld:
    """The running lab of one home."""

    client: LabClient
    chart_mirror: str

    def cloud(self, source: str, account: Account) -> Cloud:
        """Accounts are only names here: the simulated clouds take any credentials."""
        endpoint = self.client.status()["clouds"][source]["endpoint"]
        project = account.on_cloud or LAB_ACCOUNTS.get(source)
        return LabCloud(make_cloud(source, endpoint=endpoint, account=project), self.client)

    def kubeconfig(self, cluster: str, secret: tuple[str, str]) -> Mapping[str, Any]:
        """The lab knows Existing clusters by their name; what their secret holds is the lab's own kubeconfig."""
        try:
            return self.client.kubeconfig(cluster, "product")
        except LabError as error:
            text = f"The lab's seed holds no cluster {cluster}, whose kubeconfig {'/'.join(secret)} would name it."
            raise ConfigError(text, findings=(finding("KubeconfigMissing", f"cluster/{cluster}", text),)) from error

    def helm(self) -> Path:
        return helm_path()


def lab_world(settings: Settings) -> LabWorld:
    """Starts the lab of the settings' home where it doesn't run."""
    client = ensure_running(settings.home / "lab", settings.lab_kind)
    return LabWorld(client, settings.chart_mirror or str(settings.home / "lab" / "charts"))
