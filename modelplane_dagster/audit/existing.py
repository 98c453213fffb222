"""What a cluster that others run must bring (R14): labels and taints on its nodes, room for controllers, no second
labeller. Its nodes are never written to, so every finding gives the command that its owner runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from modelplane_dagster.audit.expect import expectation
from modelplane_dagster.audit.instances import Instance, instances, no_room
from modelplane_dagster.audit.judged import GRACE, can_judge, nodes_by_pool, read_failures
from modelplane_dagster.audit.live import LiveCluster, LiveNode
from modelplane_dagster.audit.live_conflicts import second_amd_operator, second_nfd
from modelplane_dagster.audit.ownership import ownership
from modelplane_dagster.audit.tolerations import listed
from modelplane_dagster.cluster import ClusterView, PoolView
from modelplane_dagster.components.types import JoinedComponent
from modelplane_dagster.drivers import DRIVER_TAINT_KEYS, POOL_LABEL
from modelplane_dagster.findings import Finding, finding, ordered
from modelplane_dagster.known import Known
from modelplane_dagster.kube.objects import NodeFacts, Taint
from modelplane_dagster.kube.scheduling import KEEPS_OUT, daemon_tolerations, may_run, untolerated, why_not


def audit_existing(
    view: ClusterView, joined: Iterable[JoinedComponent], live: LiveCluster, *, grace: float = GRACE
) -> tuple[Finding, ...]:
    """The requirements that a cluster of one's own doesn't meet; empty where it meets them all. Nothing needs to be
    installed for it."""
    parts = tuple(joined)
    found = list(read_failures(view, live, ("nodes", "workloads")))
    if isinstance(live.workloads, Known):
        whose = ownership(parts, live.workloads.value)
        found += second_nfd(view, parts, whose, live.workloads.value)
        found += second_amd_operator(view, parts, whose)
    if isinstance(live.nodes, Known):
        nodes = live.nodes.value
        by_pool = nodes_by_pool(nodes)
        for pool in view.pools:
            found += node_requirements(view, pool, by_pool.get(pool.name, ()))
        planned = instances(parts)
        facts = tuple(n.facts for n in nodes if can_judge(n.facts, now=live.taken_at, grace=grace))
        found += _room(view, planned, facts)
        found += _kept_out(view, planned, facts)
    return ordered(found)


def node_requirements(view: ClusterView, pool: PoolView, nodes: Iterable[LiveNode]) -> Iterator[Finding]:
    """Labels and taints of the plan that a pool's nodes lack, one finding a label or taint. Taints are compared by key
    and effect; labels by value."""
    facts = sorted((n.facts for n in nodes if not n.facts.terminating), key=lambda n: n.name)
    subject = f"pool/{view.name}/{pool.name}"
    labels = {POOL_LABEL: pool.name, **pool.labels}
    if not facts:
        if pool.count and not pool.autoscaled:
            pairs = " ".join(f"{k}={v}" for k, v in labels.items())
            yield finding(
                "LabelMissing",
                subject,
                f"No node carries {POOL_LABEL}={pool.name}, and pool {pool.name} should have {pool.count}.",
                fix=f"kubectl label node NODE {pairs}",
                lasts=True,
            )
        return
    for key, value in labels.items():
        lacking = [n.name for n in facts if n.labels.get(key) != value]
        if lacking:
            other = any(key in n.labels for n in facts if n.labels.get(key) != value)
            yield finding(
                "LabelMissing",
                subject,
                f"{listed(lacking)} of pool {pool.name} should carry the label {key}={value}.",
                fix=f"kubectl label node {' '.join(lacking)} {key}={value}{' --overwrite' if other else ''}",
                lasts=True,
            )
    for taint in pool.taints:
        lacking = [n.name for n in facts if not _carries(n, taint)]
        if lacking:
            yield finding(
                "TaintMissing",
                subject,
                f"{listed(lacking)} of pool {pool.name} should carry the taint {taint}; without it other pods, our "
                "controllers among them, may land there.",
                fix=f"kubectl taint node {' '.join(lacking)} {taint}",
            )


def _carries(node: NodeFacts, taint: Taint) -> bool:
    return any(t.key == taint.key and t.effect == taint.effect for t in node.taints)


def pool_taint_keys(view: ClusterView) -> frozenset[str]:
    """Every key that marks a node as some pool's."""
    return frozenset(DRIVER_TAINT_KEYS) | {t.key for p in view.pools for t in p.taints}


def _room(view: ClusterView, planned: tuple[Instance, ...], nodes: tuple[NodeFacts, ...]) -> Iterator[Finding]:
    """Controllers and upgrade hooks tolerate no pool's taint, so one node must be free of them."""
    if not nodes:
        return
    keys = pool_taint_keys(view)
    free = [
        n for n in nodes if not n.unschedulable and not any(t.key in keys and t.effect in KEEPS_OUT for t in n.taints)
    ]
    if not free:
        yield finding(
            "NoRoomForControllers",
            f"cluster/{view.name}",
            f"Each of the {len(nodes)} nodes of cluster {view.name} that can be judged carries a pool's taint or is "
            "cordoned, so controllers and upgrade hooks find no node.",
        )
        return
    for instance in planned:
        if instance.daemon or instance.workload.reach is not None:
            continue
        if not any(may_run(instance.placement, n) for n in nodes):
            why = f"on {free[0].name} {why_not(instance.placement, free[0])}"
            yield no_room(view, instance, f"finds no node where it may run: {why}")


def _kept_out(view: ClusterView, planned: tuple[Instance, ...], nodes: tuple[NodeFacts, ...]) -> Iterator[Finding]:
    """Taints beyond the plan's that would keep a daemon off a node that it must serve."""
    kept: dict[tuple[str, Taint], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    keys = {p.name: {(t.key, t.effect) for t in p.taints} for p in view.pools}
    daemons = [(i, e) for i in planned if i.daemon and (e := expectation(view, i.component, i.workload))]
    for node in nodes:
        extra = tuple(
            t for t in node.taints if t.effect in KEEPS_OUT and (t.key, t.effect) not in keys.get(node.pool, ())
        )
        if not extra or not node.pool:
            continue
        for instance, expected in daemons:
            if not expected.must(node):
                continue
            allowed = daemon_tolerations(instance.placement.tolerations, host_network=instance.workload.host_network)
            for taint in untolerated(allowed, extra):
                kept[node.pool, taint][instance.name].append(node.name)
    for (pool, taint), daemons_out in sorted(kept.items()):
        names = sorted({n for members in daemons_out.values() for n in members})
        yield finding(
            "StackMissesPool",
            f"pool/{view.name}/{pool}",
            f"The taint {taint} on {listed(names)} of pool {pool} keeps out {listed(sorted(daemons_out))}.",
            fix=f"kubectl taint node {' '.join(names)} {taint}-",
            lasts=True,
        )
