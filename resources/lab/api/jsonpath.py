"""The JSONPath subset that CRD printer columns use: fields, quoted names, indexes, one equality filter, wildcards."""

from __future__ import annotations

import re
from typing import Any

from resources.lab.api.schema import Json

_STEP = re.compile(
    r"""\.?\[\?\(@\.(?P<fkey>[\w.\-]+)\s*==\s*["'](?P<fvalue>[^"']*)["']\)\]"""
    r"""|\.?\[["'](?P<quoted>[^"']+)["']\]|\.?\[(?P<index>-?\d+|\*)\]|\.(?P<name>(?:\\.|[^.\[\\])+)"""
)


def find(obj: Json, path: str) -> list[Any]:
    """Every value at the path; empty where there is none or the path isn't understood."""
    values, at = [obj], 0
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            return []
        at = step.end()
        values = [found for value in values for found in _take(value, step)]
    return [value for value in values if value is not None]


def _take(value: Json, step: re.Match[str]) -> list[Any]:
    name = step["quoted"] or (step["name"] or "").replace("\\.", ".")
    if name == "*":
        return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    if name:
        return [value[name]] if isinstance(value, dict) and name in value else []
    if not isinstance(value, list):
        return []
    if step["index"] == "*":
        return value
    if step["index"]:
        at = int(step["index"])
        return [value[at]] if -len(value) <= at < len(value) else []
    return [item for item in value if [str(v) for v in find(item, "." + step["fkey"])] == [step["fvalue"]]]
