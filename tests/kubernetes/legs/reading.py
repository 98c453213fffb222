"""A cluster as anybody reads it, with Kubernetes' own client: nothing here is the product's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kubernetes import client as api
from kubernetes.config import new_client_from_config_dict

POOL = "modelplane.ai/pool"
MERGE = "application/merge-patch+json"
KEEPS_OUT = ("NoSchedule", "NoExecute")
Json = dict[str, Any]


@dataclass(frozen=True)
class Reading:
    """One cluster's API."""

    client: api.ApiClient

    @classmethod
    def of(cls, kubeconfig: Mapping[str, Any]) -> Reading:
        return cls(new_client_from_config_dict(dict(kubeconfig)))

    @property
    def core(self) -> api.CoreV1Api:
        return api.CoreV1Api(self.client)

    @property
    def apps(self) -> api.AppsV1Api:
        return api.AppsV1Api(self.client)

    @property
    def resources(self) -> api.ResourceV1Api:
        return api.ResourceV1Api(self.client)

    def raw(self, found: Any) -> Any:
        """As the API writes it."""
        return self.client.sanitize_for_serialization(found)

    def nodes(self) -> dict[str, Json]:
        return {n["metadata"]["name"]: n for n in self.raw(self.core.list_node().items)}

    def pool_of(self) -> dict[str, str]:
        """By node, its pool; a node of the system pool or of none has no name that a leg gives."""
        return {name: n["metadata"].get("labels", {}).get(POOL, "") for name, n in self.nodes().items()}

    def pods(self, namespace: str = "") -> list[Json]:
        found = self.core.list_namespaced_pod(namespace) if namespace else self.core.list_pod_for_all_namespaces()
        pods: list[Json] = self.raw(found.items)
        return pods

    def daemons(self) -> dict[tuple[str, str], Json]:
        found = self.raw(self.apps.list_daemon_set_for_all_namespaces().items)
        return {(d["metadata"]["namespace"], d["metadata"]["name"]): d for d in found}

    def landed(self) -> dict[tuple[str, str], set[str]]:
        """By DaemonSet, the nodes on which a pod of it runs and is ready."""
        uids = {d["metadata"]["uid"]: key for key, d in self.daemons().items()}
        found: dict[tuple[str, str], set[str]] = {key: set() for key in uids.values()}
        for pod in self.pods():
            for owner in pod["metadata"].get("ownerReferences", ()):
                if owner["uid"] in uids and is_ready(pod):
                    found[uids[owner["uid"]]].add(pod["spec"]["nodeName"])
        return found

    def templates(self) -> Iterator[tuple[str, str, str, Json]]:
        """Kind, namespace, name and pod spec of everything that makes pods."""
        lists = {
            "DaemonSet": self.apps.list_daemon_set_for_all_namespaces,
            "Deployment": self.apps.list_deployment_for_all_namespaces,
            "StatefulSet": self.apps.list_stateful_set_for_all_namespaces,
        }
        for kind, every in lists.items():
            for found in self.raw(every().items):
                yield kind, found["metadata"]["namespace"], found["metadata"]["name"], found["spec"]["template"]["spec"]

    def slices(self) -> list[Json]:
        found: list[Json] = self.raw(self.resources.list_resource_slice().items)
        return found

    def patch_daemon(self, namespace: str, name: str, spec: Json) -> None:
        """A list replaces the list that is there, as with `kubectl patch --type merge`."""
        self.apps.patch_namespaced_daemon_set(name, namespace, {"spec": spec}, _content_type=MERGE)

    def device_config(self, namespace: str, name: str) -> Json:
        found: Json = api.CustomObjectsApi(self.client).get_namespaced_custom_object(
            "amd.com", "v1alpha1", namespace, "deviceconfigs", name
        )
        return found

    def patch_device_config(self, namespace: str, name: str, spec: Json) -> None:
        api.CustomObjectsApi(self.client).patch_namespaced_custom_object(
            "amd.com", "v1alpha1", namespace, "deviceconfigs", name, {"spec": spec}, _content_type=MERGE
        )

    def fail_probe(self, namespace: str, name: str) -> None:
        """The pod runs on and is no longer ready, as after a failed readiness probe."""
        failed = {
            "status": {"conditions": [{"type": kind, "status": "False"} for kind in ("Ready", "ContainersReady")]}
        }
        self.core.patch_namespaced_pod_status(name, namespace, failed)

    def claims(self, namespace: str) -> dict[str, Json]:
        found = self.raw(self.resources.list_namespaced_resource_claim(namespace).items)
        return {c["metadata"]["name"]: c for c in found}


def is_ready(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return (
        any(c["type"] == "Ready" and c["status"] == "True" for c in conditions) and pod["status"]["phase"] == "Running"
    )


def taint_keys(node: Json) -> set[str]:
    return {t["key"] for t in node["spec"].get("taints", ()) if t["effect"] in KEEPS_OUT}
