"""The kinds that we touch without asking the API where they stand. Everything else is found by discovery."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ResourceType:
    api_version: str
    kind: str
    plural: str
    namespaced: bool


def _namespaced(api_version: str, **plurals: str) -> tuple[ResourceType, ...]:
    return tuple(ResourceType(api_version, kind, plural, namespaced=True) for kind, plural in plurals.items())


def _cluster_wide(api_version: str, **plurals: str) -> tuple[ResourceType, ...]:
    return tuple(ResourceType(api_version, kind, plural, namespaced=False) for kind, plural in plurals.items())


KNOWN: dict[tuple[str, str], ResourceType] = {
    (t.api_version, t.kind): t
    for t in (
        *_cluster_wide("v1", Namespace="namespaces", Node="nodes", PersistentVolume="persistentvolumes"),
        *_namespaced(
            "v1",
            Pod="pods",
            Service="services",
            Secret="secrets",
            ConfigMap="configmaps",
            ServiceAccount="serviceaccounts",
            Event="events",
            Endpoints="endpoints",
            ResourceQuota="resourcequotas",
            PersistentVolumeClaim="persistentvolumeclaims",
        ),
        *_namespaced(
            "apps/v1",
            DaemonSet="daemonsets",
            Deployment="deployments",
            ReplicaSet="replicasets",
            StatefulSet="statefulsets",
            ControllerRevision="controllerrevisions",
        ),
        *_namespaced("batch/v1", Job="jobs", CronJob="cronjobs"),
        *_namespaced("coordination.k8s.io/v1", Lease="leases"),
        *_cluster_wide("resource.k8s.io/v1", DeviceClass="deviceclasses", ResourceSlice="resourceslices"),
        *_namespaced(
            "resource.k8s.io/v1", ResourceClaim="resourceclaims", ResourceClaimTemplate="resourceclaimtemplates"
        ),
        *_cluster_wide(
            "rbac.authorization.k8s.io/v1", ClusterRole="clusterroles", ClusterRoleBinding="clusterrolebindings"
        ),
        *_namespaced("rbac.authorization.k8s.io/v1", Role="roles", RoleBinding="rolebindings"),
        *_cluster_wide("apiextensions.k8s.io/v1", CustomResourceDefinition="customresourcedefinitions"),
        *_cluster_wide("scheduling.k8s.io/v1", PriorityClass="priorityclasses"),
        *_namespaced("networking.k8s.io/v1", NetworkPolicy="networkpolicies", Ingress="ingresses"),
        *_namespaced("policy/v1", PodDisruptionBudget="poddisruptionbudgets"),
    )
}
