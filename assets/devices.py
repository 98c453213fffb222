"""`devices_<pool>`, which the lineage hangs on every component that serves the pool, and `schedulable_pools`."""

from typing import Any

import dagster as dg

from assets.common import OWNERS, Build
from assets.keys import cluster_key, devices_key, group, pool_key
from assets.results import DEVICE_CHECKS, READY, check, materialised, picked, run_step, table
from assets.session import of
from assets.step import step_asset
from modelplane_dagster.cluster import PoolView
from modelplane_dagster.cluster_plan import ClusterPlan
from modelplane_dagster.plan_json import schedulable
from resources.session import Session
from resources.steps import observe_devices
from resources.steps.result import StepResult, pending


def devices_asset(build: Build, plan: ClusterPlan, pool: PoolView) -> dg.AssetsDefinition:
    key = devices_key(plan.name, pool.name)
    serving = plan.serving(pool.name)

    def step(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        result = run_step(lambda: observe_devices(of(context), plan.name, pool.name))
        checks = [check(name, key, picked(result.findings, codes)) for name, (codes, _) in DEVICE_CHECKS.items()]
        return materialised(key, result, checks=checks, version=plan.digest)

    return step_asset(
        step,
        dg.AssetSpec(
            key,
            deps=[pool_key(plan.name, pool.name), *(cluster_key(plan.name, c.key) for c in serving)],
            group_name=group("clusters", plan.name),
            owners=OWNERS,
            kinds={"kubernetes", "dra"},
            description=(
                f"The devices that pool {pool.name} of {plan.name} publishes ({', '.join(pool.drivers) or 'none claimed'}), "
                f"served by {', '.join(c.key for c in serving) or 'nothing'}."
            ),
            metadata=build.manifest_line("InferenceClass", pool.class_name, path=("spec", "devices")),
        ),
        [
            dg.AssetCheckSpec(READY, asset=key, description="Every node publishes what its class declares."),
            *(dg.AssetCheckSpec(name, asset=key, description=text) for name, (_, text) in DEVICE_CHECKS.items()),
        ],
    )


def schedulable_asset(build: Build, plan: ClusterPlan) -> dg.AssetsDefinition:
    key = cluster_key(plan.name, "schedulable_pools")
    pools = plan.view.pools if plan.view else ()

    def step(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        result, rows = run_both(of(context), plan)
        return materialised(key, result, more={"pools": table(rows)}, version=plan.digest)

    return step_asset(
        step,
        dg.AssetSpec(
            key,
            deps=[devices_key(plan.name, p.name) for p in pools],
            group_name=group("clusters", plan.name),
            owners=OWNERS,
            kinds={"kubernetes"},
            description=f"What deployments are placed against on {plan.name}: every pool with its devices and nodes.",
        ),
        [dg.AssetCheckSpec(READY, asset=key, description="The cluster stands as its manifests say.")],
    )


def run_both(session: Session, plan: ClusterPlan) -> tuple[StepResult, list[dict[str, Any]]]:
    """The cluster's summary as a step result, with a row a pool."""
    summary = session.summary(plan.name)
    subject = f"cluster/{plan.name}"
    nodes = {h.pool: h for h in summary.health}
    documents = schedulable(plan.view) if plan.view else []
    rows = [
        {
            "pool": d["name"],
            "nodes": nodes[d["name"]].nodes if d["name"] in nodes else "-",
            "state": nodes[d["name"]].state if d["name"] in nodes else "unknown",
            "devices": ", ".join(f"{x.get('count', 1)} {x['driver']}" for x in d["devices"]),
        }
        for d in documents
    ]
    if summary.state == "converged":
        return StepResult(subject, "ready", summary.why, summary.findings, notes={"summary": summary.state}), rows
    notes = {"summary": summary.state}
    if summary.state in ("refused", "unknown"):
        return StepResult(subject, "failed", summary.why, summary.findings, notes=notes), rows
    return pending(subject, summary.why, findings=summary.findings, notes=notes), rows
