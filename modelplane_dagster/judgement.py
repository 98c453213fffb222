"""Everything that audits say of a live cluster, in one pass: health of its pools, reach and tolerations, conflicts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelplane_dagster.actions import component_drift
from modelplane_dagster.audit.existing import audit_existing
from modelplane_dagster.audit.health import PoolHealth, audit_health
from modelplane_dagster.audit.judged import read_failures
from modelplane_dagster.audit.live_audit import LiveAudit, audit_live
from modelplane_dagster.audit.live_conflicts import audit_conflicts
from modelplane_dagster.errors import UnreadableError
from modelplane_dagster.findings import Finding, ordered
from modelplane_dagster.known import Known

if TYPE_CHECKING:
    from modelplane_dagster.cluster_plan import ClusterPlan
    from modelplane_dagster.observed import ObservedCluster


# What the audits below read of a cluster.
JUDGED_PARTS = ("nodes", "workloads", "pods", "slices", "device_classes")


@dataclass(frozen=True, slots=True)
class Judgement:
    """`health` is by pool, in the manifest's order; `others` are conflicts and, on a cluster of one's own, requirements;
    `unread` is what couldn't be read, which each audit tells by itself and which is told once here."""

    cluster: str
    health: dict[str, PoolHealth]
    audit: LiveAudit
    others: tuple[Finding, ...]
    unread: tuple[Finding, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self._once([*self.audit.findings, *self.others, *(f for h in self.health.values() for f in h.findings)])

    def _once(self, found: Iterable[Finding]) -> tuple[Finding, ...]:
        return ordered([*self.unread, *(f for f in found if f.code != "ReadFailed")])

    def of_pool(self, pool: str) -> tuple[Finding, ...]:
        """What speaks of one pool; what speaks of the whole cluster is told with every pool."""
        subjects = (f"pool/{self.cluster}/{pool}", f"cluster/{self.cluster}")
        others = [f for f in self.others if f.subject in subjects]
        own = self.health[pool].findings if pool in self.health else ()
        return self._once([*own, *self.audit.of_pool(pool), *others])


def judge_live(plan: ClusterPlan, observed: ObservedCluster, *, grace: float) -> Judgement:
    """`grace` is in seconds. Raises UnreadableError where the manifests or the cluster couldn't be read at all."""
    view, live = plan.view, observed.live
    if view is None or live is None or plan.join is None:
        raise UnreadableError("; ".join(observed.unread()) or f"Cluster {plan.name} can't be judged.")
    parts = plan.join.components
    health = {h.pool: h for h in audit_health(view, parts, live, grace=grace)}
    audit = audit_live(
        view,
        parts,
        live,
        grace=grace,
        orphan_pools=orphan_pools(plan, observed),
        lagging=lagging(plan, observed),
    )
    others = list(audit_conflicts(view, parts, live, grace=grace))
    if view.source == "Existing":
        others += audit_existing(view, parts, live, grace=grace)
    return Judgement(plan.name, health, audit, ordered(others), tuple(read_failures(view, live, JUDGED_PARTS)))


def orphan_pools(plan: ClusterPlan, observed: ObservedCluster) -> frozenset[str]:
    """Pools that stand on the cloud or on record and that the manifest no longer holds."""
    wanted = {p.name for p in plan.view.pools} if plan.view else set()
    there = set(observed.pools.value) if isinstance(observed.pools, Known) else set()
    recorded = set(observed.record.pools) if observed.record else set()
    return frozenset((there | recorded) - wanted)


def lagging(plan: ClusterPlan, observed: ObservedCluster) -> frozenset[str]:
    """The components whose live release isn't the planned one yet."""
    seen = observed.components.value if isinstance(observed.components, Known) else {}
    return frozenset(c.key for c in plan.installed if c.key not in seen or component_drift(c, seen[c.key]))
