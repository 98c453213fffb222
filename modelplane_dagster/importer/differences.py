"""Where an imported list and the shipped one differ: what a reviewer looks at before a pin is changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from modelplane_dagster.cluster import SOURCES, ClusterView, PoolView, Role, Source
from modelplane_dagster.components.effective import MISSING, at
from modelplane_dagster.components.types import Component, Json
from modelplane_dagster.drivers import NVIDIA
from modelplane_dagster.findings import Finding, finding
from modelplane_dagster.importer.hydrate import leaves, same, shown_value
from modelplane_dagster.importer.placement import placement_paths, taken
from modelplane_dagster.importer.tables import KEYS
from modelplane_dagster.importer.types import ImportedComponent
from modelplane_dagster.roles import pool_labels, pool_taints


def pin_findings(source: str, imported: Iterable[ImportedComponent], shipped: Iterable[Component]) -> Iterator[Finding]:
    """`PinDiffers` for each chart, repository, version, tag and value in which the two lists differ. Values that
    follow from a cluster's pools are left out: a bundle knows no pools. Components of our own are, too."""
    ours = {c.key: c for c in shipped}
    theirs = {c.key: c for c in imported}
    for key in sorted(theirs):
        if key in ours:
            yield from _differences(source, theirs[key], ours[key])
        else:
            yield _differs(source, key, f"the bundle has {_charted(theirs[key])}, and the shipped list hasn't")
    for key in sorted(KEYS & ours.keys() - theirs.keys()):
        pin = ours[key].pin
        name = f"{pin.chart} {pin.version}" if pin else "its manifests"
        yield _differs(source, key, f"the shipped list has {name}, and the bundle hasn't")


def _charted(component: ImportedComponent) -> str:
    return f"{component.chart} {component.version}" if component.chart else "its manifests"


def _differs(source: str, key: str, what: str) -> Finding:
    return finding("PinDiffers", f"component/{source}/{key}", f"{key}: {what}.")


def _differences(source: str, theirs: ImportedComponent, ours: Component) -> Iterator[Finding]:
    pin = ours.pin
    pairs = [
        ("chart", theirs.chart, pin.chart if pin else ""),
        ("repository", theirs.repository, pin.repository if pin else ""),
        ("version", theirs.version, pin.version if pin else ""),
        ("tags", ", ".join(theirs.drivers), ", ".join(sorted(ours.drivers))),
    ]
    for what, their, our in pairs:
        if their != our:
            yield _differs(source, theirs.key, f"{what} is {their or 'none'} in the bundle and {our or 'none'} in ours")
    constant = dict(_constant(source, ours))
    for path, value in constant.items():
        seen = at(theirs.values, path)
        if not same(seen, value):
            shown = "not set" if seen is MISSING else shown_value(seen)
            yield _differs(source, theirs.key, f"{path} is {shown} in the bundle and {shown_value(value)} in ours")
    yield from _placed(source, theirs, ours)
    set_by_us = {path for view in _views(source) for path, _ in leaves(ours.values(view) if ours.values else {})}
    more = sorted(path for path, _ in leaves(theirs.values) if not _covered(path, set_by_us))
    if more:
        yield _differs(source, theirs.key, f"the bundle sets {len(more)} values that ours leaves: {', '.join(more)}")


def _placed(source: str, theirs: ImportedComponent, ours: Component) -> Iterator[Finding]:
    """What becomes of the pods' placement where the list is joined with a cluster's pools."""
    for path, workload, keys in taken(theirs.values, ours):
        yield _differs(
            source,
            theirs.key,
            f"{path} tolerates {', '.join(keys)} in the bundle, and the joined list leaves it out: {workload.kind} "
            f"{workload.name} needs one node, and no pool's",
        )
    views = _views(source)
    given = [ours.values(view) if ours.values else {} for view in views]
    follows = sorted(p for p in placement_paths(ours) if any(at(g, p) is not MISSING for g in given))
    if follows:
        yield _differs(source, theirs.key, f"in the joined list these follow the cluster's pools: {', '.join(follows)}")


def _covered(path: str, paths: set[str]) -> bool:
    parts = path.split(".")
    return any(".".join(parts[:n]) in paths for n in range(1, len(parts) + 1))


def _constant(source: str, component: Component) -> Iterator[tuple[str, Json]]:
    """The values that a component sets whatever a cluster's pools are."""
    if component.values is None:
        return
    one, *others = (component.values(view) for view in _views(source))
    for path, value in leaves(one):
        if all(same(at(other, path), value) for other in others):
            yield path, value


def _views(source: str) -> tuple[ClusterView, ClusterView]:
    """Two clusters that differ in their pools, so that what follows from pools shows."""
    name: Source = next(s for s in SOURCES if s == source)
    first = _view(name, "pool-a")
    return first, replace(first, pools=(*first.pools, *_view(name, "pool-b").pools))


def _view(source: Source, pool: str) -> ClusterView:
    drivers = (NVIDIA,)
    made = PoolView(
        cluster="sample",
        name=pool,
        class_name="sample",
        role=Role.GPU,
        drivers=drivers,
        labels=pool_labels(pool, drivers, None, ()),
        taints=pool_taints(drivers, ()),
    )
    return ClusterView(name="sample", source=source, version="", pools=(made,), claimed=frozenset(drivers))
