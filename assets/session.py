"""The one per-run resource: it opens the session at the first step that needs it, and lets go of every lease at the end."""

import threading
from collections.abc import Callable, Iterator

import dagster as dg

from modelplane_dagster.manifests.fleet import Fleet
from resources.session import Session
from resources.settings import Settings
from resources.tally import Tally
from resources.world import World

RESOURCE = "fleet"
# The Materialize button needs no launchpad: a step waits this long, in all, for what it needs.
DEFAULT_WAIT = 600.0


class RunSession:
    """Opens the session once, when the first step asks."""

    def __init__(self, opener: Callable[[], Session]) -> None:
        self._opener = opener
        self._session: Session | None = None
        self._lock = threading.Lock()

    def get(self) -> Session:
        with self._lock:
            if self._session is None:
                self._session = self._opener()
            return self._session

    def close(self) -> None:
        if self._session is not None:
            self._session.close()


def session_resource(
    settings: Settings, fleet: Fleet, world: Callable[[], World], tally: Tally | None = None
) -> dg.ResourceDefinition:
    """Config: `wait`, in seconds; the sensor says 0. `tally` counts the API calls of all its runs."""

    @dg.resource(
        config_schema={"wait": dg.Field(float, default_value=DEFAULT_WAIT, is_required=False)},
        description="How long, in seconds and in all, the steps of a run wait for what they need.",
    )
    def run_session(context: dg.InitResourceContext) -> Iterator[RunSession]:
        wait = float(context.resource_config["wait"])
        holder = RunSession(lambda: Session(settings, fleet, world(), wait=wait, tally=tally))
        try:
            yield holder
        finally:
            holder.close()

    return run_session


def of(context: dg.AssetExecutionContext | dg.OpExecutionContext) -> Session:
    """The run's session."""
    holder: RunSession = getattr(context.resources, RESOURCE)
    return holder.get()
