"""Schema-driven walks over objects: which fields a configuration names, what changed, merging, pruning."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from resources.lab.api.fieldset import Node, Set, build, item_element, kids_of, member
from resources.lab.api.schema import ANY, Json, Type


class _Missing:
    """No value at all, as opposed to null."""


MISSING = _Missing()


def _granular(kind: Type, value: Json, other: Json = MISSING) -> str:
    """ "map" or "list" where server-side apply looks inside both values, "" where they are one leaf each."""
    if kind.atomic:
        return ""
    # Beside a container a null is an empty one.
    if value is None:
        value, other = other, value
    if isinstance(value, dict):
        return "map" if other is MISSING or other is None or isinstance(other, dict) else ""
    # Without a schema lists are atomic.
    if kind.shape == "list" and isinstance(value, list):
        return "list" if other is MISSING or other is None or isinstance(other, list) else ""
    return ""


def _indexed(items: list[Any], kind: Type) -> dict[str, Any]:
    return {item_element(item, kind): item for item in items}


def field_set(value: Json, kind: Type) -> Set:
    """The fields that an applied configuration names: its leaves, list items and empty maps, but not empty lists."""
    shape = _granular(kind, value)
    if not shape or not value:
        return None if shape == "list" else {}
    kids: Node = {}
    if shape == "map":
        for key, sub in value.items():
            node = field_set(sub, kind.child(key))
            if key in kind.fields:
                if node is not None:
                    kids[f"f:{key}"] = node
            else:
                # An entry of a free map is owned besides its content.
                kids[f"f:{key}"] = {".": {}, **node} if node else {}
        return build(kids, itself=False)
    for element, item in _indexed(value, kind).items():
        node = field_set(item, kind.item) or {}
        kids[element] = {".": {}, **node} if node else {}
    return build(kids, itself=False)


@dataclass(frozen=True, slots=True)
class Change:
    added: Set = None
    removed: Set = None
    modified: Set = None


NO_CHANGE = Change()


def compare(old: Json, new: Json, kind: Type) -> Change:
    """What differs between two values, by path; new containers are added as such, beside their leaves."""
    if old is MISSING:
        return Change(added=_all_of(new, kind))
    if new is MISSING:
        return Change(removed=_all_of(old, kind))
    if old is new or _same(old, new):
        return NO_CHANGE
    shape = _granular(kind, old, new)
    if not shape or (not old and not new):
        return Change(modified={})
    added: Node = {}
    removed: Node = {}
    modified: Node = {}
    for element, before, after, child in _pairs(old, new, kind, shape):
        change = compare(before, after, child)
        for part, kids in ((change.added, added), (change.removed, removed), (change.modified, modified)):
            if part is not None:
                kids[element] = part
    return Change(*(build(kids, itself=False) for kids in (added, removed, modified)))


def _all_of(value: Json, kind: Type) -> Node:
    """Every path at and below a value, containers included."""
    shape = _granular(kind, value)
    if not shape or not value:
        return {}
    if shape == "map":
        return {".": {}, **{f"f:{key}": _all_of(sub, kind.child(key)) for key, sub in value.items()}}
    return {".": {}, **{item_element(item, kind): _all_of(item, kind.item) for item in value}}


def _same(old: Json, new: Json) -> bool:
    return type(old) is type(new) and old == new


def _pairs(old: Json, new: Json, kind: Type, shape: str) -> list[tuple[str, Any, Any, Type]]:
    if shape == "map":
        old, new = old or {}, new or {}
        names = [*old, *(name for name in new if name not in old)]
        return [(f"f:{n}", old.get(n, MISSING), new.get(n, MISSING), kind.child(n)) for n in names]
    left, right = _indexed(old or [], kind), _indexed(new or [], kind)
    elements = [*left, *(element for element in right if element not in left)]
    return [(e, left.get(e, MISSING), right.get(e, MISSING), kind.item) for e in elements]


def merge(live: Json, config: Json, kind: Type) -> Json:
    """The live value with the configuration laid over it; list items keep the configuration's order."""
    if live is MISSING or live is None or config is None:
        return config
    shape = _granular(kind, live, config)
    if not shape:
        return config
    if shape == "map":
        out = dict(live)
        for key, value in config.items():
            out[key] = merge(live.get(key, MISSING), value, kind.child(key))
        return out
    return _merge_lists(_indexed(live, kind), _indexed(config, kind), kind)


def _merge_lists(left: dict[str, Any], right: dict[str, Any], kind: Type) -> list[Any]:
    """Both lists' items: the configuration's in its order, the others where they stood among the items both have."""
    shared = deque(element for element in right if element in left)
    waiting, wanted = deque(left), deque(right)
    out: list[str] = []
    placed: set[str] = set()

    def place(element: str) -> None:
        out.append(element)
        placed.add(element)
        if shared and shared[0] == element:
            shared.popleft()

    while waiting or wanted:
        here = waiting[0] if waiting else None
        if here is not None and here not in right:
            place(waiting.popleft())
        elif here is not None and (here in placed or (here != wanted[0] and shared and here != shared[0])):
            # An item that the configuration puts elsewhere.
            waiting.popleft()
        else:
            place(wanted.popleft())
    return [merge(left.get(e, MISSING), right[e], kind.item) if e in right else left[e] for e in out]


def prune(value: Json, kind: Type, last: Set, owned: Set) -> Json:
    """The value less what only `last` owned; null where nothing of it is left, which others may still own.

    A named field counts as owned when anything below it is; a list item or a map entry only by itself, so that giving
    one up removes it with the children that others set.
    """
    if last is None:
        return value
    shape = _granular(kind, value)
    if not shape or not value:
        return value
    out: Json = _pruned_map(value, kind, last, owned) if shape == "map" else _pruned_list(value, kind, last, owned)
    return out or None


def _pruned_map(value: dict[str, Any], kind: Type, last: Set, owned: Set) -> dict[str, Any]:
    out = dict(value)
    for element, node in kids_of(last):
        key = element.removeprefix("f:")
        if key in out:
            out[key] = _kept(out[key], kind.child(key), node, (owned or {}).get(element), named=key in kind.fields)
    return {key: kept for key, kept in out.items() if kept is not MISSING}


def _pruned_list(value: list[Any], kind: Type, last: Set, owned: Set) -> list[Any]:
    out = []
    for element, item in ((item_element(item, kind), item) for item in value):
        node = (last or {}).get(element)
        out.append(item if node is None else _kept(item, kind.item, node, (owned or {}).get(element), named=False))
    return [kept for kept in out if kept is not MISSING]


def _kept(value: Json, kind: Type, last: Node, owned: Set, *, named: bool) -> Json:
    in_last = member(last) or named
    in_owned = member(owned) or (named and owned is not None)
    return MISSING if in_last and not in_owned else prune(value, kind, last, owned)


def drop_nulls(value: Json, kind: Type = ANY) -> Json:
    """Without null fields, which the typed API treats as absent; a custom resource's `nullable` fields keep theirs."""
    if isinstance(value, dict):
        return {
            key: drop_nulls(sub, kind.child(key))
            for key, sub in value.items()
            if sub is not None or kind.child(key).raw.get("nullable")
        }
    if isinstance(value, list):
        return [drop_nulls(item, kind.item) for item in value]
    return value
