"""The OpenAPI v3 documents that helm and kubectl ask for before they write: paths and the query parameters they look up."""

from __future__ import annotations

from typing import Any

from resources.lab.api.table import Resource, Table

_QUERY = ("dryRun", "fieldManager", "fieldValidation", "force", "pretty")
_PATCH_TYPES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)


def index(table: Table) -> dict[str, Any]:
    """One path a group version; the hash changes with the CRDs, so that clients may cache."""
    out = {}
    for group, versions in table.group_versions().items():
        for version in versions:
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            out[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={table.serial:08X}"}
    return {"paths": out}


def _parameters(*, patch: bool) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "query",
            "schema": {"type": "boolean" if name == "force" else "string", "uniqueItems": True},
        }
        for name in _QUERY
        if patch or name != "force"
    ]


def _operation(resource: Resource, action: str) -> dict[str, Any]:
    patch = action == "patch"
    operation: dict[str, Any] = {
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {
            "group": resource.group,
            "version": resource.version,
            "kind": resource.kind,
        },
        "responses": {"200": {"description": "OK"}},
    }
    if action in {"patch", "post", "put"}:
        operation["parameters"] = _parameters(patch=patch)
        types = _PATCH_TYPES if patch else ("*/*",)
        operation["requestBody"] = {"content": {name: {"schema": {"type": "object"}} for name in types}}
    return operation


def document(table: Table, group: str, version: str) -> dict[str, Any] | None:
    """None where the group version isn't served."""
    resources = table.group_versions().get(group, {}).get(version)
    if resources is None:
        return None
    prefix = f"/apis/{group}/{version}" if group else f"/api/{version}"
    paths: dict[str, Any] = {}
    for resource in resources:
        base = (
            f"{prefix}/namespaces/{{namespace}}/{resource.plural}"
            if resource.namespaced
            else f"{prefix}/{resource.plural}"
        )
        paths[base] = {"get": _operation(resource, "list"), "post": _operation(resource, "post")}
        paths[f"{base}/{{name}}"] = {
            "get": _operation(resource, "get"),
            "put": _operation(resource, "put"),
            "patch": _operation(resource, "patch"),
            "delete": _operation(resource, "delete"),
        }
    info = {"title": "Kubernetes", "version": "unversioned"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": {}}}
