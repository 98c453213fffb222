"""Requests for objects: get, list, watch, create, update, patch, delete and the subresources."""

from __future__ import annotations

import base64
import random
from dataclasses import dataclass
from typing import Any

import orjson

from resources.lab.api import tables
from resources.lab.api.clusters import Cluster
from resources.lab.api.errors import ApiError, Cause, bad_request, invalid
from resources.lab.api.request import Request, Target, is_true, target
from resources.lab.api.schema import Json
from resources.lab.api.selectors import Match, matcher
from resources.lab.api.storage import Entry, Obj
from resources.lab.api.watch import Feed, Watch
from resources.lab.api.writes import Delete, PatchKind

Reply = tuple[int, bytes] | tuple[int, bytes, bytes]

_PATCHES: dict[str, PatchKind] = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
}
# Deleting these answers with the object, all others with a Status.
_RETURN_DELETED = {("", "pods"), ("", "services"), ("", "persistentvolumes"), ("", "persistentvolumeclaims")} | {
    ("", "serviceaccounts")
}


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer that goes on: a watch."""

    feed: Feed


class Objects:
    """Answers one request about objects. `answer` raises `ApiError` for every refusal."""

    def __init__(self, cluster: Cluster, request: Request) -> None:
        self._store = cluster.store
        self._request = request
        self._query = request.query
        self._target: Target = target(cluster.store.table, request.parts)

    def answer(self) -> Reply | Stream:
        method, at = self._request.method, self._target
        if at.subresource in {"binding", "eviction", "scale"}:
            return self._special()
        match method, bool(at.name):
            case (("GET" | "HEAD"), True) if is_true(self._query.get("watch", "")):
                return self._watch()
            case (("GET" | "HEAD"), True):
                return self._one(self._store.entry(at.resource, at.name, at.namespace))
            case (("GET" | "HEAD"), False):
                return self._watch() if is_true(self._query.get("watch", "")) else self._list()
            case "POST", False:
                return self._create()
            case "PUT", True:
                how = self._request.write(at.subresource)
                body = self._request.json()
                return self._reply(
                    200, self._store.update(at.resource, body, name=at.name, namespace=at.namespace, how=how)
                )
            case "PATCH", True:
                return self._patch()
            case "DELETE", True:
                return self._delete()
            case "DELETE", False:
                return self._delete_collection()
        raise ApiError(405, "the server does not allow this method on the requested resource")

    # Forms of an answer

    @property
    def _accept(self) -> str:
        return self._request.header("accept").replace(" ", "")

    def _form(self) -> str:
        """ "Table", "PartialObjectMetadata", "PartialObjectMetadataList" or "" for the object itself."""
        for part in self._accept.split(","):
            if "as=Table" in part and "v=v1" in part.replace("v=v1beta1", ""):
                return "Table"
            if "as=PartialObjectMetadataList" in part:
                return "PartialObjectMetadataList"
            if "as=PartialObjectMetadata" in part:
                return "PartialObjectMetadata"
            if part.startswith(("application/json", "*/*")) and "as=" not in part:
                return ""
        return ""

    def _reply(self, status: int, obj: Obj) -> Reply:
        return self._one(Entry(obj), status)

    def _one(self, entry: Entry, status: int = 200) -> Reply:
        form, resource = self._form(), self._target.resource
        shown = self._store.at_version(resource, entry)
        if form == "Table":
            metadata = {"resourceVersion": shown.obj["metadata"].get("resourceVersion", "")}
            return status, orjson.dumps(tables.render(resource, [shown.obj], metadata, include=self._include()))
        if form == "PartialObjectMetadata":
            return status, orjson.dumps(tables.partial(shown.obj))
        return status, shown.raw

    def _include(self) -> str:
        return self._query.get("includeObject") or "Metadata"

    # Reading

    def _matcher(self) -> Match | None:
        query = self._query
        return matcher(self._target.resource, query.get("labelSelector", ""), query.get("fieldSelector", ""))

    def _list(self) -> Reply:
        resource, form = self._target.resource, self._form()
        metadata: dict[str, Any] = {"resourceVersion": str(self._store.storage.version)}
        page, more, left = self._page(self._matcher())
        if more:
            metadata["continue"] = more
            if left is not None:
                metadata["remainingItemCount"] = left
        if form == "Table":
            rendered = tables.render(resource, (entry.obj for entry in page), metadata, include=self._include())
            return 200, orjson.dumps(rendered)
        if form == "PartialObjectMetadataList":
            head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
            return 200, orjson.dumps({**head, "items": [tables.partial(entry.obj) for entry in page]})
        head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
        return 200, orjson.dumps(head)[:-1] + b',"items":[' + b",".join(self._item(entry) for entry in page) + b"]}"

    def _item(self, entry: Entry) -> bytes:
        """Items of built-in kinds don't say what they are: the list does."""
        resource = self._target.resource
        if resource.custom:
            return entry.raw
        version, kind = f'"apiVersion":"{resource.api_version}"', f'"kind":"{resource.kind}"'
        for head in (f"{{{version},{kind},", f"{{{kind},{version},"):
            if entry.raw.startswith(head.encode()):
                return b"{" + entry.raw[len(head) :]
        return orjson.dumps({k: v for k, v in entry.obj.items() if k not in {"apiVersion", "kind"}})

    def _page(self, match: Match | None) -> tuple[list[Entry], str, int | None]:
        """The entries of one page, the token for the next, and how many are left (None where a selector hides it)."""
        resource, namespace = self._target.resource, self._target.namespace
        limit = int(self._query.get("limit") or 0)
        after = _unpack(self._query.get("continue", ""))
        page: list[Entry] = []
        last = ("", "")
        left = 0
        for name, entry in self._store.storage.entries(resource.key, namespace):
            if after is not None and name <= after:
                continue
            shown = self._store.at_version(resource, entry)
            if match is not None and not match(shown.obj):
                continue
            if limit and len(page) == limit:
                left += 1
                continue
            page.append(shown)
            last = name
        return page, _pack(last) if left else "", left if match is None else None

    def _watch(self) -> Stream:
        query, at = self._query, self._target
        version = query.get("resourceVersion", "")
        initial = is_true(query.get("sendInitialEvents", ""))
        if not version.isdigit() and version:
            raise bad_request(f"invalid resource version {version!r}")
        watch = Watch(
            at.resource,
            at.namespace,
            at.name,
            self._matcher(),
            int(version) if version not in {"", "0"} else None,
            initial,
            is_true(query.get("allowWatchBookmarks", "")),
            float(query.get("timeoutSeconds") or random.uniform(1800, 3600)),
        )
        return Stream(Feed(self._store, watch, self._watch_form()))

    def _watch_form(self) -> Json:
        resource, include = self._target.resource, self._include()
        heads = iter([True])

        def table(entry: Entry) -> bytes:
            metadata = {"resourceVersion": entry.obj["metadata"]["resourceVersion"]}
            first = next(heads, False)
            return orjson.dumps(tables.render(resource, [entry.obj], metadata, include=include, heads=first))

        match self._form():
            case "Table":
                return table
            case "PartialObjectMetadata" | "PartialObjectMetadataList":
                return lambda entry: orjson.dumps(tables.partial(entry.obj))
        return lambda entry: entry.raw

    # Writing

    def _create(self) -> Reply:
        at, how = self._target, self._request.write("")
        return self._reply(201, self._store.create(at.resource, self._request.json(), namespace=at.namespace, how=how))

    def _patch(self) -> Reply:
        at, how = self._target, self._request.write(self._target.subresource)
        content_type = self._request.content_type
        if content_type == "application/apply-patch+yaml":
            if not self._query.get("fieldManager"):
                cause = Cause("FieldValueRequired", "Required value: is required for apply patch", "fieldManager")
                raise invalid("PatchOptions", "meta.k8s.io", "", (cause,))
            obj, new = self._store.apply(
                at.resource, self._request.json(), namespace=at.namespace, name=at.name, how=how
            )
            return self._reply(201 if new else 200, obj)
        patch = _PATCHES.get(content_type)
        if patch is None:
            raise ApiError(415, f"the body of the request was in an unknown format: {content_type}")
        body = self._request.value()
        obj = self._store.patch(at.resource, at.name, body, namespace=at.namespace, patch=patch, how=how)
        return self._reply(200, obj)

    def _delete_options(self) -> Delete:
        body, query = self._request.json() if self._request.body else {}, self._query
        orphan = body.get("orphanDependents", query.get("orphanDependents"))
        policy = body.get("propagationPolicy") or query.get("propagationPolicy") or ""
        if not policy:
            policy = "Orphan" if orphan in {True, "true"} else "Background"
        grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
        conditions = body.get("preconditions") or {}
        dry = "All" in (body.get("dryRun") or ()) or query.get("dryRun") == "All"
        return Delete(
            policy,
            None if grace is None else int(grace),
            conditions.get("uid") or "",
            conditions.get("resourceVersion") or "",
            dry,
        )

    def _delete(self) -> Reply:
        at = self._target
        obj, gone = self._store.delete(at.resource, at.name, namespace=at.namespace, how=self._delete_options())
        if at.resource.key in _RETURN_DELETED or not gone:
            return self._reply(200, obj)
        details = {
            "name": at.name,
            "group": at.resource.group,
            "kind": at.resource.plural,
            "uid": obj["metadata"]["uid"],
        }
        return 200, orjson.dumps(_success({key: value for key, value in details.items() if value}))

    def _delete_collection(self) -> Reply:
        at, match, how = self._target, self._matcher(), self._delete_options()
        doomed = [
            name
            for name, entry in self._store.storage.entries(at.resource.key, at.namespace)
            if match is None or match(entry.obj)
        ]
        for namespace, name in doomed:
            if self._store.storage.get(at.resource.key, (namespace, name)) is not None:
                self._store.delete(at.resource, name, namespace=namespace, how=how)
        return 200, orjson.dumps(_success({"group": at.resource.group, "kind": at.resource.plural}))

    def _special(self) -> Reply:
        """Bindings, evictions and scales."""
        at, method = self._target, self._request.method
        if at.subresource == "binding" and method == "POST":
            node = (self._request.json().get("target") or {}).get("name", "")
            self._store.bind(at.name, at.namespace, node, how=self._request.write("binding"))
            return 201, orjson.dumps(_success({}))
        if at.subresource == "eviction" and method == "POST":
            options = self._request.json().get("deleteOptions") or {}
            grace = options.get("gracePeriodSeconds")
            dry = "All" in (options.get("dryRun") or ())
            self._store.delete(at.resource, at.name, namespace=at.namespace, how=Delete(grace=grace, dry_run=dry))
            return 201, orjson.dumps(_success({}))
        if at.subresource == "scale":
            return self._scale(method)
        raise ApiError(405, "the server does not allow this method on the requested resource")

    def _scale(self, method: str) -> Reply:
        at = self._target
        if method in {"PUT", "PATCH"}:
            replicas = (self._request.json().get("spec") or {}).get("replicas")
            patch = {"spec": {"replicas": replicas}}
            how = self._request.write("")
            self._store.patch(at.resource, at.name, patch, namespace=at.namespace, how=how)
        obj = self._store.get(at.resource, at.name, at.namespace)
        kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        labels = (obj["spec"].get("selector") or {}).get("matchLabels") or {}
        scale = {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {key: obj["metadata"][key] for key in kept if key in obj["metadata"]},
            "spec": {"replicas": obj["spec"].get("replicas", 0)},
            "status": {
                "replicas": obj.get("status", {}).get("replicas", 0),
                "selector": ",".join(f"{key}={value}" for key, value in sorted(labels.items())),
            },
        }
        return 200, orjson.dumps(scale)


def _success(details: dict[str, Any]) -> Obj:
    out = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return {**out, "details": details} if details else out


def _pack(name: tuple[str, str]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(list(name))).decode()


def _unpack(token: str) -> tuple[str, str] | None:
    if not token:
        return None
    try:
        namespace, name = orjson.loads(base64.urlsafe_b64decode(token))
    except ValueError as error:
        raise ApiError(400, "continue key is not valid") from error
    return namespace, name
