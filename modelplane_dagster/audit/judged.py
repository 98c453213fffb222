"""Which live nodes an audit judges, in groups that no template can tell apart, and how each pool stands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from modelplane_dagster.audit.expect import place_name
from modelplane_dagster.audit.live import LiveCluster, LiveNode
from modelplane_dagster.cluster import ClusterView, PoolView
from modelplane_dagster.drivers import POOL_LABEL
from modelplane_dagster.findings import Finding, finding
from modelplane_dagster.known import Unknown
from modelplane_dagster.kube.objects import NodeFacts, PodPlacement
from modelplane_dagster.kube.scheduling import group_nodes, labels_of_interest

GRACE = 300.0
"""Seconds for which a new node is left out: its labels, daemons and slices come one after the other."""

Standing = Literal["judged", "pending", "idle"]


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes alike to every template that the audit judges; `node` stands for all of them."""

    node: NodeFacts
    names: tuple[str, ...]

    @property
    def place(self) -> str:
        return place_name(self.node)


@dataclass(frozen=True, slots=True)
class Told:
    """A finding and the pools that it speaks of; its text names the first few of them alone."""

    finding: Finding
    places: frozenset[str] = frozenset()


def can_judge(node: NodeFacts, *, now: float, grace: float) -> bool:
    """Cordoned nodes count; those that aren't ready, are going, or are too young don't."""
    return node.ready and not node.terminating and (not node.created or now - node.created >= grace)


def judged_nodes(nodes: Iterable[LiveNode], *, now: float, grace: float) -> tuple[NodeFacts, ...]:
    return tuple(n.facts for n in nodes if can_judge(n.facts, now=now, grace=grace))


def groups(
    nodes: Iterable[NodeFacts], placements: Iterable[PodPlacement], more: Iterable[str] = ()
) -> tuple[Group, ...]:
    """By pool, what the templates select by, and the labels `more`. A template that selects nodes by name needs
    groups of one: `metadata.name` isn't a label, so the caller leaves such templates out or judges each node."""
    keys = labels_of_interest(placements) | {POOL_LABEL, *more}
    return tuple(Group(members[0], tuple(n.name for n in members)) for members in group_nodes(nodes, frozenset(keys)))


def nodes_by_pool(nodes: Iterable[LiveNode]) -> dict[str, list[LiveNode]]:
    """By the pool label; the empty name holds the nodes of no pool."""
    found: dict[str, list[LiveNode]] = defaultdict(list)
    for node in nodes:
        found[node.facts.pool].append(node)
    return found


def least(pool: PoolView) -> int:
    """How many nodes the pool should have at least: its lower bound where the size is the autoscaler's, else its count."""
    return pool.minimum if pool.autoscaled and pool.minimum is not None else pool.count


def standing(pool: PoolView, pool_nodes: Iterable[LiveNode], *, now: float, grace: float) -> Standing:
    """`idle` where there is no node and none need be, `pending` where none is there yet or none can be judged."""
    seen = False
    for node in pool_nodes:
        if can_judge(node.facts, now=now, grace=grace):
            return "judged"
        seen = True
    return "pending" if seen or least(pool) else "idle"


def pool_finding(view: ClusterView, pool: PoolView, state: Standing, nodes: int) -> Finding | None:
    """What to say of a pool that isn't judged; None where it is."""
    subject = f"pool/{view.name}/{pool.name}"
    if state == "idle":
        return finding("PoolIdle", subject, f"Pool {pool.name} has no node, so nothing of it is judged.")
    if state == "pending" and not nodes:
        return finding("PoolPending", subject, f"Pool {pool.name} should have {least(pool)} nodes and has none yet.")
    if state == "pending":
        return finding(
            "PoolPending",
            subject,
            f"Pool {pool.name} has {nodes} node{'s' if nodes != 1 else ''}, and none is ready and old enough to be "
            "judged.",
        )
    return None


def read_failures(view: ClusterView, live: LiveCluster, parts: Iterable[str]) -> Iterator[Finding]:
    """One finding for each reason for which some of the named parts couldn't be read."""
    unread: dict[str, list[str]] = defaultdict(list)
    for part in parts:
        value = getattr(live, part)
        if isinstance(value, Unknown):
            unread[value.why.rstrip(".")].append(part.replace("_", " "))
    for why, names in unread.items():
        what = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
        yield finding("ReadFailed", f"cluster/{view.name}", f"The {what} of cluster {view.name} are unknown: {why}.")
