"""The assets of one cluster: claimed drivers with the gate, control plane, pools, components, devices, schedulable pools."""

from collections.abc import Iterator

import dagster as dg

from assets.common import OWNERS, SOURCE_KIND, Build
from assets.devices import devices_asset, schedulable_asset
from assets.keys import claimed, class_key, cluster_key, group, pool_key
from assets.results import LABELS_AND_TAINTS, READY, check, finding_rows, materialised, picked, run_step, table
from assets.session import of
from assets.step import step_asset
from modelplane_dagster.canonical import digest
from modelplane_dagster.cluster import PoolView
from modelplane_dagster.cluster_plan import ClusterPlan, object_digests, values_digest
from modelplane_dagster.components.types import JoinedComponent
from modelplane_dagster.findings import Severity, has_errors
from modelplane_dagster.gate import refusal_sentence
from modelplane_dagster.sources import SOURCES
from resources.steps import ensure_base, ensure_component, ensure_control_plane, ensure_pool

_NOTHING_SAID = "nothing can be said while the manifests are unknown"


def cluster_assets(build: Build, plan: ClusterPlan) -> Iterator[dg.AssetsDefinition]:
    """Every asset of a cluster; only `claimed_drivers` where the manifests leave the claimed drivers unknown."""
    yield _claimed_drivers(build, plan)
    if plan.view is None:
        return
    yield _control_plane(build, plan)
    for pool in plan.view.pools:
        yield _pool(build, plan, pool)
    yield _serving_base(build, plan)
    for joined in plan.tagged:
        yield _component(build, plan, joined)
    for pool in plan.view.pools:
        yield devices_asset(build, plan, pool)
    yield schedulable_asset(build, plan)


def _group(plan: ClusterPlan) -> str:
    return group("clusters", plan.name)


def gate_checks(plan: ClusterPlan, key: dg.AssetKey) -> list[dg.AssetCheckResult]:
    """The gate's verdict as checks: the same sentences that the CLI and the log show."""
    gate = list(plan.gate.findings)
    placement = list(plan.audit.findings) if plan.audit else []
    unknown = plan.gate.verdict == "unknown"
    files = [f for f in gate if f.place is not None]
    text = refusal_sentence(plan.name, plan.gate) if plan.gate.verdict != "pass" else ""
    return [
        check(
            "supported_devices",
            key,
            gate,
            passed=False if unknown else None,
            text=text if has_errors(gate) or unknown else "",
        ),
        check(
            "placement_plan", key, placement, passed=False if unknown else None, text=_NOTHING_SAID if unknown else ""
        ),
        check("manifests", key, [f for f in files if unknown or f.severity is not Severity.ERROR]),
    ]


