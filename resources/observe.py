"""Reads what stands: a cluster on its cloud, its releases and objects, its nodes, pods and slices. Writes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from modelplane_dagster.audit.live import (
    LiveClaim,
    LiveCluster,
    LiveDeviceClass,
    LiveNode,
    LivePod,
    LiveQuota,
    LiveWorkload,
    parse_all,
)
from modelplane_dagster.audit.slices import LiveSlice
from modelplane_dagster.canonical import digest
from modelplane_dagster.components.join import Kept
from modelplane_dagster.components.placing import kept
from modelplane_dagster.components.types import Component
from modelplane_dagster.drivers import POOL_LABEL
from modelplane_dagster.errors import ModelplaneError, NotReadyError
from modelplane_dagster.known import Known, Maybe, Unknown
from modelplane_dagster.kube.objects import EMPTY
from modelplane_dagster.observed import (
    ObservedCluster,
    ObservedComponent,
    ObservedControlPlane,
    ObservedPool,
    ObservedReplica,
    Record,
)
from modelplane_dagster.placement.workloads import (
    DEPLOYMENT_LABEL,
    DIGEST_ANNOTATION,
    ENGINE_LABEL,
    NAMESPACE_LABEL,
    REPLICA_LABEL,
)
from resources.reading import Lister, Reading
from resources.releases import ReleaseRecord, read_releases

if TYPE_CHECKING:
    from modelplane_dagster.cluster import CpuMode
    from resources.clouds.seam import CloudCluster, CloudPool
    from resources.kubernetes import ClusterClient

T = TypeVar("T")
COMPONENT_LABEL = "modelplane.ai/component"
# On what several components prepare alike, such as a namespace: it belongs to none of them alone.
SHARED = "shared"
CPU_COMPONENT = "dra-driver-cpu"
WORKLOAD_KINDS = ("DaemonSet", "Deployment", "StatefulSet")
# Kinds that our own manifests hold, beside those of CRDs that may not be served yet.
CORE_KINDS = (
    ("v1", "Namespace"),
    ("v1", "ResourceQuota"),
    ("v1", "ConfigMap"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
)


def attempt(read: Callable[[], T]) -> Maybe[T]:
    """What the read gave, or why it failed: the sentence, never an empty value."""
    try:
        return Known(read())
    except ModelplaneError as error:
        return Unknown(error.message, error.findings, coming=isinstance(error, NotReadyError))


def observed_pools(cluster: CloudCluster) -> Mapping[str, ObservedPool]:
    """The cloud's pools under the names that manifests give them, which stand in their label where the cloud shortens."""
    return {p.labels.get(POOL_LABEL, p.name): _pool(p) for p in cluster.pools if p.ours}


def _pool(pool: CloudPool) -> ObservedPool:
    return ObservedPool(
        name=pool.labels.get(POOL_LABEL, pool.name),
        state=pool.state,
        labels=pool.labels,
        taints=pool.taints,
        count=pool.count,
        joined=pool.joined,
        minimum=pool.minimum,
        maximum=pool.maximum,
        message=pool.message,
    )


def control_plane(cluster: CloudCluster | None) -> ObservedControlPlane | None:
    if cluster is None:
        return None
    return ObservedControlPlane(cluster.state, cluster.version, cluster.ours, cluster.account, cluster.message)


def read_live(client: Lister, *, now: float | None = None) -> LiveCluster:
    """One list a kind; a kind whose list fails is Unknown, and the others stand."""

    def items(api_version: str, kind: str, parse: Callable[[Mapping[str, Any]], T]) -> Maybe[tuple[T, ...]]:
        return attempt(lambda: tuple(parse(i) for i in client.list(api_version, kind)))

    workloads: list[LiveWorkload] = []
    failed: Unknown | None = None
    for kind in WORKLOAD_KINDS:
        part = attempt(lambda kind=kind: parse_all(kind, client.list("apps/v1", kind)))  # type: ignore[misc]  # mypy can't infer a lambda with a default
        if isinstance(part, Unknown):
            failed = part
        else:
            workloads += part.value
    namespaces = items("v1", "Namespace", lambda raw: str(raw["metadata"]["name"]))
    return LiveCluster(
        taken_at=time.time() if now is None else now,
        nodes=items("v1", "Node", LiveNode.parse),
        workloads=failed or Known(tuple(workloads)),
        pods=items("v1", "Pod", LivePod.parse),
        slices=items("resource.k8s.io/v1", "ResourceSlice", LiveSlice.parse),
        claims=items("resource.k8s.io/v1", "ResourceClaim", LiveClaim.parse),
        device_classes=items("resource.k8s.io/v1", "DeviceClass", LiveDeviceClass.parse),
        quotas=items("v1", "ResourceQuota", LiveQuota.parse),
        namespaces=Known(frozenset(namespaces.value)) if isinstance(namespaces, Known) else namespaces,
    )


