"""A cluster in one record: does it stand as planned, and if not, what differs. The sensor and the reconcile loop read this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from modelplane_dagster.actions import cluster_actions, cluster_orphans
from modelplane_dagster.audit.health import PoolHealth
from modelplane_dagster.audit.judged import can_judge
from modelplane_dagster.canonical import digest
from modelplane_dagster.findings import Finding, Severity
from modelplane_dagster.gate import refusal_sentence
from modelplane_dagster.judgement import judge_live
from modelplane_dagster.known import Known

if TYPE_CHECKING:
    from modelplane_dagster.actions import Action, Orphan
    from modelplane_dagster.audit.live import LiveCluster
    from modelplane_dagster.cluster_plan import ClusterPlan
    from modelplane_dagster.observed import ObservedCluster

State = Literal["converged", "differs", "pending", "refused", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSummary:
    """`differs`: something would be changed; `pending`: nothing would, and something isn't whole yet; `unknown`: something
    couldn't be read or the manifest is invalid. `why` is one sentence. `health` and `by_pool` (what was found of each pool,
    a component's findings included) are empty where nothing could be judged. `invalid`: unknown because of its manifests.
    `at_rest`: leaving `changes` aside, nothing of what is in its way is mended by waiting, and no node of it is still too
    young to be judged."""

    name: str
    state: State
    why: str
    changes: tuple[str, ...] = ()
    health: tuple[PoolHealth, ...] = ()
    findings: tuple[Finding, ...] = ()
    by_pool: Mapping[str, tuple[Finding, ...]] = field(default_factory=dict)
    orphans: tuple[Orphan, ...] = ()
    digest: str = ""
    invalid: bool = False
    at_rest: bool = False

    @property
    def settled(self) -> bool:
        """Nothing that another pass could bring further."""
        return self.state in ("converged", "refused") or self.invalid

    def as_dict(self) -> dict[str, Any]:
        """JSON-able, for the summary observation."""
        return {
            "name": self.name,
            "state": self.state,
            "why": self.why,
            "changes": list(self.changes),
            "pools": {h.pool: h.state for h in self.health},
            "findings": [f.as_dict() for f in self.findings if f.severity is not Severity.INFO],
            "orphans": [o.subject for o in self.orphans],
            "manifests": self.digest,
        }

    def fingerprint(self) -> str:
        """Changes when what a person would be told changes."""
        return digest(self.as_dict())


def summarise(plan: ClusterPlan, observed: ObservedCluster, *, grace: float) -> ClusterSummary:
    """The plan must be made with the observation (its kept pools and CPU mode)."""
    if plan.gate.verdict != "pass" or plan.view is None:
        state: State = "refused" if plan.gate.verdict == "refused" else "unknown"
        return ClusterSummary(
            name=plan.name,
            state=state,
            why=refusal_sentence(plan.name, plan.gate),
            findings=plan.gate.findings,
            orphans=cluster_orphans(plan, observed),
            digest=plan.digest,
            invalid=state == "unknown",
        )
    actions = [a for a in cluster_actions(plan, observed) if a.op != "none"]
    changes = tuple(f"{a.op} {a.subject}: {a.reason}" for a in actions)
    orphans = cluster_orphans(plan, observed)
    unread = observed.unread()
    absent = isinstance(observed.control_plane, Known) and observed.control_plane.value is None
    if observed.live is None:
        coming = observed.coming()
        why = changes[0] if changes else f"it waits for {coming}" if coming else "; ".join(unread)
        state = "differs" if absent or changes else "pending" if coming else "unknown"
        return ClusterSummary(
            name=plan.name,
            state=state,
            why=why,
            changes=changes,
            findings=observed.problems(),
            orphans=orphans,
            digest=plan.digest,
            at_rest=_unread_for_good(observed),
        )
    judged = judge_live(plan, observed, grace=grace)
    health, findings = tuple(judged.health.values()), (*observed.problems(), *judged.findings)
    state, why = _state(changes, unread, health, findings)
    return ClusterSummary(
        name=plan.name,
        state=state,
        why=why,
        changes=changes,
        health=health,
        findings=findings,
        by_pool={h.pool: judged.of_pool(h.pool) for h in health},
        orphans=orphans,
        digest=plan.digest,
        at_rest=not unread and _all_old(observed.live, grace) and _at_rest(actions, health, findings),
    )


def _unread_for_good(observed: ObservedCluster) -> bool:
    """Each part that isn't known couldn't be read for a reason that lasts, such as a kubeconfig that isn't there."""
    return all(u.findings and all(f.lasts for f in u.findings) for u in observed.unknown())


def _all_old(live: LiveCluster, grace: float) -> bool:
    """Every node is ready and older than the grace period, so that what is said of it won't pass with its youth."""
    nodes = live.nodes
    return isinstance(nodes, Known) and all(can_judge(n.facts, now=live.taken_at, grace=grace) for n in nodes.value)


# What follows where somebody must label a pool's nodes, or take a taint off them, and where the pool isn't made yet.
_FOLLOWS = ("LabelMissing", "StackMissesPool", "DaemonMissing", "PoolPending", "NodesMissing")


def _at_rest(actions: list[Action], health: tuple[PoolHealth, ...], findings: tuple[Finding, ...]) -> bool:
    owned = {f.subject for f in findings if f.lasts and f.code in ("LabelMissing", "StackMissesPool")}
    owned |= {a.subject for a in actions if a.op == "create"}
    blocking = [f for f in findings if f.severity is Severity.ERROR or f.code in ("PoolPending", "NodesMissing")]
    told = all(f.lasts or (f.subject in owned and f.code in _FOLLOWS) for f in blocking)
    return told and all(h.state != "unknown" for h in health)


def _state(
    changes: tuple[str, ...], unread: tuple[str, ...], health: tuple[PoolHealth, ...], findings: tuple[Finding, ...]
) -> tuple[State, str]:
    if unread:
        return "unknown", unread[0]
    if changes:
        return "differs", changes[0]
    for pool in health:
        if pool.state not in ("ready", "idle"):
            told = next((f.message for f in pool.findings), f"pool {pool.pool} is {pool.state}")
            return "pending", told
    missing = next((f for f in findings if f.code == "NodesMissing"), None)
    if missing is not None:
        return "pending", missing.message
    errors = [f for f in findings if f.severity is Severity.ERROR]
    if errors:
        return "pending", f"{errors[0].code}: {errors[0].message}"
    return "converged", "it stands as its manifests say"
