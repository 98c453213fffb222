"""Where a declared workload may run with the values it gets: defaults, values over them as Helm merges, then what the
template adds. The plan-time audit and the lab's stand-in charts both go by this."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from modelplane_dagster.components.identity import remembered
from modelplane_dagster.components.types import DeclaredWorkload, JoinedComponent, Json, Knob
from modelplane_dagster.kube.objects import PodPlacement

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class Placed:
    """A declared workload as one cluster gets it: `name` and `pod_labels` with the custom resource's name filled in."""

    workload: DeclaredWorkload
    name: str
    namespace: str
    placement: PodPlacement
    pod_labels: Mapping[str, str]


class _Missing:
    """Nothing is set at a path; None means that the values take the default away."""


MISSING = _Missing()


def merged(default: Json, value: Json) -> Json:
    """`value` over `default` as Helm does it: maps merge, null takes a key away, everything else replaces. Neither is
    changed, and the result shares what it takes from them."""
    if not isinstance(value, Mapping):
        return value
    base = dict(default) if isinstance(default, Mapping) else {}
    for key, child in value.items():
        if child is None:
            base.pop(key, None)
        else:
            base[key] = merged(base.get(key), child)
    return base


def values_path(workload: DeclaredWorkload, path: str) -> str:
    """Where `path` of a workload's knob or switch lies in what is passed to `effective_placement`: the chart's values,
    or the custom resource's spec where a manifest of ours holds it."""
    root = workload.resource.values_root if workload.resource is not None else None
    return f"{root}.{path}" if root and path else path


@lru_cache(maxsize=8192)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))


def at(values: Json, path: str) -> Json:
    """What stands at a dotted path; MISSING where nothing is set; None where a null on the way takes it away."""
    node = values
    for part in _parts(path):
        if node is None:
            return None
        if not isinstance(node, dict) or part not in node:
            return MISSING
        node = node[part]
    return node


def knob_value(workload: DeclaredWorkload, knob: Knob, values: Json) -> Json:
    """The value of one knob after merging, without `fixed`; None where there is none."""
    given = at(values, values_path(workload, knob.path)) if knob.path else MISSING
    if given is MISSING:
        return knob.default
    if given == [] and knob.empty == "keeps default":
        return knob.default
    in_resource = workload.resource is not None and workload.resource.values_root is None
    # Only Helm merges; what a manifest of ours says stands as it is.
    return given if given is None or in_resource else merged(knob.default, given)


def turned_on(workload: DeclaredWorkload, values: Json) -> bool:
    """Whether the values have the workload made at all."""
    if not workload.enabled:
        return True
    given = at(values, values_path(workload, workload.enabled))
    return workload.enabled_default if given is MISSING else bool(given)


def effective_placement(workload: DeclaredWorkload, values_or_spec: Json) -> PodPlacement:
    """The selectors, required affinity and tolerations of the workload's pods.

    `values_or_spec` is the chart's values (None or empty for the defaults), or the spec of the custom resource where a
    manifest of ours holds it. Raises TypeError, naming the path, where a part has a shape no pod takes.
    """
    if values_or_spec and any(at(values_or_spec, path) is not MISSING for path in _knob_paths(workload)):
        return _placement(workload, values_or_spec)
    return _default_placement(workload)


@remembered(4096)
def _knob_paths(workload: DeclaredWorkload) -> tuple[str, ...]:
    knobs = (workload.node_selector, workload.affinity, workload.tolerations)
    return tuple(values_path(workload, knob.path) for knob in knobs if knob.path)


@remembered(4096)
def _default_placement(workload: DeclaredWorkload) -> PodPlacement:
    return _placement(workload, {})


