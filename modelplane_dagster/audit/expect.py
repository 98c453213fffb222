"""Where each node-level workload must run, from tags, conditions and reach alone; no list is kept beside them."""

from __future__ import annotations

from dataclasses import dataclass

from modelplane_dagster.cluster import ClusterView, PoolView
from modelplane_dagster.components.types import Component, DeclaredWorkload
from modelplane_dagster.kube.objects import NodeFacts

SYSTEM = "system"
"""What a node of no pool is called in rows: on a provisioned cluster that is the system pool."""


def place_name(node: NodeFacts) -> str:
    """The pool of a node as rows name it."""
    return node.pool or SYSTEM


@dataclass(frozen=True, slots=True)
class Expectation:
    """`pools` must be served on every node (with `reach` `where`: on those that carry its labels); `everywhere` asks
    for every node of the cluster; `elsewhere` says whether running on other nodes is allowed."""

    component: str
    workload: DeclaredWorkload
    pools: frozenset[str]
    everywhere: bool
    elsewhere: bool

    def must(self, node: NodeFacts) -> bool:
        """Whether the workload must run on the node."""
        if self.everywhere:
            return True
        reach = self.workload.reach
        if node.pool not in self.pools or reach is None:
            return False
        return reach.kind != "where" or all(node.labels.get(k) == v for k, v in reach.labels.items())

    def may(self, node: NodeFacts) -> bool:
        """Whether it may run there without straying."""
        return self.elsewhere or node.pool in self.pools

    def needs(self, pool: str) -> bool:
        """Whether it serves the pool at all; what tolerations are judged by."""
        return self.everywhere or pool in self.pools


def pools_of(view: ClusterView, component: Component, workload: DeclaredWorkload) -> tuple[PoolView, ...]:
    """The pools that a workload serves: its component's, narrowed by drivers of its own."""
    bound = component.bound_to(view)
    if not workload.drivers:
        return bound
    narrowed = view.ours(workload.drivers)
    return tuple(p for p in bound if narrowed & set(p.drivers))


def expectation(view: ClusterView, component: Component, workload: DeclaredWorkload) -> Expectation | None:
    """None for a workload that needs one node rather than every node of its pools (Deployments, hook Jobs)."""
    if workload.reach is None:
        return None
    everywhere = workload.reach.kind == "all"
    pools = view.pools if everywhere else pools_of(view, component, workload)
    return Expectation(
        component.key,
        workload,
        frozenset(p.name for p in pools),
        everywhere,
        everywhere or workload.reach.kind == "at least",
    )
