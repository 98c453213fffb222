"""A cluster that is only being made: every step waits for it and says for what; nothing failed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from assets.devices import run_both
from modelplane_dagster.errors import NotReadyError, UnreadableError
from resources.clouds.seam import CloudCluster, ClusterRef
from resources.session import Session, open_session
from resources.steps import ensure_base, ensure_component, ensure_control_plane, ensure_pool, observe_devices
from tests.definitions.manifests import CLASSES, GOOD, fleet
from tests.definitions.worlds import RecordingCloud, RecordingWorld, recording_world, settings

CREATING = CloudCluster(name="east", state="creating", version="1.35", ours=True, account="account")
READY = CloudCluster(name="east", state="ready", version="1.35", ours=True, account="account")
STEPS = {
    "control_plane": lambda s: ensure_control_plane(s, "east"),
    "pool": lambda s: ensure_pool(s, "east", "l4"),
    "serving_base": lambda s: ensure_base(s, "east"),
    "component": lambda s: ensure_component(s, "east", "nvidia-dra-driver-gpu"),
    "devices": lambda s: observe_devices(s, "east", "l4"),
    "schedulable_pools": lambda s: run_both(s, s.plan("east"))[0],
}
# What the cloud says of the cluster, and what is waited for; what failed instead.
WORLDS = {
    "isn't there": (None, NotReadyError("never asked"), "pending", "whose control plane isn't there"),
    "is creating": (CREATING, NotReadyError("never asked"), "pending", "whose control plane is creating"),
    "has no endpoint": (
        READY,
        NotReadyError("The API of cluster east has no endpoint yet."),
        "pending",
        "no endpoint yet",
    ),
    "doesn't answer": (READY, UnreadableError("Cluster east: the API doesn't answer."), "failed", "doesn't answer"),
}


@pytest.fixture
def session(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    seen, error, *_ = WORLDS[request.param]

    def credentials(self: RecordingCloud, ref: ClusterRef) -> dict[str, object]:
        raise error

    monkeypatch.setattr(RecordingCloud, "credentials", credentials)
    with recording_world(tmp_path) as world:
        if seen is not None:
            world.clusters["east"] = seen
        with opened(world, tmp_path) as session:
            yield session


def opened(world: RecordingWorld, home: Path):
    return open_session(settings(home), fleet(CLASSES, GOOD), world=world)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("session", [n for n, w in WORLDS.items() if w[2] == "pending"], indirect=True)
def test_every_step_waits(session: Session, step: str) -> None:
    result = STEPS[step](session)
    assert (result.state, [f.code for f in result.findings if f.severity == "error"]) == ("pending", []), result
    assert result.sentence


@pytest.mark.parametrize(("session", "told"), [(n, w[3]) for n, w in WORLDS.items()], indirect=["session"])
def test_the_devices_say_what_for(session: Session, told: str) -> None:
    result = observe_devices(session, "east", "l4")
    assert result.state == next(w[2] for w in WORLDS.values() if w[3] == told)
    assert told in result.sentence


def test_the_whole_sentence(tmp_path: Path) -> None:
    with recording_world(tmp_path) as world:
        world.clusters["east"] = CREATING
        with opened(world, tmp_path) as session:
            assert observe_devices(session, "east", "l4").sentence == (
                "waits for the API of cluster east, whose control plane is creating; nothing was changed"
            )
