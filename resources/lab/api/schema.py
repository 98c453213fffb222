"""Types of API objects: which fields there are, how lists and maps merge. Built-ins from `kubernetes-validate`, others from CRDs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import orjson

# A JSON value of whatever shape.
Json = Any

Shape = Literal["map", "list", "scalar", "any"]

OLDEST_MINOR, NEWEST_MINOR = 25, 37  # what kubernetes-validate 1.37.0 carries
_REF = "#/$defs/"
# The published definitions leave defaults out; these two list keys have one, and without it an item has no identity.
KEY_DEFAULTS: Mapping[str, Any] = {"protocol": "TCP"}


class Type:
    """One node of a schema, read lazily. `shape` is "any" where the schema says nothing: maps merge, lists are replaced."""

    __slots__ = ("_extra", "_fields", "_item", "atomic", "defs", "keys", "list_type", "raw", "scalar", "shape")

    def __init__(self, raw: Mapping[str, Any], defs: Definitions | None) -> None:
        self.raw = raw
        self.defs = defs
        self._fields: dict[str, Type] | None = None
        self._item: Type | None = None
        self._extra: Type | None = None
        self.shape, self.scalar = _shape(raw)
        self.list_type = str(raw.get("x-kubernetes-list-type", "atomic"))
        self.keys = tuple(sorted(raw.get("x-kubernetes-list-map-keys", ())))
        # Owned and replaced as a whole by server-side apply.
        self.atomic = (
            self.shape == "scalar"
            or (self.shape == "list" and self.list_type == "atomic")
            or (self.shape == "map" and raw.get("x-kubernetes-map-type") == "atomic")
        )

    def _sub(self, raw: Mapping[str, Any]) -> Type:
        return self.defs.resolve(raw) if self.defs is not None else Type(raw, None)

    @property
    def fields(self) -> dict[str, Type]:
        """Declared fields; empty for a free map."""
        if self._fields is None:
            self._fields = {name: self._sub(raw) for name, raw in self.raw.get("properties", {}).items()}
        return self._fields

    @property
    def extra(self) -> Type:
        """The type of values under keys that aren't declared."""
        if self._extra is None:
            extra = self.raw.get("additionalProperties")
            self._extra = self._sub(extra) if isinstance(extra, dict) and extra else ANY
        return self._extra

    @property
    def item(self) -> Type:
        if self._item is None:
            items = self.raw.get("items")
            self._item = self._sub(items) if isinstance(items, dict) and items else ANY
        return self._item

    def child(self, key: str) -> Type:
        return self.fields.get(key) or self.extra

    @property
    def is_open(self) -> bool:
        """Undeclared keys are kept: a free map, or a schema that says so."""
        if self.shape == "any" or self.raw.get("x-kubernetes-preserve-unknown-fields"):
            return True
        extra = self.raw.get("additionalProperties")
        return bool(extra) or ("properties" not in self.raw and extra is not False)

    @property
    def patch_key(self) -> str:
        return str(self.raw.get("x-kubernetes-patch-merge-key", ""))

    @property
    def patch_merges(self) -> bool:
        return "merge" in str(self.raw.get("x-kubernetes-patch-strategy", ""))


def _shape(raw: Mapping[str, Any]) -> tuple[Shape, str]:
    if raw.get("x-kubernetes-int-or-string"):
        return "scalar", ""
    kind = raw.get("type")
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), None)
    if kind == "object" or (kind is None and "properties" in raw):
        return "map", ""
    if kind == "array":
        return "list", ""
    if kind is None:
        return ("scalar", "") if "oneOf" in raw or "format" in raw else ("any", "")
    return "scalar", str(kind)


ANY = Type({}, None)


class Definitions:
    """The built-in types of one Kubernetes minor version."""

    def __init__(self, defs: Mapping[str, Any]) -> None:
        self._defs = defs
        self._named: dict[str, Type] = {}
        self._kinds = {
            (gvk["group"], gvk["version"], gvk["kind"]): name
            for name, raw in defs.items()
            for gvk in raw.get("x-kubernetes-group-version-kind", ())
        }

    def resolve(self, raw: Mapping[str, Any]) -> Type:
        ref = raw.get("$ref")
        if ref is None:
            return Type(raw, self)
        name = str(ref).removeprefix(_REF)
        found = self._named.get(name)
        if found is None:
            found = self._named[name] = Type(self._defs[name], self)
            if name.endswith("resource.Quantity"):
                found.scalar = "quantity"
        return found

    def kind(self, group: str, version: str, kind: str) -> Type | None:
        """None where the version doesn't know the kind."""
        name = self._kinds.get((group, version, kind))
        return None if name is None else self.resolve({"$ref": _REF + name})


@cache
def definitions(minor: int) -> Definitions:
    """Of Kubernetes 1.`minor`, or of the nearest version there is. Loaded once (20 ms, some 15 MB)."""
    near = min(max(minor, OLDEST_MINOR), NEWEST_MINOR)
    spec = find_spec("kubernetes_validate")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("kubernetes-validate is not installed: run `make setup`")
    folder = Path(spec.origin).parent / "kubernetes-json-schema" / f"v1.{near}.0-local-strict"
    return Definitions(orjson.loads((folder / "_definitions.json").read_bytes())["$defs"])


def crd_type(schema: Mapping[str, Any], minor: int) -> Type:
    """The type of a custom resource: its own schema, with the API's `metadata`."""
    meta = definitions(minor).resolve({"$ref": _REF + "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"})
    root = Type({"type": "object", **schema}, None)
    root.fields.update({"apiVersion": Type({"type": "string"}, None), "kind": Type({"type": "string"}, None)})
    root.fields["metadata"] = meta
    return root
