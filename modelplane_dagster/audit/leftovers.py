"""What runs on a cluster in our name without being declared: orphans, and daemons that no declaration names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from modelplane_dagster.audit.disagreement import Difference
from modelplane_dagster.audit.judged import Group, Told
from modelplane_dagster.audit.live import LiveWorkload
from modelplane_dagster.audit.ownership import Orphaned, Ownership
from modelplane_dagster.audit.tolerations import allows, listed
from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.findings import finding


def leftovers(
    view: ClusterView, whose: Ownership, groups: tuple[Group, ...], *, disagreements: Iterable[Difference]
) -> Iterator[Told]:
    """Undeclared DaemonSets one by one, unless a disagreement tells of them already; orphans one a component."""
    renamed = {d.instead for d in disagreements if d.instead}
    for item in whose.undeclared:
        if item.live.kind == "DaemonSet" and item.live.uid not in renamed:
            reached = _reached(item.live, groups)
            off = any(w.kind == "DaemonSet" and w.name == item.live.name for w in item.component.workloads)
            found = finding(
                "UndeclaredWorkload",
                f"component/{view.name}/{item.component.key}",
                f"{item.component.key} runs DaemonSet {item.live.name} in {item.live.namespace}, which "
                f"{'the plan turns off' if off else 'no declaration names'}; its template reaches "
                f"{listed(sorted(reached))}.",
            )
            yield Told(found, reached)
    by_key: dict[tuple[str, str, str], list[Orphaned]] = defaultdict(list)
    for orphan in whose.orphaned:
        by_key[orphan.key, orphan.why, orphan.resource].append(orphan)
    for (key, why, resource), members in by_key.items():
        names = sorted(f"{o.live.kind} {o.live.name}" for o in members)
        subject = f"component/{view.name}/{key}"
        message = f"{listed(names)} of {key} still runs on cluster {view.name}: {why}."
        # Pruning the component would take the pools along that its operator still serves.
        fix = f"Delete {resource}, if none needs it." if resource else f"modelplane-dagster prune {subject}"
        yield Told(
            finding("Orphan", subject, message, fix=fix),
            frozenset[str]().union(*(_reached(o.live, groups) for o in members)),
        )


def _reached(live: LiveWorkload, groups: Iterable[Group]) -> frozenset[str]:
    daemon = live.kind == "DaemonSet"
    return frozenset(
        g.place for g in groups if allows(live.placement, g.node, daemon=daemon, host_network=live.host_network)
    )
