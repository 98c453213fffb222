"""Why replicas of a deployment have no place: the nearest reason, with what a person can do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelplane_dagster.findings import Finding, Place, finding
from modelplane_dagster.kube.objects import Taint, Toleration
from modelplane_dagster.kube.scheduling import KEEPS_OUT, untolerated

if TYPE_CHECKING:
    from modelplane_dagster.cluster import ClusterView
    from modelplane_dagster.manifests.deployments import ModelDeployment

DRAINS = ("NoExecute",)
# So many clusters are named; a fleet may have a thousand.
_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """What the search found besides places. `selected` says whether the deployment's selector takes any cluster. The
    rest speak of clusters with pools that satisfy all its requests, room left aside: `open` says whether it may go to
    one; `tainted` holds, by name, the taints that keep it out; `refused` those that the gate refuses, and `unread` those
    of which it isn't known what runs there."""

    name: str
    subject: str
    placed: int
    wanted: int
    labels: Mapping[str, str]
    selected: bool
    open: bool
    tainted: Mapping[str, tuple[Taint, ...]]
    refused: tuple[str, ...]
    unread: tuple[str, ...]
    at: Place | None = None

    def found(self, code: str, why: str, *, fix: str | None = None, lasts: bool | None = None) -> Finding:
        told = f"{self.placed} of {self.wanted} replicas of {self.name} are placed"
        return finding(code, self.subject, f"{told}: {why}.", fix=fix, place=self.at, lasts=lasts)


def keeping_out(
    deployment: ModelDeployment, view: ClusterView, effects: tuple[str, ...] = KEEPS_OUT
) -> tuple[Taint, ...]:
    """The cluster's own taints that the deployment doesn't tolerate: NoSchedule keeps new replicas away, NoExecute
    drains too. Empty where it tolerates them all."""
    if not view.taints:
        return ()
    rows = deployment.spec.template.spec.tolerations
    tolerations = tuple(Toleration(t.key or "", t.operator, t.value or "", t.effect or "") for t in rows)
    return untolerated(tolerations, view.taints, effects)


def reasons(short: Shortfall) -> tuple[Finding, ...]:
    """At least one."""
    if not short.selected:
        words = ", ".join(f"{k}={v}" for k, v in sorted(short.labels.items())) or "none"
        return (short.found("NoClusterMatches", f"no cluster has the labels {words}"),)
    if short.open:
        other = (
            f"; others are on clusters whose taints it doesn't tolerate: {_told(short.tainted)}"
            if short.tainted
            else ""
        )
        return (short.found("NoNodesFree", f"the pools that match have no node free{other}"),)
    found = []
    if short.tainted:
        why = f"pools that match are on clusters whose taints it doesn't tolerate: {_told(short.tainted)}"
        found.append(short.found("ClusterTainted", why, fix=_cure(short.tainted)))
    shut = [f"{_listed(short.refused)} {_be(short.refused)} refused"] if short.refused else []
    shut += [f"what runs on {_listed(short.unread)} can't be read"] if short.unread else []
    if shut:
        why = f"no pool of an admitted cluster matches; {', and '.join(shut)}"
        # A refused cluster waits for an edit; one that can't be read may answer again.
        found.append(short.found("ClusterNotReady", why, lasts=not short.unread))
    return tuple(found) or (short.found("NoPoolMatches", "no pool satisfies its device requests"),)


def _told(tainted: Mapping[str, tuple[Taint, ...]]) -> str:
    """Each cluster with its taints, as one writes them for a node."""
    return _listed([f"{name} ({', '.join(map(str, taints))})" for name, taints in sorted(tainted.items())])


def _cure(tainted: Mapping[str, tuple[Taint, ...]]) -> str:
    """The tolerations of one cluster's taints, the one with the fewest; with those the deployment goes there."""
    name, taints = min(tainted.items(), key=lambda item: (len(item[1]), item[0]))
    keys = dict.fromkeys(t.key for t in taints)
    written = ", ".join(f"{{key: {key}, operator: Exists}}" for key in keys)
    what = "taint" if len(taints) == 1 else "taints"
    return f"Take the {what} off cluster {name} (spec.taints), or add to the deployment's template tolerations: [{written}]."


def _be(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
