"""Room for CPU claims (R18): the scheduler charges a node with a pod's mirrored requests, not with its claim, so what
the driver reserves must exceed the kubelet's reservation by the daemons' requests, or the mirrored pod never fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from modelplane_dagster.audit.instances import dig
from modelplane_dagster.audit.live import LiveCluster, cpus
from modelplane_dagster.audit.planned_reach import Reached
from modelplane_dagster.audit.tolerations import listed
from modelplane_dagster.cluster import ClusterView, PoolView
from modelplane_dagster.components.types import JoinedComponent
from modelplane_dagster.cpu import cpu_device, reserved_cpus
from modelplane_dagster.drivers import CPU
from modelplane_dagster.findings import Finding, finding
from modelplane_dagster.known import Unknown
from modelplane_dagster.kube.objects import NodeFacts

RESERVED = "driverConfig.reservedCPUs"
CHARGED = "driverConfig.publishNodeAllocatableResourceMapping"


def claimable(pool: PoolView) -> int:
    """The CPUs that a full claim of a node takes: groups times CPUs a group; 0 where the class claims none."""
    device = cpu_device(pool.devices)
    return device.groups * device.cpus if device else 0


def planned_room(
    view: ClusterView,
    joined: tuple[JoinedComponent, ...],
    there: tuple[Reached, ...],
    nodes: tuple[NodeFacts, ...],
) -> Iterator[Finding]:
    """By what the plan knows: the driver's reservation against the daemons alone. The kubelet's own reservation isn't
    known before a node is there, so the live audit may still find less room."""
    publisher = next((j for j in joined if j.install and CPU in j.component.published), None)
    if publisher is None or dig(publisher.values, CHARGED):
        return
    text = dig(publisher.values, RESERVED)
    reserved = reserved_cpus(str(text)) if text else 0
    for node in nodes:
        if not node.pool or CPU not in view.pool(node.pool).drivers:
            continue
        daemons = {
            r.instance.name: cpus(r.instance.workload.cpu_request)
            for r in there
            if r.instance.daemon and r.instance.workload.cpu_request and r.on(node)
        }
        taken = sum(daemons.values())
        if taken > reserved:
            yield finding(
                "CpuNotAllocatable",
                f"pool/{view.name}/{node.pool}",
                f"The CPU driver reserves {reserved:g} CPUs, and the daemons of the node request {taken:g} "
                f"({listed([f'{n} {c:g}' for n, c in sorted(daemons.items()) if c])}) besides what the kubelet "
                f"reserves, so a pod that mirrors a full claim of {claimable(view.pool(node.pool)):d} CPUs never fits.",
            )


def charges(view: ClusterView, live: LiveCluster | None) -> Mapping[str, bool]:
    """By pool: whether the scheduler charges a claim of its CPUs to the node, so that a pod doesn't mirror the claim. True
    where every node that publishes CPUs says so of all of them: where one doesn't, a pod may land there. A pool that
    claims none, or whose nodes publish none now, is left out: of it nothing is known."""
    if live is None or isinstance(live.nodes, Unknown) or isinstance(live.ledger, Unknown):
        return {}
    found: dict[str, bool] = {}
    claiming = {p.name for p in view.claiming(CPU)}
    for node in (n.facts for n in live.nodes.value):
        devices = live.ledger.value.at(CPU, node).devices if node.pool in claiming else ()
        if devices:
            found[node.pool] = found.get(node.pool, True) and all(d.charged for d in devices)
    return found


def live_room(view: ClusterView, pool: PoolView, node: NodeFacts, taken: float) -> Finding | None:
    """With the node's own numbers: `taken` is what its daemons and static pods request, in CPUs. None where a full
    claim fits, or where the node doesn't say what it can allocate."""
    wanted = claimable(pool)
    has = node.allocatable.get("cpu")
    if not wanted or has is None:
        return None
    allocatable = cpus(has)
    # Requests are whole millicores; sums of binary fractions aren't.
    left = round(allocatable - taken, 3)
    if left >= wanted:
        return None
    return finding(
        "CpuNotAllocatable",
        f"pool/{view.name}/{pool.name}",
        f"Node {node.name} can allocate {allocatable:g} CPUs and its daemons request {round(taken, 3):g}, which leaves "
        f"{left:g}; a pod that mirrors a full claim asks for {wanted:d} and never fits.",
    )
