"""Whether each pool's devices are there (R23): the last link of the chain label, daemon, driver, slice, node by node.

That every pod of a daemon is ready proves nothing: one that the taint keeps off the pool is ready on the nodes it
does reach. So the slices are counted, and where they lack, the first broken link is named.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from modelplane_dagster.audit.chain import Chain, Fault, Link, judge_node
from modelplane_dagster.audit.class_match import class_differences
from modelplane_dagster.audit.cpu_room import live_room
from modelplane_dagster.audit.judged import (
    GRACE,
    Standing,
    can_judge,
    least,
    nodes_by_pool,
    pool_finding,
    read_failures,
    standing,
)
from modelplane_dagster.audit.live import LiveCluster, LiveNode, LivePod, LiveWorkload
from modelplane_dagster.audit.slices import Ledger
from modelplane_dagster.audit.tolerations import listed
from modelplane_dagster.cluster import ClusterView, PoolView
from modelplane_dagster.components.types import JoinedComponent
from modelplane_dagster.drivers import CPU
from modelplane_dagster.findings import Finding, finding, has_errors, ordered
from modelplane_dagster.known import Known, Unknown
from modelplane_dagster.kube.objects import NodeFacts

# The table's own fix speaks of a command, which only the check of a pool's own labels can give.
_LABEL_FIX = "Look at what sets the label: the pool's own labels, or the daemon that finds the hardware."

State = Literal["ready", "pending", "idle", "unhealthy", "unknown"]


@dataclass(frozen=True, slots=True, order=True)
class NodeDevices:
    """What one node publishes of one driver."""

    node: str
    driver: str
    devices: int


@dataclass(frozen=True, slots=True)
class PoolHealth:
    """`nodes` counts those there, `judged` those that count; `devices` holds the judged nodes' devices by driver.
    `unknown` is a pool of which something couldn't be read; nothing is concluded then."""

    pool: str
    state: State
    nodes: int
    judged: int
    devices: tuple[NodeDevices, ...]
    findings: tuple[Finding, ...]


def audit_health(
    view: ClusterView, joined: Iterable[JoinedComponent], live: LiveCluster, *, grace: float = GRACE
) -> tuple[PoolHealth, ...]:
    """The health of every pool of the manifest, in its order. `grace` is in seconds."""
    failed = tuple(read_failures(view, live, ("nodes", "workloads", "pods", "slices")))
    nodes, workloads, pods, ledger = live.nodes, live.workloads, live.pods, live.ledger
    if (
        isinstance(nodes, Unknown)
        or isinstance(workloads, Unknown)
        or isinstance(pods, Unknown)
        or isinstance(ledger, Unknown)
    ):
        count = Counter(n.facts.pool for n in nodes.value) if isinstance(nodes, Known) else Counter()
        return tuple(PoolHealth(p.name, "unknown", count[p.name], 0, (), failed) for p in view.pools)
    by_pool = nodes_by_pool(nodes.value)
    chain = Chain(view, tuple(joined), workloads.value, pods.value)
    taken = _daemon_requests(pods.value, workloads.value)
    return tuple(
        _pool_health(
            _Look(view, pool, tuple(by_pool.get(pool.name, ())), live.taken_at, grace), chain, ledger.value, taken
        )
        for pool in view.pools
    )


@dataclass(frozen=True, slots=True)
class _Look:
    """One pool and its nodes; `now` and `grace` are in seconds."""

    view: ClusterView
    pool: PoolView
    nodes: tuple[LiveNode, ...]
    now: float
    grace: float

    @property
    def subject(self) -> str:
        return f"pool/{self.view.name}/{self.pool.name}"

    def state(self) -> Standing:
        return standing(self.pool, self.nodes, now=self.now, grace=self.grace)

    def judged(self) -> tuple[NodeFacts, ...]:
        return tuple(n.facts for n in self.nodes if can_judge(n.facts, now=self.now, grace=self.grace))


def _pool_health(look: _Look, chain: Chain, ledger: Ledger, taken: dict[str, float]) -> PoolHealth:
    state, judged = look.state(), look.judged()
    said = pool_finding(look.view, look.pool, state, len(look.nodes))
    found = [*([said] if said else []), *_too_few(look)]
    if state != "judged":
        return PoolHealth(look.pool.name, state, len(look.nodes), 0, (), ordered(found))
    faults: dict[tuple[str, Link, str], list[str]] = defaultdict(list)
    devices: list[NodeDevices] = []
    for node in judged:
        for driver in look.pool.drivers:
            published = ledger.at(driver, node)
            devices.append(NodeDevices(node.name, driver, len(published.devices)))
            fault = judge_node(chain, look.pool, driver, node, published)
            if fault:
                faults[driver, fault.link, fault.message].append(node.name)
    found += _faults(look, faults)
    found += class_differences(look.view, look.pool, judged, ledger)
    found += _cpu_room(look, judged, ledger, taken)
    found = list(ordered(found))
    return PoolHealth(
        look.pool.name,
        "unhealthy" if has_errors(found) else "ready",
        len(look.nodes),
        len(judged),
        tuple(devices),
        tuple(found),
    )


def _faults(look: _Look, faults: dict[tuple[str, Link, str], list[str]]) -> Iterator[Finding]:
    """One finding for the nodes that break at the same link for the same reason."""
    for (driver, link, message), names in sorted(faults.items()):
        where = f"node{'s' if len(names) > 1 else ''} {listed(sorted(names))}"
        yield finding(
            Fault.CODES[link],
            look.subject,
            f"{driver} on {where} of pool {look.pool.name}, link {link}: {message}.",
            fix=_LABEL_FIX if link == "label" else None,
        )


def _too_few(look: _Look) -> Iterator[Finding]:
    """Against the lower bound where the size is the autoscaler's, else against the count."""
    pool = look.pool
    low = least(pool)
    if len(look.nodes) < low:
        yield finding(
            "NodesMissing",
            look.subject,
            f"Pool {pool.name} should have {low} nodes and has {len(look.nodes)}.",
        )


def _daemon_requests(pods: Iterable[LivePod], workloads: Iterable[LiveWorkload]) -> dict[str, float]:
    """By node, the CPUs that daemons and static pods request there: what a claiming pod can never displace."""
    daemons = {w.uid for w in workloads if w.kind == "DaemonSet" and w.uid}
    taken: dict[str, float] = defaultdict(float)
    for pod in pods:
        if pod.cpu and pod.node and not pod.over and (pod.mirror or pod.owner in daemons):
            taken[pod.node] += pod.cpu
    return taken


def _cpu_room(look: _Look, judged: tuple[NodeFacts, ...], ledger: Ledger, taken: dict[str, float]) -> Iterator[Finding]:
    """The node with the least room speaks for its pool. Where slices have the scheduler charge claims, pods don't
    mirror them and there is nothing to compare."""
    if CPU not in look.pool.drivers:
        return
    for node in sorted(judged, key=lambda n: -taken.get(n.name, 0.0)):
        if any(d.charged for d in ledger.at(CPU, node).devices):
            continue
        short = live_room(look.view, look.pool, node, taken.get(node.name, 0.0))
        if short:
            yield short
            return
