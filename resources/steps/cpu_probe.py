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
from modelplane_dagster.findings import Finding, finding

if TYPE_CHECKING:
    from modelplane_dagster.cluster_plan import ClusterPlan
    from resources.session import Session


def probe_mode(session: Session, plan: ClusterPlan) -> tuple[Finding, ...]:
    """Remembers the mode that the server can run. Raises UnreadableError where it refuses the probe: then the mode is
    unknown and nothing is installed."""
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
        answer = session.client(plan.name).create(body, dry_run=True)
    except KubernetesError as error:
        msg = f"Cluster {plan.name} refuses the probe for consumable capacity, so the CPU mode is unknown: {error.message}"
        raise UnreadableError(msg) from error
    request = answer["spec"]["devices"]["requests"][0]["exactly"]
    if ((request.get("capacity") or {}).get("requests") or {}).get(CAPACITY_KEY):
        session.remember_mode(plan.name, "grouped")
        return ()
    session.remember_mode(plan.name, "individual")
    text = (
        f"Cluster {plan.name} drops capacity.requests from claims, as with DRAConsumableCapacity off; {CPU} runs in "
        "individual mode there."
    )
    return (finding("FieldDropped", f"cluster/{plan.name}", text),)