def _claimed_drivers(build: Build, plan: ClusterPlan) -> dg.AssetsDefinition:
    key = claimed(plan.name)
    classes = sorted({p.class_name for p in plan.view.pools}) if plan.view else []

    def step(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        current = of(context).judged_or_planned(plan.name)
        rows = [
            {"driver": d, "pool": p.name, "class": p.class_name, "because": f"class {p.class_name} claims it"}
            for p in (current.view.pools if current.view else ())
            for d in p.drivers
        ]
        return dg.MaterializeResult(
            metadata={
                "verdict": current.gate.verdict,
                "claimed": ", ".join(sorted(current.view.claimed)) if current.view else "unknown",
                "supported": ", ".join(current.supported),
                "manifests digest": current.digest,
                "why": table(rows),
                "findings": table(finding_rows(current.gate.findings)),
            },
            check_results=gate_checks(current, key),
            data_version=dg.DataVersion(current.digest) if current.digest else None,
        )

    return step_asset(
        step,
        dg.AssetSpec(
            key,
            deps=[class_key(c) for c in classes],
            group_name=_group(plan),
            owners=OWNERS,
            kinds={"yaml", SOURCE_KIND.get(plan.source, "kubernetes")},
            description=(
                f"The DRA drivers that cluster {plan.name} ({plan.source or 'unknown source'}) claims, and why each is "
                "claimed. Its checks are the gate: nothing below runs while one of them fails."
            ),
            metadata=build.manifest_line("InferenceCluster", plan.name),
        ),
        [
            dg.AssetCheckSpec(
                "supported_devices", asset=key, blocking=True, description="The source drives every claimed device."
            ),
            dg.AssetCheckSpec(
                "placement_plan", asset=key, blocking=True, description="Every stack reaches its pools and no other."
            ),
            dg.AssetCheckSpec("manifests", asset=key, description="The cluster's manifests are clean."),
        ],
    )


def _ready_spec(key: dg.AssetKey) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(READY, asset=key, description="What was asked for is there and whole.")


def _control_plane(build: Build, plan: ClusterPlan) -> dg.AssetsDefinition:
    key = cluster_key(plan.name, "control_plane")

    def step(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        result = run_step(lambda: ensure_control_plane(of(context), plan.name))
        findings = [f for f in result.findings if f.code != "Pending"]
        return materialised(key, result, checks=[check("requirements", key, findings)], version=plan.digest)

    return step_asset(
        step,
        dg.AssetSpec(
            key,
            deps=[claimed(plan.name)],
            group_name=_group(plan),
            owners=OWNERS,
            kinds={"kubernetes", SOURCE_KIND[plan.source]},
            description=(
                f"The control plane of {plan.name}: requirements checked on a cluster of one's own, else provisioned or adopted "
                f"on {plan.source}."
            ),
            metadata=build.manifest_line("InferenceCluster", plan.name, path=("spec", "cluster")),
        ),
        [
            _ready_spec(key),
            dg.AssetCheckSpec("requirements", asset=key, description="What an own cluster must bring."),
        ],
    )


def _pool(build: Build, plan: ClusterPlan, pool: PoolView) -> dg.AssetsDefinition:
    key = pool_key(plan.name, pool.name)
    index = next(i for i, p in enumerate(plan.view.pools if plan.view else ()) if p.name == pool.name)

    def step(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        result = run_step(lambda: ensure_pool(of(context), plan.name, pool.name))
        return materialised(
            key,
            result,
            checks=[check("labels_and_taints", key, picked(result.findings, LABELS_AND_TAINTS))],
            version=plan.digest,
        )

    return step_asset(
        step,
        dg.AssetSpec(
            key,
            deps=[claimed(plan.name), cluster_key(plan.name, "control_plane"), class_key(pool.class_name)],
            group_name=_group(plan),
            owners=OWNERS,
            kinds={pool.role.value.lower() + "_pool", SOURCE_KIND[plan.source]},
            description=f"Node pool {pool.name} of {plan.name}: role {pool.role.value}, class {pool.class_name}.",
            metadata={
                **build.manifest_line("InferenceCluster", plan.name, path=("spec", "nodePools", index)),
                "request": dg.MetadataValue.json(
                    SOURCES[plan.source].pool_request(plan.view, pool) if plan.view else {}
                ),
            },
        ),
        [
            _ready_spec(key),
            dg.AssetCheckSpec("labels_and_taints", asset=key, description="On the cloud and on the nodes."),
        ],
    )


def _serving_base(build: Build, plan: ClusterPlan) -> dg.AssetsDefinition:
    key = cluster_key(plan.name, "serving_base")

    def step(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        return materialised(key, run_step(lambda: ensure_base(of(context), plan.name)), version=_version(*plan.base))

    return step_asset(
        step,
        dg.AssetSpec(
            key,
            deps=[claimed(plan.name), cluster_key(plan.name, "control_plane")],
            group_name=_group(plan),
            owners=OWNERS,
            kinds={"helm", "kubernetes"},
            description=f"What every cluster gets, in order of dependence: {', '.join(c.key for c in plan.base)}.",
        ),
        [_ready_spec(key)],
    )


def _version(*components: JoinedComponent) -> str:
    """Of the charts, their values and our own manifests, as planned."""
    return digest(
        [
            [c.key, c.component.pin.version if c.component.pin else "", values_digest(c), object_digests(c)]
            for c in components
        ]
    )


def _component(build: Build, plan: ClusterPlan, joined: JoinedComponent) -> dg.AssetsDefinition:
    key = cluster_key(plan.name, joined.key)
    tagged = {c.key for c in plan.tagged}
    deps = [claimed(plan.name), cluster_key(plan.name, "serving_base")]
    deps += [cluster_key(plan.name, d) for d in joined.component.depends_on if d in tagged]
    pin = joined.component.pin
    what = f"chart {pin.chart} {pin.version}" if pin else "manifests"

    def step(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        return materialised(
            key, run_step(lambda: ensure_component(of(context), plan.name, joined.key)), version=_version(joined)
        )

    return step_asset(
        step,
        dg.AssetSpec(
            key,
            deps=deps,
            group_name=_group(plan),
            owners=OWNERS,
            kinds={"helm" if pin else "yaml", "kubernetes"},
            code_version=pin.version if pin else None,
            description=f"{joined.key} ({what}) on {plan.name}: {joined.reason}.",
            metadata={"serves": ", ".join(joined.serves), "values": dg.MetadataValue.json(joined.values)},
        ),
        [_ready_spec(key)],
    )
