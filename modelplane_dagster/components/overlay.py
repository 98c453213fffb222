"""A site's overlay on the component lists: other versions, repositories, values, tags, by component key."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.components.effective import merged
from modelplane_dagster.components.types import Component, Json, Same, Values
from modelplane_dagster.errors import ConfigError
from modelplane_dagster.findings import Finding, finding, ordered

FIELDS = ("version", "repository", "values", "drivers", "publishes")
_DRIVER = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")


def overlaid(
    components: tuple[Component, ...], overlay: Mapping[str, Mapping[str, Any]], *, known: frozenset[str] | None = None
) -> tuple[Component, ...]:
    """`components` with the overlay applied. `version` and `repository` replace the pin's, `values` are merged over
    the component's own as Helm merges (null takes a value away), `drivers` replaces its tags, `publishes` (a driver or
    a list of them) what it publishes. A tag alone supports nothing; what a component publishes is supported.

    `known` are the keys that may stand in it beyond those of `components`. Raises ConfigError with `OverlayInvalid`
    findings.
    """
    by_key = {c.key: c for c in components}
    problems = ordered(_problems(overlay, by_key, (known or frozenset()) | by_key.keys()))
    if problems:
        raise ConfigError(f"The component overlay is invalid: {problems[0].message}", findings=problems)
    return tuple(_changed(c, overlay[c.key]) if c.key in overlay else c for c in components)


def overlay_findings(overlay: Json, components: Iterable[Component]) -> tuple[Finding, ...]:
    """What is wrong with an overlay whatever the source; empty for nothing. `components` are those of every list."""
    by_key = {c.key: c for c in components}
    return ordered(_problems(overlay, by_key, frozenset(by_key)))


def _problems(overlay: Json, by_key: Mapping[str, Component], known: frozenset[str]) -> Iterator[Finding]:
    if not isinstance(overlay, Mapping):
        yield finding("OverlayInvalid", "overlay", "The overlay is no mapping of component keys.")
        return
    for key, entry in overlay.items():
        subject = f"overlay/{key}"
        if key not in known:
            yield finding("OverlayInvalid", subject, f"There is no component {key}{_near(str(key), known)}.")
        elif not isinstance(entry, Mapping):
            yield finding("OverlayInvalid", subject, f"The entry of {key} is no mapping of fields.")
        else:
            for name, value in entry.items():
                yield from _field(subject, str(name), value, by_key.get(key))


def _field(subject: str, name: str, value: Json, component: Component | None) -> Iterator[Finding]:
    if name not in FIELDS:
        yield finding("OverlayInvalid", subject, f"An overlay has no field {name}{_near(name, FIELDS)}.")
    elif name in {"version", "repository"}:
        if not isinstance(value, str) or not value:
            yield finding("OverlayInvalid", subject, f"{name} takes a string.")
        elif component is not None and component.pin is None:
            yield finding("OverlayInvalid", subject, f"{component.key} is no chart, so it has no {name}.")
    elif name == "values":
        if not isinstance(value, Mapping):
            yield finding("OverlayInvalid", subject, "values takes a mapping.")
        elif component is not None and component.pin is None:
            yield finding("OverlayInvalid", subject, f"{component.key} is no chart, so it has no values.")
    else:
        names = [value] if isinstance(value, str) and name == "publishes" else value
        if not isinstance(names, list) or not all(isinstance(n, str) and _DRIVER.fullmatch(n) for n in names):
            yield finding("OverlayInvalid", subject, f"{name} takes a list of whole driver names, such as gpu.amd.com.")


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; the nearest is {near[0]}" if near else ""


def _changed(component: Component, entry: Mapping[str, Any]) -> Component:
    changed = component
    if component.pin is not None and ("version" in entry or "repository" in entry):
        pin = replace(
            component.pin,
            version=entry.get("version", component.pin.version),
            repository=entry.get("repository", component.pin.repository),
            read="the site's overlay",
        )
        changed = replace(changed, pin=pin)
    if "values" in entry:
        changed = replace(changed, values=_over(component.values, entry["values"]))
    if "drivers" in entry:
        changed = replace(changed, drivers=frozenset(entry["drivers"]))
    if "publishes" in entry:
        given = entry["publishes"]
        names = [given] if isinstance(given, str) else list(given)
        first = component.publishes if component.publishes in names else (names[0] if names else "")
        changed = replace(changed, publishes=first, publishes_more=frozenset(names) - {first})
    return changed


def _over(own: Callable[[ClusterView], Values] | None, extra: Mapping[str, Any]) -> Callable[[ClusterView], Values]:
    if own is None or isinstance(own, Same):
        return Same(merged(own.value if own is not None else {}, extra))

    def values(view: ClusterView) -> Values:
        return merged(own(view), extra)

    return values
