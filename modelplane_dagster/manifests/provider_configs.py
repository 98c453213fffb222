"""Which account a cluster is made with: the upstream providers' ClusterProviderConfig and ProviderConfig."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from modelplane_dagster.manifests.classes import Provider

# The groups of the upstream Crossplane providers; a namespaced provider's group has the `.m.`.
_GROUPS: Mapping[str, Provider] = {
    "aws": "EKS",
    "gcp": "GKE",
    "azure": "AKS",
    "nebius": "Nebius",
    "vultr": "Vultr",
    "civo": "Civo",
}
_KINDS = ("ClusterProviderConfig", "ProviderConfig")


@dataclass(frozen=True, slots=True)
class SecretRef:
    namespace: str
    name: str
    key: str


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """An account. `project` and `subscription` are empty where the manifest gives none.

    `secret` is None where the credentials don't come from a Secret; `source` is the manifest's word for where they do
    come from, empty where it gives none. `kind` is ClusterProviderConfig, or ProviderConfig with its `namespace`.
    """

    provider: Provider
    name: str
    project: str = ""
    subscription: str = ""
    secret: SecretRef | None = None
    source: str = ""
    kind: str = "ClusterProviderConfig"
    namespace: str = ""


def provider_of(group: str, kind: str) -> Provider | None:
    """The provider that a config of this group and kind is for; None where it isn't a provider config we know."""
    if kind not in _KINDS:
        return None
    head, _, rest = group.partition(".")
    known = head == "civo" or rest in ("m.upbound.io", "upbound.io", "m.crossplane.io", "crossplane.io")
    return _GROUPS.get(head) if known else None


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""


def _mapping(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}


def read_provider_config(provider: Provider, kind: str, data: Mapping[str, Any]) -> ProviderConfig:
    """From an object whose metadata.name is a text. Fields of another type than expected are taken as absent."""
    metadata, spec = _mapping(data, "metadata"), _mapping(data, "spec")
    credentials = _mapping(spec, "credentials")
    ref = _mapping(credentials, "secretRef")
    secret = None
    if _text(ref, "name"):
        secret = SecretRef(_text(ref, "namespace"), _text(ref, "name"), _text(ref, "key"))
    return ProviderConfig(
        provider=provider,
        name=_text(metadata, "name"),
        project=_text(spec, "projectID") or _text(spec, "projectId"),
        subscription=_text(spec, "subscriptionID") or _text(spec, "subscriptionId"),
        secret=secret,
        source=_text(credentials, "source"),
        kind=kind,
        namespace=(_text(metadata, "namespace") or "default") if kind == "ProviderConfig" else "",
    )
