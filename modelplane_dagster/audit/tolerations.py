"""Which tolerations let a pod where it needn't be. A toleration without a key tolerates every taint of its effect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.drivers import POOL_LABEL
from modelplane_dagster.kube.objects import NodeFacts, PodPlacement, Toleration
from modelplane_dagster.kube.scheduling import KEEPS_OUT, daemon_should_run, may_run, tolerates


def keyless(placement: PodPlacement) -> tuple[Toleration, ...]:
    """Those that tolerate every taint, or every one of an effect that keeps pods out."""
    return tuple(
        t for t in placement.tolerations if not t.key and t.operator == "Exists" and t.effect in ("", *KEEPS_OUT)
    )


def allows(placement: PodPlacement, node: NodeFacts, *, daemon: bool, host_network: bool = False) -> bool:
    """Whether a pod of this template may stand on the node, with what the DaemonSet controller adds for a daemon."""
    if daemon:
        return daemon_should_run(placement, node, host_network=host_network)
    return may_run(placement, node)


def opening(placement: PodPlacement, node: NodeFacts) -> tuple[Toleration, ...]:
    """The template's keyed tolerations that cover a taint of a node where it may run."""
    taints = [t for t in node.taints if t.effect in KEEPS_OUT]
    return tuple(t for t in placement.tolerations if t.key and any(tolerates(t, taint) for taint in taints))


def pools_named(placement: PodPlacement) -> frozenset[str]:
    """The pools that a template asks for by name."""
    named = {r for t in placement.affinity or () for r in t.expressions if r.key == POOL_LABEL and r.operator == "In"}
    pools = {v for r in named for v in r.values}
    selected = placement.node_selector.get(POOL_LABEL)
    return frozenset(pools | ({selected} if selected else set()))


def kept_pool(view: ClusterView, pool: str, placements: Iterable[PodPlacement], orphan_pools: frozenset[str]) -> bool:
    """Whether a pool is one that the manifest holds no more and our own values still name (lists shrink through prune
    alone), or one of `orphan_pools`: what runs there isn't astray."""
    if not pool or any(p.name == pool for p in view.pools):
        return False
    return pool in orphan_pools or any(pool in pools_named(p) for p in placements)


def spell(toleration: Toleration) -> str:
    """As a person writes it, such as "nvidia.com/gpu Exists NoSchedule"."""
    parts = [toleration.key or "any key", toleration.operator or "Equal"]
    if toleration.value:
        parts.append(toleration.value)
    parts.append(toleration.effect or "any effect")
    return " ".join(parts)


def pool_names(names: Sequence[str]) -> str:
    """Pools for a sentence."""
    return f"pool{'s' if len(names) > 1 else ''} {listed(names)}" if names else "no pool"


def listed(names: Sequence[str], limit: int = 5) -> str:
    """Names for a sentence: the first few, and how many more."""
    if not names:
        return "none"
    shown = ", ".join(names[:limit])
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown
