"""The job `observe`: what it writes, for whom, and what it asks of the webserver. The session is scripted, the job and the
instance are real."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.build import build_defs
from assets.keys import MANIFESTS, claimed, cluster_key
from assets.summaries import last_seen
from modelplane_dagster.audit.health import PoolHealth
from modelplane_dagster.cluster_plan import ClusterPlan, Planner
from modelplane_dagster.findings import finding
from modelplane_dagster.manifests.fleet import Fleet
from modelplane_dagster.plan import FleetPlan, plan_fleet
from modelplane_dagster.summary import ClusterSummary
from resources.settings import Settings
from tests.definitions.manifests import CLASSES, GOOD, MODEL, REFUSED, UNKNOWN, fleet
from tests.definitions.test_converge import run
from tests.definitions.worlds import no_world, settings

pytestmark = pytest.mark.dagster
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass
class Scripted:
    """A session that answers with the summaries it is told."""

    of: Fleet
    summaries: dict[str, ClusterSummary] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.planner = Planner(self.of)

    def get(self) -> Scripted:
        return self

    def fleet_plan(self) -> FleetPlan:
        return plan_fleet(self.of, observed={})

    def summary(self, name: str, observed: object = None) -> ClusterSummary:
        return self.summaries.get(name) or ClusterSummary(name=name, state="converged", why="it stands")

    def judged_or_planned(self, name: str, observed: object = None) -> ClusterPlan:
        return self.planner.plan(name)


class Bench:
    def __init__(self, instance: dg.DagsterInstance, session: Scripted, of: Settings) -> None:
        self.instance = instance
        self.session = session
        self.job = build_defs(session.of, of, no_world).resolve_job_def("observe")

    def look(self, **tags: str) -> dg.ExecuteInProcessResult:
        return self.job.execute_in_process(
            instance=self.instance, resources={"fleet": self.session}, run_config=QUIET, tags=tags
        )

    def evaluated(self, **tags: str) -> dict[str, dict[str, tuple[bool, str]]]:
        """The check evaluations that one look writes: by cluster, by leaf and check; the fleet's own left out."""
        found: dict[str, dict[str, tuple[bool, str]]] = {}
        for event in self.look(**tags).all_events:
            if event.event_type_value == "ASSET_CHECK_EVALUATION":
                told = event.asset_check_evaluation_data
                path = told.asset_key.path
                if path[0] == "cluster":
                    said = (told.passed, str(told.description))
                    found.setdefault(path[1], {})[f"{path[2]}:{told.check_name}"] = said
        return found


@pytest.fixture
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test(temp_dir=str(tmp_path_factory.mktemp("dagster"))) as made:
        yield made


@pytest.fixture
def bench(instance: dg.DagsterInstance, tmp_path: Path) -> Bench:
    return Bench(instance, Scripted(fleet(CLASSES, GOOD)), settings(tmp_path))


PENDING = ClusterSummary(
    name="rack",
    state="pending",
    why="SliceMissing: node n1 publishes nothing.",
    health=(
        PoolHealth(
            pool="mi",
            state="failed",
            nodes=1,
            judged=1,
            findings=(finding("SliceMissing", "pool/rack/mi", "Node n1 publishes nothing."),),
            devices=(),
        ),
    ),
    findings=(finding("SliceMissing", "pool/rack/mi", "Node n1 publishes nothing."),),
    by_pool={"mi": (finding("SliceMissing", "pool/rack/mi", "Node n1 publishes nothing."),)},
)


