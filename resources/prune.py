"""Prune: the only thing that deletes. First what would go and a fingerprint; with it, the deletion, if nobody is using it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from modelplane_dagster.canonical import digest
from modelplane_dagster.components.types import Component
from modelplane_dagster.drivers import POOL_LABEL
from modelplane_dagster.errors import ConfigError, RefusedError, UnreadableError
from modelplane_dagster.findings import Finding, Place, finding
from modelplane_dagster.gate import admit_removal
from modelplane_dagster.known import Unknown
from modelplane_dagster.observed import ObservedCluster, ObservedComponent
from resources.left_behind import left_behind
from resources.observe import COMPONENT_LABEL, SHARED
from resources.steps.deployments import retire_replica

if TYPE_CHECKING:
    from modelplane_dagster.audit.live import LiveCluster, LivePod
    from modelplane_dagster.manifests.fleet import Fleet
    from resources.session import Session

# Seconds that an operator gets to let go of an object of ours before its release goes too.
FINALIZERS = 20.0
SYSTEM_NAMESPACES = ("kube-system", "kube-node-lease", "kube-public")


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """What pruning a subject would do. `goes` lists it in words, `takes_along` what the chart's own hooks take with it; the
    fingerprint changes with either. `users` says who still uses it, empty for nobody, and is asked anew before acting.
    `stays` says what is left on the cluster for its owners to remove, as commands; empty where that isn't an Existing one."""

    subject: str
    goes: tuple[str, ...]
    takes_along: tuple[str, ...]
    users: tuple[str, ...]
    stays: tuple[str, ...] = ()
    act: Callable[[], None] = field(repr=False, compare=False, default=lambda: None)

    @property
    def fingerprint(self) -> str:
        body = {"subject": self.subject, "goes": list(self.goes), "along": list(self.takes_along)}
        return digest(body)[:23]

    def as_dict(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "goes": list(self.goes),
            "takesAlong": list(self.takes_along),
            "users": list(self.users),
            "stays": list(self.stays),
            "fingerprint": self.fingerprint,
        }


def plan_prune(session: Session, subject: str, *, unreachable: bool = False) -> PrunePlan:
    """What would go. Raises ConfigError for a subject of no known form, UnreadableError where use can't be judged:
    "could not read" counts as in use."""
    kind, *names = subject.split("/")
    if kind in ("cluster", "pool", "component") and names and names[0] not in session.known_names():
        msg = f"No manifest and no record names a cluster {names[0]}, so there is nothing of ours to prune."
        raise ConfigError(msg)
    if kind == "cluster" and len(names) == 1:
        return _cluster(session, names[0], unreachable=unreachable)
    if kind == "pool" and len(names) == 2:
        return _pool(session, *names)
    if kind == "component" and len(names) == 2:
        return _component(session, *names)
    if kind == "deployment" and len(names) == 2:
        return _deployment(session, *names)
    msg = f"{subject!r} isn't cluster/C, pool/C/P, component/C/KEY or deployment/NS/NAME."
    raise ConfigError(msg)


def still_wanted(session: Session, subject: str) -> Finding | None:
    """A manifest asks for it: pruning would only make the next pass bring it back."""
    kind, *names = subject.split("/")
    fleet = session.fleet
    asked = False
    if kind == "cluster":
        asked = names[0] in session.planner.names()
    elif kind == "deployment":
        asked = (names[0], names[1]) in fleet.deployments
    elif names[0] in fleet.clusters:
        plan = session.plan(names[0])
        if plan.view is None:
            asked = True
        elif kind == "pool":
            asked = any(p.name == names[1] for p in plan.view.pools)
    if not asked:
        return None
    place = _asked_at(fleet, kind, names)
    where = f" ({place.file}:{place.line})" if place else ""
    text = f"A manifest still asks for {subject}{where}; the next pass would bring it back."
    return finding("InUse", subject, text, fix="Take it out of the manifests first.", place=place)


