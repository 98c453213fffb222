"""The workloads that a cluster gets by the plan: each declared one with the placement that its values or its custom
resource give it. A workload that an operator makes is there once for each custom resource."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.components.effective import placed
from modelplane_dagster.components.identity import remembered
from modelplane_dagster.components.types import Component, DeclaredWorkload, JoinedComponent
from modelplane_dagster.findings import Finding, finding
from modelplane_dagster.kube.objects import PodPlacement, Term, Toleration

CR = "{cr}"


@dataclass(frozen=True, slots=True)
class Instance:
    """A declared workload as one cluster gets it."""

    component: Component
    workload: DeclaredWorkload
    name: str
    namespace: str
    placement: PodPlacement

    @property
    def daemon(self) -> bool:
        return self.workload.kind == "DaemonSet"

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.workload.kind, self.namespace, self.name)

    @property
    def resource(self) -> str:
        """The name of the custom resource that it is made from; empty for a chart's own."""
        before, mark, after = self.workload.name.partition(CR)
        return self.name[len(before) : len(self.name) - len(after)] if mark else ""


def instances(joined: Iterable[JoinedComponent]) -> tuple[Instance, ...]:
    """Of the installed components, what is turned on, in the components' order."""
    return tuple(i for j in joined for i in instances_of(j))


@remembered(4096)
def instances_of(joined: JoinedComponent) -> tuple[Instance, ...]:
    """One for a chart's workload, one a custom resource for an operator's; none where it is turned off."""
    return tuple(
        Instance(joined.component, p.workload, p.name, p.namespace, shared_placement(p.placement))
        for p in placed(joined)
    )


def no_room(view: ClusterView, instance: Instance, why: str) -> Finding:
    """A controller that must run somewhere, or a chart's hook, and `why` says what it doesn't find."""
    return finding(
        "HookHasNoRoom" if instance.workload.kind == "Job" else "NoRoomForControllers",
        f"component/{view.name}/{instance.component.key}",
        f"{instance.workload.kind} {instance.name} {why}.",
    )


def shared_placement(placement: PodPlacement) -> PodPlacement:
    """The first of all equal placements: a fleet's clusters repeat few of them, and what follows from one is
    remembered by identity."""
    selector = tuple(placement.node_selector.items())
    return _first(selector, placement.affinity, placement.tolerations, placement.node_name)


@lru_cache(maxsize=8192)
def _first(
    selector: tuple[tuple[str, str], ...],
    affinity: tuple[Term, ...] | None,
    tolerations: tuple[Toleration, ...],
    node_name: str,
) -> PodPlacement:
    return PodPlacement(MappingProxyType(dict(selector)), affinity, tolerations, node_name)


def has_resource(joined: JoinedComponent, workload: DeclaredWorkload) -> bool:
    """Whether what the workload is made from is there: the chart itself, or at least one custom resource."""
    resource = workload.resource
    if resource is None or resource.values_root is not None:
        return True
    return any(m.get("kind") == resource.kind for m in joined.manifests)


def dig(values: Mapping[str, Any], path: str) -> Any:  # noqa: ANN401  (a Helm value is any JSON)
    """What stands at a dotted path; None where nothing does. The empty path is the whole."""
    here: Any = values
    for part in path.split(".") if path else ():
        if not isinstance(here, Mapping) or part not in here:
            return None
        here = here[part]
    return here


def setting(values: Mapping[str, Any], path: str, *, default: bool) -> bool:
    """A chart's switch, with the chart's default where the values don't set it."""
    seen = dig(values, path)
    return default if seen is None else bool(seen)
