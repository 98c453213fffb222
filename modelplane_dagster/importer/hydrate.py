"""A component's values as they are imported: the bundle's, the recipe's overrides over them, and what must hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy

from modelplane_dagster.components.effective import MISSING, at, merged
from modelplane_dagster.components.types import Json, Values
from modelplane_dagster.findings import Finding, finding
from modelplane_dagster.importer.tables import FORCED, MANAGED
from modelplane_dagster.importer.types import Change

SHOWN = 120


def hydrated(component: str, values: Values, overrides: Values | None) -> tuple[Values, tuple[Change, ...]]:
    """The bundle's values with the recipe's overrides merged over them, where null takes a key away, and the places
    where that says otherwise than the bundle (which usually holds the overrides already)."""
    made = merged(values, overrides or {})
    changes = [
        Change(component, path, _or_none(at(values, path)), _or_none(at(made, path)), "the recipe's overrides say so")
        for path, _ in leaves(overrides or {})
        if _or_none(at(values, path)) != _or_none(at(made, path))
    ]
    return made, tuple(changes)


def forced(component: str, values: Values) -> tuple[Values, tuple[Change, ...]]:
    """The values with what the importer sets itself."""
    made = deepcopy(values)
    changes = []
    for row in FORCED:
        before = _or_none(at(values, row.path))
        if row.component == component and not same(before, row.value):
            made = merged(made, _nested(row.path, row.value))
            changes.append(Change(component, row.path, before, row.value, row.reason))
    return made, tuple(changes)


def managed_findings(component: str, values: Values, source: str) -> Iterator[Finding]:
    """`ManagedPathMissing` for each managed path that doesn't hold its value, of the same type."""
    for row in MANAGED:
        if row.component != component or source in row.except_on:
            continue
        expected, seen = row.on(source), at(values, row.path)
        if seen is MISSING or not same(seen, expected):
            shown = "isn't there" if seen is MISSING else f"is {shown_value(seen)}"
            yield finding(
                "ManagedPathMissing",
                f"component/{source}/{component}",
                f"Of {component}, {row.path} must be {shown_value(expected)}, and in the bundle it {shown}.",
                fix=f"Make the bundle again with --set of {row.path} to {shown_value(expected)} for {component}.",
            )


def leaves(node: Json, prefix: str = "") -> Iterator[tuple[str, Json]]:
    """Each dotted path with what stands there, down to what isn't a mapping or is an empty one."""
    for name, child in node.items():
        path = f"{prefix}{name}"
        if isinstance(child, dict) and child:
            yield from leaves(child, f"{path}.")
        else:
            yield path, child


def same(one: Json, other: Json) -> bool:
    """Equal and of one type: the text "true" isn't true, nor is 1."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def shown_value(value: Json) -> str:
    """As JSON, cut short where a person couldn't take it in at a glance."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _or_none(value: Json) -> Json:
    return None if value is MISSING else value


def _nested(path: str, value: Json) -> Values:
    result: Json = value
    for part in reversed(path.split(".")):
        result = {part: result}
    return result
