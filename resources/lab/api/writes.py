"""How a write is asked for, and the small decisions that every write shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import orjson

from resources.lab.api.errors import bad_request
from resources.lab.api.storage import Obj
from resources.lab.api.table import Resource

PatchKind = Literal["json", "merge", "strategic"]


@dataclass(frozen=True, slots=True)
class Write:
    """How a write is to be done. `manager` owns the fields it sets; a dry run answers and stores nothing."""

    manager: str = "lab"
    dry_run: bool = False
    field_validation: str = "Warn"
    subresource: str = ""
    force: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """`policy` is Background, Foreground or Orphan; `grace` None means the object's own; preconditions empty mean none."""

    policy: str = "Background"
    grace: int | None = None
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False


PLAIN_WRITE = Write()
PLAIN_DELETE = Delete()


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def copy_of(obj: Mapping[str, Any]) -> Obj:
    """A deep copy, to be changed freely."""
    return orjson.loads(orjson.dumps(obj))


_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


def count_template(obj: Obj, old: Obj | None, *, changed: bool) -> None:
    """Keeps the annotation in which apps/v1 carries how often a DaemonSet's template has changed."""
    count = 1
    if old is not None:
        before = int((old["metadata"].get("annotations") or {}).get(_TEMPLATE_GENERATION, "0"))
        count = before + changed
    obj["metadata"]["annotations"] = {**(obj["metadata"].get("annotations") or {}), _TEMPLATE_GENERATION: str(count)}


def check_kind(resource: Resource, body: Obj) -> None:
    kind, version = body.get("kind") or resource.kind, body.get("apiVersion") or resource.api_version
    if kind != resource.kind or version != resource.api_version:
        raise bad_request(
            f"the API version or kind in the data ({version}, {kind}) does not match the expected "
            f"({resource.api_version}, {resource.kind})"
        )
    body["kind"], body["apiVersion"] = kind, version


def spec_of(resource: Resource, obj: Obj) -> Obj:
    """What a change of counts as a new generation: all but metadata, and status where it is a subresource."""
    hidden = (
        {"metadata", "status", "apiVersion"} if resource.status or not resource.custom else {"metadata", "apiVersion"}
    )
    return {key: value for key, value in obj.items() if key not in hidden}


def same_but_times(new: Obj, old: Obj) -> bool:
    """Whether only the times in `managedFields` differ: a no-op write doesn't get a new resourceVersion."""

    def timeless(obj: Obj) -> list[Obj]:
        return [{k: v for k, v in e.items() if k != "time"} for e in obj["metadata"].get("managedFields") or ()]

    if {**new, "metadata": 0} != {**old, "metadata": 0}:
        return False
    plain = ({k: v for k, v in o["metadata"].items() if k != "managedFields"} for o in (new, old))
    return next(plain) == next(plain) and timeless(new) == timeless(old)
