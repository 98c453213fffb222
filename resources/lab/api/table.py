"""Which resources there are: the built-ins of a Kubernetes version and those that CRDs add."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from resources.lab.api.schema import ANY, Type, crd_type, definitions

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource at one version. `key` names its objects whatever the version they are read at."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: bool = False
    generation: bool = False
    custom: bool = False
    stored: bool = True
    type: Type = ANY
    columns: tuple[dict[str, Any], ...] = ()
    selectable: tuple[str, ...] = ()
    key: tuple[str, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", (self.group, self.plural))

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def subresources(self) -> tuple[str, ...]:
        special = {("", "pods"): ("binding", "eviction"), ("", "namespaces"): ("finalize",)}.get(self.key, ())
        scale = ("scale",) if self.group == "apps" and self.kind in {"Deployment", "ReplicaSet", "StatefulSet"} else ()
        return (("status",) if self.status else ()) + special + scale


# plural kind flags [short names]; flags: n namespaced, s status subresource, g generation, a category "all"
_BUILT_IN = """
- v1
configmaps ConfigMap n cm
endpoints Endpoints n ep
events Event n ev
limitranges LimitRange n limits
namespaces Namespace s ns
nodes Node s no
persistentvolumeclaims PersistentVolumeClaim ns pvc
persistentvolumes PersistentVolume s pv
pods Pod nsga po
podtemplates PodTemplate ng
replicationcontrollers ReplicationController nsga rc
resourcequotas ResourceQuota ns quota
secrets Secret n
serviceaccounts ServiceAccount n sa
services Service nsa svc
- admissionregistration.k8s.io/v1
mutatingwebhookconfigurations MutatingWebhookConfiguration g
validatingwebhookconfigurations ValidatingWebhookConfiguration g
validatingadmissionpolicies ValidatingAdmissionPolicy sg
validatingadmissionpolicybindings ValidatingAdmissionPolicyBinding g
- apiextensions.k8s.io/v1
customresourcedefinitions CustomResourceDefinition sg crd crds
- apiregistration.k8s.io/v1
apiservices APIService s
- apps/v1
controllerrevisions ControllerRevision n
daemonsets DaemonSet nsga ds
deployments Deployment nsga deploy
replicasets ReplicaSet nsga rs
statefulsets StatefulSet nsga sts
- autoscaling/v2
horizontalpodautoscalers HorizontalPodAutoscaler nsa hpa
- batch/v1
cronjobs CronJob nsga cj
jobs Job nsga
- certificates.k8s.io/v1
certificatesigningrequests CertificateSigningRequest s csr
- coordination.k8s.io/v1
leases Lease n
- discovery.k8s.io/v1
endpointslices EndpointSlice n
- flowcontrol.apiserver.k8s.io/v1
flowschemas FlowSchema sg
prioritylevelconfigurations PriorityLevelConfiguration sg
- networking.k8s.io/v1
ingressclasses IngressClass g
ingresses Ingress nsg ing
networkpolicies NetworkPolicy ng netpol
- node.k8s.io/v1
runtimeclasses RuntimeClass -
- policy/v1
poddisruptionbudgets PodDisruptionBudget nsg pdb
- rbac.authorization.k8s.io/v1
clusterrolebindings ClusterRoleBinding -
clusterroles ClusterRole -
rolebindings RoleBinding n
roles Role n
- resource.k8s.io/v1
deviceclasses DeviceClass g
resourceclaims ResourceClaim ns
resourceclaimtemplates ResourceClaimTemplate n
resourceslices ResourceSlice g
- scheduling.k8s.io/v1
priorityclasses PriorityClass g pc
- storage.k8s.io/v1
csidrivers CSIDriver g
csinodes CSINode -
csistoragecapacities CSIStorageCapacity n
storageclasses StorageClass - sc
volumeattachments VolumeAttachment s
"""
_SINCE = {"resource.k8s.io": 34}


def built_in(minor: int) -> Iterator[Resource]:
    """The resources of Kubernetes 1.`minor`; dynamic resource allocation is there from 1.34."""
    group, version = "", "v1"
    defs = definitions(minor)
    for line in _BUILT_IN.strip().splitlines():
        plural, kind, *rest = line.split()
        if plural == "-":
            group, _, version = kind.rpartition("/")
            continue
        if minor < _SINCE.get(group, 0):
            continue
        flags = rest[0]
        yield Resource(
            group,
            version,
            kind,
            plural,
            kind.lower(),
            "n" in flags,
            tuple(rest[1:]),
            ("all",) if "a" in flags else (),
            "s" in flags,
            "g" in flags,
            type=defs.kind(group, version, kind) or ANY,
        )


def from_crd(crd: dict[str, Any], minor: int) -> Iterator[Resource]:
    """The served versions of a CRD; objects are stored once and differ by `apiVersion` alone (conversion None)."""
    spec = crd["spec"]
    names = spec["names"]
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {"x-kubernetes-preserve-unknown-fields": True}
        yield Resource(
            spec["group"],
            version["name"],
            names["kind"],
            names["plural"],
            names.get("singular") or names["kind"].lower(),
            spec.get("scope") == "Namespaced",
            tuple(names.get("shortNames") or ()),
            tuple(names.get("categories") or ()),
            "status" in (version.get("subresources") or {}),
            generation=True,
            custom=True,
            stored=bool(version.get("storage")),
            type=crd_type(schema, minor),
            columns=tuple(version.get("additionalPrinterColumns") or ()),
            selectable=tuple(f["jsonPath"].lstrip(".") for f in version.get("selectableFields") or ()),
        )


def version_rank(version: str) -> tuple[int, int, int]:
    """Sorts v2, v1, v1beta2, v1alpha1 in that order when used as a reversed key."""
    major, _, rest = version.removeprefix("v").partition("beta")
    if rest or major.isdigit():
        return (2 if not rest else 1, int(major or 0), int(rest or 0))
    major, _, rest = version.removeprefix("v").partition("alpha")
    return (0, int(major), int(rest or 0)) if major.isdigit() and rest.isdigit() else (-1, 0, 0)


class Table:
    """The resources of one cluster; CRDs come and go."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self._all: dict[tuple[str, str, str], Resource] = {}
        self._by_key: dict[tuple[str, str], Resource] = {}
        self.serial = 0
        for resource in resources:
            self._put(resource)

    def _put(self, resource: Resource) -> None:
        self._all[resource.group, resource.version, resource.plural] = resource
        if resource.stored or resource.key not in self._by_key:
            self._by_key[resource.key] = resource

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._all.get((group, version, plural))

    def by_kind(self, api_version: str, kind: str) -> Resource | None:
        group, _, version = api_version.rpartition("/")
        return next((r for r in self._all.values() if (r.group, r.version, r.kind) == (group, version, kind)), None)

    def by_key(self, key: tuple[str, str]) -> Resource | None:
        """The stored version where several are served."""
        return self._by_key.get(key)

    def add_crd(self, crd: dict[str, Any], minor: int) -> None:
        self.drop_crd(crd)
        for resource in from_crd(crd, minor):
            self._put(resource)

    def drop_crd(self, crd: dict[str, Any]) -> None:
        key = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        self._all = {at: r for at, r in self._all.items() if not (r.custom and r.key == key)}
        self._by_key.pop(key, None)
        self.serial += 1

    def group_versions(self) -> dict[str, dict[str, list[Resource]]]:
        """Group -> version (preferred first) -> resources by plural; the core group is ""."""
        out: dict[str, dict[str, list[Resource]]] = {}
        for resource in sorted(self._all.values(), key=lambda r: (r.group, r.plural)):
            out.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
        return {
            group: dict(sorted(versions.items(), key=lambda kv: version_rank(kv[0]), reverse=True))
            for group, versions in out.items()
        }
