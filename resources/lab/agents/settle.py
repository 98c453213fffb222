"""What operators without node-level workloads do with their resources: they say that these are ready, or make gangs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from modelplane_dagster.errors import ConflictError
from resources.kubernetes import ClusterClient
from resources.lab.agents.gangs import GANG, make_gangs

Json = dict[str, Any]
Listing = Callable[[str, str], list[Json] | None]


@dataclass(frozen=True, slots=True)
class _Ready:
    """Conditions that an operator sets to True on each resource of a kind."""

    api_version: str
    kind: str
    conditions: tuple[str, ...]


_READY: dict[str, tuple[_Ready, ...]] = {
    "cert-manager": (
        _Ready("cert-manager.io/v1", "Issuer", ("Ready",)),
        _Ready("cert-manager.io/v1", "ClusterIssuer", ("Ready",)),
        _Ready("cert-manager.io/v1", "Certificate", ("Ready",)),
    ),
    "trust-manager": (_Ready("trust.cert-manager.io/v1alpha1", "Bundle", ("Synced",)),),
    "envoy-gateway": (
        _Ready("gateway.networking.k8s.io/v1", "GatewayClass", ("Accepted",)),
        _Ready("gateway.networking.k8s.io/v1", "Gateway", ("Accepted", "Programmed")),
    ),
}


def settled_kinds(component: str) -> tuple[tuple[str, str], ...]:
    """The kinds whose objects the component's operator looks at."""
    kinds = tuple((kind.api_version, kind.kind) for kind in _READY.get(component, ()))
    return (*kinds, GANG) if component == "lws" else kinds


def settle(client: ClusterClient, component: str, listing: Listing) -> bool:
    """Does what the component's operator would do; True where something was written."""
    changed = False
    for kind in _READY.get(component, ()):
        for resource in listing(kind.api_version, kind.kind) or ():
            changed |= _say_ready(client, kind, resource)
    if component == "lws":
        changed |= make_gangs(client, listing(*GANG) or [])
    return changed


def _say_ready(client: ClusterClient, kind: _Ready, resource: Json) -> bool:
    metadata, status = resource["metadata"], resource.get("status") or {}
    generation = metadata.get("generation", 1)
    held = {
        c["type"]
        for c in status.get("conditions") or ()
        if c["status"] == "True" and c.get("observedGeneration") == generation
    }
    if held >= set(kind.conditions):
        return False
    when = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [
        {
            "type": name,
            "status": "True",
            "reason": name,
            "message": "",
            "lastTransitionTime": when,
            "observedGeneration": generation,
        }
        for name in kind.conditions
    ]
    target = (kind.api_version, kind.kind, metadata.get("namespace", ""), metadata["name"])
    try:
        client.patch(target, {"status": {**status, "conditions": conditions}}, status=True)
    except ConflictError:
        return True
    return True
