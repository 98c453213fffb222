"""Where each planned workload may run and must run on the planned nodes: worked out once, read by every rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from modelplane_dagster.audit.expect import Expectation, expectation, place_name
from modelplane_dagster.audit.instances import Instance
from modelplane_dagster.audit.tolerations import allows
from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.components.identity import remembered
from modelplane_dagster.kube.objects import NodeFacts, PodPlacement
from modelplane_dagster.kube.scheduling import by_name, labels_of_interest


@dataclass(frozen=True, slots=True)
class Reached:
    """`nodes` are the planned nodes where the instance may run; `expected` is None where one node is enough."""

    instance: Instance
    expected: Expectation | None
    nodes: tuple[NodeFacts, ...]

    def on(self, node: NodeFacts) -> bool:
        return any(n is node for n in self.nodes)

    def places(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(place_name(n) for n in self.nodes))


def reached(view: ClusterView, planned: Iterable[Instance], nodes: tuple[NodeFacts, ...]) -> tuple[Reached, ...]:
    """One for each instance, in their order."""
    expected: dict[int, Expectation | None] = {}
    found = []
    for i in planned:
        if id(i.workload) not in expected:
            expected[id(i.workload)] = expectation(view, i.component, i.workload)
        found.append(Reached(i, expected[id(i.workload)], tuple(_nodes_of(i, nodes))))
    return tuple(found)


def grouped(there: Iterable[Reached]) -> Iterator[tuple[Expectation, tuple[Reached, ...]]]:
    """Each node-level workload with its instances: an operator's daemons serve the pools together."""
    by_workload: dict[int, list[Reached]] = {}
    for one in there:
        if one.expected is not None:
            by_workload.setdefault(id(one.instance.workload), []).append(one)
    for members in by_workload.values():
        expected = members[0].expected
        if expected is not None:
            yield expected, tuple(members)


def runs(instance: Instance, node: NodeFacts) -> bool:
    """Whether a pod of the instance may stand on the node."""
    return bool(_nodes_of(instance, (node,)))


def _nodes_of(instance: Instance, nodes: Iterable[NodeFacts]) -> list[NodeFacts]:
    seen = _seen(instance.placement)
    return [n for n in nodes if _answer(seen, instance, n)]


def _answer(seen: _Seen, instance: Instance, node: NodeFacts) -> bool:
    labels = node.labels
    key = (
        tuple([labels.get(k) for k in seen.keys]),
        node.taints,
        node.unschedulable,
        node.name if seen.by_name else "",
        instance.daemon,
        instance.workload.host_network,
    )
    answer = seen.answers.get(key)
    if answer is None:
        answer = allows(instance.placement, node, daemon=instance.daemon, host_network=instance.workload.host_network)
        seen.answers[key] = answer
    return answer


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a placement selects by, and the answers so far: a fleet's clusters share most placements and node shapes."""

    keys: tuple[str, ...]
    by_name: bool
    answers: dict[tuple[object, ...], bool]


@remembered(8192)
def _seen(placement: PodPlacement) -> _Seen:
    return _Seen(tuple(sorted(labels_of_interest([placement]))), by_name(placement), {})
