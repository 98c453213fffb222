"""What the product's own rules say, those that the audits and the plan judge by."""

from __future__ import annotations

from modelplane_dagster.audit.live import LiveNode
from modelplane_dagster.audit.tolerations import allows
from modelplane_dagster.kube.allocator import Unallocatable, allocate
from modelplane_dagster.kube.claims import Claim, DeviceClass, Usage
from modelplane_dagster.kube.node_pools import Published
from modelplane_dagster.kube.objects import NodeFacts, PodPlacement
from modelplane_dagster.kube.slices import Slice
from tests.kubernetes.placement.world import Case, Forecast, World


def forecast(world: World) -> dict[str, Forecast]:
    """By case."""
    nodes = [LiveNode.parse(n).facts for n in world.nodes]
    support = [s for c in world.cases for s in c.support]
    published = Published(Slice.parse(s) for s in support if s["kind"] == "ResourceSlice")
    classes = [DeviceClass.parse(s) for s in support if s["kind"] == "DeviceClass"]
    usage = Usage.of(s for s in support if s["kind"] == "ResourceClaim")
    return {c.name: _one(c, nodes, published, classes, usage) for c in world.cases}


def _one(
    case: Case, nodes: list[NodeFacts], published: Published, classes: list[DeviceClass], usage: Usage
) -> Forecast:
    placement, daemon = PodPlacement.parse(case.spec), case.kind == "DaemonSet"
    host = bool(case.spec.get("hostNetwork"))
    allowed = [n for n in nodes if allows(placement, n, daemon=daemon, host_network=host)]
    if not case.claims:
        return Forecast(frozenset(n.name for n in allowed))
    by_name = {s["metadata"]["name"]: s for s in case.support if s["kind"] == "ResourceClaim"}
    wanted = [Claim.parse(by_name[name]) for name in case.claims]
    devices: dict[str, dict[str, tuple[str, ...]]] = {}
    for node in allowed:
        outcome = allocate(wanted, node, published=published, classes=classes, usage=usage)
        if isinstance(outcome, Unallocatable):
            if outcome.aborted:
                # The scheduler gives up on the pod, whatever the other nodes hold.
                return Forecast(frozenset())
            continue
        devices[node.name] = {a.claim: tuple(f"{r.request}={'/'.join(r.device)}" for r in a.results) for a in outcome}
    return Forecast(frozenset(devices), devices)
