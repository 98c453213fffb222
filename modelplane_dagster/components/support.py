"""Which drivers a source supports: derived from what the components of its lists publish, and from what is external."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from modelplane_dagster.cluster import ExternalDriver
from modelplane_dagster.components.lists import externals
from modelplane_dagster.components.types import Component


@dataclass(frozen=True, slots=True)
class Support:
    """`via` are the components that publish the driver; `external` says who else serves it, empty for nobody."""

    via: tuple[str, ...] = ()
    external: str = ""


def supported(
    source: str, components: Iterable[Component], external: Iterable[ExternalDriver] = ()
) -> Mapping[str, Support]:
    """By driver, sorted. `external` are those that a cluster's platform team runs itself: they take the place of the
    components that would publish them, which the join then leaves out."""
    via: dict[str, list[str]] = {}
    for component in components:
        for driver in component.published:
            via.setdefault(driver, []).append(component.key)
    rows = {driver: Support(via=tuple(sorted(keys))) for driver, keys in via.items()}
    for driver, fabric in externals(source).items():
        rows.setdefault(driver, Support(external=f"where a pool has fabric: {fabric}"))
    for item in external:
        rows[item.driver] = Support(external="the platform team runs it")
    return dict(sorted(rows.items()))
