"""Asset keys and groups. The UI shows only a key's last part, so the leaf says what the thing is."""

from __future__ import annotations

import re

import dagster as dg

# What speaks of the fleet as a whole: its files, and whether the loaded graph is of them.
MANIFESTS = dg.AssetKey(["fleet", "manifests"])


def class_key(name: str) -> dg.AssetKey:
    return dg.AssetKey(["class", name])


def cluster_key(cluster: str, leaf: str) -> dg.AssetKey:
    return dg.AssetKey(["cluster", cluster, leaf])


def claimed(cluster: str) -> dg.AssetKey:
    return cluster_key(cluster, "claimed_drivers")


def pool_key(cluster: str, pool: str) -> dg.AssetKey:
    return cluster_key(cluster, f"pool_{pool}")


def devices_key(cluster: str, pool: str) -> dg.AssetKey:
    return cluster_key(cluster, f"devices_{pool}")


def model_key(namespace: str, name: str) -> dg.AssetKey:
    return dg.AssetKey(["model", namespace, name])


def group(*parts: str) -> str:
    """A legal group name: Dagster takes letters, digits and underscores between slashes. Kubernetes names hold no
    underscore, so dashes map to one and dots to two without a clash."""
    return "/".join(re.sub(r"[^A-Za-z0-9_]", "_", p.replace(".", "__")) for p in parts)


def cluster_of(key: dg.AssetKey) -> str | None:
    """The cluster that an asset belongs to; None for classes and models."""
    return key.path[1] if key.path[0] == "cluster" else None


def owner(key: dg.AssetKey) -> dg.AssetKey:
    """The asset that carries the summary: a cluster's `claimed_drivers` for all of its assets, else the asset itself."""
    cluster = cluster_of(key)
    return key if cluster is None else claimed(cluster)
