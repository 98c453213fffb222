"""JSON patch, merge patch and strategic merge patch."""

from __future__ import annotations

from typing import Any

from resources.lab.api.errors import ApiError, bad_request
from resources.lab.api.schema import Json, Type


def merge_patch(target: Json, patch: Json) -> Json:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    out = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merge_patch(out.get(key), value)
    return out


def json_patch(target: Json, patch: Json) -> Json:
    """RFC 6902; 422 where a path isn't there or a test fails. `target` is changed: hand in a copy."""
    if not isinstance(patch, list):
        raise bad_request("error decoding patch: a JSON patch is a list of operations")
    doc = {"": target}
    for operation in patch:
        try:
            _operate(doc, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise _unpatchable(operation) from error
    return doc[""]


def _unpatchable(operation: Json) -> ApiError:
    word = operation.get("op") if isinstance(operation, dict) else operation
    path = operation.get("path") if isinstance(operation, dict) else ""
    return ApiError(422, f"the server rejected our request due to an error in our request: {word} {path}")


def _operate(doc: dict[str, Any], operation: dict[str, Any]) -> None:
    word = operation["op"]
    if word in {"move", "copy"}:
        source = _get(doc, operation["from"])
        if word == "move":
            _remove(doc, operation["from"])
        _add(doc, operation["path"], source)
    elif word == "add":
        _add(doc, operation["path"], operation["value"])
    elif word == "remove":
        _remove(doc, operation["path"])
    elif word == "replace":
        _get(doc, operation["path"])
        parent, key = _parent(doc, operation["path"])
        parent[int(key) if isinstance(parent, list) else key] = operation["value"]
    elif word == "test":
        if _get(doc, operation["path"]) != operation.get("value"):
            raise ValueError("test failed")
    else:
        raise ValueError(f"unknown operation {word}")


def _parts(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise ValueError(path)
    return ["", *(part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:])]


def _parent(doc: Json, path: str) -> tuple[Any, str]:
    *front, last = _parts(path)
    for part in front:
        doc = doc[int(part)] if isinstance(doc, list) else doc[part]
    return doc, last


def _get(doc: Json, path: str) -> Json:
    parent, key = _parent(doc, path)
    return parent[int(key)] if isinstance(parent, list) else parent[key]


def _add(doc: Json, path: str, value: Json) -> None:
    parent, key = _parent(doc, path)
    if isinstance(parent, list):
        at = len(parent) if key == "-" else int(key)
        if not 0 <= at <= len(parent):
            raise IndexError(path)
        parent.insert(at, value)
    else:
        parent[key] = value


def _remove(doc: Json, path: str) -> None:
    parent, key = _parent(doc, path)
    del parent[int(key) if isinstance(parent, list) else key]


_DIRECTIVES = ("$patch", "$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys")


def strategic(target: Json, patch: Json, kind: Type) -> Json:
    """Strategic merge patch, driven by the type's patch strategy and merge keys."""
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if patch.get("$patch") == "delete":
        return {}
    out = dict(target) if isinstance(target, dict) else {}
    if retain := patch.get("$retainKeys"):
        out = {key: value for key, value in out.items() if key in retain}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            out[name] = [item for item in out.get(name) or [] if item not in value]
        elif value is None:
            out.pop(key, None)
        elif not key.startswith(_DIRECTIVES):
            out[key] = _strategic_field(out.get(key), value, kind.child(key))
    for key, order in patch.items():
        if key.startswith("$setElementOrder/"):
            name = key.partition("/")[2]
            if isinstance(out.get(name), list):
                out[name] = _ordered(out[name], order, kind.child(name).patch_key)
    return out


def _strategic_field(have: Json, value: Json, kind: Type) -> Json:
    if isinstance(value, list) and kind.patch_merges:
        return _strategic_list(have or [], value, kind)
    return strategic(have, value, kind) if isinstance(value, dict) else value


def _strategic_list(target: list[Any], patch: list[Any], kind: Type) -> list[Any]:
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if not (isinstance(item, dict) and item.get("$patch") == "replace")]
    key = kind.patch_key
    if not key:
        return [*target, *(item for item in patch if item not in target)]
    out = list(target)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        at = next((i for i, have in enumerate(out) if have.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            out = [have for have in out if have.get(key) != item[key]]
        elif at is None:
            out.append(strategic({}, item, kind.item))
        else:
            out[at] = strategic(out[at], item, kind.item)
    return out


def _ordered(items: list[Any], order: list[Any], key: str) -> list[Any]:
    """Items that the patch orders in its order; the others stay in front of those they stood before."""
    ranks = {(entry.get(key) if isinstance(entry, dict) else entry): i for i, entry in enumerate(order)}
    known = sorted((i for i in items if _id(i, key) in ranks), key=lambda i: ranks[_id(i, key)])
    out, queue = [], iter(known)
    for item in items:
        out.append(next(queue) if _id(item, key) in ranks else item)
    return out


def _id(item: Json, key: str) -> Json:
    return item.get(key) if isinstance(item, dict) else item
