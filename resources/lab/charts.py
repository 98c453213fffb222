"""Stand-in charts, generated from the declared workloads: what the real charts place, without what they do.

A chart is the same few templates over one JSON description, `lab.json`; everything that places a pod is rendered by
Helm from the values, as in the real chart, so a value in the wrong place stays without effect here too.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.components.effective import REQUIRED, values_path
from modelplane_dagster.components.types import Component, CustomResource, DeclaredWorkload, Knob
from modelplane_dagster.drivers import DRIVERS, DriverKind
from resources.lab.api.rules import APPROVED, is_protected
from resources.lab.chart_templates import HELPERS, OBJECTS, WORKLOADS
from resources.lab.plays import IMAGES, NEEDS, PLAYS, WORKLOAD, Part

Plan = dict[str, Any]
Mutation = Callable[[Plan], Plan]
_SYSTEM_CLASSES = frozenset({"system-node-critical", "system-cluster-critical", ""})


def chart_file(component: Component) -> str:
    """The file's name in a mirror. Raises ValueError for a component of manifests alone."""
    if component.pin is None:
        raise ValueError(f"{component.key} has no chart")
    return f"{component.pin.chart}-{component.pin.version}.tgz"


def write_chart(component: Component, folder: Path, *, mutate: Mutation | None = None) -> Path:
    """Writes the component's stand-in chart and returns the file; the same component gives the same bytes.

    `mutate` gets the description that the templates render (see `chart_plan`) and returns the one to write: a chart that
    no longer does what its declaration says.
    """
    target = folder / chart_file(component)
    plan = chart_plan(component)
    folder.mkdir(parents=True, exist_ok=True)
    _write(target, _packed(mutate(plan) if mutate else plan))
    return target


def write_mirror(components: Iterable[Component], folder: Path) -> tuple[Path, ...]:
    """A chart for every pin among the components, sorted by name. Components that share a pin share the chart."""
    by_file: dict[str, list[Component]] = {}
    for component in components:
        if component.pin is not None and component not in by_file.get(chart_file(component), []):
            by_file.setdefault(chart_file(component), []).append(component)
    folder.mkdir(parents=True, exist_ok=True)
    for name, sharing in sorted(by_file.items()):
        _write(folder / name, _packed(joined_plan(sharing)))
    return tuple(folder / name for name in sorted(by_file))


def _write(target: Path, data: bytes) -> None:
    """In one step, for a Helm that reads it meanwhile; not at all where nothing changes."""
    if not target.exists() or target.read_bytes() != data:
        fresh = target.with_suffix(f".{os.getpid()}.new")
        fresh.write_bytes(data)
        fresh.replace(target)


def chart_plan(component: Component) -> Plan:
    """The description that the templates render: `values` (the chart's defaults), `workloads` (each with `node_selector`,
    `affinity` and `tolerations` as {path, default, fixed, ..}), `resources`, `device_classes`, `priority_classes`,
    `settings`, `crds`."""
    if component.pin is None:
        raise ValueError(f"{component.key} has no chart")
    charted = [w for w in component.workloads if w.origin == "chart"]
    made = [w for w in component.workloads if w.resource is not None and w.resource.values_root is not None]
    return {
        "key": component.key,
        "chart": component.pin.chart,
        "version": component.pin.version,
        "values": _default_values(component),
        "settings": [{"name": name, "path": name.split(".")} for name in sorted(component.settings)],
        "workloads": [_workload(component, w) for w in charted],
        "resources": _resources(w.resource for w in made if w.resource is not None),
        "device_classes": [_device_class(component, name) for name in component.device_classes],
        "priority_classes": sorted({w.priority_class for w in charted} - _SYSTEM_CLASSES),
        "crds": [_crd(resource) for resource in _all_crds(component)],
    }


