"""Secrets by namespace, name and key: a folder NAMESPACE/NAME/KEY, or the Secrets of a management cluster. Never logged,
never in a message."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from modelplane_dagster.errors import ConfigError
from resources.kubeconfig import parse_kubeconfig
from resources.kubernetes import ClusterClient

# The namespace that Existing clusters' secret references are looked up in, as in the public project.
CONTROL_NAMESPACE = "modelplane-system"
IN_CLUSTER = "in-cluster"
"""MODELPLANE_SECRETS for the cluster that we run in ourselves, as the pod's service account."""
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Secrets(Protocol):
    """Where secrets come from."""

    def read(self, namespace: str, name: str, key: str) -> bytes:
        """The secret's bytes. Raises ConfigError, naming the place and never the content, where it isn't there, and
        UnreadableError where that can't be told."""
        ...

    def folder(self, namespace: str, name: str) -> Path | None:
        """Where relative paths in the secret start; None where it stands in no folder."""
        ...


@dataclass(frozen=True, slots=True)
class FolderSecrets:
    """A folder NAMESPACE/NAME/KEY, as mounted or checked out by the site."""

    root: Path

    def read(self, namespace: str, name: str, key: str) -> bytes:
        path = self.root / namespace / name / key
        if not path.resolve().is_relative_to(self.root.resolve()):
            msg = f"The secret reference {namespace}/{name}/{key} leads out of the secrets folder."
            raise ConfigError(msg)
        try:
            return path.read_bytes()
        except OSError as error:
            msg = f"The secret {namespace}/{name}/{key} isn't in the secrets folder ({error.strerror})."
            raise ConfigError(msg) from error

    def folder(self, namespace: str, name: str) -> Path | None:
        return self.root / namespace / name


class ClusterSecrets:
    """The Secrets of a management cluster, read with its own kubeconfig and never written."""

    def __init__(self, kubeconfig: Mapping[str, Any]) -> None:
        self._kubeconfig = kubeconfig

    @cached_property
    def _client(self) -> ClusterClient:
        return ClusterClient(self._kubeconfig, name="management")

    def read(self, namespace: str, name: str, key: str) -> bytes:
        found = self._client.get("v1", "Secret", name, namespace=namespace)
        data = (found or {}).get("data") or {}
        if key not in data:
            what = f"has no key {key}" if found else "isn't on the management cluster"
            raise ConfigError(f"The secret {namespace}/{name} {what}.")
        try:
            return base64.b64decode(str(data[key]), validate=True)
        except binascii.Error:
            raise ConfigError(f"The secret {namespace}/{name}/{key} isn't base64.") from None

    def folder(self, namespace: str, name: str) -> Path | None:
        return None


@dataclass(frozen=True, slots=True)
class NoSecrets:
    """No secrets resource is set."""

    def read(self, namespace: str, name: str, key: str) -> bytes:
        msg = f"The secret {namespace}/{name}/{key} can't be read: MODELPLANE_SECRETS names no folder or cluster."
        raise ConfigError(msg)

    def folder(self, namespace: str, name: str) -> Path | None:
        return None


def open_secrets(where: str) -> Secrets:
    """By MODELPLANE_SECRETS: a folder, a management cluster's kubeconfig file, `in-cluster`, or empty for none. Raises
    ConfigError for a file that is no kubeconfig."""
    if not where:
        return NoSecrets()
    if where == IN_CLUSTER:
        return ClusterSecrets(_in_cluster())
    path = Path(where).expanduser()
    if not path.is_file():
        return FolderSecrets(path)
    return ClusterSecrets(read_kubeconfig(path, "cluster/management"))


def read_kubeconfig(path: Path, subject: str, *, context: str = "") -> dict[str, Any]:
    """A kubeconfig file, cut to its current context or the named one. Raises ConfigError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"The kubeconfig {path} can't be read ({error.strerror}).") from error
    return parse_kubeconfig(data, subject, str(path), folder=path.parent, context=context)


def _in_cluster() -> dict[str, Any]:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not (_ACCOUNT / "token").exists():
        raise ConfigError("MODELPLANE_SECRETS is in-cluster, and this isn't a pod with a service account's token.")
    address = f"[{host}]" if ":" in host else host
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "cluster",
                "cluster": {"server": f"https://{address}:{port}", "certificate-authority": str(_ACCOUNT / "ca.crt")},
            }
        ],
        "users": [{"name": "user", "user": {"tokenFile": str(_ACCOUNT / "token")}}],
        "contexts": [{"name": "context", "context": {"cluster": "cluster", "user": "user"}}],
        "current-context": "context",
    }
