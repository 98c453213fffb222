"""What follows from a source's list alone, whatever the cluster: the order, the faults, the namespaces, and the
components that are the same everywhere. Worked out once a list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from modelplane_dagster.components.checks import component_findings, published_twice
from modelplane_dagster.components.identity import remembered
from modelplane_dagster.components.namespaces import Objects, prepares
from modelplane_dagster.components.types import Component, JoinedComponent, Same
from modelplane_dagster.findings import Finding, finding

EVERYWHERE = "every cluster gets it"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the list; `key` is the component's, empty where it is the list's as a whole."""

    code: str
    key: str
    message: str

    def on(self, cluster: str) -> Finding:
        subject = f"component/{cluster}/{self.key}" if self.key else f"cluster/{cluster}"
        return finding(self.code, subject, self.message)


@dataclass(frozen=True, slots=True)
class Listed:
    """`ordered` holds each key once, dependencies first. `same` are the components that every cluster gets with the
    same values, already checked and without a fault; `sound` the keys of those whose values and manifests are the same
    wherever they are installed, and without a fault. `publishers` has the components that publish each driver."""

    ordered: tuple[Component, ...]
    faults: tuple[Fault, ...]
    prepares: Mapping[str, Objects]
    same: Mapping[str, JoinedComponent]
    sound: frozenset[str]
    publishers: Mapping[str, tuple[Component, ...]]


@remembered(64)
def listed(components: tuple[Component, ...]) -> Listed:
    unique = tuple({c.key: c for c in components}.values())
    before = {c.key: prepares(c, unique) for c in unique}
    constant = {c.key: _constant(c, before[c.key]) for c in unique if _is_constant(c)}
    sound = {key: made for key, made in constant.items() if not component_findings(made, key)}
    drivers = {d for c in unique for d in c.published}
    return Listed(
        ordered=tuple(_in_order(unique)),
        faults=(*_duplicates(components), *_twice(unique), *_dependencies(unique)),
        prepares=before,
        same={key: made for key, made in sound.items() if not made.component.drivers and not made.component.when},
        sound=frozenset(sound),
        publishers={d: tuple(c for c in unique if d in c.published) for d in drivers},
    )


def _is_constant(component: Component) -> bool:
    return all(made is None or isinstance(made, Same) for made in (component.values, component.manifests))


def _constant(component: Component, before: Objects) -> JoinedComponent:
    return JoinedComponent(
        component=component,
        install=True,
        reason=EVERYWHERE,
        values=component.values.value if isinstance(component.values, Same) else {},
        prepares=before,
        manifests=component.manifests.value if isinstance(component.manifests, Same) else (),
    )


def _twice(components: tuple[Component, ...]) -> Iterator[Fault]:
    for message in published_twice(components):
        yield Fault("PublishedTwice", "", message)


def _duplicates(components: tuple[Component, ...]) -> Iterator[Fault]:
    keys: set[str] = set()
    releases: dict[str, str] = {}
    for component in components:
        key, release = component.key, f"{component.namespace}/{component.release}"
        if key in keys:
            yield Fault("DuplicateComponent", key, f"Two components of the lists have the key {key}.")
            continue
        keys.add(key)
        if component.release and release in releases:
            message = f"{key} and {releases[release]} share the release {release}."
            yield Fault("DuplicateComponent", key, message)
        releases[release] = key


def _dependencies(components: tuple[Component, ...]) -> Iterator[Fault]:
    by_key = {c.key: c for c in components}
    for component in components:
        key = component.key
        for name in component.depends_on:
            other = by_key.get(name)
            if other is None:
                yield Fault("DependencyMissing", key, f"{key} depends on {name}, which no list of the source holds.")
            elif foreign(component, other):
                own = ", ".join(sorted(component.drivers)) or "none"
                served = ", ".join(sorted(other.drivers))
                message = f"{key} (tags: {own}) depends on {name}, which only clusters that claim {served} get."
                yield Fault("DependencyForeign", key, message)
    circle = _circle(components)
    if circle:
        yield Fault("DependencyCycle", circle[0], f"They depend on each other: {', '.join(circle)}.")


def foreign(component: Component, other: Component) -> bool:
    """Whether `other` is part of a stack that a cluster may lack where it gets `component`."""
    return bool(other.drivers) and not (component.drivers and component.drivers <= other.drivers)


def _in_order(components: tuple[Component, ...]) -> list[Component]:
    """Dependencies first, otherwise as listed; what is left in a circle comes last."""
    keys = {c.key for c in components}
    done: dict[str, Component] = {}
    waiting = list(components)
    while waiting:
        ready = next((c for c in waiting if all(d in done or d not in keys for d in c.depends_on)), None)
        if ready is None:
            return [*done.values(), *waiting]
        done[ready.key] = ready
        waiting.remove(ready)
    return list(done.values())


def _circle(components: tuple[Component, ...]) -> tuple[str, ...]:
    """The keys that can never be installed because they wait for each other; empty for none."""
    left = {c.key: set(c.depends_on) & {o.key for o in components} for c in components}
    while True:
        free = {key for key, needs in left.items() if not needs & left.keys()}
        if not free:
            return tuple(sorted(left))
        for key in free:
            del left[key]
