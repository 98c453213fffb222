"""A fleet: the objects of all manifests, what is wrong with them, and where each of them stands."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from modelplane_dagster.findings import Finding, Place
from modelplane_dagster.manifests.fields import Path
from modelplane_dagster.manifests.models import InferenceClass, InferenceCluster, ModelDeployment
from modelplane_dagster.manifests.provider_configs import ProviderConfig
from modelplane_dagster.manifests.source import Origin

Key = tuple[str, str, str]
"""Kind, namespace (empty for kinds without one) and name."""


@dataclass(frozen=True, slots=True, eq=False)
class Fleet:
    """What the manifests say. Every object that could be named is in one of the mappings or in `broken`.

    `broken` is keyed by kind and name (`NAMESPACE/NAME` for kinds with a namespace) and holds the findings of objects
    that are invalid, or that two different manifests describe. `findings` holds everything.
    """

    classes: Mapping[str, InferenceClass]
    clusters: Mapping[str, InferenceCluster]
    deployments: Mapping[tuple[str, str], ModelDeployment]
    provider_configs: tuple[ProviderConfig, ...]
    broken: Mapping[tuple[str, str], tuple[Finding, ...]]
    findings: tuple[Finding, ...]
    digest: str
    _sources: Mapping[Key, Origin]
    _digests: Mapping[Key, str]
    _by_cluster: Mapping[str, tuple[Finding, ...]]

    def place(self, kind: str, name: str, path: Path = (), namespace: str = "") -> Place | None:
        """Where the object or a field of it stands; of a missing field, its nearest parent. None for no such object."""
        source = self._sources.get((kind, namespace, name))
        return None if source is None else source.place(path)

    def cluster_findings(self, name: str) -> tuple[Finding, ...]:
        """What the cluster's own manifest and its references to classes gave, such as `ClassNotFound`; often empty."""
        return self._by_cluster.get(name, ())

    def cluster_digest(self, name: str) -> str:
        """Over what the cluster is made from: its manifest, the classes it names and its provider config.

        The same for every order and spelling, and unchanged by other clusters. Raises KeyError for no such cluster.
        """
        digests = self._digests
        parts = [digests["InferenceCluster", "", name]]
        cluster = self.clusters.get(name)
        if cluster is not None:
            for class_name in sorted({pool.class_name for pool in cluster.spec.node_pools}):
                parts.append(f"{class_name} {digests.get(('InferenceClass', '', class_name), 'missing')}")
            parts.extend(sorted(repr(config) for config in self.provider_configs if _serves(config, cluster)))
        return digest_of(parts)


def _serves(config: ProviderConfig, cluster: InferenceCluster) -> bool:
    credentials = cluster.credentials
    return config.provider == cluster.source and config.name == credentials.name and config.kind == credentials.type


def digest_of(parts: Iterable[str]) -> str:
    return "sha256:" + hashlib.sha256("\n".join(parts).encode()).hexdigest()
