"""Whether the passes have come to where waiting changes nothing: what isn't settled was asked as it stands, wrote nothing,
and has in its way only what lasts (`findings.Finding.lasts`). A person at night then has the answer at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import dagster as dg

from assets.keys import claimed, cluster_key, cluster_of, devices_key, model_key, pool_key
from assets.results import READY
from modelplane_dagster.findings import Finding, Severity

if TYPE_CHECKING:
    from assets.passes import Look
    from modelplane_dagster.cluster_plan import ClusterPlan
    from modelplane_dagster.summary import ClusterSummary


@dataclass(slots=True)
class Memory:
    """What the passes remember: each asset's last state, what the failed ones said, what each step was told last, when a
    cluster that makes no progress is asked again, and what the clusters and models looked like when they were asked last
    (`marks`). Of the last pass: whether it `wrote`, and the steps that `raised`."""

    assets: dict[dg.AssetKey, str] = field(default_factory=dict)
    failed: dict[dg.AssetKey, str] = field(default_factory=dict)
    told: dict[str | None, tuple[Finding, ...]] = field(default_factory=dict)
    pause: dict[str, float] = field(default_factory=dict)
    at: dict[str, float] = field(default_factory=dict)
    marks: dict[str, str] = field(default_factory=dict)
    shown: set[str] = field(default_factory=set)
    wrote: bool = False
    raised: set[str | None] = field(default_factory=set)

    def last(self, key: dg.AssetKey) -> tuple[Finding, ...]:
        """What the asset's step found in its way; empty where it only waits for another's."""
        return self.told.get(key.to_python_identifier(), ())


def standstill(
    look: Look,
    memory: Memory,
    keys: Iterable[dg.AssetKey],
    *,
    key_of: Callable[[str], dg.AssetKey | None],
    pools_ready: Callable[[tuple[str, str]], bool],
) -> bool:
    """`keys` are all assets; `key_of` gives the one that a change of a summary belongs to; `pools_ready` whether a model
    is asked at all."""
    if memory.wrote:
        return False
    mine: dict[str | None, set[dg.AssetKey]] = {}
    for key in keys:
        mine.setdefault(cluster_of(key), set()).add(key)
    for name, summary in look.clusters.items():
        if summary.settled:
            continue
        asked = mine.get(name, set()) - _only_read(look.plan.cluster(name))
        if not _stands(summary, memory, asked, {key_of(c) for c in summary.changes}):
            return False
    for placement in look.plan.placements:
        model = (placement.namespace, placement.name)
        state, why = look.models[model]
        if state in ("serving", "refused"):
            continue
        if state == "unplaced":
            if not all(f.lasts for f in placement.findings if f.severity is not Severity.INFO):
                return False
        elif pools_ready(model):
            # It is asked, and what it was told decides.
            told = memory.last(model_key(*model))
            if memory.marks.get("/".join(model)) != f"{state} {why}" or not told or not all(f.lasts for f in told):
                return False
        elif state != "differs":
            return False
    return True


def _stands(
    summary: ClusterSummary, memory: Memory, keys: Iterable[dg.AssetKey], changes: set[dg.AssetKey | None]
) -> bool:
    if not summary.at_rest or memory.marks.get(summary.name) != summary.fingerprint():
        return False
    # A step's table of findings doesn't keep which of them last beyond what their codes say.
    lasting = {(f.code, f.subject, f.message) for f in summary.findings if f.lasts}
    blocked = False
    for key in keys:
        state, told = memory.assets.get(key), memory.last(key)
        if state == READY and key not in changes:
            continue
        if state in (None, READY) or (key.to_python_identifier() in memory.raised and not told):
            return False
        if not all(f.lasts or (f.code, f.subject, f.message) in lasting for f in told):
            return False
        blocked = blocked or (bool(told) and key in changes)
    return blocked or not changes


def _only_read(plan: ClusterPlan) -> set[dg.AssetKey]:
    """Assets that change nothing and look at what the summary judges itself."""
    pools = [p.name for p in plan.view.pools] if plan.view else []
    return {
        claimed(plan.name),
        cluster_key(plan.name, "schedulable_pools"),
        *(devices_key(plan.name, p) for p in pools),
        *(pool_key(plan.name, p) for p in pools if plan.source == "Existing"),
    }
