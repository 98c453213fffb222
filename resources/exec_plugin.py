"""A kubeconfig's credential plugin: run without a terminal, its answer checked, its words kept out of every message.

A plugin may print its environment or its token when it fails, so of its stderr nothing is repeated.
Protocol: https://kubernetes.io/docs/reference/config-api/client-authentication.v1/
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from modelplane_dagster.errors import AccessError
from modelplane_dagster.findings import finding

SECONDS = 60.0
"""A plugin that hasn't answered by then waits for a person."""
VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


@dataclass(frozen=True, slots=True, repr=False)
class Answer:
    """`token` empty, or `pair` None, where the plugin gives the other; `until` None where it never expires."""

    token: str
    pair: tuple[str, str] | None
    until: datetime | None


def run_plugin(plugin: Mapping[str, Any], cluster: Mapping[str, Any], name: str, *, seconds: float = SECONDS) -> Answer:
    """What the plugin answers. Raises AccessError with a `CredentialPluginFailed` finding that names the command, never its
    arguments, environment or words."""
    command = str(plugin["command"])
    version = str(plugin.get("apiVersion") or "")
    if version not in VERSIONS:
        raise _failed(name, plugin, f"is of apiVersion {version!r}; {' and '.join(VERSIONS)} are spoken")
    given = {str(e["name"]): str(e.get("value", "")) for e in plugin.get("env") or ()}
    spec: dict[str, Any] = {"interactive": False}
    if plugin.get("provideClusterInfo"):
        spec["cluster"] = _cluster_info(cluster)
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    env = {**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(info)}
    try:
        done = subprocess.run(
            [command, *(str(a) for a in plugin.get("args") or ())],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=env,
            timeout=seconds,
            check=False,
        )
    # The causes hold the command line or what the plugin printed, so none of them is chained.
    except FileNotFoundError:
        raise _failed(name, plugin, "isn't installed") from None
    except subprocess.TimeoutExpired:
        raise _failed(name, plugin, f"gave no answer in {seconds:.0f} s") from None
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else "its arguments can't be passed on"
        raise _failed(name, plugin, f"can't be started ({said})") from None
    if done.returncode:
        raise _failed(name, plugin, f"ended with status {done.returncode}")
    try:
        return _answer(json.loads(done.stdout), version)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _failed(name, plugin, "gave an answer that is no ExecCredential with a token or a certificate") from None


def _answer(body: Mapping[str, Any], version: str) -> Answer:
    status = body["status"]
    if body["kind"] != "ExecCredential" or body["apiVersion"] != version:
        raise ValueError
    token = str(status.get("token") or "").strip()
    certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
    if not token and not certificate:
        raise ValueError
    if bool(certificate) != bool(key):
        raise ValueError
    until = status.get("expirationTimestamp")
    return Answer(
        token,
        (str(certificate), str(key)) if certificate else None,
        datetime.fromisoformat(str(until)) if until else None,
    )


def _cluster_info(cluster: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
    found = {k: cluster[k] for k in keys if cluster.get(k)}
    for extension in cluster.get("extensions") or ():
        if extension.get("name") == "client.authentication.k8s.io/exec":
            found["config"] = extension.get("extension")
    return found


def _failed(name: str, plugin: Mapping[str, Any], what: str) -> AccessError:
    command = Path(str(plugin["command"])).name
    where = f"Cluster {name}" if name else "The cluster"
    message = f"{where}: the kubeconfig's credential plugin {command} {what}."
    hint = re.sub(r"\s+", " ", re.sub(r"[^\x20-\x7e\n]", "", str(plugin.get("installHint") or ""))).strip()[:300]
    fix = f"{hint} (the kubeconfig's installHint)" if hint and what == "isn't installed" else None
    return AccessError(message, findings=(finding("CredentialPluginFailed", f"cluster/{name}", message, fix=fix),))
