"""Operators: the daemons that they make from their custom resources, generated from the declared workloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from modelplane_dagster.components.effective import REQUIRED, effective_placement, turned_on
from modelplane_dagster.components.types import Component, DeclaredWorkload, Knob
from modelplane_dagster.kube.objects import PodPlacement, Requirement
from resources.lab.charts import container_ports, pod_annotations
from resources.lab.plays import IMAGES, WORKLOAD

Json = dict[str, Any]
OPERATOR = "lab.modelplane.ai/operator"


def operator_workloads(component: Component) -> list[DeclaredWorkload]:
    return [w for w in component.workloads if w.origin == "operator" and w.resource is not None]


def daemon_of(component: Component, workload: DeclaredWorkload, resource: Mapping[str, Any]) -> Json | None:
    """The DaemonSet that the operator makes of one custom resource; None where the resource turns it off.

    Raises TypeError or ValueError where the resource's placement has a shape that no pod takes.
    """
    spec = resource.get("spec") or {}
    declared = _in_resource(workload)
    if not turned_on(declared, spec):
        return None
    metadata = resource["metadata"]
    name = workload.name.replace("{cr}", metadata["name"])
    own = {WORKLOAD: name[:63]}
    labels = {k: v.replace("{cr}", metadata["name"]) for k, v in workload.pod_labels.items()}
    owner = {
        "apiVersion": resource["apiVersion"],
        "kind": resource["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": workload.kind,
        "metadata": {
            "name": name,
            "namespace": metadata.get("namespace") or workload.namespace or component.namespace,
            "labels": {**labels, **own, OPERATOR: component.key},
            "ownerReferences": [owner],
        },
        "spec": {
            "selector": {"matchLabels": own},
            **({"serviceName": name, "replicas": 1} if workload.kind == "StatefulSet" else {}),
            "template": {
                "metadata": {"labels": {**labels, **own}, "annotations": pod_annotations(component.key, workload)},
                "spec": _pod_spec(component, workload, effective_placement(declared, spec)),
            },
        },
    }


def _in_resource(workload: DeclaredWorkload) -> DeclaredWorkload:
    """With paths in the resource's spec. One that the chart renders holds the merged values already; a default merged
    once more would bring back what the values took away."""
    resource = workload.resource
    if resource is None or resource.values_root is None:
        return workload
    return replace(
        workload,
        resource=replace(resource, values_root=None),
        node_selector=_bare(workload.node_selector),
        affinity=_bare(workload.affinity),
        tolerations=_bare(workload.tolerations),
    )


def _bare(knob: Knob) -> Knob:
    return knob if not knob.path or knob.empty == "keeps default" else replace(knob, default=None)


def _pod_spec(component: Component, workload: DeclaredWorkload, placement: PodPlacement) -> Json:
    chart = component.pin.chart if component.pin else component.key
    container: Json = {"name": "main", "image": f"{IMAGES}/{chart}/{workload.name.replace('{cr}-', '')}"}
    if ports := container_ports(workload):
        container["ports"] = ports
    if workload.cpu_request:
        container["resources"] = {"requests": {"cpu": workload.cpu_request}}
    spec: Json = {"containers": [container], **placement_spec(placement)}
    if workload.host_network:
        spec["hostNetwork"] = True
    if workload.priority_class:
        spec["priorityClassName"] = workload.priority_class
    return spec


def placement_spec(placement: PodPlacement) -> Json:
    """The parts of a pod spec that place it, empty ones left out."""
    spec: Json = {}
    if placement.node_selector:
        spec["nodeSelector"] = dict(placement.node_selector)
    if placement.affinity is not None:
        terms = [
            {
                name: [_requirement(r) for r in part]
                for name, part in (("matchExpressions", term.expressions), ("matchFields", term.fields))
                if part
            }
            for term in placement.affinity
        ]
        spec["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    if placement.tolerations:
        spec["tolerations"] = [t.as_dict() for t in placement.tolerations]
    return spec


def _requirement(requirement: Requirement) -> Json:
    values = {"values": list(requirement.values)} if requirement.values else {}
    return {"key": requirement.key, "operator": requirement.operator, **values}