def _asked_at(fleet: Fleet, kind: str, names: list[str]) -> Place | None:
    """Where the manifest asks for it; of one that can't be read whole, where it is wrong; None where neither is known."""
    if kind == "deployment":
        namespace, name = names
        found = fleet.place("ModelDeployment", name, namespace=namespace)
        wrong = fleet.broken.get(("ModelDeployment", f"{namespace}/{name}"), ())
    else:
        cluster = fleet.clusters.get(names[0])
        pools = [p.name for p in cluster.spec.node_pools] if cluster is not None else []
        path = ("spec", "nodePools", pools.index(names[1])) if kind == "pool" and names[1] in pools else ()
        found = fleet.place("InferenceCluster", names[0], path)
        wrong = fleet.broken.get(("InferenceCluster", names[0]), ())
    return found or next((f.place for f in wrong if f.place), None)


def prune(session: Session, subject: str, fingerprint: str, *, unreachable: bool = False) -> PrunePlan:
    """Acts. Raises RefusedError with `FingerprintStale` where the subject changed since, with `InUse` where it is used."""
    planned = plan_prune(session, subject, unreachable=unreachable)
    if fingerprint != planned.fingerprint:
        text = f"The fingerprint of {subject} is {planned.fingerprint}, not {fingerprint}: it changed since."
        raise RefusedError(text, findings=(finding("FingerprintStale", subject, text),))
    if planned.users:
        text = f"{subject} is in use: {'; '.join(planned.users[:5])}."
        raise RefusedError(text, findings=(finding("InUse", subject, text),))
    planned.act()
    return planned


def _observed(session: Session, name: str) -> tuple[ObservedCluster, LiveCluster]:
    seen = session.observe(name)
    parts = () if seen.live is None else (seen.live.pods, seen.live.nodes, seen.live.claims)
    unread = [p.why for p in parts if isinstance(p, Unknown)]
    if seen.live is None or unread:
        why = "; ".join([*seen.unread(), *unread]) or f"{name} can't be read"
        msg = f"Whether {name} is in use can't be read, which counts as in use: {why}"
        raise UnreadableError(msg)
    return seen, seen.live


def _own(session: Session, name: str) -> tuple[Component, ...]:
    return session.planner.components(session.ref(name).source)


def _our_namespaces(session: Session, name: str) -> frozenset[str]:
    return frozenset(c.namespace for c in _own(session, name) if c.namespace) | frozenset(SYSTEM_NAMESPACES)


def _live_users(session: Session, name: str, live: LiveCluster, nodes: frozenset[str] | None) -> tuple[str, ...]:
    """Pods that aren't daemons, mirror pods, kube-system's or our own components', and allocated claims. `nodes` None
    means the whole cluster."""
    ours = _our_namespaces(session, name)
    pods = live.pods.value if not isinstance(live.pods, Unknown) else ()
    claims = live.claims.value if not isinstance(live.claims, Unknown) else ()
    found = [f"pod {p.namespace}/{p.name}" for p in pods if _counts(p, ours) and (nodes is None or p.node in nodes)]
    pools = {pool for c in claims for _, pool, _ in c.devices}
    if nodes is None or pools & nodes:
        found += [
            f"claim {c.namespace}/{c.name}" for c in claims if c.devices and (nodes is None or _on(c.devices, nodes))
        ]
    return tuple(sorted(found))


def _on(devices: tuple[tuple[str, str, str], ...], nodes: frozenset[str]) -> bool:
    return any(pool in nodes for _, pool, _ in devices)


def _counts(pod: LivePod, ours: frozenset[str]) -> bool:
    if pod.over or pod.mirror or pod.owner_kind == "DaemonSet":
        return False
    return pod.namespace not in ours


