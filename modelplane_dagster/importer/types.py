"""What an import takes and gives. Everything here is data; reading files is `resources.aicr`'s."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from modelplane_dagster.components.types import Json, Values
from modelplane_dagster.findings import Finding, has_errors


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file as read: `path` is how the user would name it, for messages."""

    path: str
    data: bytes


@dataclass(frozen=True, slots=True)
class BundleFile:
    """A file of a bundle. `folder` is the component's folder as named there, `inside` the path below it."""

    folder: str
    inside: str
    file: TextFile


@dataclass(frozen=True, slots=True)
class Dropped:
    """A component of the recipe that isn't imported, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Change:
    """One place where the imported list says otherwise than the bundle. `path` is a dotted path of the values, or
    `FILE[N]: PATH` in the Nth object of a manifest file; `before` and `after` are None where nothing stands."""

    component: str
    path: str
    before: Json
    after: Json
    reason: str

    def as_dict(self) -> dict[str, Any]:
        return {
            "component": self.component,
            "path": self.path,
            "from": self.before,
            "to": self.after,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedComponent:
    """One component of the list. `chart`, `repository` and `version` are empty where it is manifests alone; `drivers`
    and `depends_on` are sorted; `drivers` is empty for a component that every cluster gets."""

    key: str
    chart: str
    repository: str
    version: str
    namespace: str
    drivers: tuple[str, ...]
    depends_on: tuple[str, ...]
    values: Values
    manifests: tuple[dict[str, Any], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "chart": self.chart,
            "repository": self.repository,
            "version": self.version,
            "namespace": self.namespace,
            "drivers": list(self.drivers),
            "dependsOn": list(self.depends_on),
            "values": self.values,
            "manifests": list(self.manifests),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """`components` come in the recipe's order of deployment and are empty where the import is refused, so that a list
    which nobody may use can't be mistaken for one. `floor` is the lowest Kubernetes that the recipe and all its floor
    files accept, as they write it; empty where none of them says."""

    source: str
    components: tuple[ImportedComponent, ...]
    dropped: tuple[Dropped, ...]
    changes: tuple[Change, ...]
    floor: str
    findings: tuple[Finding, ...]

    @property
    def refused(self) -> bool:
        return has_errors(self.findings)

    def as_dict(self) -> dict[str, Any]:
        """The public JSON shape; `floor` is null where no constraint gives one."""
        return {
            "components": [c.as_dict() for c in self.components],
            "dropped": [{"name": d.name, "reason": d.reason} for d in self.dropped],
            "changes": [c.as_dict() for c in self.changes],
            "floor": self.floor or None,
            "findings": [f.as_dict() for f in self.findings],
        }