def test_one_summary_a_cluster_and_a_model(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    bench = Bench(instance, Scripted(fleet(CLASSES, GOOD, MODEL)), settings(tmp_path))
    observed = [e.asset_key.to_user_string() for e in bench.look().all_events if e.is_asset_observation and e.asset_key]
    assert sorted(observed) == [
        "cluster/east/claimed_drivers",
        "cluster/rack/claimed_drivers",
        "fleet/manifests",
        "model/ml/tiny",
    ]


def test_evaluations_are_written_for_what_changed_and_for_nothing_else(bench: Bench) -> None:
    assert sorted(bench.evaluated()) == ["east", "rack"]
    assert bench.evaluated() == {}
    bench.session.summaries["rack"] = PENDING
    assert bench.evaluated() == {
        "rack": {
            "claimed_drivers:supported_devices": (True, "nothing to object"),
            "claimed_drivers:placement_plan": (True, "nothing to object"),
            "claimed_drivers:manifests": (True, "nothing to object"),
            "schedulable_pools:ready": (False, "SliceMissing: node n1 publishes nothing."),
            "devices_mi:ready": (False, "failed: Node n1 publishes nothing."),
            "devices_mi:reach": (False, "SliceMissing: Node n1 publishes nothing."),
            "devices_mi:stay_off": (True, "nothing to object"),
            "devices_mi:tolerations": (True, "nothing to object"),
            "devices_mi:double_ledger": (True, "nothing to object"),
        }
    }


def test_a_run_in_progress_is_not_shadowed_and_is_made_good_once_it_ended(
    bench: Bench, instance: dg.DagsterInstance
) -> None:
    bench.look()
    bench.session.summaries["rack"] = PENDING
    run(instance, dg.DagsterRunStatus.STARTED, (cluster_key("rack", "control_plane"),))
    assert bench.evaluated() == {}
    working = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
    instance.report_run_canceled(working[0])
    assert sorted(bench.evaluated()) == ["rack"]
    assert bench.evaluated() == {}


def test_a_run_of_everything_is_a_run_of_each_cluster(bench: Bench, instance: dg.DagsterInstance) -> None:
    run(instance, dg.DagsterRunStatus.STARTED, None, job="converge")
    assert bench.evaluated() == {}


def test_a_refused_and_an_invalid_cluster_show_why_without_a_run(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    of = fleet(CLASSES, REFUSED, UNKNOWN)
    session = Scripted(of)
    for name in ("amd-on-eks", "gaudi-rack"):
        session.summaries[name] = ClusterSummary(name=name, state="refused", why="no")
    for name in ("lost", "typo"):
        session.summaries[name] = ClusterSummary(name=name, state="unknown", why="no", invalid=True)
    told = Bench(instance, session, settings(tmp_path)).evaluated()
    verdicts = {name: found["claimed_drivers:supported_devices"][0] for name, found in told.items()}
    assert verdicts == {"amd-on-eks": False, "gaudi-rack": False, "lost": False, "typo": False}
    assert told["gaudi-rack"]["claimed_drivers:supported_devices"][1].startswith("UnsupportedDevices: ")


def test_records_lag_until_the_materialisations_say_ready(bench: Bench, instance: dg.DagsterInstance) -> None:
    def lagging() -> bool:
        bench.look()
        seen = last_seen(instance, claimed("east"))
        assert seen is not None
        return seen.lagging

    assert lagging()
    mine = [k for k in _keys(bench) if k.path[:2] == ["cluster", "east"]]
    for key in mine:
        _materialise(instance, key, "pending" if key.path[2] == "pool_l4" else "ready")
    run(instance, dg.DagsterRunStatus.SUCCESS, tuple(mine))
    assert lagging()
    _materialise(instance, cluster_key("east", "pool_l4"), "ready")
    run(instance, dg.DagsterRunStatus.SUCCESS, tuple(mine))
    assert not lagging()
    assert not lagging()


def _keys(bench: Bench) -> list[dg.AssetKey]:
    defs = build_defs(bench.session.of, settings(Path("/nowhere")), no_world)
    return sorted(defs.resolve_asset_graph().get_all_asset_keys(), key=str)


def _materialise(instance: dg.DagsterInstance, key: dg.AssetKey, state: str) -> None:
    instance.report_runless_asset_event(dg.AssetMaterialization(asset_key=key, metadata={"state": state}))


def test_an_observation_carries_the_time_before_anything_was_read(bench: Bench, instance: dg.DagsterInstance) -> None:
    """Otherwise a run that ended while it was reading would never be made good."""
    read: list[float] = []
    plan = bench.session.fleet_plan

    def slow() -> FleetPlan:
        import time

        time.sleep(0.05)
        read.append(time.time())
        return plan()

    bench.session.fleet_plan = slow  # type: ignore[method-assign] - the one place where time passes
    bench.look()
    seen = last_seen(instance, claimed("east"))
    assert seen is not None
    assert seen.at < read[0] - 0.04


class Webserver:
    """Answers `reloadRepositoryLocation` as told and keeps what it was asked."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append(f"{self.path} {body['variables']['name']}")
                data = json.dumps({"data": {"reloadRepositoryLocation": answer}}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                """Quiet."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


LOADED = {"__typename": "WorkspaceLocationEntry", "locationOrLoadError": {"__typename": "RepositoryLocation"}}
BROKEN = {
    "__typename": "WorkspaceLocationEntry",
    "locationOrLoadError": {"__typename": "PythonError", "message": "it raised"},
}
CHANGED = "The manifests changed since the code location was loaded."


@pytest.mark.parametrize(
    ("loaded", "webserver", "asked", "told"),
    [
        ("same", LOADED, 0, (True, "nothing to object")),
        ("other", LOADED, 1, (True, "nothing to object")),
        ("other", BROKEN, 1, (False, "The changed location didn't load: it raised")),
        ("other", None, 0, (False, CHANGED)),
    ],
)
def test_changed_manifests_reload_the_location(
    instance: dg.DagsterInstance,
    tmp_path: Path,
    loaded: str,
    webserver: dict[str, Any] | None,
    asked: int,
    told: tuple[bool, str],
) -> None:
    """The location's digest comes by the run's tag: the run's own process has already read the changed manifests."""
    (tmp_path / "fleet.yaml").write_text(CLASSES + "---" + GOOD)
    of = fleet(CLASSES + "---" + GOOD)
    server = Webserver(webserver) if webserver else None
    try:
        where = replace(
            settings(tmp_path, webserver=server.address if server else ""), fleet=(tmp_path / "fleet.yaml",)
        )
        bench = Bench(instance, Scripted(of), where)
        result = bench.look(**{} if loaded == "same" else {"modelplane/manifests": "sha256:other"})
    finally:
        if server:
            server.close()
    found = {
        e.asset_check_evaluation_data.check_name: (
            e.asset_check_evaluation_data.passed,
            e.asset_check_evaluation_data.description,
        )
        for e in result.all_events
        if e.event_type_value == "ASSET_CHECK_EVALUATION" and e.asset_check_evaluation_data.asset_key == MANIFESTS
    }
    assert found["loaded"] == told
    assert server is None or server.asked == ["/graphql modelplane"] * asked


def test_it_fails_no_run_though_a_blocking_check_fails(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    bench = Bench(instance, Scripted(fleet(CLASSES, UNKNOWN)), settings(tmp_path))
    assert bench.look().success
