"""What a component may not be, told before any cluster is touched: values that its chart doesn't read, tolerations
without a key, names over their limits."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.components.effective import Placed, placed, values_path
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
    "object": (Mapping,),
}


def known_paths(component: Component) -> dict[str, str]:
    """Every path of the chart's values that the component may set, with the type that must stand there."""
    paths = dict(component.settings)
    for workload in component.workloads:
        if workload.resource is None or workload.resource.values_root is not None:
            paths.update(_workload_paths(workload))
    return paths


def resource_paths(component: Component, kind: str) -> dict[str, str]:
    """The same for the spec of the custom resources of one kind that are manifests of ours; empty for a kind that no
    workload is made from. The component's settings are those of the spec where it has no chart of its own values."""
    paths: dict[str, str] = {}
    for workload in component.workloads:
        resource = workload.resource
        if resource is not None and resource.values_root is None and resource.kind == kind:
            paths.update(_workload_paths(workload))
            paths.update(component.resource_settings)
    return paths


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
    return (
        *values,
        *keyless,
        *(() if keyless else _default_findings(joined, subject)),
        *limit_findings(joined, subject),
    )


def values_findings(joined: JoinedComponent, subject: str) -> Iterator[Finding]:
    """A finding for each value that the chart, or the operator of a custom resource of ours, doesn't read."""
    yield from _walk(joined.values, "", known_paths(joined.component), subject)
    for manifest in joined.manifests:
        paths = resource_paths(joined.component, manifest["kind"])
        if paths:
            yield from _walk(manifest.get("spec") or {}, "", paths, subject)


def _walk(node: Mapping[str, Any], prefix: str, paths: Mapping[str, str], subject: str) -> Iterator[Finding]:
    for name, value in node.items():
        path = f"{prefix}{name}"
        if path in paths:
            if value is not None and not _fits(value, paths[path]):
                yield _wrong_type(path, value, paths[path], subject)
        elif any(known.startswith(f"{path}.") for known in paths):
            if isinstance(value, Mapping):
                yield from _walk(value, f"{path}.", paths, subject)
            elif value is not None:
                yield _wrong_type(path, value, "object", subject)
        elif isinstance(value, Mapping) and value:
            yield from _walk(value, f"{path}.", paths, subject)
        else:
            near = difflib.get_close_matches(path, paths, n=1, cutoff=0.0)
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


def _default_findings(joined: JoinedComponent, subject: str) -> Iterator[Finding]:
    """Tolerations without a key in a chart's default that the values leave."""
    for item in placed(joined):
        if any(not t.key for t in item.placement.tolerations):
            where = item.workload.tolerations.path
            fix = f"Set {values_path(item.workload, where)} to tolerations that name their keys." if where else None
            message = f"{item.workload.kind} {item.name} tolerates every taint by its chart's default."
            yield finding("KeylessToleration", subject, message, fix=fix)


def _keyless(node: Json, path: str) -> Iterator[str]:
    if isinstance(node, Mapping):
        for name, child in node.items():
            here = f"{path}{name}" if not path or path.endswith(" ") else f"{path}.{name}"
            listed = str(name).lower().endswith("tolerations") and isinstance(child, list)
            if listed and any(isinstance(t, Mapping) and not t.get("key") for t in child):
                yield here
            yield from _keyless(child, here)
    elif isinstance(node, list):
        for item in node:
            yield from _keyless(item, path)


def limit_findings(joined: JoinedComponent, subject: str) -> Iterator[Finding]:
    """Names and labels that Kubernetes or Helm refuses."""
    component = joined.component
    yield from _name(subject, "key", component.key, NAME_LIMIT)
    yield from _name(subject, "release", component.release, RELEASE_LIMIT)
    yield from _name(subject, "namespace", component.namespace, NAME_LIMIT)
    for item in placed(joined):
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


def publisher_findings(subject: str, components: Iterable[Component]) -> Iterator[Finding]:
    """Two components that publish one driver: two ledgers would hand out one device."""
    by_driver: dict[str, list[str]] = {}
    for component in components:
        for driver in component.published:
            by_driver.setdefault(driver, []).append(component.key)
    for driver, keys in sorted(by_driver.items()):
        if len(keys) > 1:
            yield finding("PublishedTwice", subject, f"{driver} is published by {' and by '.join(sorted(keys))}.")


def pool_findings(view: ClusterView) -> Iterator[Finding]:
    """Pool labels that no node can carry."""
    for pool in view.pools:
        yield from _labels(f"pool/{view.name}/{pool.name}", f"pool {pool.name}", pool.labels)


def _name(subject: str, what: str, value: str, limit: int) -> Iterator[Finding]:
    if not value:
        return
    if len(value) > limit:
        yield finding(
            "LimitExceeded", subject, f"The {what} {value} has {len(value)} characters, and {limit} is the limit."
        )
    elif not _NAME.fullmatch(value):
        yield finding("LimitExceeded", subject, f"The {what} {value} isn't a lower-case DNS name.")


def _labels(subject: str, what: str, labels: Mapping[str, str]) -> Iterator[Finding]:
    for key, value in labels.items():
        domain, _, bare = key.rpartition("/")
        for part, limit in ((bare, NAME_LIMIT), (value, NAME_LIMIT), (domain, 253)):
            if len(part) > limit:
                message = (
                    f"The label {key}={value} ({what}): {part} has {len(part)} characters, and {limit} is the limit."
                )
                yield finding("LimitExceeded", subject, message)
            elif not _VALUE.fullmatch(part):
                yield finding("LimitExceeded", subject, f"The label {key}={value} ({what}): {part} isn't a label part.")
