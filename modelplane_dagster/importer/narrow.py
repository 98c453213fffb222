"""Tolerations narrowed to the taints that a component's tags name.

The bundles tolerate every taint nearly everywhere. Such a pod lands on any pool, and AKS refuses it at admission.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from modelplane_dagster.components.placing import tolerate
from modelplane_dagster.components.types import Json
from modelplane_dagster.drivers import DRIVERS
from modelplane_dagster.importer.tables import Allowed
from modelplane_dagster.importer.types import Change
from modelplane_dagster.kube.objects import Taint

DAEMON_KINDS = ("DaemonSet", "Skyhook")
"""Kinds of manifests whose pods run on nodes by themselves: Skyhook runs its packages there."""

_FIELDS = {"key", "operator", "value", "effect", "tolerationSeconds"}


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What a keyless toleration becomes, and why."""

    taints: tuple[Taint, ...]
    reason: str


def driver_taints(drivers: Iterable[str]) -> tuple[Taint, ...]:
    """The taints of pools that claim one of `drivers`, sorted; none for a driver without a taint."""
    taints = {row.taint for name in drivers if (row := DRIVERS.get(name)) is not None and row.taint is not None}
    return tuple(sorted(taints, key=lambda taint: taint.key))


def narrowing(allowed: Allowed, *, daemon: bool) -> Narrowing:
    """What a component's keyless tolerations become; `daemon` says whether they are those of pods that run on nodes."""
    if allowed.drivers:
        names = " and ".join(sorted(allowed.drivers))
        return Narrowing(
            driver_taints(allowed.drivers), f"it serves {names}, so it tolerates their pools' taints alone"
        )
    if daemon:
        return Narrowing(
            driver_taints(DRIVERS), "it runs on every node, so it tolerates each driver's taint by its key"
        )
    return Narrowing((), "a controller needs one node, and no pool's")


def is_daemon(allowed: Allowed, path: str, values: Json) -> bool:
    """Whether the tolerations at `path` of the values are those of an untagged daemon that runs on every node."""
    if allowed.daemons_if is not None:
        name, expected = allowed.daemons_if
        if not isinstance(values, Mapping) or values.get(name) != expected:
            return False
    return any(not root or path == root or path.startswith(f"{root}.") for root in allowed.daemons)


def narrowed(
    node: Json, component: str, rule: Callable[[str], Narrowing], *, path: str = "", prefix: str = ""
) -> tuple[Json, tuple[Change, ...]]:
    """`node` with every toleration list in it narrowed, however deep, and the changes, in order. `rule` is asked with
    the list's path; `prefix` goes before the paths of the changes."""
    changes: list[Change] = []

    def walk(value: Json, here: str) -> Json:
        if isinstance(value, Mapping):
            return {name: walk(child, f"{here}.{name}" if here else str(name)) for name, child in value.items()}
        if not isinstance(value, list):
            return value
        if not _tolerations(value, here):
            return [walk(child, f"{here}[{number}]") for number, child in enumerate(value)]
        asked = rule(here)
        made = _list(value, asked)
        if made != value:
            keyless = any(not t.get("key") for t in value)
            reason = asked.reason if keyless else "a taint's value differs from cloud to cloud, so the key alone counts"
            changes.append(Change(component, f"{prefix}{here}", value, made, reason))
        return made

    return walk(node, path), tuple(changes)


def _tolerations(value: list[Any], path: str) -> bool:
    """A list is one of tolerations by its name, or by what its entries hold."""
    if not value or not all(isinstance(entry, Mapping) and set(entry) <= _FIELDS for entry in value):
        return False
    named = path.rpartition(".")[2].lower().endswith("tolerations")
    return named or any(entry.get("operator") == "Exists" and not entry.get("key") for entry in value)


def _list(value: list[dict[str, Any]], asked: Narrowing) -> list[dict[str, Any]]:
    known = {taint.key for row in DRIVERS.values() if (taint := row.taint) is not None}
    made: list[dict[str, Any]] = []
    for entry in value:
        if not entry.get("key"):
            effect = entry.get("effect") or ""
            new = [tolerate(t.key, t.effect) for t in asked.taints if effect in ("", t.effect)]
        elif entry["key"] in known and entry.get("operator", "Equal") == "Equal":
            new = [{**{k: v for k, v in entry.items() if k != "value"}, "operator": "Exists"}]
        else:
            new = [entry]
        made += [n for n in new if n not in made]
    return made
