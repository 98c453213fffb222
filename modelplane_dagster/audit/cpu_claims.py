"""What CPU claims show on a running cluster: amounts that the server dropped, and pods that don't mirror their claim."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal

from modelplane_dagster.audit.judged import Told
from modelplane_dagster.audit.live import LiveClaim, LiveCluster, LivePod
from modelplane_dagster.audit.slices import Ledger
from modelplane_dagster.audit.tolerations import listed
from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.cpu import CAPACITY_KEY
from modelplane_dagster.drivers import CPU
from modelplane_dagster.findings import Severity, finding
from modelplane_dagster.known import Known
from modelplane_dagster.kube.objects import NodeFacts
from modelplane_dagster.kube.quantity import QuantityError, parse_quantity
from modelplane_dagster.kube.slices import PublishedDevice


def cpu_claim_findings(view: ClusterView, live: LiveCluster) -> Iterator[Told]:
    """Each rule needs its own parts of the reading and is silent without them."""
    if CPU not in view.claimed or not isinstance(live.nodes, Known) or not isinstance(live.ledger, Known):
        return
    nodes = {n.facts.name: n.facts for n in live.nodes.value}
    yield from _dropped(view, nodes.values(), live.ledger.value)
    if isinstance(live.pods, Known) and isinstance(live.claims, Known):
        yield from _unmirrored(view, live.pods.value, live.claims.value, (nodes, live.ledger.value))


def _dropped(view: ClusterView, nodes: Iterable[NodeFacts], ledger: Ledger) -> Iterator[Told]:
    """A server whose gate DRAConsumableCapacity is off keeps a group's capacity and drops, in silence, that several
    claims may share the group: each claim is then given a whole one, and everything looks healthy."""
    pools: dict[str, list[str]] = {}
    for node in nodes:
        if node.pool and any(_unshared(d) for d in ledger.at(CPU, node).devices):
            pools.setdefault(node.pool, []).append(node.name)
    for pool, names in sorted(pools.items()):
        found = finding(
            "FieldDropped",
            f"pool/{view.name}/{pool}",
            f"dra-driver-cpu publishes groups of CPUs on {listed(sorted(names))} of pool {pool}, and cluster {view.name} "
            "has dropped allowMultipleAllocations from them, as with DRAConsumableCapacity off: each claim takes a whole "
            "group.",
            fix=f"Turn DRAConsumableCapacity on, or prune component/{view.name}/dra-driver-cpu so that it comes back "
            "individual.",
            severity=Severity.ERROR,
        )
        yield Told(found, frozenset({pool}))


def _unshared(device: PublishedDevice) -> bool:
    return device.facts.amount(CAPACITY_KEY) is not None and not device.facts.allow_multiple


def _unmirrored(
    view: ClusterView,
    pods: Iterable[LivePod],
    claims: Iterable[LiveClaim],
    seen: tuple[dict[str, NodeFacts], Ledger],
) -> Iterator[Told]:
    """The scheduler counts a pod's requests and not its claim, unless the slices say so: a pod that claims more than it
    requests lets others be placed on CPUs that it has alone. One finding a pod."""
    nodes, ledger = seen
    by_name = {(c.namespace, c.name): c for c in claims if any(d == CPU for d, _, _ in c.devices)}
    for pod in pods if by_name else ():
        node = nodes.get(pod.node)
        held = [c for name in pod.claims if (c := by_name.get((pod.namespace, name)))]
        if node is None or pod.over or not held:
            continue
        published = {d.name: d for d in ledger.at(CPU, node).devices}
        if any(d.charged for d in published.values()):
            continue
        taken = sum((_taken(c, published) for c in held), Decimal(0))
        if taken > Decimal(str(pod.cpu)):
            found = finding(
                "ClaimNotMirrored",
                f"pool/{view.name}/{node.pool}" if node.pool else f"cluster/{view.name}",
                f"Pod {pod.namespace}/{pod.name} on node {node.name} claims {taken.normalize():f} CPUs and requests "
                f"{pod.cpu:g}.",
            )
            yield Told(found, frozenset({node.pool} if node.pool else ()))


def _taken(claim: LiveClaim, published: dict[str, PublishedDevice]) -> Decimal:
    """CPUs: the amount taken of a group, the whole group where none is recorded, one a device without an amount."""
    total = Decimal(0)
    for driver, pool, device in claim.devices:
        if driver != CPU:
            continue
        amount = claim.taken.get((driver, pool, device, CAPACITY_KEY))
        if amount is None and device in published:
            amount = published[device].facts.amount(CAPACITY_KEY)
        try:
            total += parse_quantity(amount) if amount is not None else Decimal(1)
        except QuantityError:
            total += 1
    return total
