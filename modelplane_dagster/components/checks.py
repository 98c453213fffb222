"""What a component may not be, told before any cluster is touched: values that its chart doesn't read, tolerations
without a key, names over their limits."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.components.effective import Placed, placed, values_path
from modelplane_dagster.components.identity import remembered
from modelplane_dagster.components.types import Component, DeclaredWorkload, JoinedComponent, Json
from modelplane_dagster.findings import Finding, finding

RELEASE_LIMIT = 53  # Helm's own
NAME_LIMIT = 63
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_SHAPES: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "array": (list, tuple),
    "object": (dict,),
}


@dataclass(frozen=True, slots=True)
class KnownPaths:
    """By path the type that must stand there; `inner` are the paths of the mappings around them."""

    types: Mapping[str, str]
    inner: frozenset[str]


def _known(types: Mapping[str, str]) -> KnownPaths:
    inner = {path[:at] for path in types for at, char in enumerate(path) if char == "."}
    return KnownPaths(types, frozenset(inner))


@remembered(1024)
def known_paths(component: Component) -> KnownPaths:
    """Every path of the chart's values that the component may set."""
    paths = dict(component.settings)
    for workload in component.workloads:
        if workload.resource is None or workload.resource.values_root is not None:
            paths.update(_workload_paths(workload))
    return _known(paths)


@remembered(1024)
def resource_paths(component: Component) -> Mapping[str, KnownPaths]:
    """By kind, every path of the spec of the custom resources of ours that workloads are made from."""
    kinds: dict[str, dict[str, str]] = {}
    for workload in component.workloads:
        resource = workload.resource
        if resource is not None and resource.values_root is None:
            kinds.setdefault(resource.kind, dict(component.resource_settings)).update(_workload_paths(workload))
    return {kind: _known(paths) for kind, paths in kinds.items()}


def _workload_paths(workload: DeclaredWorkload) -> dict[str, str]:
    knobs = ((workload.node_selector, "object"), (workload.affinity, "object"), (workload.tolerations, "array"))
    paths = {values_path(workload, knob.path): shape for knob, shape in knobs if knob.path}
    if workload.enabled:
        paths[values_path(workload, workload.enabled)] = "boolean"
    return paths


def component_findings(joined: JoinedComponent, subject: str) -> tuple[Finding, ...]:
    """All that is wrong with one installed component. Where a value has the wrong type, only what needs no placement is
    looked at: nobody can say where such a pod would run."""
    values = tuple(values_findings(joined, subject))
    keyless = tuple(_keyless_findings(joined, subject))
    if any(f.code == "WrongValuesType" for f in values):
        return (*values, *keyless)
    items = placed(joined)
    defaults = () if keyless else _default_findings(items, subject)
    return (*values, *keyless, *defaults, *limit_findings(joined, items, subject))


def values_findings(joined: JoinedComponent, subject: str) -> Iterator[Finding]:
    """A finding for each value that the chart, or the operator of a custom resource of ours, doesn't read."""
    yield from _walk(joined.values, "", known_paths(joined.component), subject)
    kinds = resource_paths(joined.component)
    for manifest in joined.manifests:
        if manifest["kind"] in kinds:
            yield from _walk(manifest.get("spec") or {}, "", kinds[manifest["kind"]], subject)


def _walk(node: Mapping[str, Json], prefix: str, known: KnownPaths, subject: str) -> Iterator[Finding]:
    for name, value in node.items():
        path = f"{prefix}{name}"
        shape = known.types.get(path)
        if shape is not None:
            if value is not None and not _fits(value, shape):
                yield _wrong_type(path, value, shape, subject)
        elif path in known.inner:
            if isinstance(value, dict):
                yield from _walk(value, f"{path}.", known, subject)
            elif value is not None:
                yield _wrong_type(path, value, "object", subject)
        elif isinstance(value, dict) and value:
            yield from _walk(value, f"{path}.", known, subject)
        else:
            near = difflib.get_close_matches(path, known.types, n=1, cutoff=0.0)
            hint = f"; the nearest it does read is {near[0]}" if near else ""
            yield finding("UnknownValuesPath", subject, f"The chart reads no value {path}{hint}.")


def _fits(value: Json, shape: str) -> bool:
    return isinstance(value, _SHAPES[shape]) and (shape == "boolean" or not isinstance(value, bool))


def _wrong_type(path: str, value: Json, shape: str, subject: str) -> Finding:
    return finding("WrongValuesType", subject, f"{path} takes a value of type {shape}, and it is {_type(value)}.")


def _type(value: Json) -> str:
    if isinstance(value, bool):
        return "boolean"
    return next((name for name, shapes in _SHAPES.items() if isinstance(value, shapes)), type(value).__name__)


