"""The API's semantics without HTTP: reads and writes of one cluster's objects, for the HTTP layer and for controllers.

Everything runs on the event loop's thread. Objects that come out are shared: read them, don't change them (`copy_of`
gives one to change). Refusals are `ApiError`.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from resources.lab.api import ssa
from resources.lab.api.admission import Admission
from resources.lab.api.decode import decode, untyped_patch
from resources.lab.api.defaults import apply_defaults
from resources.lab.api.errors import (
    ApiError,
    Cause,
    already_exists,
    bad_request,
    forbidden,
    invalid,
    modified,
    no_such_path,
    not_found,
)
from resources.lab.api.lifecycle import Lifecycle
from resources.lab.api.patch import json_patch, merge_patch, strategic
from resources.lab.api.rules import check
from resources.lab.api.schema import Json
from resources.lab.api.selectors import matcher
from resources.lab.api.storage import Entry, Event, Obj, Storage
from resources.lab.api.switches import Switches, drop_gated
from resources.lab.api.table import Resource, Table, built_in
from resources.lab.api.writes import (
    PLAIN_DELETE,
    PLAIN_WRITE,
    Delete,
    PatchKind,
    Write,
    check_kind,
    copy_of,
    count_template,
    now,
    same_but_times,
    spec_of,
)

_DAEMON_SETS = ("apps", "daemonsets")
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"  # without vowels and look-alike digits, so that no word comes out
# Kinds that keep what their creator says of the status: a kubelet registers its node with it.
_STATUS_ON_CREATE = {("", "nodes"), ("", "persistentvolumes"), ("apiregistration.k8s.io", "apiservices")}
# A status write of these changes nothing of the metadata.
_PLAIN_STATUS = {"resource.k8s.io", "apiextensions.k8s.io"}
_UPSERT = {("coordination.k8s.io", "leases"), ("", "events"), ("", "endpoints")}


class Store:
    """One cluster's objects. `resource` arguments are a `Resource` or a name such as `pods` or `daemonsets.apps`."""

    def __init__(self, switches: Switches, storage: Storage) -> None:
        self.switches = switches
        self.storage = storage
        self.table = Table(built_in(switches.minor))
        self.admission = Admission(self)
        self.lifecycle = Lifecycle(self)
        for _, entry in storage.entries(("apiextensions.k8s.io", "customresourcedefinitions")):
            self.table.add_crd(entry.obj, switches.minor)

    # Reading

    def resource(self, name: Resource | str) -> Resource:
        """404 where the cluster has no such resource."""
        if isinstance(name, Resource):
            return name
        plural, _, group = name.partition(".")
        found = self.table.by_key((group, plural))
        if found is None:
            raise no_such_path()
        return found

    def find(self, resource: Resource | str, name: str, namespace: str = "") -> Obj | None:
        """None where the object isn't there."""
        kind = self.resource(resource)
        entry = self.storage.get(kind.key, (namespace, name))
        return None if entry is None else self.at_version(kind, entry).obj

    def get(self, resource: Resource | str, name: str, namespace: str = "") -> Obj:
        kind = self.resource(resource)
        return self.at_version(kind, self.entry(kind, name, namespace)).obj

    def entry(self, resource: Resource, name: str, namespace: str = "") -> Entry:
        found = self.storage.get(resource.key, (namespace, name))
        if found is None:
            raise not_found(resource.plural, resource.group, name)
        return found

    def list(self, resource: Resource | str, namespace: str = "", *, labels: str = "", fields: str = "") -> list[Obj]:
        """Sorted by namespace and name; an empty namespace means all."""
        kind = self.resource(resource)
        match = matcher(kind, labels, fields)
        entries = (self.at_version(kind, entry).obj for _, entry in self.storage.entries(kind.key, namespace))
        return [obj for obj in entries if match is None or match(obj)]

    @staticmethod
    def at_version(resource: Resource, entry: Entry) -> Entry:
        """The entry as this version of the API shows it: with another `apiVersion`, where it was stored by another one."""
        if entry.obj["apiVersion"] == resource.api_version:
            return entry
        return Entry({**entry.obj, "apiVersion": resource.api_version})

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Calls `listener(event)` after each committed change, in order; the result ends it. It mustn't raise."""
        return self.storage.subscribe(listener)

    # Writing

    def create(
        self, resource: Resource | str, obj: Mapping[str, Any], *, namespace: str = "", how: Write = PLAIN_WRITE
    ) -> Obj:
        kind = self.resource(resource)
        return self._create(kind, self._received(kind, obj, namespace, ""), how)

    def _received(self, resource: Resource, obj: Mapping[str, Any], namespace: str, name: str) -> Obj:
        """A copy with its identity filled in; 400 where body and path disagree."""
        body = copy_of(obj)
        check_kind(resource, body)
        metadata = body.setdefault("metadata", {})
        if not isinstance(metadata, dict):
            raise bad_request("the metadata of the object is no object")
        for field, wanted in (("namespace", namespace if resource.namespaced else ""), ("name", name)):
            have = metadata.get(field) or ""
            if wanted and have and have != wanted:
                raise bad_request(f"the {field} of the provided object does not match the {field} sent on the request")
            if wanted:
                metadata[field] = wanted
        if not resource.namespaced:
            metadata.pop("namespace", None)
        return body

    def _create(self, resource: Resource, obj: Obj, how: Write, *, owners: bool = True) -> Obj:
        metadata = obj["metadata"]
        if metadata.get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        if resource.namespaced:
            self._usable_namespace(resource, metadata)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + "".join(secrets.choice(_SUFFIX) for _ in range(5))
        if not metadata.get("name"):
            cause = Cause("FieldValueRequired", "Required value: name or generateName is required", "metadata.name")
            raise invalid(resource.kind, resource.group, "", (cause,))
        decode(obj, resource, how.field_validation)
        at = metadata.get("namespace", ""), metadata["name"]
        for field in ("selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
            metadata.pop(field, None)
        metadata.update(uid=str(uuid.uuid4()), creationTimestamp=now())
        if resource.generation:
            metadata["generation"] = 1
        if resource.status and resource.key not in _STATUS_ON_CREATE:
            obj.pop("status", None)
        self._complete(resource, obj, None)
        self.admission.on_create(resource, obj)
        check(resource, obj, None)
        if self.storage.get(resource.key, at) is not None:
            raise already_exists(resource.plural, resource.group, metadata["name"])
        if owners:
            obj = ssa.record_update(None, obj, self._scope(resource, how, "Update"))
        if how.dry_run:
            return obj
        entry = self.storage.put(resource.key, at, obj)
        self.lifecycle.created(resource, entry.obj)
        return self.storage_view(resource, at, entry)

    def storage_view(self, resource: Resource, at: tuple[str, str], entry: Entry) -> Obj:
        """What is stored now, which the lifecycle may have gone on to change (a CRD's conditions)."""
        return self.at_version(resource, self.storage.get(resource.key, at) or entry).obj

    def _usable_namespace(self, resource: Resource, metadata: Obj) -> None:
        name = metadata.get("namespace", "")
        if not name:
            raise bad_request("an empty namespace may not be set during creation")
        namespace = self.storage.get(("", "namespaces"), ("", name))
        if namespace is None:
            raise not_found("namespaces", "", name)
        if "deletionTimestamp" in namespace.obj["metadata"]:
            why = f"unable to create new content in namespace {name} because it is being terminated"
            error = forbidden(resource.plural, resource.group, metadata.get("name", ""), why)
            error.details["causes"] = [
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {name} is being terminated",
                    "field": "metadata.namespace",
                }
            ]
            raise error

    def _complete(self, resource: Resource, obj: Obj, old: Obj | None) -> None:
        if not resource.custom:
            apply_defaults(resource.key, obj)
            if not self.switches.shares_devices:
                drop_gated(resource.key, obj)
        self.admission.initial_status(resource, obj, old)
        if resource.key == _DAEMON_SETS:
            count_template(obj, old, changed=False)

    def _scope(self, resource: Resource, how: Write, operation: str) -> ssa.Scope:
        writer = ssa.Writer(how.manager, operation, resource.api_version, how.subresource)
        return ssa.Scope(resource.type, writer, now(), resource.status)

    def update(
        self,
        resource: Resource | str,
        obj: Mapping[str, Any],
        *,
        name: str = "",
        namespace: str = "",
        how: Write = PLAIN_WRITE,
    ) -> Obj:
        """A PUT; 409 where the object carries a resourceVersion that is no longer the latest."""
        kind = self.resource(resource)
        body = self._received(kind, obj, namespace, name)
        at = body["metadata"].get("namespace", ""), body["metadata"].get("name", "")
        if kind.key in _UPSERT and self.storage.get(kind.key, at) is None and not how.subresource:
            body["metadata"].pop("resourceVersion", None)
            return self._create(kind, body, how)
        old = self.entry(kind, at[1], at[0]).obj
        return self._replace(kind, old, body, how)

    def patch(
        self,
        resource: Resource | str,
        name: str,
        body: Json,
        *,
        namespace: str = "",
        patch: PatchKind = "merge",
        how: Write = PLAIN_WRITE,
    ) -> Obj:
        kind = self.resource(resource)
        old = self.at_version(kind, self.entry(kind, name, namespace)).obj
        if patch == "json":
            new = json_patch(copy_of(old), copy_of({"patch": body})["patch"])
        elif patch == "merge":
            new = copy_of(merge_patch(old, body))
        elif kind.custom:
            raise ApiError(
                415,
                "the body of the request was in an unknown format - accepted media types include: "
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )
        else:
            new = copy_of(strategic(old, body, kind.type))
        if not isinstance(new, dict):
            raise bad_request("the patch leaves no object")
        return self._replace(kind, old, self._received(kind, new, namespace, name), how)

    def apply(
        self,
        resource: Resource | str,
        obj: Mapping[str, Any],
        *,
        namespace: str = "",
        name: str = "",
        how: Write = PLAIN_WRITE,
    ) -> tuple[Obj, bool]:
        """A server-side apply: the object, and whether it is new. 409 with causes where others own a field differently."""
        kind = self.resource(resource)
        body = self._received(kind, obj, namespace, name)
        if body["metadata"].get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        at = body["metadata"].get("namespace", ""), body["metadata"].get("name", "")
        if not at[1]:
            raise bad_request("name is required to apply an object")
        untyped_patch(body, kind)
        config = body
        wanted_uid = config["metadata"].pop("uid", None)
        wanted_version = config["metadata"].pop("resourceVersion", None)
        found = self.storage.get(kind.key, at)
        scope = self._scope(kind, how, "Apply")
        if found is None:
            if wanted_uid or how.subresource:
                raise not_found(kind.plural, kind.group, at[1])
            identity = {key: config["metadata"][key] for key in ("namespace", "name") if key in config["metadata"]}
            live: Obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": identity}
            return self._create(kind, copy_of(ssa.apply(live, config, scope, force=how.force)), how, owners=False), True
        old = self.at_version(kind, found).obj
        if (wanted_uid and wanted_uid != old["metadata"]["uid"]) or (
            wanted_version and wanted_version != old["metadata"]["resourceVersion"]
        ):
            raise modified(kind.plural, kind.group, at[1])
        new = copy_of(ssa.apply(old, config, scope, force=how.force))
        return self._replace(kind, old, new, how, applied=True), False

    def _replace(self, resource: Resource, old: Obj, new: Obj, how: Write, *, applied: bool = False) -> Obj:
        self._same_object(resource, old, new)
        metadata, before = new["metadata"], old["metadata"]
        owners = metadata.get("managedFields")
        decode(new, resource, how.field_validation)
        if applied and owners:
            metadata["managedFields"] = owners
        for field in ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"):
            metadata.pop(field, None)
            if field in before:
                metadata[field] = before[field]
        self._isolate(resource, old, new, how.subresource)
        self._complete(resource, new, old)
        check(resource, new, old)
        self.admission.on_update(resource, new, old)
        if resource.generation and not how.subresource and spec_of(resource, new) != spec_of(resource, old):
            metadata["generation"] = before.get("generation", 0) + 1
        if not applied:
            explicit: Obj = {"managedFields": []} if owners == [] else {}
            new["metadata"] = {**{k: v for k, v in metadata.items() if k != "managedFields"}, **explicit}
            new = ssa.record_update(old, new, self._scope(resource, how, "Update"))
        if resource.key == _DAEMON_SETS:
            # After the owners are recorded: the count is the server's doing.
            count_template(new, old, changed=new["spec"].get("template") != old["spec"].get("template"))
        return self._commit(resource, old, new, how)

    def _commit(self, resource: Resource, old: Obj, new: Obj, how: Write) -> Obj:
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if new == old or same_but_times(new, old):
            return old
        if how.dry_run:
            return new
        at = old["metadata"].get("namespace", ""), old["metadata"]["name"]
        if "deletionTimestamp" in new["metadata"] and not self.lifecycle.holds(resource, new):
            entry = self.storage.put(resource.key, at, new)
            self.lifecycle.remove(resource, at)
            return entry.obj
        entry = self.storage.put(resource.key, at, new)
        self.lifecycle.updated(resource, entry.obj)
        return self.storage_view(resource, at, entry)

    @staticmethod
    def _same_object(resource: Resource, old: Obj, new: Obj) -> None:
        metadata, before = new["metadata"], old["metadata"]
        version, uid = metadata.get("resourceVersion"), metadata.get("uid")
        if (version and version != before["resourceVersion"]) or (uid and uid != before["uid"]):
            raise modified(resource.plural, resource.group, before["name"])
        if metadata.get("name") != before["name"]:
            raise bad_request("the name of the object does not match the name on the URL")

    @staticmethod
    def _isolate(resource: Resource, old: Obj, new: Obj, subresource: str) -> None:
        """A write of the object leaves the status alone; a write of the status leaves all else alone."""
        if not resource.status:
            return
        if subresource != "status":
            new.pop("status", None)
            if "status" in old:
                new["status"] = copy_of(old["status"])
            return
        fixed = resource.custom or resource.group in _PLAIN_STATUS
        for key in [key for key in new if key not in {"status", "metadata"}]:
            del new[key]
        new.update(copy_of({key: value for key, value in old.items() if key not in {"status", "metadata"}}))
        if fixed:
            managed = new["metadata"].get("managedFields")
            new["metadata"] = copy_of(old["metadata"])
            if managed:
                new["metadata"]["managedFields"] = managed

    def delete(
        self, resource: Resource | str, name: str, *, namespace: str = "", how: Delete = PLAIN_DELETE
    ) -> tuple[Obj, bool]:
        """The object as it was last, and whether it is gone already (finalizers and running pods hold it back)."""
        kind = self.resource(resource)
        found = self.at_version(kind, self.entry(kind, name, namespace)).obj
        metadata = found["metadata"]
        for what, wanted, have in (
            ("UID", how.uid, metadata["uid"]),
            ("ResourceVersion", how.resource_version, metadata["resourceVersion"]),
        ):
            if wanted and wanted != have:
                why = f"the {what} in the precondition ({wanted}) does not match the {what} in record ({have})"
                raise modified(
                    kind.plural, kind.group, name, f"{why}. The object might have been deleted and then recreated"
                )
        if how.dry_run:
            return found, True
        return self.lifecycle.delete(kind, found, how)

    def bind(self, pod: str, namespace: str, node: str, *, how: Write = PLAIN_WRITE) -> Obj:
        """What a scheduler does: gives the pod its node; 409 where it has one."""
        kind = self.resource("pods")
        old = self.entry(kind, pod, namespace).obj
        if old["spec"].get("nodeName"):
            why = f'pod {pod} is already assigned to node "{old["spec"]["nodeName"]}"'
            raise ApiError(409, f'Operation cannot be fulfilled on pods/binding "{pod}": {why}')
        new = copy_of(old)
        new["spec"]["nodeName"] = node
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now()}
        others = [c for c in new["status"].get("conditions") or () if c["type"] != "PodScheduled"]
        new["status"]["conditions"] = [*others, scheduled]
        return self._commit(kind, old, new, how)
