"""`model/<namespace>/<deployment>`: placement, workloads and endpoint of a deployment."""

from collections.abc import Iterable

import dagster as dg

from assets.common import OWNERS, Build
from assets.keys import devices_key, group, model_key
from assets.results import READY, check, materialised, picked, run_step
from assets.session import of
from assets.step import step_asset
from resources.steps import ensure_deployment


def model_asset(build: Build, namespace: str, name: str, pools: Iterable[tuple[str, str]]) -> dg.AssetsDefinition:
    """`pools` are those, by cluster and name, that the deployment's selectors match."""
    key = model_key(namespace, name)

    def step(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        result = run_step(lambda: ensure_deployment(of(context), namespace, name))
        mismatch = picked(result.findings, ("ImageMismatch",))
        checks = [
            check("image_matches_devices", key, mismatch, passed=not mismatch),
            check("serving", key, (), passed=result.state == "ready", text=result.sentence),
        ]
        return materialised(key, result, checks=checks)

    return step_asset(
        step,
        dg.AssetSpec(
            key,
            deps=[devices_key(cluster, pool) for cluster, pool in pools],
            group_name=group("models", namespace),
            owners=OWNERS,
            kinds={"kubernetes", "vllm"},
            description=f"Deployment {name} of {namespace}: where its replicas run, and the address that they answer at.",
            metadata=build.manifest_line("ModelDeployment", name, namespace),
        ),
        [
            dg.AssetCheckSpec(READY, asset=key, description="Every replica is placed and serves."),
            dg.AssetCheckSpec("image_matches_devices", asset=key, description="The image is built for the devices."),
            dg.AssetCheckSpec("serving", asset=key, description="The engine pods are ready."),
        ],
    )
