"""Whether the server lets a claim take an amount of a device, asked without a write before the CPU driver's first install.

A server whose gate DRAConsumableCapacity is off takes the claim and silently drops `capacity.requests` (measured on
1.36.3, 2026-11-30), so what counts is what comes back. The probe carries no other gated field: one of those would be
refused and tell nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelplane_dagster.cpu import CAPACITY_KEY
from modelplane_dagster.drivers import CPU
from modelplane_dagster.errors import KubernetesError, UnreadableError
from modelplane_dagster.findings import Finding, Severity, finding

if TYPE_CHECKING:
    from modelplane_dagster.cluster_plan import ClusterPlan
    from resources.session import Session


def probe_mode(session: Session, plan: ClusterPlan) -> tuple[Finding, ...]:
    """Remembers the mode that the server can run. Raises UnreadableError where it refuses the probe: then the mode is
    unknown and nothing is installed."""
    if keeps_amounts(session, plan.name):
        session.remember_mode(plan.name, "grouped")
        return ()
    session.remember_mode(plan.name, "individual")
    return (_dropped(plan.name, f"{CPU} runs in individual mode there."),)


def probe_grouped(session: Session, name: str) -> tuple[Finding, ...]:
    """`FieldDropped` as an error where the driver runs grouped and the server meanwhile drops the amounts: its claims then
    take whole groups. Empty where it keeps them, or refuses to say."""
    try:
        if keeps_amounts(session, name):
            return ()
    except UnreadableError:
        return ()
    fix = f"Turn DRAConsumableCapacity on, or prune component/{name}/dra-driver-cpu so that it comes back individual."
    return (_dropped(name, f"{CPU} runs in grouped mode there, so a claim takes whole groups.", error=True, fix=fix),)


def _dropped(name: str, then: str, *, error: bool = False, fix: str | None = None) -> Finding:
    text = f"Cluster {name} drops capacity.requests from claims, as with DRAConsumableCapacity off; {then}"
    return finding("FieldDropped", f"cluster/{name}", text, fix=fix, severity=Severity.ERROR if error else None)


def keeps_amounts(session: Session, name: str) -> bool:
    """Whether the server takes `capacity.requests` and gives it back. Raises UnreadableError where it refuses the probe."""
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "modelplane-probe", "namespace": "default"},
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "cpus",
                        "exactly": {
                            "deviceClassName": CPU,
                            "allocationMode": "ExactCount",
                            "count": 1,
                            "capacity": {"requests": {CAPACITY_KEY: "1"}},
                        },
                    }
                ]
            }
        },
    }
    try:
        answer = session.client(name).create(body, dry_run=True)
    except KubernetesError as error:
        msg = f"Cluster {name} refuses the probe for consumable capacity, so the CPU mode is unknown: {error.message}"
        raise UnreadableError(msg) from error
    request = answer["spec"]["devices"]["requests"][0]["exactly"]
    return bool(((request.get("capacity") or {}).get("requests") or {}).get(CAPACITY_KEY))
