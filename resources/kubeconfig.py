"""Kubeconfigs: read, checked, cut to one context, with every path absolute. Their content never enters a message.

What is left after `parse_kubeconfig` is what the Kubernetes client and helm are both given: one cluster, one user, one
context. Tokens that expire stay where they come from (`tokenFile`, `exec`), so both fetch them anew by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from modelplane_dagster.errors import ConfigError
from modelplane_dagster.findings import finding

MAX_BYTES = 1024 * 1024
"""A Secret holds no more, and neither does a kubeconfig that a person wrote."""
_CLUSTER_PATHS = ("certificate-authority",)
_USER_PATHS = ("client-certificate", "client-key", "tokenFile")
_TEXTS = ("server", "tls-server-name", "proxy-url", "token", "username", "password", *_CLUSTER_PATHS, *_USER_PATHS)


def parse_kubeconfig(
    data: bytes, subject: str, where: str, *, folder: Path | None = None, context: str = ""
) -> dict[str, Any]:
    """A kubeconfig as a mapping that holds its current context, or the named one, and nothing else.

    `folder` is what relative paths in it start from; None where it stands in no folder, and then a relative path is an
    error. Raises ConfigError with a `KubeconfigInvalid` finding for one that is empty, isn't a kubeconfig, holds no
    cluster, or asks for what can't work; the content never enters the message, names of contexts excepted.
    """
    parsed: Any
    try:
        parsed = None if len(data) > MAX_BYTES else yaml.safe_load(data.decode("utf-8"))
    except (UnicodeDecodeError, yaml.YAMLError):
        # Not chained: YAML's own message quotes the line that it stumbled over.
        parsed, problem = None, "isn't YAML"
    else:
        problem = "is larger than 1 MiB" if len(data) > MAX_BYTES else _problem(parsed, context)
    if not problem:
        chosen = context or str(parsed["current-context"])
        try:
            return _absolute(_cut(parsed, chosen), folder)
        except _ProblemError as found:
            problem = found.args[0]
    raise invalid(subject, f"The kubeconfig at {where} {problem}.")


def invalid(subject: str, message: str) -> ConfigError:
    return ConfigError(message, findings=(finding("KubeconfigInvalid", subject, message),))


def parts(kubeconfig: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """(cluster, user) of the current context. Raises KeyError, TypeError or StopIteration where it names none."""
    entry = _named(kubeconfig["contexts"], kubeconfig["current-context"])["context"]
    cluster = _named(kubeconfig["clusters"], entry["cluster"])["cluster"]
    user = _named(kubeconfig["users"], entry["user"])["user"] if entry.get("user") else {}
    return cluster, user or {}


def secrets_of(kubeconfig: Mapping[str, Any]) -> frozenset[str]:
    """The texts of a kubeconfig that no message may hold: tokens, keys, passwords, and what a plugin is given."""
    return frozenset(text for user in kubeconfig.get("users") or () for text in _hidden(user.get("user") or {}))


def _hidden(user: Mapping[str, Any]) -> Iterator[str]:
    for key in ("token", "password", "client-key-data", "client-certificate-data"):
        if user.get(key):
            yield str(user[key])
    plugin = user.get("exec") or {}
    for given in plugin.get("env") or ():
        if len(str(given.get("value", ""))) >= 8:
            yield str(given["value"])
    # A long argument may be a secret; a short one is a region or a flag.
    yield from (str(a) for a in plugin.get("args") or () if len(str(a)) >= 16)


class _ProblemError(Exception):
    pass


def _problem(parsed: object, context: str) -> str:
    if not parsed:
        return "is empty"
    if not isinstance(parsed, Mapping):
        return "isn't a kubeconfig"
    clusters = parsed.get("clusters")
    if not isinstance(clusters, list) or not clusters:
        return "holds no cluster"
    current = context or parsed.get("current-context")
    contexts = [c for c in parsed.get("contexts") or () if isinstance(c, Mapping)]
    if current is None or current not in {c.get("name") for c in contexts}:
        return f"has no context {context}" if context else "has no current context"
    return ""


def _named(entries: object, name: object) -> Mapping[str, Any]:
    found = entries if isinstance(entries, list) else []
    return next(e for e in found if isinstance(e, Mapping) and e.get("name") == name)


def _cut(parsed: Mapping[str, Any], name: str) -> dict[str, Any]:
    entry = _named(parsed["contexts"], name).get("context")
    if not isinstance(entry, Mapping):
        raise _ProblemError("has no current context")
    cluster = _part(parsed, "clusters", "cluster", entry)
    if not cluster.get("server"):
        raise _ProblemError("names no server")
    user = _part(parsed, "users", "user", entry) if entry.get("user") else {}
    _check(cluster, user)
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": dict(cluster)}],
        "users": [{"name": "user", "user": dict(user)}],
        "contexts": [{"name": "context", "context": {"cluster": "cluster", "user": "user"}}],
        "current-context": "context",
    }


def _part(parsed: Mapping[str, Any], entries: str, kind: str, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        found = _named(parsed.get(entries), entry.get(kind)).get(kind)
    except StopIteration:
        raise _ProblemError(f"names a {kind} in its context that it doesn't hold") from None
    if found is not None and not isinstance(found, Mapping):
        raise _ProblemError(f"holds a {kind} that isn't a mapping")
    return found or {}


def _check(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> None:
    for key in _TEXTS:
        for part in (cluster, user):
            if part.get(key) is not None and not isinstance(part[key], str):
                raise _ProblemError(f"holds a {key} that isn't text; quote it")
    if not str(cluster["server"]).startswith(("https://", "http://")):
        raise _ProblemError("names a server that is no https:// or http:// address")
    authority = cluster.get("certificate-authority") or cluster.get("certificate-authority-data")
    if cluster.get("insecure-skip-tls-verify") and authority:
        raise _ProblemError("both skips the check of the server's certificate and names its authority")
    if user.get("auth-provider"):
        raise _ProblemError("uses an auth-provider, which Kubernetes clients no longer speak; use an exec plugin")
    plugin = user.get("exec")
    if plugin is None:
        return
    if not isinstance(plugin, Mapping) or not isinstance(plugin.get("command"), str) or not plugin["command"]:
        raise _ProblemError("holds an exec plugin without a command")
    if plugin.get("interactiveMode") == "Always":
        raise _ProblemError("uses an exec plugin that needs a terminal (interactiveMode: Always)")


def _absolute(config: dict[str, Any], folder: Path | None) -> dict[str, Any]:
    """As kubectl does it: paths start from the kubeconfig's own folder, and so does a command with a slash in it."""
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    for part, keys in ((cluster, _CLUSTER_PATHS), (user, _USER_PATHS)):
        for key in keys:
            if part.get(key):
                part[key] = _path(str(part[key]), key, folder)
    plugin = user.get("exec")
    if plugin and "/" in plugin["command"]:
        user["exec"] = {**plugin, "command": _path(plugin["command"], "exec command", folder)}
    return config


def _path(text: str, what: str, folder: Path | None) -> str:
    path = Path(text)
    if path.is_absolute():
        return text
    if folder is None:
        raise _ProblemError(f"gives its {what} as a relative path and stands in no folder; embed it (--flatten)")
    return str(folder.absolute() / path)
