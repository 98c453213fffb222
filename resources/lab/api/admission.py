"""What admission plugins and strategies add to or refuse of a write: pods' defaults, priorities, quotas, initial status."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from resources.lab.api.errors import ApiError, forbidden
from resources.lab.api.switches import critical_refusal, keyless_refusal
from resources.lab.api.table import Resource

if TYPE_CHECKING:
    from resources.lab.api.store import Store

Obj = dict[str, Any]

SERVICE_NETWORK = ipaddress.ip_network("10.96.0.0/12")
_WAIT_KEYS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class Admission:
    def __init__(self, store: Store) -> None:
        self._store = store

    def on_create(self, resource: Resource, obj: Obj) -> None:
        if resource.key == ("", "pods"):
            self._pod(resource, obj)
        elif resource.key == ("", "services"):
            self._service(obj)
        self._keyless(resource, obj)

    def on_update(self, resource: Resource, obj: Obj, old: Obj) -> None:
        if resource.key == ("", "services"):
            for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
                if field in old["spec"]:
                    obj["spec"].setdefault(field, old["spec"][field])
        if obj.get("spec") != old.get("spec"):
            self._keyless(resource, obj)

    def _keyless(self, resource: Resource, obj: Obj) -> None:
        if self._store.switches.refuse_keyless_tolerations and (why := keyless_refusal(resource.key, obj)):
            raise ApiError(403, f'admission webhook "validate.tolerations.lab" denied the request: {why}')

    def _pod(self, resource: Resource, pod: Obj) -> None:
        spec, namespace = pod["spec"], pod["metadata"]["namespace"]
        if "serviceAccountName" not in spec:
            spec["serviceAccountName"] = spec["serviceAccount"] = "default"
        self._priority(resource, pod)
        tolerations = spec.setdefault("tolerations", [])
        for key in _WAIT_KEYS:
            if not any(_waits(toleration, key) for toleration in tolerations):
                tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
        spec.setdefault("enableServiceLinks", True)
        if self._store.switches.critical_pods_quota:
            quotas = self._store.list("resourcequotas", namespace)
            if why := critical_refusal(pod, quotas):
                raise forbidden("pods", "", pod["metadata"]["name"], why)

    def _priority(self, resource: Resource, pod: Obj) -> None:
        spec = pod["spec"]
        name = spec.get("priorityClassName", "")
        if not name:
            spec.setdefault("priority", 0)
            spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
            return
        found = self._store.find("priorityclasses.scheduling.k8s.io", name)
        if found is None:
            why = f"no PriorityClass with name {name} was found"
            raise forbidden(resource.plural, "", pod["metadata"]["name"], why)
        spec["priority"] = found.get("value", 0)
        spec["preemptionPolicy"] = found.get("preemptionPolicy", "PreemptLowerPriority")

    def _service(self, service: Obj) -> None:
        spec = service["spec"]
        if spec.get("type") == "ExternalName":
            return
        if not spec.get("clusterIP"):
            spec["clusterIP"] = self._free_address()
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")

    def _free_address(self) -> str:
        taken = {service["spec"].get("clusterIP") for service in self._store.list("services")}
        hosts = SERVICE_NETWORK.hosts()
        next(hosts)
        return str(next(host for host in hosts if str(host) not in taken))

    def initial_status(self, resource: Resource, obj: Obj, old: Obj | None) -> None:
        """The status that strategies write; afterwards it belongs to controllers."""
        if old is not None:
            return
        if resource.key == ("", "pods"):
            obj["status"] = {"phase": "Pending", "qosClass": _qos(obj.get("spec") or {})}
        elif resource.key == ("", "namespaces"):
            obj["status"] = {"phase": "Active"}
        elif resource.key == ("", "services"):
            obj["status"] = {"loadBalancer": {}}
        elif resource.key == ("apps", "daemonsets"):
            obj["status"] = {
                "currentNumberScheduled": 0,
                "desiredNumberScheduled": 0,
                "numberMisscheduled": 0,
                "numberReady": 0,
            }
        elif resource.status and not resource.custom:
            obj.setdefault("status", {})


def _waits(toleration: Obj, key: str) -> bool:
    return toleration.get("key") in {key, None, ""} and toleration.get("effect") in {"NoExecute", None, ""}


def _qos(spec: Obj) -> str:
    sets = [c.get("resources") or {} for c in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))]
    if not any(r.get("requests") or r.get("limits") for r in sets):
        return "BestEffort"
    whole = all(
        {"cpu", "memory"} <= set(r.get("limits") or {}) and (r.get("requests") or r["limits"]) == r["limits"]
        for r in sets
    )
    return "Guaranteed" if whole else "Burstable"
