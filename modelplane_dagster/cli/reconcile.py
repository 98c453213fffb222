"""`reconcile`: makes the fleet as its manifests say, in passes."""

from __future__ import annotations

import logging
import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modelplane_dagster.cli.fleet_table import print_fleet
from modelplane_dagster.cli.options import fleet_paths, format_option, paths_argument
from modelplane_dagster.cli.output import console, print_findings, print_json, progress_console
from modelplane_dagster.errors import ConfigError, ModelplaneError
from modelplane_dagster.findings import has_errors
from resources.files import load_fleet
from resources.settings import from_environment
from resources.tools import helm_path
from resources.world import open_world

if TYPE_CHECKING:
    from assets.passes import Outcome
    from resources.settings import Settings

STUCK = "It ends before its time: what is left needs somebody, and waiting changes nothing of it."
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


def seconds(text: str) -> float:
    """`90`, `90s`, `10m` or `1h` as seconds. Raises ConfigError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if match is None:
        msg = f"{text!r} isn't a time: write 90s, 10m or 1h."
        raise ConfigError(msg)
    return float(match[1]) * _UNITS[match[2]]


@click.command("reconcile")
@paths_argument(required=False)
@click.option("--timeout", default="10m", show_default=True, help="How long to go on: 90s, 10m, 1h.")
@format_option
def command(paths: tuple[Path, ...], timeout: str, form: str) -> int:
    """Make the fleet as its manifests say. Refused or broken clusters don't hold up the others. It ends before the time
    is over where waiting mends nothing of what is left."""
    settings = from_environment()
    limit = seconds(timeout)
    fleet = load_fleet(fleet_paths(paths, settings))
    if fleet.clusters:
        # Without it every pass would fail in the same way until the time is over.
        helm_path()
    threading.Thread(target=_reach, args=(settings,), name="reach", daemon=True).start()
    # Dagster is only imported by the commands that run it.
    from assets.instance import open_instance  # noqa: PLC0415 - as above
    from assets.passes import Passes  # noqa: PLC0415 - as above

    err = progress_console()
    _progress(err.print)
    instance = open_instance(settings)
    try:
        passes = Passes(settings, fleet, lambda: open_world(settings), instance, tell=err.print)
        outcome = passes.run(limit)
    finally:
        instance.dispose()
    if form == "json":
        print_json(document(outcome))
    else:
        out = console()
        print_fleet(out, outcome.look)
        if outcome.findings:
            out.print()
            print_findings(out, outcome.findings)
        shown = {f.message for f in outcome.findings}
        for failure in (f for f in outcome.failures if f not in shown):
            out.print()
            out.print(f"failed: {failure}", style="red", markup=False, overflow="fold")
        out.print()
        if outcome.stuck:
            out.print(f"{STUCK}\n")
        out.print(sentence(outcome))
    return status(outcome, invalid=has_errors(fleet.findings))


def _reach(settings: Settings) -> None:
    """Starts the lab where it doesn't run, while this process still imports Dagster: each takes seconds. What hinders it
    is told by the passes, which ask again."""
    with suppress(ModelplaneError, OSError):
        open_world(settings)


def status(outcome: Outcome, *, invalid: bool) -> int:
    """The first that applies: 1 invalid manifests, 3 something refused, 4 not ready in time, 0 converged."""
    if invalid:
        return 1
    return {"refused": 3, "late": 4, "converged": 0}[outcome.verdict]


def sentence(outcome: Outcome) -> str:
    clusters = outcome.look.clusters
    done = sum(s.state == "converged" for s in clusters.values())
    serving = sum(state == "serving" for state, _ in outcome.look.models.values())
    return (
        f"{done} of {len(clusters)} clusters converged, {serving} of {len(outcome.look.models)} deployments serve; "
        f"{outcome.passes} passes in {outcome.seconds:.1f} s (runs {outcome.dagster_seconds:.1f} s, looking "
        f"{outcome.observe_seconds:.1f} s). To clusters: {outcome.tally.total.sentence()}."
    )


def document(outcome: Outcome) -> dict[str, Any]:
    look = outcome.look
    return {
        "verdict": outcome.verdict,
        "stuck": outcome.stuck,
        "passes": outcome.passes,
        "seconds": round(outcome.seconds, 3),
        "clusters": [look.clusters[name].as_dict() for name in sorted(look.clusters)],
        "deployments": [
            {"namespace": ns, "name": name, "state": state, "why": why}
            for (ns, name), (state, why) in sorted(look.models.items())
        ],
        "orphans": [o.as_dict() for o in look.plan.orphans],
        "failures": list(outcome.failures),
        "findings": [f.as_dict() for f in outcome.findings],
        "calls": outcome.tally.as_dict(),
    }


class _Lines(logging.Handler):
    """One line a decision on stderr: only what changed, waits or failed."""

    def __init__(self, write: Any) -> None:  # noqa: ANN401 - a print function
        super().__init__(logging.INFO)
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        # What merely waits its turn is told by what it waits for.
        if ": ready:" not in text and "; nothing was changed" not in text:
            self._write(f"  {text}", markup=False, overflow="fold")


def _progress(write: Any) -> None:  # noqa: ANN401 - a print function
    logger = logging.getLogger("modelplane")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(_Lines(write))