def _keyless_findings(joined: JoinedComponent, subject: str) -> Iterator[Finding]:
    """Tolerations without a key in the values and in our own objects."""
    for root, prefix in [(joined.values, ""), *((m, f"{m['kind']} ") for m in joined.manifests)]:
        for path in _keyless(root, prefix):
            message = f"{path} holds a toleration without a key, which tolerates every taint."
            yield finding("KeylessToleration", subject, message)


def _default_findings(items: tuple[Placed, ...], subject: str) -> Iterator[Finding]:
    """Tolerations without a key in a chart's default that the values leave."""
    for item in items:
        if any(not t.key for t in item.placement.tolerations):
            where = item.workload.tolerations.path
            fix = f"Set {values_path(item.workload, where)} to tolerations that name their keys." if where else None
            message = f"{item.workload.kind} {item.name} tolerates every taint by its chart's default."
            yield finding("KeylessToleration", subject, message, fix=fix)


def _keyless(node: dict[str, Json] | list[Json], path: str) -> Iterator[str]:
    if isinstance(node, dict):
        for name, child in node.items():
            if not isinstance(child, (dict, list)):
                continue
            here = f"{path}{name}" if not path or path.endswith(" ") else f"{path}.{name}"
            if isinstance(child, dict) or not str(name).lower().endswith("tolerations"):
                yield from _keyless(child, here)
            elif any(isinstance(t, dict) and not t.get("key") for t in child):
                yield here
    else:
        for item in node:
            if isinstance(item, (dict, list)):
                yield from _keyless(item, path)


def limit_findings(joined: JoinedComponent, items: tuple[Placed, ...], subject: str) -> Iterator[Finding]:
    """Names and labels that Kubernetes or Helm refuses."""
    component = joined.component
    yield from _name(subject, "key", component.key, NAME_LIMIT)
    yield from _name(subject, "release", component.release, RELEASE_LIMIT)
    yield from _name(subject, "namespace", component.namespace, NAME_LIMIT)
    for item in items:
        yield from _placed_limits(subject, item)
    for manifest in (*joined.prepares, *joined.manifests):
        meta = manifest["metadata"]
        limit = 253 if manifest["kind"] == "CustomResourceDefinition" else NAME_LIMIT
        yield from _name(subject, f"{manifest['kind']} name", meta["name"], limit)
        yield from _labels(subject, f"{manifest['kind']} {meta['name']}", meta.get("labels") or {})


def _placed_limits(subject: str, item: Placed) -> Iterator[Finding]:
    yield from _name(subject, f"{item.workload.kind} name", item.name, NAME_LIMIT)
    yield from _labels(subject, f"pods of {item.name}", item.pod_labels)
    yield from _labels(subject, f"node selector of {item.name}", item.placement.node_selector)
    for term in item.placement.affinity or ():
        for requirement in term.expressions:
            for value in requirement.values:
                yield from _labels(subject, f"affinity of {item.name}", {requirement.key: value})


def published_twice(components: Iterable[Component]) -> Iterator[str]:
    """A sentence for each driver that two components publish: two ledgers would hand out one device."""
    by_driver: dict[str, list[str]] = {}
    for component in components:
        for driver in component.published:
            by_driver.setdefault(driver, []).append(component.key)
    for driver, keys in sorted(by_driver.items()):
        if len(keys) > 1:
            yield f"{driver} is published by {' and by '.join(sorted(keys))}."


def pool_findings(view: ClusterView) -> Iterator[Finding]:
    """Pool labels that no node can carry."""
    for pool in view.pools:
        yield from _labels(f"pool/{view.name}/{pool.name}", f"pool {pool.name}", pool.labels)


def _name(subject: str, what: str, value: str, limit: int) -> Iterator[Finding]:
    fault = _name_fault(value, limit)
    if fault:
        yield finding("LimitExceeded", subject, f"The {what} {value} {fault}.")


def _labels(subject: str, what: str, labels: Mapping[str, str]) -> Iterator[Finding]:
    for pair in labels.items():
        for fault in _label_faults(*pair):
            yield finding("LimitExceeded", subject, f"The label {pair[0]}={pair[1]} ({what}): {fault}.")


@lru_cache(maxsize=65536)
def _name_fault(value: str, limit: int) -> str:
    """What is wrong with a name; empty for nothing, also for a name that isn't there."""
    if len(value) > limit:
        return f"has {len(value)} characters, and {limit} is the limit"
    return "" if not value or _NAME.fullmatch(value) else "isn't a lower-case DNS name"


@lru_cache(maxsize=65536)
def _label_faults(key: str, value: str) -> tuple[str, ...]:
    domain, _, bare = key.rpartition("/")
    found = []
    for part, limit in ((bare, NAME_LIMIT), (value, NAME_LIMIT), (domain, 253)):
        if len(part) > limit:
            found.append(f"{part} has {len(part)} characters, and {limit} is the limit")
        elif not _VALUE.fullmatch(part):
            found.append(f"{part} isn't a label part")
    return tuple(found)
