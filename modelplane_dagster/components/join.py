"""The join: which components of the lists one cluster gets, with which values, in which order, and why.

It fails closed: where `findings` holds an error, nothing of the result may be applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.components.checks import component_findings, pool_findings
from modelplane_dagster.components.listed import EVERYWHERE, Listed, foreign, listed
from modelplane_dagster.components.namespaces import Objects
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
    that isn't there keeps nothing (none is installed, or nobody looked).

    Values and objects may be shared with other clusters' joins: nobody changes them in place.
    """
    lists = listed(components)
    verdicts = {c.key: _verdict(view, c) for c in lists.ordered}
    findings = [fault.on(view.name) for fault in lists.faults]
    findings += [*pool_findings(view), *_lost(view, lists, verdicts), *_dropped(view, lists, verdicts)]
    joined: list[JoinedComponent] = []
    for component in lists.ordered:
        install, reason = verdicts[component.key]
        if component.key in lists.same:
            joined.append(lists.same[component.key])
        elif install:
            kept = keep.get(component.key) if keep else None
            seen = replace(view, kept_pools=kept.pools, kept_taints=kept.taints) if kept else view
            joined.append(_made(seen, component, reason, lists.prepares[component.key]))
            if component.key not in lists.sound:
                findings += component_findings(joined[-1], f"component/{view.name}/{component.key}")
        else:
            joined.append(JoinedComponent(component=component, install=False, reason=reason, values={}))
    return Join(tuple(joined), ordered(findings))


def remade(joined: Join, view: ClusterView, keys: frozenset[str], *, keep: Mapping[str, Kept]) -> Join | None:
    """A join of another cluster with the components of `keys` made anew for this one; None where one of them is found
    fault with, so that the whole is to be joined."""
    parts = []
    for part in joined.components:
        if part.key not in keys:
            parts.append(part)
            continue
        kept = keep.get(part.key)
        seen = replace(view, kept_pools=kept.pools, kept_taints=kept.taints) if kept else view
        own = _made(seen, part.component, part.reason, part.prepares)
        if any(component_findings(own, part.key)):
            return None
        parts.append(own)
    return Join(tuple(parts), ())


def _verdict(view: ClusterView, component: Component) -> tuple[bool, str]:
    """Whether the cluster gets it, and the sentence that says why."""
    if component.when is not None:
        bound = component.when.pools(view)
        names = _listed(p.name for p in bound)
        if bound:
            return True, f"because {component.when.sentence}: {names}"
        return False, f"left out: no pool for which {component.when.sentence}"
    if not component.drivers:
        return True, EVERYWHERE
    claimed = component.drivers & view.claimed
    if not claimed:
        return False, f"left out: no pool claims {_listed(component.drivers, 'or')}"
    ours = view.ours(claimed)
    if not ours:
        return False, f"left out: the platform team runs {_listed(claimed)} itself"
    served = [f"{d} of {_pools(p.name for p in view.claiming(d))}" for d in sorted(ours)]
    return True, f"serves {' and '.join(served)}"


def _pools(names: Iterable[str]) -> str:
    every = list(names)
    return f"{'pool' if len(every) == 1 else 'pools'} {_listed(every)}"


def _listed(names: Iterable[str], word: str = "and") -> str:
    items = sorted(names)
    if not items:
        return "none"
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {word} {items[-1]}"


def _made(view: ClusterView, component: Component, reason: str, before: Objects, /) -> JoinedComponent:
    bound = component.bound_to(view) if component.drivers or component.when else ()
    return JoinedComponent(
        component=component,
        install=True,
        reason=reason,
        prepares=before,
        values=component.values(view) if component.values else {},
        manifests=component.manifests(view) if component.manifests else (),
        serves=tuple(p.name for p in bound),
    )


Verdicts = Mapping[str, tuple[bool, str]]


def _lost(view: ClusterView, lists: Listed, verdicts: Verdicts) -> Iterator[Finding]:
    """A claimed driver whose publisher its own tags leave out: it counts as supported, and nothing would serve it."""
    for driver in sorted(view.ours(view.claimed)):
        publishers = lists.publishers.get(driver, ())
        if publishers and not any(verdicts[c.key][0] for c in publishers):
            key = publishers[0].key
            message = (
                f"{key} publishes {driver}, which {view.name} claims, and isn't tagged with it, so it is left out."
            )
            yield finding("PublisherDropped", f"component/{view.name}/{key}", message)


def _dropped(view: ClusterView, lists: Listed, verdicts: Verdicts) -> Iterator[Finding]:
    """A dependency that the cluster doesn't get. What depends on another stack is a fault of the list already."""
    by_key = {c.key: c for c in lists.ordered}
    for component in lists.ordered:
        if not verdicts[component.key][0]:
            continue
        for name in component.depends_on:
            other = by_key.get(name)
            if other is not None and not verdicts[name][0] and not foreign(component, other):
                message = f"{component.key} depends on {name}, which the cluster doesn't get ({verdicts[name][1]})."
                yield finding("DependencyMissing", f"component/{view.name}/{component.key}", message)
