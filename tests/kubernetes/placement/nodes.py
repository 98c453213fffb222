"""Random nodes, and random pods and DaemonSets for them: labels, taints, cordons; selectors, affinity, tolerations."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.kubernetes.placement.world import CLUSTER, Body, Case, workload

LABELS = {
    "zone": ("a", "b", "c"),
    "disk": ("ssd", "hdd", ""),
    "gen": ("1", "2", "10", "007", "x"),
    "modelplane.ai/pool": ("p0", "p1", "p2"),
    "modelplane.ai/cpu": ("true", "false"),
}
TAINTS = {
    "nvidia.com/gpu": ("present", "true", ""),
    "amd.com/gpu": ("present", "true"),
    "modelplane.ai/cpu": ("true", ""),
    "team": ("a", "b", "10", "9"),
}
EFFECTS = ("NoSchedule", "NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule")
PRESSURES = {
    "DiskPressure": "disk-pressure",
    "MemoryPressure": "memory-pressure",
    "NetworkUnavailable": "network-unavailable",
}
NUMBERS = ("0", "1", "2", "5", "10", "007", "x")


def make_nodes(rng: Random, world: str, number: int) -> tuple[Body, ...]:
    return tuple(_node(rng, world, f"{world}-n{i}") for i in range(number))


def _node(rng: Random, world: str, name: str) -> Body:
    labels = {key: rng.choice(values) for key, values in LABELS.items() if rng.random() < 0.7}
    taints: dict[tuple[str, str], Body] = {}
    for _ in range(rng.choice((0, 0, 1, 1, 1, 2))):
        key = rng.choice(tuple(TAINTS))
        effect, value = rng.choice(EFFECTS), rng.choice(TAINTS[key])
        taints[key, effect] = {"key": key, "effect": effect, **({"value": value} if value else {})}
    conditions = [_condition("Ready", "True")]
    if rng.random() < 0.08:
        kind = rng.choice(tuple(PRESSURES))
        # The node lifecycle controller keeps such a taint where the condition stands, and takes it away elsewhere.
        conditions.append(_condition(kind, "True"))
        key = f"node.kubernetes.io/{PRESSURES[kind]}"
        taints[key, "NoSchedule"] = {"key": key, "effect": "NoSchedule"}
    spec: Body = {"taints": list(taints.values())} if taints else {}
    if rng.random() < 0.12:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**labels, CLUSTER: world, "kubernetes.io/hostname": name}},
        "spec": spec,
        "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "500"}, "conditions": conditions},
    }


def _condition(kind: str, status: str) -> Body:
    return {"type": kind, "status": status, "reason": "Made", "message": "made by a test"}


def make_case(rng: Random, world: str, name: str, nodes: tuple[Body, ...]) -> Case:
    """A DaemonSet, a Deployment or a pod without claims."""
    kind = rng.choice(("DaemonSet", "DaemonSet", "DaemonSet", "Pod", "Pod", "Deployment"))
    spec = placing(rng, nodes)
    if kind == "DaemonSet":
        if rng.random() < 0.15:
            spec["hostNetwork"] = True
        if rng.random() < 0.03:
            spec["nodeName"] = rng.choice(nodes)["metadata"]["name"]
    return Case(name, kind, workload(kind, name, world, spec, replicas=rng.choice((1, 1, 2))))


def placing(rng: Random, nodes: tuple[Body, ...], *, mild: bool = False) -> Body:
    """The fields of a pod spec that say where it may run; `mild` ones exclude few nodes."""
    spec: Body = {}
    if rng.random() < (0.08 if mild else 0.4):
        spec["nodeSelector"] = _pairs(rng, nodes, 1 if mild else rng.choice((1, 1, 2)))
    if rng.random() < (0.1 if mild else 0.45):
        terms = [_term(rng, nodes) for _ in range(rng.choice((1, 1, 2, 3)))]
        required = {"nodeSelectorTerms": terms}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    tolerations = [_toleration(rng, nodes) for _ in range(rng.choice((0, 1, 2, 3)))]
    if rng.random() < (0.75 if mild else 0.1):
        tolerations.append({"operator": "Exists"})
    if tolerations:
        spec["tolerations"] = tolerations
    return spec


def _pairs(rng: Random, nodes: tuple[Body, ...], number: int) -> dict[str, str]:
    """Mostly labels that a node has."""
    there = [(k, v) for k, v in rng.choice(nodes)["metadata"]["labels"].items() if k in LABELS]
    chosen = dict(rng.sample(there, min(number, len(there))))
    if not chosen or rng.random() < 0.15:
        key = rng.choice(tuple(LABELS))
        chosen[key] = rng.choice(LABELS[key])
    return chosen


def _term(rng: Random, nodes: tuple[Body, ...]) -> Body:
    term: Body = {}
    if number := rng.choice((0, 1, 1, 1, 2, 2, 3)):
        term["matchExpressions"] = [requirement(rng) for _ in range(number)]
    if rng.random() < 0.15:
        node = rng.choice(nodes)["metadata"]["name"]
        operator = rng.choice(("In", "NotIn"))
        term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [node]}]
    return term


def requirement(rng: Random) -> Body:
    key = rng.choice((*LABELS, "absent"))
    values = LABELS.get(key, ("v",))
    operator = rng.choice(("In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    entry: dict[str, Any] = {"key": key, "operator": operator}
    if operator in ("In", "NotIn"):
        entry["values"] = rng.sample(values, rng.randint(1, len(values)))
    elif operator in ("Gt", "Lt"):
        entry["key"] = rng.choice(("gen", "gen", "gen", key))
        entry["values"] = [rng.choice(NUMBERS)]
    return entry


def _toleration(rng: Random, nodes: tuple[Body, ...]) -> Body:
    there = [t for n in nodes for t in n["spec"].get("taints") or ()]
    taint = (
        rng.choice(there) if there and rng.random() < 0.75 else {"key": "team", "value": "a", "effect": "NoSchedule"}
    )
    made: Body = {"key": taint["key"]}
    operator = rng.choice(("Exists", "Equal", "Equal", ""))
    if rng.random() < 0.1:
        made, operator = {}, "Exists"
    if operator:
        made["operator"] = operator
    if operator != "Exists":
        value = taint.get("value", "") if rng.random() < 0.7 else rng.choice(("present", "true", "TRUE", "a"))
        made |= {"value": value} if value else {}
    effect = rng.choice(("", taint["effect"], taint["effect"], rng.choice(EFFECTS)))
    if effect:
        made["effect"] = effect
    if effect == "NoExecute" and rng.random() < 0.4:
        # Long enough that nothing is evicted while the test looks.
        made["tolerationSeconds"] = 3600
    return made
