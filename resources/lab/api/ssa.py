"""Server-side apply and the bookkeeping of `managedFields` for all other writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from resources.lab.api.errors import ApiError, Cause
from resources.lab.api.fieldset import Set, difference, intersection, paths, union, without
from resources.lab.api.merge import compare, drop_nulls, field_set, merge, prune
from resources.lab.api.schema import Type

# Identity and the server's own bookkeeping.
NEVER_OWNED: Set = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {
        "f:name": {},
        "f:namespace": {},
        "f:generateName": {},
        "f:creationTimestamp": {},
        "f:deletionTimestamp": {},
        "f:deletionGracePeriodSeconds": {},
        "f:selfLink": {},
        "f:uid": {},
        "f:generation": {},
        "f:managedFields": {},
        "f:resourceVersion": {},
    },
}
_STATUS: Set = {"f:status": {}}
# Structs that Go holds by value, and lists that it always writes: they exist in an empty object, so that creating one
# doesn't own them as such. A custom resource has none of them but its metadata.
_SELF: Set = {".": {}}
_POD_SPEC: Set = {".": {}, "f:containers": _SELF}
_TEMPLATE: Set = {".": {}, "f:metadata": _SELF, "f:spec": _POD_SPEC}
_VALUES: Set = {
    "f:metadata": _SELF,
    "f:spec": {
        ".": {},
        "f:containers": _SELF,
        "f:strategy": _SELF,
        "f:template": _TEMPLATE,
        "f:updateStrategy": _SELF,
    },
    "f:status": _SELF,
}
_CUSTOM_VALUES: Set = {"f:metadata": _SELF}


@dataclass(frozen=True, slots=True)
class Writer:
    """Who owns fields: one entry of `managedFields`, told apart by all four."""

    manager: str
    operation: str
    api_version: str
    subresource: str = ""


Owners = dict[Writer, Set]


def _read(obj: Mapping[str, Any]) -> tuple[Owners, dict[Writer, str]]:
    owners: Owners = {}
    times: dict[Writer, str] = {}
    for entry in obj.get("metadata", {}).get("managedFields") or ():
        who = Writer(
            entry.get("manager", ""),
            entry.get("operation", "Update"),
            entry["apiVersion"],
            entry.get("subresource", ""),
        )
        owners[who] = entry.get("fieldsV1") or None
        times[who] = entry.get("time", "")
    return owners, times


def _write(owners: Owners, times: dict[Writer, str]) -> list[dict[str, Any]]:
    entries = []
    ranked = sorted(owners.items(), key=lambda kv: (kv[0].operation, times.get(kv[0], ""), kv[0].manager))
    for who, owned in ranked:
        if owned is None:
            continue
        entry = {
            "manager": who.manager,
            "operation": who.operation,
            "apiVersion": who.api_version,
            "time": times[who],
            "fieldsType": "FieldsV1",
            "fieldsV1": owned,
        }
        entries.append({**entry, "subresource": who.subresource} if who.subresource else entry)
    return entries


def _ignored(subresource: str, *, has_status: bool) -> Set:
    return union(NEVER_OWNED, _STATUS) if has_status and subresource != "status" else NEVER_OWNED


def _disown(owners: Owners, gone: Set, *, but: Writer) -> None:
    for who in [who for who in owners if who != but]:
        owners[who] = difference(owners[who], gone)


def _finish(new: dict[str, Any], owners: Owners, times: dict[Writer, str], before: Owners, now: str) -> dict[str, Any]:
    for who, owned in owners.items():
        if who not in before or before[who] != owned:
            times[who] = now
    metadata = {key: value for key, value in new["metadata"].items() if key != "managedFields"}
    entries = _write(owners, times)
    return {**new, "metadata": {**metadata, "managedFields": entries} if entries else metadata}


@dataclass(frozen=True, slots=True)
class Scope:
    """What the bookkeeping needs to know of one write."""

    kind: Type
    writer: Writer
    now: str
    has_status: bool = False

    @property
    def ignored(self) -> Set:
        return _ignored(self.writer.subresource, has_status=self.has_status)


def record_update(old: Mapping[str, Any] | None, new: dict[str, Any], scope: Scope) -> dict[str, Any]:
    """The new object with its `managedFields` after a create, a PUT or a patch by `scope.writer`."""
    if new["metadata"].get("managedFields") == []:
        # An explicit empty list is the documented way to forget all owners.
        return {**new, "metadata": {k: v for k, v in new["metadata"].items() if k != "managedFields"}}
    owners, times = _read(old or new if old is not None else {})
    before = dict(owners)
    base = old if old is not None else {}
    change = compare(_plain(base), _plain(new), scope.kind)
    changed = union(change.added, change.modified)
    if old is None:
        changed = difference(changed, _CUSTOM_VALUES if scope.kind.defs is None else _VALUES)
    _disown(owners, union(changed, change.removed), but=scope.writer)
    own = union(difference(owners.get(scope.writer), change.removed), changed)
    owners[scope.writer] = without(own, scope.ignored)
    return _finish(new, owners, times, before, scope.now)


def _plain(obj: Mapping[str, Any]) -> dict[str, Any]:
    metadata = obj.get("metadata", {})
    return {**obj, "metadata": {k: v for k, v in metadata.items() if k not in {"managedFields", "resourceVersion"}}}


def apply(live: Mapping[str, Any], config: dict[str, Any], scope: Scope, *, force: bool) -> dict[str, Any]:
    """The live object after a server-side apply; 409 with one cause a field that another manager holds, unless forced.

    `live` is the bare identity of the object where it doesn't exist yet.
    """
    owners, times = _read(live)
    before = dict(owners)
    last = owners.get(scope.writer)
    wanted = field_set(config, scope.kind)
    base = _plain(live)
    merged = merge(base, config, scope.kind)
    # Identity counts as owned until the pruning is done: it keeps `metadata` in place.
    owners[scope.writer] = wanted
    everyone: Set = None
    for owned in owners.values():
        everyone = union(everyone, owned)
    merged = prune(merged, scope.kind, last, everyone)
    owners[scope.writer] = without(wanted, scope.ignored)
    change = compare(base, merged, scope.kind)
    changed = union(change.added, change.modified)
    conflicts = {
        who: clash
        for who, owned in owners.items()
        if who != scope.writer and (clash := intersection(changed, owned)) is not None
    }
    if conflicts and not force:
        raise _conflict(conflicts)
    for who, clash in conflicts.items():
        owners[who] = difference(owners[who], clash)
    _disown(owners, change.removed, but=scope.writer)
    out = drop_nulls({**merged, "metadata": {**merged["metadata"]}}, scope.kind)
    if "resourceVersion" in live["metadata"]:
        out["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
    return _finish(out, owners, times, before, scope.now)


def _conflict(conflicts: Mapping[Writer, Set]) -> ApiError:
    causes: list[Cause] = []
    for who, clash in sorted(conflicts.items(), key=lambda kv: kv[0].manager):
        by = f'conflict with "{who.manager}"'
        if who.subresource:
            by += f' with subresource "{who.subresource}"'
        if who.operation != "Apply":
            by += f" using {who.api_version}"
        causes.extend(Cause("FieldManagerConflict", by, path) for path in paths(clash))
    count = len(causes)
    words = "1 conflict" if count == 1 else f"{count} conflicts"
    listed = f"{causes[0].message}: {causes[0].field}" if count == 1 else _listed(causes)
    return ApiError(409, f"Apply failed with {words}: {listed}", causes=tuple(causes))


def _listed(causes: list[Cause]) -> str:
    by: dict[str, list[str]] = {}
    for cause in causes:
        by.setdefault(cause.message, []).append(cause.field)
    return "\n".join(
        f"conflicts{who.removeprefix('conflict')}:\n" + "\n".join(f"- {path}" for path in fields)
        for who, fields in by.items()
    )
