"""Secrets by namespace, name and key: a folder NAMESPACE/NAME/KEY, or the lab's own. Never logged, never in a message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml

from modelplane_dagster.errors import ConfigError
from modelplane_dagster.findings import finding

# The namespace that Existing clusters' secret references are looked up in, as in the public project.
CONTROL_NAMESPACE = "modelplane-system"


class Secrets(Protocol):
    """Where secrets come from."""

    def read(self, namespace: str, name: str, key: str) -> bytes:
        """The secret's bytes. Raises ConfigError, naming the place and never the content, where it isn't there."""
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


@dataclass(frozen=True, slots=True)
class NoSecrets:
    """No secrets resource is set."""

    def read(self, namespace: str, name: str, key: str) -> bytes:
        msg = f"The secret {namespace}/{name}/{key} can't be read: MODELPLANE_SECRETS names no folder."
        raise ConfigError(msg)


def parse_kubeconfig(data: bytes, subject: str, where: str) -> dict[str, Any]:
    """A kubeconfig as a mapping. Raises ConfigError with a `KubeconfigInvalid` finding for one that is empty, isn't a
    kubeconfig, or holds no cluster; the content never enters the message."""
    try:
        parsed = yaml.safe_load(data.decode("utf-8"))
    except (UnicodeDecodeError, yaml.YAMLError):
        parsed = None
        problem = "isn't YAML"
    else:
        problem = _problem(parsed)
    if problem:
        message = f"The kubeconfig at {where} {problem}."
        raise ConfigError(message, findings=(finding("KubeconfigInvalid", subject, message),))
    return dict(parsed)


def _problem(parsed: object) -> str:
    if not parsed:
        return "is empty"
    if not isinstance(parsed, Mapping):
        return "isn't a kubeconfig"
    clusters = parsed.get("clusters")
    if not isinstance(clusters, list) or not clusters:
        return "holds no cluster"
    current = parsed.get("current-context")
    contexts = {c.get("name") for c in parsed.get("contexts") or () if isinstance(c, Mapping)}
    if current is None or current not in contexts:
        return "has no current context"
    return ""
