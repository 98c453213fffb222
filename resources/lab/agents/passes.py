"""One pass of a cluster's hardware agents over what the cluster holds now: labels, operators' daemons, slices."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from modelplane_dagster.components.types import Component, CustomResource, DeclaredWorkload
from modelplane_dagster.drivers import CPU, NETWORK, POOL_LABEL
from modelplane_dagster.errors import KubernetesError, UnreadableError
from resources.kubernetes import ClusterClient
from resources.lab.agents.daemons import OPERATOR, daemon_of, operator_workloads
from resources.lab.agents.faults import AgentFault, AgentFaults
from resources.lab.agents.finding import find_hardware
from resources.lab.agents.hardware import Hardware, hardware_of
from resources.lab.agents.settle import settle, settled_kinds
from resources.lab.agents.slices import PUBLISHED, devices_of, fingerprint, slices_of
from resources.lab.plays import PLAYS, SETTINGS, Part, part

Json = dict[str, Any]
_log = logging.getLogger(__name__)
GRANTED = "lab.modelplane.ai/granted"
EXTERNAL = {"aws-dranet": NETWORK}


@dataclass(frozen=True, slots=True)
class Playing:
    """A running, ready pod that plays a declared workload."""

    component: Component
    workload: DeclaredWorkload
    node: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one pass: whether something was written, whether it must look again soon without being told to, and the kinds
    of custom resource whose changes concern it."""

    changed: bool
    soon: bool
    kinds: frozenset[tuple[str, str]] = frozenset()


@dataclass
class Agents:
    """A cluster's agents. `components` are those that may run there, by key. Nothing is remembered that the cluster
    doesn't hold, but for how long a driver has been gone."""

    client: ClusterClient
    components: Mapping[str, Component]
    faults: AgentFaults
    clock: Callable[[], float]
    withdraw: float = 1.0
    finds_hardware: bool = False
    _gone: dict[tuple[str, str], float] = field(default_factory=dict)
    _daemons: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def run(self, nodes: Mapping[str, Json], pods: list[Json]) -> Outcome:
        playing = list(self.playing(pods))
        changed = self.grant(nodes, playing)
        changed |= self.operate(playing)
        if self.finds_hardware:
            changed |= find_hardware(self.client, nodes, pods)
        published, soon = self.publish(nodes, playing)
        return Outcome(changed or published, soon, frozenset(_kinds(playing)))

    def playing(self, pods: list[Json]) -> Iterator[Playing]:
        for pod in pods:
            metadata, status = pod["metadata"], pod.get("status") or {}
            annotations = metadata.get("annotations") or {}
            played = part(annotations.get(PLAYS, ""))
            if played is None or "deletionTimestamp" in metadata or not _ready(status):
                continue
            found = self._declared(played)
            if found is not None:
                yield Playing(*found, pod["spec"].get("nodeName", ""), _settings(annotations.get(SETTINGS, "")))

    def _declared(self, played: Part) -> tuple[Component, DeclaredWorkload] | None:
        component = self.components.get(played.component)
        if component is None:
            return None
        workload = next((w for w in component.workloads if w.name == played.workload), None)
        return None if workload is None else (component, workload)

    # Labels

    def grant(self, nodes: Mapping[str, Json], playing: list[Playing]) -> bool:
        """Puts hardware labels on nodes and takes them away again; only those that the agents themselves put."""
        changed = False
        for name, node in nodes.items():
            hardware = hardware_of(node)
            if hardware is None:
                continue
            labels = dict(node["metadata"].get("labels") or {})
            had = set(filter(None, (node["metadata"].get("annotations") or {}).get(GRANTED, "").split(",")))
            given = _granted({k: v for k, v in labels.items() if k not in had}, name, hardware, playing)
            patch = {k: v for k, v in given.items() if labels.get(k) != v} | dict.fromkeys(had - given.keys())
            if patch or had != given.keys():
                annotations = {GRANTED: ",".join(sorted(given)) or None}
                body = {"metadata": {"labels": patch, "annotations": annotations}}
                self.client.patch(("v1", "Node", "", name), body)
                changed = True
        return changed

    # Operators

    def operate(self, playing: list[Playing]) -> bool:
        """The daemons of every operator that runs. An operator that is gone leaves its daemons as they are."""
        changed = False
        running = {p.component.key: p.component for p in playing if p.workload.kind == "Deployment"}
        for component in running.values():
            for resource, workloads in _by_resource(component).items():
                found = self.custom(resource.api_version, resource.kind)
                if found is not None:
                    changed |= self._make(component, resource, workloads, found)
            changed |= settle(self.client, component.key, self.custom)
        return changed

    def custom(self, api_version: str, kind: str) -> list[Json] | None:
        """Custom resources; None while their CRD isn't there."""
        try:
            return self.client.list(api_version, kind)
        except UnreadableError:
            return None
        except KubernetesError as error:
            if error.status == 404:
                return None
            raise

    def _make(
        self, component: Component, resource: CustomResource, workloads: list[DeclaredWorkload], found: list[Json]
    ) -> bool:
        wanted = {_at(d): d for r in found for w in workloads if (d := _made(component, w, r)) is not None}
        selector = f"{OPERATOR}={component.key}"
        live = [
            one for kind in {w.kind for w in workloads} for one in self.client.list("apps/v1", kind, labels=selector)
        ]
        standing = {_at(one) for one in live}
        changed = False
        for at, daemon in wanted.items():
            mark = json.dumps(daemon, sort_keys=True)
            if at not in standing or self._daemons.get(at) != mark:
                self.client.apply(daemon, force=True)
                self._daemons[at] = mark
                changed = True
        for one in live:
            owners = {o["kind"] for o in one["metadata"].get("ownerReferences") or ()}
            if _at(one) not in wanted and owners == {resource.kind}:
                _, namespace, name = _at(one)
                self.client.delete("apps/v1", one["kind"], name, namespace=namespace)
                changed = True
        return changed

    # Slices

    def publish(self, nodes: Mapping[str, Json], playing: list[Playing]) -> tuple[bool, bool]:
        """Slices where a driver runs and the node has its hardware; withdrawn a moment after the driver leaves."""
        live: dict[tuple[str, str], list[Json]] = {}
        for one in self.client.list("resource.k8s.io/v1", "ResourceSlice"):
            if (one["metadata"].get("annotations") or {}).get(PUBLISHED):
                live.setdefault((one["spec"].get("nodeName", ""), one["spec"]["driver"]), []).append(one)
        changed = False
        served = set()
        for p in playing:
            node = nodes.get(p.node)
            if not _publishes(p) or node is None or self._silent(node):
                continue
            served.add((p.node, _publishes(p)))
            changed |= self._bring(node, p, live.get((p.node, _publishes(p)), []))
        withdrawn, waiting = self._withdraw({at: s for at, s in live.items() if at not in served})
        return changed or withdrawn, waiting

    def _silent(self, node: Json) -> bool:
        pool = (node["metadata"].get("labels") or {}).get(POOL_LABEL, "")
        return self.faults.has(f"pool/{self.client.name}/{pool}", AgentFault.DRIVER_NEVER_PUBLISHES)

    def _bring(self, node: Json, playing: Playing, live: list[Json]) -> bool:
        hardware = hardware_of(node)
        driver = _publishes(playing)
        devices = devices_of(driver, hardware, playing.settings) if hardware is not None else []
        mark = fingerprint(devices)
        if all(s["metadata"]["annotations"][PUBLISHED] == mark for s in live) and bool(live) == bool(devices):
            return False
        generation = max((int(s["spec"]["pool"]["generation"]) for s in live), default=0) + 1
        wanted = {s["metadata"]["name"]: s for s in slices_of(node, driver, devices, generation)}
        for old in live:
            self.client.delete("resource.k8s.io/v1", "ResourceSlice", old["metadata"]["name"])
        for new in wanted.values():
            self.client.create(new)
        return True

    def _withdraw(self, live: Mapping[tuple[str, str], list[Json]]) -> tuple[bool, bool]:
        now = self.clock()
        self._gone = {at: self._gone.get(at, now) for at in live}
        changed = False
        for at, slices in live.items():
            if now - self._gone[at] >= self.withdraw:
                for one in slices:
                    self.client.delete("resource.k8s.io/v1", "ResourceSlice", one["metadata"]["name"])
                changed = True
        return changed, bool(live) and not changed