def _workload(component: Component, workload: DeclaredWorkload) -> Plan:
    chart = component.pin.chart if component.pin else component.key
    version = component.pin.version if component.pin else ""
    own = {WORKLOAD: workload.name[:63], "app.kubernetes.io/instance": component.release}
    return {
        "kind": workload.kind,
        "name": workload.name,
        "namespace": workload.namespace,
        "labels": {"app.kubernetes.io/name": chart, **own, **workload.pod_labels},
        "selector": own,
        "annotations": pod_annotations(component.key, workload),
        "tells_settings": bool(workload.publishes),
        "image": f"{IMAGES}/{chart}:{version}",
        "priority_class": workload.priority_class,
        "host_network": workload.host_network,
        "ports": container_ports(workload),
        "cpu": workload.cpu_request,
        "hook": workload.hook,
        "guard": None,
        "enabled": {"path": _path(workload, workload.enabled), "default": workload.enabled_default},
        "node_selector": _knob(component, workload, workload.node_selector),
        "affinity": _knob(component, workload, workload.affinity) | {"fixed": _expressions(workload.affinity)},
        "tolerations": _knob(component, workload, workload.tolerations),
    }


def pod_annotations(key: str, workload: DeclaredWorkload) -> dict[str, str]:
    """Which workload of the component `key` a pod plays and, where it can't start without, whose hardware it waits for."""
    plays = {PLAYS: str(Part(key, workload.name))}
    driver = DRIVERS.get(workload.publishes)
    return plays | ({NEEDS: driver.name} if driver is not None and driver.kind is DriverKind.GPU else {})


def container_ports(workload: DeclaredWorkload) -> list[Plan]:
    """The container's ports as a pod spec writes them; on the host's network a port is the host's as well."""
    named = [
        {"name": name, "containerPort": port, "protocol": "TCP"}
        | ({"hostPort": port} if port in workload.host_ports else {})
        for name, port in sorted(workload.ports.items())
    ]
    rest = [p for p in workload.host_ports if p not in workload.ports.values()]
    return [*named, *({"containerPort": p, "hostPort": p, "protocol": "TCP"} for p in rest)]


def _contested(component: Component, workload: DeclaredWorkload, knob: Knob) -> bool:
    """Whether workloads fall back to different defaults at one path, so that none of them can stand in the values."""
    path = _path(workload, knob.path)
    return any(
        _path(other, theirs.path) == path and theirs.default != knob.default
        for other in component.workloads
        if other.origin == workload.origin
        for theirs in (other.node_selector, other.affinity, other.tolerations)
        if theirs.path
    )


def _knob(component: Component, workload: DeclaredWorkload, knob: Knob) -> Plan:
    return {
        "falls_back": bool(knob.path) and _contested(component, workload, knob),
        "path": _path(workload, knob.path),
        "default": knob.default,
        "fixed": knob.fixed,
        "form": knob.form,
        "empty": knob.empty,
    }


def _path(workload: DeclaredWorkload, path: str) -> list[str]:
    return values_path(workload, path).split(".") if path else []


def _expressions(knob: Knob) -> list[Plan]:
    """The fixed affinity's expressions, which the template adds to the last term."""
    if not knob.fixed:
        return []
    return list(knob.fixed["nodeAffinity"][REQUIRED]["nodeSelectorTerms"][0]["matchExpressions"])


def _default_values(component: Component) -> Plan:
    """The knobs' and switches' defaults at their paths, those of operators' daemons under the custom resource's root."""
    values: Plan = {}
    for workload in component.workloads:
        if workload.resource is not None and workload.resource.values_root is None:
            continue
        for knob in (workload.node_selector, workload.affinity, workload.tolerations):
            if knob.path and knob.default is not None and not _contested(component, workload, knob):
                _put(values, _path(workload, knob.path), knob.default)
        if workload.enabled:
            _put(values, _path(workload, workload.enabled), workload.enabled_default)
    return values


def _put(values: Plan, path: list[str], value: Any) -> None:  # noqa: ANN401 - any JSON
    for part in path[:-1]:
        values = values.setdefault(part, {})
    values[path[-1]] = value


def _resources(resources: Iterable[CustomResource]) -> list[Plan]:
    unique = {(r.kind, r.name): r for r in resources}
    return [
        {
            "apiVersion": r.api_version,
            "kind": r.kind,
            "name": r.name or "default",
            "namespaced": r.namespaced,
            "root": r.values_root.split(".") if r.values_root else [],
        }
        for _, r in sorted(unique.items())
    ]


