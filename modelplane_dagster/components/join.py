"""The join: which components of the lists one cluster gets, with which values, in which order, and why.

It fails closed: where `findings` holds an error, nothing of the result may be applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.components.checks import (
    component_findings,
    pool_findings,
    publisher_findings,
)
from modelplane_dagster.components.namespaces import prepares
from modelplane_dagster.components.types import Component, JoinedComponent
from modelplane_dagster.findings import Finding, finding, has_errors, ordered


@dataclass(frozen=True, slots=True)
class Kept:
    """What a component's live release names and the join must not take out again; `placing.kept` reads it from the
    release's values."""

    pools: frozenset[str] = frozenset()
    taints: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Join:
    """`components` holds every component of the lists, dependencies first, those that aren't installed included."""

    components: tuple[JoinedComponent, ...]
    findings: tuple[Finding, ...]

    @property
    def refused(self) -> bool:
        return has_errors(self.findings)

    @property
    def installed(self) -> tuple[JoinedComponent, ...]:
        return tuple(c for c in self.components if c.install)

    def get(self, key: str) -> JoinedComponent | None:
        """None for a key that the lists don't hold."""
        return next((c for c in self.components if c.key == key), None)


def join(view: ClusterView, components: tuple[Component, ...], *, keep: Mapping[str, Kept] | None = None) -> Join:
    """The join of a cluster's lists. `keep` maps component keys to what their live releases name already; a component
    that isn't there keeps nothing (none is installed, or nobody looked)."""
    findings = list(pool_findings(view))
    findings += _duplicates(view, components)
    unique = tuple({c.key: c for c in components}.values())
    verdicts = {c.key: _verdict(view, c) for c in unique}
    findings += publisher_findings(f"cluster/{view.name}", unique)
    findings += _lost(view, unique, verdicts)
    findings += _dependency_findings(view, unique, verdicts)
    joined: list[JoinedComponent] = []
    for component in _in_order(unique):
        install, reason = verdicts[component.key]
        made = _made(view, component, unique, (keep or {}).get(component.key, Kept())) if install else None
        joined.append(made or JoinedComponent(component=component, install=False, reason=reason, values={}))
        if made is not None:
            joined[-1] = replace(made, reason=reason)
            subject = f"component/{view.name}/{component.key}"
            findings += component_findings(made, subject)
    return Join(tuple(joined), ordered(findings))


def _verdict(view: ClusterView, component: Component) -> tuple[bool, str]:
    """Whether the cluster gets it, and the sentence that says why."""
    if component.when is not None:
        bound = component.when.pools(view)
        names = _listed(p.name for p in bound)
        if bound:
            return True, f"because {component.when.sentence}: {names}"
        return False, f"left out: no pool for which {component.when.sentence}"
    if not component.drivers:
        return True, "every cluster gets it"
    claimed = component.drivers & view.claimed
    if not claimed:
        return False, f"left out: no pool claims {_listed(component.drivers, 'or')}"
    ours = view.ours(claimed)
    if not ours:
        return False, f"left out: the platform team runs {_listed(claimed)} itself"
    served = [f"{d} of {_pools(p.name for p in view.claiming(d))}" for d in sorted(ours)]
    return True, f"serves {' and '.join(served)}"


def _pools(names: Iterable[str]) -> str:
    listed = list(names)
    return f"{'pool' if len(listed) == 1 else 'pools'} {_listed(listed)}"


def _listed(names: Iterable[str], word: str = "and") -> str:
    items = sorted(names)
    if not items:
        return "none"
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {word} {items[-1]}"


def _made(view: ClusterView, component: Component, lists: tuple[Component, ...], kept: Kept) -> JoinedComponent:
    seen = replace(view, kept_pools=kept.pools, kept_taints=kept.taints)
    bound = component.bound_to(view) if component.drivers or component.when else ()
    return JoinedComponent(
        component=component,
        install=True,
        reason="",
        values=component.values(seen) if component.values else {},
        prepares=prepares(component, lists),
        manifests=component.manifests(seen) if component.manifests else (),
        serves=tuple(p.name for p in bound),
    )


def _duplicates(view: ClusterView, components: tuple[Component, ...]) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for component in components:
        subject = f"component/{view.name}/{component.key}"
        if f"key {component.key}" in seen:
            yield finding("DuplicateComponent", subject, f"Two components of the lists have the key {component.key}.")
            continue
        seen[f"key {component.key}"] = component.key
        release = f"{component.namespace}/{component.release}"
        if component.release and release in seen:
            message = f"{component.key} and {seen[release]} share the release {release}."
            yield finding("DuplicateComponent", subject, message)
        seen[release] = component.key


def _lost(
    view: ClusterView, components: tuple[Component, ...], verdicts: Mapping[str, tuple[bool, str]]
) -> Iterator[Finding]:
    """A claimed driver whose publisher its own tags leave out: it counts as supported, and nothing would serve it."""
    for driver in sorted(view.ours(view.claimed)):
        publishers = [c for c in components if driver in c.published]
        if publishers and not any(verdicts[c.key][0] for c in publishers):
            key = publishers[0].key
            message = (
                f"{key} publishes {driver}, which {view.name} claims, and isn't tagged with it, so it is left out."
            )
            yield finding("PublisherDropped", f"component/{view.name}/{key}", message)


def _dependency_findings(
    view: ClusterView, components: tuple[Component, ...], verdicts: Mapping[str, tuple[bool, str]]
) -> Iterator[Finding]:
    by_key = {c.key: c for c in components}
    for component in components:
        subject = f"component/{view.name}/{component.key}"
        for name in component.depends_on:
            other = by_key.get(name)
            if other is None:
                message = f"{component.key} depends on {name}, which no list of {view.source} holds."
                yield finding("DependencyMissing", subject, message)
                continue
            if other.drivers and not (component.drivers and component.drivers <= other.drivers):
                own = _listed(component.drivers) if component.drivers else "none"
                message = (
                    f"{component.key} (tags: {own}) depends on {name}, which serves {_listed(other.drivers)} alone."
                )
                yield finding("DependencyForeign", subject, message)
            elif verdicts[component.key][0] and not verdicts[name][0]:
                message = f"{component.key} depends on {name}, which the cluster doesn't get ({verdicts[name][1]})."
                yield finding("DependencyMissing", subject, message)
    circle = _circle(components)
    if circle:
        subject = f"component/{view.name}/{circle[0]}"
        yield finding("DependencyCycle", subject, f"They depend on each other: {', '.join(circle)}.")


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
