"""Sets of field paths in the form `managedFields` writes them, and their algebra.

A set is a tree of path elements (`f:NAME`, `k:{"name":"x"}`, `v:"x"`); a path is a member when its node is empty or
holds ".". The empty set is None, which JSON can't tell from a leaf: `{}` at the root never occurs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from resources.lab.api.schema import KEY_DEFAULTS, Json, Type

Node = dict[str, Any]
Set = Node | None
SELF = "."


def member(node: Set) -> bool:
    return node is not None and (not node or SELF in node)


def build(kids: Node, *, itself: bool) -> Set:
    if not kids:
        return {} if itself else None
    return {SELF: {}, **kids} if itself else kids


def kids_of(node: Set) -> Iterator[tuple[str, Node]]:
    return ((key, kid) for key, kid in (node or {}).items() if key != SELF)


def union(a: Set, b: Set) -> Set:
    if a is None or b is None:
        return b if a is None else a
    kids: Node = dict(kids_of(a))
    for key, kid in kids_of(b):
        kids[key] = union(kids.get(key), kid)
    return build(kids, itself=member(a) or member(b))


def _filtered(pairs: Iterator[tuple[str, Set]]) -> Node:
    return {key: kid for key, kid in pairs if kid is not None}


def difference(a: Set, b: Set) -> Set:
    """Members of `a` that aren't members of `b`; a member of `b` doesn't take its children along."""
    if a is None or b is None:
        return a
    kids = _filtered((key, difference(kid, b.get(key)) if key in b else kid) for key, kid in kids_of(a))
    return build(kids, itself=member(a) and not member(b))


def without(a: Set, b: Set) -> Set:
    """`a` less every path of `b` and all below it."""
    if a is None or b is None:
        return a
    if member(b):
        return None
    kids = _filtered((key, without(kid, b.get(key)) if key in b else kid) for key, kid in kids_of(a))
    return build(kids, itself=member(a))


def intersection(a: Set, b: Set) -> Set:
    if a is None or b is None:
        return None
    kids = _filtered((key, intersection(kid, b[key])) for key, kid in kids_of(a) if key in b)
    return build(kids, itself=member(a) and member(b))


def item_element(item: Json, kind: Type) -> str:
    """How a list item is named: by its keys in a list of type map, by its value in one of type set."""
    if kind.list_type == "set" or not isinstance(item, dict):
        return "v:" + orjson.dumps(item).decode()
    keys = {key: item.get(key, KEY_DEFAULTS.get(key)) for key in kind.keys}
    return "k:" + orjson.dumps({key: value for key, value in keys.items() if value is not None}).decode()


def paths(node: Set, prefix: str = "") -> Iterator[str]:
    """Members as kube-apiserver prints them in conflicts: `.spec.containers[name="x"].image`."""
    if prefix and member(node):
        yield prefix
    for key, kid in kids_of(node):
        yield from paths(kid, prefix + _printed(key))


def _printed(element: str) -> str:
    mark, _, rest = element.partition(":")
    if mark == "f":
        return f".{rest}"
    if mark == "k":
        keys = [f"{name}={orjson.dumps(value).decode()}" for name, value in orjson.loads(rest).items()]
        return f"[{','.join(keys)}]"
    return f"[={rest}]"