def _all_crds(component: Component) -> list[CustomResource]:
    used = [w.resource for w in component.workloads if w.resource is not None]
    unique = {(r.api_version, r.plural): r for r in (*used, *component.crds)}
    return [r for _, r in sorted(unique.items())]


def _crd(resource: CustomResource) -> Plan:
    group, _, version = resource.api_version.partition("/")
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.kind.lower(),
    }
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    metadata: dict[str, Any] = {"name": f"{resource.plural}.{group}"}
    if is_protected(group):
        metadata["annotations"] = {APPROVED: "unapproved, a stand-in of the lab"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": group,
            "names": names,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [served],
        },
    }


def _device_class(component: Component, name: str) -> Plan:
    """A class named as its driver, or the only one, takes all of the driver's devices; `TYPE.driver` those of that type."""
    published = component.publishes or next((w.publishes for w in component.workloads if w.publishes), name)
    expression = f'device.driver == "{published}"'
    if name != published and len(component.device_classes) > 1:
        attributes = f'device.attributes["{published}"]'
        expression += f' && has({attributes}.type) && {attributes}.type == "{name.partition(".")[0]}"'
    return {"name": name, "expression": expression}


def joined_plan(sharing: Sequence[Component]) -> Plan:
    """The description of a chart that several components install. A workload that only some of them declare is guarded
    by a value that tells them apart, as a real chart derives a name from a setting."""
    plans = [chart_plan(component) for component in sharing]
    result = plans[0]
    for part in ("workloads", "resources", "device_classes", "settings"):
        result[part] = [item for _, item in {item["name"]: item for plan in plans for item in plan[part]}.items()]
    result["crds"] = list({crd["metadata"]["name"]: crd for plan in plans for crd in plan["crds"]}.values())
    result["priority_classes"] = sorted({name for plan in plans for name in plan["priority_classes"]})
    for other in plans[1:]:
        result["values"] = _filled(result["values"], other["values"])
    told = _telling(sharing)
    for workload in result["workloads"]:
        declaring = [n for n, c in enumerate(sharing) if any(w.name == workload["name"] for w in c.workloads)]
        if told and len(declaring) < len(sharing):
            path, values = told
            workload["guard"] = {"path": path, "values": [values[n] for n in declaring]}
    return result


def _telling(sharing: Sequence[Component]) -> tuple[list[str], list[str]] | None:
    """The path of a text among the values that differs between the components, and each one's text; None where there is
    none. Judged by the values for a cluster without pools."""
    view = ClusterView("lab", "Existing", "", (), frozenset())
    texts = [dict(_texts(c.values(view))) if c.values else {} for c in sharing]
    for path in sorted(set.intersection(*(set(t) for t in texts))) if texts else ():
        if len({t[path] for t in texts}) > 1:
            return path.split("."), [t[path] for t in texts]
    return None


def _texts(values: Plan, prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _texts(value, f"{prefix}{key}.")
        elif isinstance(value, str):
            yield f"{prefix}{key}", value


def _filled(values: Plan, more: Plan) -> Plan:
    result = dict(values)
    for key, value in more.items():
        if key not in result:
            result[key] = value
        elif isinstance(value, dict) and isinstance(result[key], dict):
            result[key] = _filled(result[key], value)
    return result


def _packed(plan: Plan) -> bytes:
    """A chart archive whose bytes depend on the description alone."""
    chart = {"apiVersion": "v2", "name": plan["chart"], "version": plan["version"], "type": "application"}
    described = {name: part for name, part in plan.items() if name not in {"values", "crds"}}
    files = {
        "Chart.yaml": json.dumps(chart),
        "values.yaml": json.dumps(plan["values"]),
        "lab.json": json.dumps(described),
        "templates/_lab.tpl": HELPERS,
        "templates/objects.yaml": OBJECTS,
        "templates/workloads.yaml": WORKLOADS,
        **{f"crds/{crd['metadata']['name']}.yaml": json.dumps(crd) for crd in plan["crds"]},
    }
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, text in files.items():
            data = text.encode()
            entry = tarfile.TarInfo(f"{plan['chart']}/{name}")
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(raw.getvalue(), compresslevel=1, mtime=0)