def read_objects(client: Lister, kinds: Iterable[tuple[str, str]]) -> dict[str, dict[str, str]]:
    """By component key: our own objects (`Kind/namespace/name`) with the digest that they were applied with. A kind that
    the API doesn't serve yet has no objects."""
    found: dict[str, dict[str, str]] = {}
    for api_version, kind in dict.fromkeys([*CORE_KINDS, *kinds]):
        if (api_version, kind) not in CORE_KINDS and not client.serves(api_version, kind):
            continue
        for item in client.list(api_version, kind, labels=COMPONENT_LABEL):
            metadata = item["metadata"]
            ref = f"{kind}/{metadata.get('namespace', '')}/{metadata['name']}"
            told = (metadata.get("annotations") or {}).get(DIGEST_ANNOTATION, "")
            found.setdefault(metadata["labels"][COMPONENT_LABEL], {})[ref] = told
    return found


def components_seen(
    components: Iterable[Component], releases: Iterable[ReleaseRecord], objects: Mapping[str, Mapping[str, str]]
) -> Mapping[str, ObservedComponent]:
    """What stands of each component of the source's lists, and releases of ours that no list names under their own name."""
    by_release = {r.name: r for r in releases}
    seen: dict[str, ObservedComponent] = {}
    shared = objects.get(SHARED, EMPTY)
    for component in components:
        record = by_release.pop(component.release, None) if component.pin else None
        own = {**shared, **objects[component.key]} if component.key in objects else shared
        if record is not None:
            seen[component.key] = _from_release(component.key, record, own)
        elif component.key in objects:
            seen[component.key] = ObservedComponent(component.key, "applied", objects=own)
    for name, record in by_release.items():
        seen[name] = _from_release(name, record, EMPTY)
    return seen


def _from_release(key: str, record: ReleaseRecord, objects: Mapping[str, str]) -> ObservedComponent:
    return ObservedComponent(
        key=key,
        state=record.status,
        chart=record.chart,
        version=record.version,
        values=digest(record.values),
        revision=record.revision,
        namespace=record.namespace,
        release=record.name,
        objects=objects,
    )


def kept_from(components: Iterable[Component], releases: Iterable[ReleaseRecord]) -> Mapping[str, Kept]:
    """The pools and taint keys that live releases name in their values."""
    by_release = {r.name: r for r in releases}
    found = {}
    for component in components:
        record = by_release.get(component.release) if component.pin else None
        if record is not None:
            pools, taints = kept(record.values)
            found[component.key] = Kept(pools, taints)
    return found


def live_cpu_mode(components: Iterable[Component], releases: Iterable[ReleaseRecord]) -> CpuMode | None:
    """The mode that the live release runs in; None where the driver isn't installed."""
    names = {c.release for c in components if c.key == CPU_COMPONENT}
    for record in releases:
        if record.name in names and record.status != "uninstalled":
            mode = (record.values.get("driverConfig") or {}).get("cpuDeviceMode", "grouped")
            return "individual" if mode == "individual" else "grouped"
    return None


def replicas_from(client: Lister) -> tuple[ObservedReplica, ...]:
    """The replicas of deployments, by the labels of their Deployments and LeaderWorkerSets."""
    bodies = client.list("apps/v1", "Deployment", labels=DEPLOYMENT_LABEL)
    kind = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
    if client.serves(*kind):
        bodies = [*bodies, *client.list(*kind, labels=DEPLOYMENT_LABEL)]
    grouped: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for body in bodies:
        labels = body["metadata"]["labels"]
        key = (labels[NAMESPACE_LABEL], labels[DEPLOYMENT_LABEL], labels.get(REPLICA_LABEL, "0"))
        grouped.setdefault(key, []).append(body)
    return tuple(_replica(key, parts) for key, parts in sorted(grouped.items()))


