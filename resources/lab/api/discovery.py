"""What `/api` and `/apis` answer: the legacy documents and the aggregated one."""

from __future__ import annotations

from typing import Any

from resources.lab.api.table import ALL_VERBS, Resource, Table

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def wants_aggregated(accept: str) -> bool:
    return "apidiscovery.k8s.io" in accept and "v=v2;" in accept.replace(" ", "") + ";"


def api_versions(host: str) -> dict[str, Any]:
    address = [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": address}


def _group(group: str, versions: list[str]) -> dict[str, Any]:
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": listed, "preferredVersion": listed[0]}


def group_list(table: Table) -> dict[str, Any]:
    groups = [_group(group, list(versions)) for group, versions in table.group_versions().items() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(table: Table, name: str) -> dict[str, Any] | None:
    versions = table.group_versions().get(name)
    return (
        None if not versions or not name else {"kind": "APIGroup", "apiVersion": "v1", **_group(name, list(versions))}
    )


def resource_list(table: Table, name: str, version: str) -> dict[str, Any] | None:
    resources = table.group_versions().get(name, {}).get(version)
    if resources is None:
        return None
    entries: list[dict[str, Any]] = []
    for resource in resources:
        entry: dict[str, Any] = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": list(ALL_VERBS),
        }
        if resource.short:
            entry["shortNames"] = list(resource.short)
        if resource.categories:
            entry["categories"] = list(resource.categories)
        entries.append(entry)
        entries.extend(_subresources(resource))
    group_version = f"{name}/{version}" if name else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": entries}


_SUB_KINDS = {"binding": "Binding", "eviction": "Eviction", "scale": "Scale"}


def _sub_verbs(subresource: str) -> list[str]:
    return ["create"] if subresource in {"binding", "eviction"} else ["get", "patch", "update"]


def _subresources(resource: Resource) -> list[dict[str, Any]]:
    return [
        {
            "name": f"{resource.plural}/{sub}",
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": _SUB_KINDS.get(sub, resource.kind),
            "verbs": _sub_verbs(sub),
        }
        for sub in resource.subresources
    ]


def _aggregated_resource(resource: Resource) -> dict[str, Any]:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    out: dict[str, Any] = {
        "resource": resource.plural,
        "responseKind": kind,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(ALL_VERBS),
    }
    if resource.short:
        out["shortNames"] = list(resource.short)
    if resource.categories:
        out["categories"] = list(resource.categories)
    if resource.subresources:
        out["subresources"] = [
            {
                "subresource": sub,
                "responseKind": {**kind, "kind": _SUB_KINDS.get(sub, resource.kind)},
                "verbs": _sub_verbs(sub),
            }
            for sub in resource.subresources
        ]
    return out


def aggregated(table: Table, *, core: bool) -> dict[str, Any]:
    """The core group's versions for `/api`, all others' for `/apis`."""
    items = []
    for name, versions in table.group_versions().items():
        if core != (name == ""):
            continue
        listed = [
            {"version": version, "freshness": "Current", "resources": [_aggregated_resource(r) for r in resources]}
            for version, resources in versions.items()
        ]
        items.append({"metadata": {"name": name, "creationTimestamp": None} if name else {}, "versions": listed})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }
