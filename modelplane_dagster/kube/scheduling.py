"""Where a pod may run, by the rules of kube-scheduler and the DaemonSet controller.

What is judged: node name, node selector, required node affinity, taints. Resources, ports, pod affinity, spread and
volumes aren't. Judge a DaemonSet by its template: the controller replaces its pods' affinity and adds tolerations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from modelplane_dagster.kube.objects import NodeFacts, PodPlacement, Requirement, Taint, Term, Toleration

KEEPS_OUT = ("NoSchedule", "NoExecute")
"""The effects that keep a pod off a node; PreferNoSchedule only ranks nodes."""

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""What `spec.unschedulable` amounts to for the scheduler."""

_NODE = "node.kubernetes.io/"
DAEMON_TOLERATIONS = (
    Toleration(_NODE + "not-ready", "Exists", "", "NoExecute"),
    Toleration(_NODE + "unreachable", "Exists", "", "NoExecute"),
    Toleration(_NODE + "disk-pressure", "Exists", "", "NoSchedule"),
    Toleration(_NODE + "memory-pressure", "Exists", "", "NoSchedule"),
    Toleration(_NODE + "pid-pressure", "Exists", "", "NoSchedule"),
    Toleration(_NODE + "unschedulable", "Exists", "", "NoSchedule"),
)
"""What the DaemonSet controller adds to every pod it makes."""

HOST_NETWORK_TOLERATION = Toleration(_NODE + "network-unavailable", "Exists", "", "NoSchedule")
"""What it adds as well to a pod on the host's network."""


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether this one toleration covers the taint. `Lt` and `Gt` compare the taint's value with the toleration's as int64."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Equal" | "":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" | "Gt":
            seen, bound = _int64(taint.value), _int64(toleration.value)
            if seen is None or bound is None:
                return False
            return seen < bound if toleration.operator == "Lt" else seen > bound
    return False


@lru_cache(maxsize=65536)
def untolerated(
    tolerations: tuple[Toleration, ...], taints: tuple[Taint, ...], effects: tuple[str, ...] = KEEPS_OUT
) -> tuple[Taint, ...]:
    """The taints of these effects that no toleration covers, in the node's order; empty where there are none."""
    return tuple(
        taint for taint in taints if taint.effect in effects and not any(tolerates(t, taint) for t in tolerations)
    )


def requirement_holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether one `matchExpressions` entry holds. `NotIn` holds where the label is absent. An invalid entry doesn't hold."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return bool(requirement.values) and value not in requirement.values
        case "Exists":
            return value is not None and not requirement.values
        case "DoesNotExist":
            return value is None and not requirement.values
        case "Gt" | "Lt":
            if value is None or len(requirement.values) != 1:
                return False
            seen, bound = _int64(value), _int64(requirement.values[0])
            if seen is None or bound is None:
                return False
            return seen > bound if requirement.operator == "Gt" else seen < bound
    return False


def is_valid(term: Term) -> bool:
    """Whether the scheduler can read the term. One that it can't is skipped in a pod's affinity, and an error in a slice."""
    for requirement in term.expressions:
        numbers = requirement.operator in ("Gt", "Lt")
        if requirement.operator not in _OPERATORS or not _OPERATORS[requirement.operator](len(requirement.values)):
            return False
        if numbers and _int64(requirement.values[0]) is None:
            return False
    return all(f.operator in ("In", "NotIn") and len(f.values) == 1 for f in term.fields)


_OPERATORS: Mapping[str, Callable[[int], bool]] = {
    "In": lambda values: values > 0,
    "NotIn": lambda values: values > 0,
    "Exists": lambda values: values == 0,
    "DoesNotExist": lambda values: values == 0,
    "Gt": lambda values: values == 1,
    "Lt": lambda values: values == 1,
}
"""How many values each takes."""


def field_holds(requirement: Requirement, node_name: str) -> bool:
    """Whether one `matchFields` entry holds: `metadata.name`, In or NotIn, exactly one value; anything else is invalid."""
    if requirement.key != "metadata.name" or len(requirement.values) != 1:
        return False
    if requirement.operator == "In":
        return node_name == requirement.values[0]
    return requirement.operator == "NotIn" and node_name != requirement.values[0]


def term_holds(term: Term, node: NodeFacts) -> bool:
    """Whether all expressions and fields hold. An empty term holds nowhere."""
    if not term.expressions and not term.fields:
        return False
    labels = node.labels
    return all(requirement_holds(r, labels) for r in term.expressions) and all(
        field_holds(r, node.name) for r in term.fields
    )


def matches_selector(placement: PodPlacement, node: NodeFacts) -> bool:
    """Whether node selector and required node affinity both select the node; an affinity without terms selects none."""
    labels = node.labels
    for key, value in placement.node_selector.items():
        if labels.get(key) != value:
            return False
    return placement.affinity is None or any(term_holds(term, node) for term in placement.affinity)