def _cluster(session: Session, name: str, *, unreachable: bool) -> PrunePlan:
    subject = f"cluster/{name}"
    wanted = still_wanted(session, subject)
    users: tuple[str, ...] = (wanted.message,) if wanted else ()
    source = session.ref(name).source
    goes: list[str] = []
    along: tuple[str, ...] = ()
    stays: tuple[str, ...] = ()
    if source != "Existing":
        cloud = session.cloud_cluster(name)
        if cloud is not None and not cloud.ours:
            text = f"Cluster {name} on {source} isn't ours, so it is never deleted."
            raise RefusedError(text, findings=(finding("NameTaken", subject, text),))
        pools = (*cloud.pools, *((cloud.system_pool,) if cloud.system_pool else ())) if cloud else ()
        goes += [f"pool {p.name} ({p.joined} nodes)" for p in pools]
        goes.append(f"control plane {name} on {source}" if cloud else f"nothing on {source}: it is gone already")
        if unreachable:
            joined = sum(p.joined for p in pools)
            if joined:
                users = (*users, f"{joined} nodes stand on {source}, so its API must be asked")
        elif cloud is not None and cloud.state != "creating":
            _, live = _observed(session, name)
            users = (*users, *_live_users(session, name, live, None))
    else:
        seen, live = _observed(session, name)
        users = (*users, *_live_users(session, name, live, None))
        components = {} if isinstance(seen.components, Unknown) else seen.components.value
        goes += [
            f"component {key} ({c.chart or 'manifests'} {c.version})".strip() for key, c in sorted(components.items())
        ]
        along = tuple(f"{c.key}: {c.takes_along}" for c in _own(session, name) if c.takes_along and c.key in components)
        stays = left_behind(session.client(name), _own(session, name), components)
    goes.append(f"the record of {name}")
    return PrunePlan(
        subject, tuple(goes), along, users, stays, lambda: _delete_cluster(session, name, gone=unreachable)
    )


def _delete_cluster(session: Session, name: str, *, gone: bool) -> None:
    session.write(admit_removal(name, f"cluster/{name}"), gone=gone)
    ref = session.ref(name)
    if ref.source == "Existing":
        components = session.standing(name).components
        for key in _reversed(session, name, components):
            _uninstall(session, name, components[key])
        _delete_own(session, name, SHARED)
        session.leave(name)
    else:
        session.cloud(name).delete_cluster(ref)
    session.records.forget(name)


def _reversed(session: Session, name: str, seen: Any) -> list[str]:  # noqa: ANN401 - a mapping by key
    """Dependents before what they depend on; what no list holds goes first."""
    order = [c.key for c in _own(session, name)]
    return sorted(seen, key=lambda key: -(order.index(key) if key in order else len(order)))


def _pool(session: Session, name: str, pool: str) -> PrunePlan:
    subject = f"pool/{name}/{pool}"
    wanted = still_wanted(session, subject)
    ref = session.ref(name)
    if ref.source == "Existing":
        msg = f"Pool {pool} of {name} is the platform team's own: take its label off the nodes instead."
        raise ConfigError(msg)
    cloud = session.cloud_cluster(name)
    found = next((p for p in (cloud.pools if cloud else ()) if p.labels.get(POOL_LABEL, p.name) == pool), None)
    if found is None:
        return PrunePlan(subject, (f"nothing: {ref.source} has no such pool",), (), ())
    if not found.ours:
        text = f"Pool {pool} of {name} isn't ours, so it is never deleted."
        raise RefusedError(text, findings=(finding("NameTaken", subject, text),))
    _, live = _observed(session, name)
    nodes = (
        frozenset(n.facts.name for n in live.nodes.value if n.facts.pool == pool)
        if not isinstance(live.nodes, Unknown)
        else frozenset()
    )
    users = [*((wanted.message,) if wanted else ()), *_live_users(session, name, live, nodes)]
    if found.joined > len(nodes):
        # What runs on a node that lacks the label can't be told from what runs elsewhere, so it counts as used.
        users.append(f"{found.joined - len(nodes)} of its nodes lack the label {POOL_LABEL}={pool}")

    def act() -> None:
        session.write(admit_removal(name, subject))
        session.cloud(name).delete_pool(ref, found.name)
        session.forget_pool(name, pool)

    return PrunePlan(subject, (f"pool {found.name} with {found.joined} nodes",), (), tuple(users), act=act)


