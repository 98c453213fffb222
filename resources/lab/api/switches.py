"""What makes one lab cluster differ from another: its version, its feature gates, its admission."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from resources.lab.api.defaults import pod_template
from resources.lab.api.errors import bad_request

_VERSION = re.compile(r"^v?1\.(\d+)")
CONSUMABLE_FROM = 36  # DRAConsumableCapacity is on by default from 1.36


@dataclass(frozen=True, slots=True)
class Switches:
    """`version` is the gitVersion that `/version` reports. `consumable_capacity` None means the version's default.

    `critical_pods_quota`: pods of a system-critical priority need a matching ResourceQuota outside kube-system, as on GKE.
    `refuse_keyless_tolerations`: workloads that tolerate every taint are refused outside kube-system, as on AKS.
    """

    version: str
    consumable_capacity: bool | None = None
    critical_pods_quota: bool = False
    refuse_keyless_tolerations: bool = False

    @property
    def minor(self) -> int:
        found = _VERSION.match(self.version)
        if found is None:
            raise bad_request(f"{self.version!r} is no Kubernetes version: write it like v1.36.3")
        return int(found.group(1))

    @property
    def git_version(self) -> str:
        return self.version if self.version.startswith("v") else f"v{self.version}"

    @property
    def shares_devices(self) -> bool:
        return self.minor >= CONSUMABLE_FROM if self.consumable_capacity is None else self.consumable_capacity


def drop_gated(key: tuple[str, str], obj: dict[str, Any]) -> None:
    """Takes the fields of consumable capacity out, silently, as an API server with the gate off does."""
    if key == ("resource.k8s.io", "resourceslices"):
        for device in obj.get("spec", {}).get("devices") or ():
            device.pop("allowMultipleAllocations", None)
            for capacity in (device.get("capacity") or {}).values():
                capacity.pop("requestPolicy", None)
    spec = obj.get("spec", {})
    if key == ("resource.k8s.io", "resourceclaimtemplates"):
        spec = spec.get("spec") or {}
    elif key != ("resource.k8s.io", "resourceclaims"):
        return
    for constraint in (spec.get("devices") or {}).get("constraints") or ():
        constraint.pop("distinctAttribute", None)
    for request in (spec.get("devices") or {}).get("requests") or ():
        for exact in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if isinstance(exact, dict):
                exact.pop("capacity", None)


_CRITICAL = {"system-node-critical", "system-cluster-critical"}


def _covers_critical(quota: dict[str, Any], name: str) -> bool:
    for term in (quota.get("spec", {}).get("scopeSelector") or {}).get("matchExpressions") or ():
        if term.get("scopeName") != "PriorityClass":
            continue
        if term.get("operator") == "Exists" or (term.get("operator") == "In" and name in (term.get("values") or ())):
            return True
    return False


def critical_refusal(pod: dict[str, Any], quotas: list[dict[str, Any]]) -> str:
    """Why the quota admission refuses this pod; empty where it doesn't."""
    name = pod.get("spec", {}).get("priorityClassName", "")
    if pod["metadata"].get("namespace") == "kube-system" or name not in _CRITICAL:
        return ""
    if any(_covers_critical(quota, name) for quota in quotas):
        return ""
    return f"insufficient quota to match these scopes: [{{PriorityClass In [{' '.join(sorted(_CRITICAL, reverse=True))}]}}]"


def keyless_refusal(key: tuple[str, str], obj: dict[str, Any]) -> str:
    """Why a workload that tolerates every taint is refused; empty where it isn't."""
    template = pod_template(key, obj)
    if template is None or obj["metadata"].get("namespace") == "kube-system":
        return ""
    for toleration in (template.get("spec") or {}).get("tolerations") or ():
        if not toleration.get("key") and toleration.get("operator") == "Exists":
            return "a toleration without a key tolerates every taint, which is allowed in kube-system alone"
    return ""
