"""An imported list as components that the join takes."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.components.types import Component, Json, Pin, Values
from modelplane_dagster.importer.hydrate import leaves
from modelplane_dagster.importer.placement import placed
from modelplane_dagster.importer.tables import KEPT, KEYS
from modelplane_dagster.importer.types import Import, ImportedComponent


def components_from(imported: Import, shipped: tuple[Component, ...], *, checked: str) -> tuple[Component, ...]:
    """The shipped list with the imported components in the place of those of the same key, the new ones first.
    What the shipped list has of a recipe's components and the import hasn't is left out, Node Feature Discovery excepted.

    A component takes chart, version, tags, dependencies, manifests and its constant values from the import; its release,
    what it declares of its workloads and where these go from the shipped one of its key, and nothing where there is none:
    a bundle knows no pools. `checked` is the day (ISO) of the import.
    """
    ours = {c.key: c for c in shipped}
    made = {c.key: _component(c, ours.get(c.key), checked) for c in imported.components}
    new = [made[c.key] for c in imported.components if c.key not in ours]
    stay = [c for c in shipped if c.key in made or c.key not in KEYS - KEPT]
    return (*new, *(made.get(c.key, c) for c in stay))


def _component(theirs: ImportedComponent, ours: Component | None, checked: str) -> Component:
    base = ours or Component(key=theirs.key, release=f"mp-{theirs.key}" if theirs.chart else "")
    pin = Pin(theirs.chart, theirs.repository, theirs.version, checked, "the imported recipe") if theirs.chart else None
    known = {**{path: _shape(value) for path, value in leaves(theirs.values)}, **base.settings}

    def values(view: ClusterView) -> Values:
        return placed(deepcopy(theirs.values), ours, view)

    def manifests(_: ClusterView) -> tuple[dict[str, Json], ...]:
        return deepcopy(theirs.manifests)

    return replace(
        base,
        namespace=theirs.namespace,
        pin=pin,
        drivers=frozenset(theirs.drivers),
        depends_on=theirs.depends_on,
        values=values,
        settings=known,
        manifests=manifests if theirs.manifests else None,
    )


def _shape(value: Json) -> str:
    """The type that stands at a path which only the import sets; null is taken for an object."""
    if isinstance(value, bool):
        return "boolean"
    shapes: tuple[tuple[type, str], ...] = ((str, "string"), (int, "integer"), (float, "number"), (list, "array"))
    return next((name for kind, name in shapes if isinstance(value, kind)), "object")