def _replica(key: tuple[str, str, str], parts: list[Mapping[str, Any]]) -> ObservedReplica:
    pools: dict[str, str] = {}
    for body in parts:
        engine = body["metadata"]["labels"].get(ENGINE_LABEL, "")
        pools |= {f"{engine}/{role}": pool for role, pool in _member_pools(body["spec"]) if pool}
    digests = {(b["metadata"].get("annotations") or {}).get(DIGEST_ANNOTATION, "") for b in parts}
    return ObservedReplica(
        namespace=key[0],
        deployment=key[1],
        pools=pools,
        ready=sum(int((b.get("status") or {}).get("readyReplicas") or 0) for b in parts),
        desired=sum(int((b.get("spec") or {}).get("replicas") or 0) for b in parts),
        digest=digests.pop() if len(digests) == 1 else "",
    )


def _member_pools(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The pool that each member's pods are pinned to, by role; empty for pods that are pinned to none."""
    gang = spec.get("leaderWorkerTemplate")
    templates = (
        {"Standalone": spec.get("template")}
        if gang is None
        else {"Leader": gang.get("leaderTemplate"), "Worker": gang.get("workerTemplate")}
    )
    for role, template in templates.items():
        pod = (template or {}).get("spec") or {}
        yield role, str((pod.get("nodeSelector") or {}).get(POOL_LABEL, ""))


def observe_cluster(
    name: str,
    *,
    cloud: Callable[[], CloudCluster | None] | None,
    client: Callable[[], ClusterClient],
    components: Iterable[Component],
    kinds: Iterable[tuple[str, str]],
    record: Record | None,
) -> ObservedCluster:
    """Everything that can be read of a cluster. `cloud` is None for an Existing cluster: then its API's answer is its
    control plane. Parts that can't be read are Unknown with the reason."""
    seen = attempt(cloud) if cloud is not None else None
    if isinstance(seen, Unknown):
        return ObservedCluster(name=name, control_plane=seen, pools=seen, record=record)
    if isinstance(seen, Known) and (seen.value is None or seen.value.state == "creating"):
        stands = "isn't there" if seen.value is None else "is creating"
        nothing = Unknown(f"the API of cluster {name}, whose control plane {stands}", coming=True)
        pools: Mapping[str, ObservedPool] = {} if seen.value is None else observed_pools(seen.value)
        return ObservedCluster(
            name=name,
            control_plane=Known(control_plane(seen.value)),
            pools=Known(pools),
            components=nothing,
            replicas=nothing,
            record=record,
        )
    reached = attempt(client)
    plane: Maybe[ObservedControlPlane | None]
    plane = _existing_plane(reached) if seen is None else Known(control_plane(seen.value))
    pools_part: Maybe[Mapping[str, ObservedPool]] = Known(observed_pools(seen.value) if seen and seen.value else {})
    # An API that doesn't give its version gives nothing else either: twenty more reads would only take their time.
    failed = [part for part in (reached, plane) if isinstance(part, Unknown)]
    if isinstance(reached, Unknown) or failed:
        return ObservedCluster(
            name=name,
            control_plane=plane,
            pools=pools_part,
            components=failed[0],
            replicas=failed[0],
            cpu_mode=failed[0],
            record=record,
        )
    api = Reading(reached.value)
    lists = tuple(components)
    releases = attempt(lambda: read_releases(api))
    objects = attempt(lambda: read_objects(api, kinds))
    live = read_live(api)
    return ObservedCluster(
        name=name,
        control_plane=plane,
        pools=pools_part,
        components=_components(lists, releases, objects),
        replicas=attempt(lambda: replicas_from(api)),
        cpu_mode=Known(live_cpu_mode(lists, releases.value)) if isinstance(releases, Known) else releases,
        kept=kept_from(lists, releases.value) if isinstance(releases, Known) else {},
        live=live,
        record=record,
    )


def _existing_plane(reached: Maybe[ClusterClient]) -> Maybe[ObservedControlPlane | None]:
    if isinstance(reached, Unknown):
        return reached
    version = attempt(reached.value.server_version)
    if isinstance(version, Unknown):
        return version
    return Known(ObservedControlPlane("ready", version.value, ours=False, account=""))


def _components(
    lists: tuple[Component, ...],
    releases: Maybe[tuple[ReleaseRecord, ...]],
    objects: Maybe[dict[str, dict[str, str]]],
) -> Maybe[Mapping[str, ObservedComponent]]:
    if isinstance(releases, Unknown):
        return releases
    if isinstance(objects, Unknown):
        return objects
    return Known(components_seen(lists, releases.value, objects.value))
