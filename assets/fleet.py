"""`fleet/manifests`: the fleet's files as they were read, and whether the loaded graph is of them."""

from collections.abc import Iterable

import dagster as dg

from assets.common import OWNERS, Build
from assets.keys import MANIFESTS, group
from assets.reload import DIGEST_TAG, lag
from assets.results import check, finding_rows, table
from modelplane_dagster.findings import Finding


def fleet_asset(build: Build) -> dg.AssetsDefinition:
    """Reads nothing live. A manifest that belongs to a cluster fails that cluster's own check; here stands every one, those
    that name no cluster included."""
    fleet = build.fleet

    @dg.asset(
        key=MANIFESTS,
        group_name=group("fleet"),
        owners=OWNERS,
        kinds={"yaml"},
        description="The fleet's manifests as they were read. What each finding means, and its fix: docs/findings.md.",
        check_specs=[
            dg.AssetCheckSpec("readable", asset=MANIFESTS, description="Every file and object is valid."),
            dg.AssetCheckSpec("loaded", asset=MANIFESTS, description="The loaded graph is of the manifests on disk."),
        ],
    )
    def _manifests(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        loaded = context.run.tags.get(DIGEST_TAG, fleet.digest)
        return dg.MaterializeResult(
            metadata={
                "digest": fleet.digest,
                "objects": table(_counts(build)),
                "findings": table(finding_rows(fleet.findings)),
            },
            check_results=[readable_check(fleet.findings), loaded_check(lag(loaded, fleet.digest))],
        )

    return _manifests


def readable_check(findings: Iterable[Finding]) -> dg.AssetCheckResult:
    return check("readable", MANIFESTS, findings)


def loaded_check(said: Iterable[Finding]) -> dg.AssetCheckResult:
    """Fails with the first reason why the graph lags behind; passes without one."""
    found = tuple(said)
    return check("loaded", MANIFESTS, found, passed=not found, text=found[0].message if found else "")


def _counts(build: Build) -> list[dict[str, str | int]]:
    fleet = build.fleet
    valid = {
        "InferenceClass": len(fleet.classes),
        "InferenceCluster": len(fleet.clusters),
        "ModelDeployment": len(fleet.deployments),
    }
    return [
        {"kind": kind, "valid": count, "invalid": sum(1 for k, _ in fleet.broken if k == kind)}
        for kind, count in valid.items()
    ]