def _placement(workload: DeclaredWorkload, values: Json) -> PodPlacement:
    selector = knob_value(workload, workload.node_selector, values) or {}
    affinity = knob_value(workload, workload.affinity, values) or {}
    tolerations = knob_value(workload, workload.tolerations, values)
    for knob, part, shape in (
        (workload.node_selector, selector, Mapping),
        (workload.affinity, affinity, Mapping),
        (workload.tolerations, tolerations or [], list),
    ):
        if not isinstance(part, shape):
            raise TypeError(f"{values_path(workload, knob.path)} of {workload.name} is no {shape.__name__.lower()}")
    if workload.affinity.form == "label lists":
        affinity = _from_label_lists(affinity)
    elif workload.affinity.form == "node affinity":
        affinity = {"nodeAffinity": affinity} if affinity else {}
    fixed = workload.tolerations.fixed or []
    if tolerations == [] and workload.tolerations.empty == "drops fixed":
        fixed = []
    spec = {
        "nodeSelector": {**selector, **(workload.node_selector.fixed or {})},
        "affinity": _with_fixed(affinity, workload.affinity.fixed),
        "tolerations": [*(tolerations or []), *fixed],
    }
    return PodPlacement.parse(spec)


def _from_label_lists(lists: Mapping[str, Any]) -> dict[str, Any]:
    """One term a key, so that a node matches by any of them."""
    terms = [
        {"matchExpressions": [{"key": key, "operator": "In", "values": list(lists.get("values") or [])}]}
        for key in lists.get("keys") or []
    ]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}} if terms else {}


def _with_fixed(affinity: Mapping[str, Any], fixed: Json) -> Mapping[str, Any]:
    """The template appends its own expressions to the last term, and makes a term where there is none."""
    if not fixed:
        return affinity
    result = deepcopy(dict(affinity))
    node_affinity = result.setdefault("nodeAffinity", {})
    terms = node_affinity.setdefault(REQUIRED, {}).setdefault("nodeSelectorTerms", [])
    added = fixed["nodeAffinity"][REQUIRED]["nodeSelectorTerms"][0]["matchExpressions"]
    if not terms:
        terms.append({"matchExpressions": []})
    terms[-1].setdefault("matchExpressions", []).extend(added)
    return result


@remembered(4096)
def placed(joined: JoinedComponent) -> tuple[Placed, ...]:
    """Every workload that an installed component brings with its values and manifests, in declared order; empty for one
    that isn't installed. A daemon made from a custom resource of ours appears once for each such resource."""
    if not joined.install:
        return ()
    return tuple(p for workload in joined.component.workloads for p in _placed(joined, workload))


def _placed(joined: JoinedComponent, workload: DeclaredWorkload) -> Iterator[Placed]:
    namespace = workload.namespace or joined.component.namespace
    resource = workload.resource
    if resource is None or resource.values_root is not None:
        if not turned_on(workload, joined.values):
            return
        name = resource.name if resource is not None else ""
        own = _own_manifest(joined, workload)
        placement = own if own is not None else effective_placement(workload, joined.values)
        yield _filled(workload, name, namespace, placement)
        return
    for manifest in joined.manifests:
        if manifest["kind"] == resource.kind and manifest["apiVersion"] == resource.api_version:
            spec = manifest.get("spec") or {}
            meta = manifest["metadata"]
            if turned_on(workload, spec):
                where = meta.get("namespace", namespace)
                yield _filled(workload, meta["name"], where, effective_placement(workload, spec))


def _own_manifest(joined: JoinedComponent, workload: DeclaredWorkload) -> PodPlacement | None:
    """The placement of a workload that is a manifest of ours itself; None where it isn't."""
    for manifest in joined.manifests:
        if manifest["kind"] == workload.kind and manifest["metadata"]["name"] == workload.name:
            return PodPlacement.parse(manifest["spec"]["template"]["spec"])
    return None


def _filled(workload: DeclaredWorkload, resource: str, namespace: str, placement: PodPlacement) -> Placed:
    if "{cr}" not in workload.name:
        return Placed(workload, workload.name, namespace, placement, workload.pod_labels)
    labels = {key: value.replace("{cr}", resource) for key, value in workload.pod_labels.items()}
    return Placed(workload, workload.name.replace("{cr}", resource), namespace, placement, labels)