def standing_taints(node: NodeFacts) -> tuple[Taint, ...]:
    """The node's taints with the one that cordoning amounts to."""
    if node.unschedulable and not any(t.key == UNSCHEDULABLE.key and t.effect == "NoSchedule" for t in node.taints):
        return (*node.taints, UNSCHEDULABLE)
    return node.taints


def may_run(placement: PodPlacement, node: NodeFacts) -> bool:
    """Whether the scheduler's filters let a pod of this template onto the node."""
    return _fits(placement, node, placement.tolerations)


def daemon_should_run(placement: PodPlacement, node: NodeFacts, *, host_network: bool = False) -> bool:
    """Whether the DaemonSet controller wants a pod of this template on the node.

    A pod that already runs stays where only a NoSchedule taint is untolerated; that isn't judged here.
    """
    return _fits(placement, node, daemon_tolerations(placement.tolerations, host_network=host_network))


@lru_cache(maxsize=4096)
def daemon_tolerations(tolerations: tuple[Toleration, ...], *, host_network: bool = False) -> tuple[Toleration, ...]:
    """A template's tolerations with those that the DaemonSet controller adds."""
    added = (*DAEMON_TOLERATIONS, HOST_NETWORK_TOLERATION) if host_network else DAEMON_TOLERATIONS
    return (*tolerations, *(t for t in added if t not in tolerations))


def _fits(placement: PodPlacement, node: NodeFacts, tolerations: tuple[Toleration, ...]) -> bool:
    if placement.node_name and placement.node_name != node.name:
        return False
    if not matches_selector(placement, node):
        return False
    taints = standing_taints(node)
    return not taints or not untolerated(tolerations, taints)


def why_not(
    placement: PodPlacement, node: NodeFacts, *, daemon: bool = False, host_network: bool = False
) -> str | None:
    """The first reason that keeps the pod off the node, as a clause for a finding; None where it may run.

    With `daemon` the tolerations of the DaemonSet controller count too.
    """
    if placement.node_name and placement.node_name != node.name:
        return f"its nodeName is {placement.node_name}"
    for key, value in sorted(placement.node_selector.items()):
        seen = node.labels.get(key)
        if seen != value:
            return f"its nodeSelector asks for {key}={value}, and the node {_has(key, seen)}"
    if not matches_selector(placement, node):
        return _why_no_term(placement.affinity or (), node)
    tolerations = placement.tolerations
    if daemon:
        tolerations = daemon_tolerations(tolerations, host_network=host_network)
    left = untolerated(tolerations, standing_taints(node))
    return f"it doesn't tolerate the taint {left[0]}" if left else None


def _why_no_term(terms: tuple[Term, ...], node: NodeFacts) -> str:
    if len(terms) != 1 or not (terms[0].expressions or terms[0].fields):
        return "none of its node affinity's terms selects the node" if terms else "its node affinity has no terms"
    for requirement in terms[0].expressions:
        if not requirement_holds(requirement, node.labels):
            values = f" [{', '.join(requirement.values)}]" if requirement.values else ""
            seen = _has(requirement.key, node.labels.get(requirement.key))
            return f"its node affinity asks for {requirement.key} {requirement.operator}{values}, and the node {seen}"
    return "its node affinity's matchFields select another node"


def _has(key: str, value: str | None) -> str:
    return "lacks that label" if value is None else f"has {key}={value}"


def _int64(text: str) -> int | None:
    """As Go's ParseInt: an optional sign and ASCII digits, within 64 bits; None otherwise."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 64:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def labels_of_interest(placements: Iterable[PodPlacement]) -> frozenset[str]:
    """Every label key that these templates select by."""
    keys: set[str] = set()
    for placement in placements:
        keys.update(placement.node_selector)
        keys.update(r.key for term in placement.affinity or () for r in term.expressions)
    return frozenset(keys)


def by_name(placement: PodPlacement) -> bool:
    """Whether the template selects nodes by name, so that nodes of one group can differ for it."""
    return bool(placement.node_name) or any(term.fields for term in placement.affinity or ())


def group_nodes(nodes: Iterable[NodeFacts], keys: frozenset[str]) -> list[list[NodeFacts]]:
    """Nodes that no template selecting by `keys` can tell apart: same labels of interest, taints and cordon.

    Judge the first of each group for all of it, except for templates that select `by_name`.
    """
    ordered = sorted(keys)
    groups: dict[tuple[object, ...], list[NodeFacts]] = {}
    for node in nodes:
        labels = node.labels
        key = (tuple([labels.get(k) for k in ordered]), node.taints, node.unschedulable)
        groups.setdefault(key, []).append(node)
    return list(groups.values())
