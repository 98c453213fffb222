"""The whole graph from manifests: pure, so that tests build it on any fleet, with any world."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import dagster as dg

from assets.classes import class_asset
from assets.clusters import cluster_assets
from assets.common import RUN_POD, Build
from assets.converge import JOB, MAX_RUNTIME, converge_sensor, targets
from assets.fleet import fleet_asset
from assets.models import model_asset
from assets.observe import observe_job
from assets.reload import DIGEST_TAG
from assets.session import RESOURCE, session_resource
from modelplane_dagster.cluster_plan import Planner
from modelplane_dagster.placement import matching_pools
from modelplane_dagster.plan import offer

if TYPE_CHECKING:
    from modelplane_dagster.manifests.fleet import Fleet
    from resources.settings import Settings
    from resources.tally import Tally
    from resources.world import World


def build_defs(
    fleet: Fleet, settings: Settings, world: Callable[[], World], tally: Tally | None = None
) -> dg.Definitions:
    """Assets, checks, the two jobs, the schedule and the sensor of one fleet. Reads and writes nothing; `world` is only
    called when a run's first step needs it, and `tally` counts what the runs ask of clusters."""
    planner = Planner(fleet, settings.overlay())
    build = Build(fleet, planner, settings)
    plans = [planner.plan(name) for name in planner.names()]
    offers = [o for o in (offer(p, None) for p in plans) if o is not None]
    assets = [fleet_asset(build)]
    assets += [class_asset(build, name) for name in sorted(fleet.classes)]
    for plan in plans:
        assets += cluster_assets(build, plan)
    for namespace, name in sorted(fleet.deployments):
        pools = matching_pools(fleet, (namespace, name), offers)
        assets.append(model_asset(build, namespace, name, pools))
    known = targets((key for asset in assets for key in asset.keys), fleet)
    converge = dg.define_asset_job(
        JOB,
        selection=dg.AssetSelection.all(),
        description="Brings what is selected to its plan: the sensor and the command line run this one.",
        executor_def=dg.in_process_executor,
        tags={"dagster/max_runtime_seconds": str(MAX_RUNTIME), DIGEST_TAG: fleet.digest, **RUN_POD},
    )
    observe = observe_job(build, known)
    status = dg.DefaultScheduleStatus.RUNNING if settings.reconcile else dg.DefaultScheduleStatus.STOPPED
    reconcile = dg.ScheduleDefinition(
        name="reconcile",
        job=observe,
        cron_schedule="* * * * *",
        default_status=status,
        description="Looks at the whole fleet every minute; the sensor `converge` acts on what it finds.",
    )
    return dg.Definitions(
        assets=assets,
        jobs=[converge, observe],
        schedules=[reconcile],
        sensors=[converge_sensor(build, converge, known)],
        resources={RESOURCE: session_resource(settings, fleet, world, tally)},
        executor=dg.in_process_executor,
    )