def _component(session: Session, name: str, key: str) -> PrunePlan:
    subject = f"component/{name}/{key}"
    seen, live = _observed(session, name)
    if isinstance(seen.components, Unknown):
        raise UnreadableError(seen.components.why)
    found = seen.components.value.get(key)
    if found is None:
        return PrunePlan(subject, (f"nothing: {name} has no component {key}",), (), ())
    component = next((c for c in _own(session, name) if c.key == key), None)
    users = _component_users(session, name, component, live)
    goes = [f"release {found.release} ({found.chart} {found.version})"] if found.release else []
    # A namespace is shared with what users put there: it stays.
    goes += sorted(ref for ref in found.objects if not ref.startswith(("Namespace/", "ResourceQuota/")))
    along = (component.takes_along,) if component and component.takes_along else ()

    def act() -> None:
        session.write(admit_removal(name, subject))
        _uninstall(session, name, found)

    return PrunePlan(subject, tuple(goes), along, users, act=act)


def _component_users(session: Session, name: str, component: Component | None, live: LiveCluster) -> tuple[str, ...]:
    """Claims on devices of the drivers that it publishes, and components that depend on it."""
    if component is None:
        return ()
    claims = live.claims.value if not isinstance(live.claims, Unknown) else ()
    published = component.published
    users = [f"claim {c.namespace}/{c.name}" for c in claims if any(d in published for d, _, _ in c.devices)]
    installed = session.standing(name).components
    users += [f"component {c.key}" for c in _own(session, name) if component.key in c.depends_on and c.key in installed]
    return tuple(sorted(users))


def _uninstall(session: Session, name: str, seen: ObservedComponent) -> None:
    """Our objects before the release: an operator must still run to let go of what it made for them."""
    _delete_own(session, name, seen.key)
    if seen.release:
        session.helm(name).uninstall(seen.release, seen.namespace)


def _delete_own(session: Session, name: str, key: str) -> None:
    """The objects that we applied for a component, namespaces excepted: they are shared with what users put there."""
    client = session.client(name)
    kinds = [k for k in session.own_kinds(name) if k[1] != "Namespace" and client.serves(*k)]
    deleted = False
    for api_version, kind in kinds:
        for body in client.list(api_version, kind, labels=f"{COMPONENT_LABEL}={key}"):
            metadata = body["metadata"]
            namespace, uid = metadata.get("namespace", ""), metadata["uid"]
            deleted |= client.delete(api_version, kind, metadata["name"], namespace=namespace, uid=uid)
    end = time.monotonic() + FINALIZERS
    while deleted and time.monotonic() < end:
        if not any(client.list(*k, labels=f"{COMPONENT_LABEL}={key}") for k in kinds if client.serves(*k)):
            return
        time.sleep(0.3)


def _deployment(session: Session, namespace: str, name: str) -> PrunePlan:
    """A deployment's own replicas are what goes, not its users: without this nothing could ever be emptied."""
    subject = f"deployment/{namespace}/{name}"
    wanted = still_wanted(session, subject)
    goes: list[str] = []
    users: list[str] = [wanted.message] if wanted else []
    clusters: list[str] = []
    for cluster in session.known_names():
        seen = session.observe(cluster)
        if isinstance(seen.replicas, Unknown):
            if seen.live is None and _absent(seen):
                continue
            users.append(f"the replicas on {cluster} can't be read: {seen.replicas.why}")
            continue
        mine = [r for r in seen.replicas.value if (r.namespace, r.deployment) == (namespace, name)]
        if mine:
            clusters.append(cluster)
            goes += [f"replica on {cluster} ({r.ready} of {r.desired} pods ready)" for r in mine]

    def act() -> None:
        for cluster in clusters:
            session.write(admit_removal(cluster, subject))
            retire_replica(session.client(cluster), namespace, name, None)
            session.note_replica(cluster, (namespace, name), there=False)

    return PrunePlan(subject, tuple(goes) or ("nothing: no replica stands",), (), tuple(users), act=act)


def _absent(seen: ObservedCluster) -> bool:
    plane = seen.control_plane
    return not isinstance(plane, Unknown) and plane.value is None
