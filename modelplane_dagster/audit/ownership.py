"""Whose a live workload is: one that the plan declares, one of ours that no declaration names, an orphan, or foreign.

A chart's workload is known by its release, one that an operator makes by its owner or by the custom resource in its
name: an operator's daemon carries no release.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from modelplane_dagster.audit.instances import CR, Instance, instances
from modelplane_dagster.audit.live import LiveWorkload
from modelplane_dagster.components.types import Component, JoinedComponent

OUR_RELEASES = "mp-"
"""What every release of ours begins with, so that it can't adopt one that a user runs."""


@dataclass(frozen=True, slots=True)
class Matched:
    """A planned instance and what the cluster runs for it; `live` is None where it runs nothing of that name."""

    instance: Instance
    live: LiveWorkload | None


@dataclass(frozen=True, slots=True)
class Undeclared:
    """A workload of an installed component that no declaration names."""

    component: Component
    live: LiveWorkload


@dataclass(frozen=True, slots=True)
class Orphaned:
    """A workload of ours that the plan doesn't ask for any more; `key` is its component's, or the release's name where
    the plan was told of none such; `why` is a clause. `resource` is the custom resource that an operator still makes it
    from, empty where the whole component is left over."""

    key: str
    live: LiveWorkload
    why: str
    resource: str = ""


@dataclass(frozen=True, slots=True)
class Ownership:
    """Every live workload is in exactly one of the four; `releases` are the installed releases that run something."""

    matched: tuple[Matched, ...]
    undeclared: tuple[Undeclared, ...]
    orphaned: tuple[Orphaned, ...]
    foreign: tuple[LiveWorkload, ...]
    releases: frozenset[str]


def ownership(joined: Iterable[JoinedComponent], workloads: Iterable[LiveWorkload]) -> Ownership:
    """Sorts the live workloads by whose they are."""
    parts = tuple(joined)
    by_key = {(w.kind, w.namespace, w.name): w for w in workloads}
    matched = tuple(Matched(i, by_key.get(i.key)) for i in instances(parts))
    taken = {m.instance.key for m in matched}
    undeclared: list[Undeclared] = []
    orphaned: list[Orphaned] = []
    foreign: list[LiveWorkload] = []
    for key, workload in by_key.items():
        if key in taken:
            continue
        whose = _whose(parts, workload)
        if isinstance(whose, Undeclared):
            undeclared.append(whose)
        elif isinstance(whose, Orphaned):
            orphaned.append(whose)
        else:
            foreign.append(workload)
    present = {m.instance.component.release for m in matched if m.live} | {u.component.release for u in undeclared}
    return Ownership(matched, tuple(undeclared), tuple(orphaned), tuple(foreign), frozenset(present))


def _whose(parts: tuple[JoinedComponent, ...], workload: LiveWorkload) -> Undeclared | Orphaned | None:
    for joined in parts:
        component = joined.component
        by_release = bool(component.release) and workload.release == component.release
        resource = _made_from(component, workload)
        if not by_release and resource is None:
            continue
        if not joined.install:
            return Orphaned(component.key, workload, joined.reason)
        if resource:
            return Orphaned(component.key, workload, f"the plan holds no {resource}", resource)
        return Undeclared(component, workload)
    if workload.release.startswith(OUR_RELEASES):
        return Orphaned(workload.release, workload, f"the plan asks for no release {workload.release}")
    return None


def _made_from(component: Component, workload: LiveWorkload) -> str | None:
    """The custom resource that an operator made it from, as kind and name; empty where its operator made it under a
    name that no declaration has; None where the component's operator didn't make it."""
    # An operator makes its daemons in its own namespace; one of the same kind elsewhere belongs to somebody else's.
    kinds = {
        w.resource.kind
        for w in component.workloads
        if w.resource is not None and workload.namespace == (w.namespace or component.namespace)
    }
    owner = next((o for o in workload.owners if o.kind in kinds), None)
    if owner is None:
        return None
    for declared in component.workloads:
        resource = declared.resource
        named = resource is not None and CR in declared.name and resource.kind == owner.kind
        if named and declared.kind == workload.kind and declared.name.replace(CR, owner.name) == workload.name:
            return f"{owner.kind} {owner.name}"
    return ""