def _kinds(playing: list[Playing]) -> Iterator[tuple[str, str]]:
    for component in {p.component.key: p.component for p in playing if p.workload.kind == "Deployment"}.values():
        yield from ((r.api_version, r.kind) for r in _by_resource(component))
        yield from settled_kinds(component.key)


def _made(component: Component, workload: DeclaredWorkload, resource: Json) -> Json | None:
    """An operator leaves out what it can't read of its resource, and says so in its log alone."""
    try:
        return daemon_of(component, workload, resource)
    except (TypeError, ValueError, KeyError) as error:
        _log.warning("%s %s: %s", resource["kind"], resource["metadata"]["name"], error)
        return None


def _at(obj: Json) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"]["namespace"], obj["metadata"]["name"]


def _publishes(playing: Playing) -> str:
    """The driver whose slices the pod publishes. The EFA component's is declared external, so its declaration has none."""
    return playing.workload.publishes or EXTERNAL.get(playing.component.key, "")


def _ready(status: Json) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())


def _settings(text: str) -> dict[str, Any]:
    """The chart's settings by path, as the pod's annotation holds them: each value in JSON."""
    try:
        return {path: json.loads(value) for path, value in json.loads(text).items()} if text else {}
    except ValueError:
        return {}


def _granted(labels: Mapping[str, str], node: str, hardware: Hardware, playing: list[Playing]) -> dict[str, str]:
    """What the running components put on the node, given the labels that stand there without them. A label may need
    another that is granted as well, so it goes on until nothing is added."""
    here = {(p.component.key, p.workload.name) for p in playing if p.node == node}
    running = {p.component.key: p.component for p in playing}
    granted: dict[str, str] = {}
    while True:
        seen = {**labels, **granted}
        more = {
            key: value
            for component in running.values()
            for grant in component.grants
            if (hardware.of(grant.driver) or grant.driver == CPU)
            and (not grant.by or (component.key, grant.by) in here)
            and all(seen.get(k) == v for k, v in grant.needs.items())
            for key, value in grant.labels.items()
        }
        if more.keys() <= granted.keys():
            return granted
        granted |= more


def _by_resource(component: Component) -> dict[CustomResource, list[DeclaredWorkload]]:
    found: dict[CustomResource, list[DeclaredWorkload]] = {}
    for workload in operator_workloads(component):
        if workload.resource is not None:
            found.setdefault(workload.resource, []).append(workload)
    return found
