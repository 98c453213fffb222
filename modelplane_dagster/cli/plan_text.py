"""A plan as people read it: refusals first with their sentence and fix, then one block a cluster, then the rest."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from modelplane_dagster.cli.output import MARKS, finding_lines, print_findings
from modelplane_dagster.findings import Severity

if TYPE_CHECKING:
    from modelplane_dagster.actions import Action
    from modelplane_dagster.cluster_plan import ClusterPlan
    from modelplane_dagster.findings import Finding
    from modelplane_dagster.plan import FleetPlan

_VERDICT = {"pass": ("pass", "green"), "refused": ("refused", "bold red"), "unknown": ("unknown", "yellow")}
_OPS = {"create": "green", "install": "green", "update": "yellow", "upgrade": "yellow", "delete": "red", "none": "dim"}


def print_plan(out: Console, plan: FleetPlan) -> None:
    refused = [c for c in plan.clusters if c.gate.verdict != "pass"]
    for cluster in refused:
        _header(out, cluster)
        _problems(out, cluster, ())
        out.print()
    files = [f for f in plan.findings if f.severity is not Severity.INFO and f not in _told(plan)]
    if files:
        out.print(Text("In the files", "bold"))
        print_findings(out, files, indent="  ")
        out.print()
    for cluster in plan.clusters:
        if cluster.gate.verdict == "pass":
            _cluster(out, cluster, plan)
            out.print()
    _deployments(out, plan)
    _orphans(out, plan)
    _summary(out, plan)


def _told(plan: FleetPlan) -> set[object]:
    return {f for c in plan.clusters for f in c.gate.findings}


def _header(out: Console, cluster: ClusterPlan) -> None:
    word, style = _VERDICT[cluster.gate.verdict]
    title = Text()
    title.append(cluster.name, "bold")
    title.append(f"  {cluster.source or '?'}")
    if cluster.view is not None:
        title.append(f"  Kubernetes {cluster.view.version or 'as found'}")
        title.append(f"  account {cluster.account.name}", "dim")
    title.append("  ")
    title.append(word, style)
    out.print(title)
    if cluster.view is not None:
        claimed = ", ".join(sorted(cluster.view.claimed)) or "no driver"
        cpu = f"; dra.cpu runs {cluster.view.cpu_mode}" if cluster.view.cpu_mode else ""
        out.print(Text(f"  claims {claimed}{cpu}", "dim"))


def _problems(out: Console, cluster: ClusterPlan, live: tuple[Finding, ...]) -> None:
    audit = cluster.audit.findings if cluster.audit else ()
    for finding in dict.fromkeys([*cluster.gate.findings, *audit, *live]):
        if finding.severity is not Severity.INFO:
            out.print(finding_lines(finding, "  "), overflow="fold")


def _cluster(out: Console, cluster: ClusterPlan, plan: FleetPlan) -> None:
    _header(out, cluster)
    _problems(out, cluster, plan.live.get(cluster.name, ()))
    ops = {a.subject: a for a in plan.actions}
    if cluster.view is None:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("  pool", "role", "nodes", "class", "drivers", "served by", "will"):
        table.add_column(column, overflow="fold")
    for pool in cluster.view.pools:
        bounds = f" ({pool.minimum}-{pool.maximum})" if pool.minimum is not None or pool.maximum is not None else ""
        action = ops.get(f"pool/{cluster.name}/{pool.name}")
        table.add_row(
            f"  {pool.name}",
            pool.role.value,
            f"{pool.count}{bounds}",
            pool.class_name,
            ", ".join(pool.drivers) or "-",
            ", ".join(c.key for c in cluster.serving(pool.name)) or "-",
            _op(action),
        )
    out.print(table)
    _components(out, cluster, ops)


def _op(action: Action | None) -> Text:
    if action is None:
        return Text("-", "dim")
    return Text(action.op if action.op != "none" else "keep", _OPS[action.op])


def _components(out: Console, cluster: ClusterPlan, ops: dict[str, Action]) -> None:
    changes = [c for c in cluster.installed if (a := ops.get(f"component/{cluster.name}/{c.key}")) and a.op != "none"]
    counts = Counter(ops[f"component/{cluster.name}/{c.key}"].op for c in changes)
    if not changes:
        out.print(Text(f"  {len(cluster.installed)} components, none changes", "dim"))
        return
    told = ", ".join(f"{n} to {op}" for op, n in sorted(counts.items()))
    out.print(Text(f"  {len(cluster.installed)} components: {told}", "dim"))
    for joined in changes:
        if joined not in cluster.tagged and ops[f"component/{cluster.name}/{joined.key}"].op == "install":
            continue
        action = ops[f"component/{cluster.name}/{joined.key}"]
        line = Text(f"  {action.op} ", _OPS[action.op])
        line.append(joined.key, "bold")
        line.append(f"  {joined.component.pin.version if joined.component.pin else 'manifests'}  ", "dim")
        line.append(joined.reason, "dim")
        out.print(line, overflow="fold")
    untagged = [
        c.key for c in changes if c in cluster.base and ops[f"component/{cluster.name}/{c.key}"].op == "install"
    ]
    if untagged:
        out.print(Text(f"  install for every cluster: {', '.join(untagged)}", "dim"), overflow="fold")


def _deployments(out: Console, plan: FleetPlan) -> None:
    if not plan.placements:
        return
    out.print(Text("Deployments", "bold"))
    for placement in plan.placements:
        style = {"placed": "green", "refused": "bold red"}.get(placement.verdict, "yellow")
        line = Text(f"  {placement.namespace}/{placement.name}  ", "bold")
        line.append(placement.verdict, style)
        for replica in placement.replicas:
            where = ", ".join(f"{m.role.lower()} on {m.pool}" for e in replica.engines for m in e.members)
            line.append(f"  {replica.cluster}: {where}")
        out.print(line, overflow="fold")
        print_findings(out, placement.findings, indent="    ")
    out.print()


def _orphans(out: Console, plan: FleetPlan) -> None:
    if not plan.orphans:
        return
    out.print(Text("Left over (kept until pruned)", "bold yellow"))
    for orphan in plan.orphans:
        out.print(f"  {orphan.subject}: {orphan.reason}\n    {orphan.prune}", markup=False)
    out.print()


def _summary(out: Console, plan: FleetPlan) -> None:
    verdicts = Counter(c.gate.verdict for c in plan.clusters)
    ops = Counter(a.op for a in plan.actions if a.op != "none")
    told = ", ".join(f"{n} to {op}" for op, n in sorted(ops.items())) or "nothing to do"
    words = ", ".join(f"{n} {v}" for v, n in sorted(verdicts.items()))
    infos = [f for f in plan.findings if f.severity is Severity.INFO]
    for finding in infos:
        mark, style = MARKS["info"]
        out.print(Text(f"{mark} {finding.message}", style), overflow="fold")
    out.print(Text(f"{len(plan.clusters)} clusters ({words}); {told}.", "bold"))
