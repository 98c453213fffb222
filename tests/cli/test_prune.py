"""`prune` on a cloud that records writes: what it says, what it refuses with which status, and that nothing is written then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from modelplane_dagster.cli import prune as module
from modelplane_dagster.errors import UnreadableError
from resources.clouds.seam import ClusterRef
from resources.records import Records
from resources.session import Session, open_session
from tests.cli.runner import Ran
from tests.definitions.manifests import CLASSES, GOOD
from tests.definitions.test_every_step import RECORD, RUNNING
from tests.definitions.worlds import RecordingCloud, RecordingWorld, recording_world, settings

STALE = "sha256:0123456789abcdef"
AWAY = UnreadableError("Cluster east: the API doesn't answer.")
# One node joined without the label of its pool: what runs there can't be told from what runs elsewhere.
UNLABELLED = "1 of its nodes lack the label modelplane.ai/pool=l4"


class Bench:
    """`prune` over a folder of manifests, on the recording world."""

    def __init__(self, world: RecordingWorld, home: Path, cli: Callable[..., Ran]) -> None:
        self.world = world
        self.home = home
        self.folder = home / "fleet"
        self.folder.mkdir()
        self.cli = cli
        self.manifests(GOOD)

    def manifests(self, *texts: str) -> None:
        for number, text in enumerate((CLASSES, *texts)):
            (self.folder / f"{number}.yaml").write_text(text)

    def nodes(self, count: int) -> None:
        pools = tuple(replace(p, joined=count) for p in RUNNING.pools)
        self.world.clusters["east"] = replace(RUNNING, pools=pools)

    def prune(self, subject: str, *more: str) -> Ran:
        return self.cli("prune", subject, "--fleet", self.folder, "--format", "json", *more)

    @property
    def records(self) -> Records:
        return Records(self.home / "records")


@pytest.fixture
def bench(tmp_path: Path, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with recording_world(tmp_path) as world:

        @contextmanager
        def opened(of, fleet) -> Iterator[Session]:
            with open_session(of, fleet, world=world) as session:
                yield session

        monkeypatch.setattr(module, "from_environment", lambda: settings(tmp_path))
        monkeypatch.setattr(module, "open_session", opened)
        world.clusters["east"] = RUNNING
        Records(tmp_path / "records").write(RECORD)
        yield Bench(world, tmp_path, cli)


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cloud answers, the cluster's API doesn't."""

    def credentials(self: RecordingCloud, ref: ClusterRef) -> dict[str, object]:
        raise AWAY

    monkeypatch.setattr(RecordingCloud, "credentials", credentials)


@pytest.mark.parametrize(
    ("subject", "line", "users"),
    [("cluster/east", 2, []), ("pool/east/l4", 8, [UNLABELLED])],
)
def test_what_a_manifest_still_asks_for_is_named_with_its_line(
    bench: Bench, subject: str, line: int, users: list[str]
) -> None:
    asked = f"A manifest still asks for {subject} ({bench.folder}/1.yaml:{line}); the next pass would bring it back."
    ran = bench.prune(subject)
    assert (ran.status, ran.document["users"], ran.document["done"]) == (5, [asked, *users], False)
    acted = bench.prune(subject, "--fingerprint", ran.document["fingerprint"])
    assert (acted.status, acted.out) == (5, "")
    assert acted.err == f"modelplane-dagster: {subject} is in use: {'; '.join([asked, *users])}.\n"
    assert bench.world.all_writes() == []


def test_another_fingerprint_is_stale(bench: Bench) -> None:
    right = bench.prune("pool/east/l4").document["fingerprint"]
    bench.nodes(2)
    for given in (STALE, right):
        ran = bench.prune("pool/east/l4", "--fingerprint", given)
        assert (ran.status, ran.out) == (3, "")
        assert f"not {given}: it changed since." in ran.err
    assert bench.world.all_writes() == []


def test_in_use_is_refused_with_the_right_fingerprint(bench: Bench) -> None:
    bench.manifests("")
    told = bench.prune("pool/east/l4")
    assert (told.status, told.document["users"]) == (5, [UNLABELLED])
    ran = bench.prune("pool/east/l4", "--fingerprint", told.document["fingerprint"])
    assert (ran.status, ran.err) == (5, f"modelplane-dagster: pool/east/l4 is in use: {UNLABELLED}.\n")
    assert bench.world.all_writes() == []


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize("subject", ["cluster/east", "pool/east/l4", "component/east/nvidia-dra-driver-gpu"])
@pytest.mark.parametrize("more", [(), ("--fingerprint", STALE)], ids=["shown", "acting"])
def test_what_cannot_be_read_counts_as_in_use(bench: Bench, subject: str, more: tuple[str, ...]) -> None:
    bench.manifests("")
    ran = bench.prune(subject, *more)
    assert (ran.status, ran.out) == (5, "")
    assert ran.err == (
        "modelplane-dagster: Whether east is in use can't be read, which counts as in use: "
        "Cluster east: the API doesn't answer.\n"
    )
    assert bench.world.all_writes() == []


@pytest.mark.usefixtures("away")
def test_an_unreachable_cluster_whose_nodes_stand_is_in_use(bench: Bench) -> None:
    bench.manifests("")
    told = bench.prune("cluster/east", "--unreachable")
    assert (told.status, told.document["users"]) == (5, ["1 nodes stand on EKS, so its API must be asked"])
    ran = bench.prune("cluster/east", "--unreachable", "--fingerprint", told.document["fingerprint"])
    assert ran.status == 5
    assert bench.world.all_writes() == []


@pytest.mark.usefixtures("away")
def test_an_unreachable_cluster_without_nodes_goes_on_the_clouds_evidence(bench: Bench) -> None:
    bench.manifests("")
    bench.nodes(0)
    assert bench.prune("cluster/east").status == 5
    told = bench.prune("cluster/east", "--unreachable")
    goes = ["pool l4 (0 nodes)", "control plane east on EKS", "the record of east"]
    assert (told.status, told.document["goes"], told.document["users"]) == (0, goes, [])
    assert bench.world.all_writes() == []
    ran = bench.prune("cluster/east", "--unreachable", "--fingerprint", told.document["fingerprint"])
    assert (ran.status, ran.document["done"]) == (0, True)
    assert bench.world.all_writes() == ["EKS delete_cluster east"]
    assert bench.records.names() == ()


@pytest.mark.usefixtures("away")
def test_unreachable_spares_what_is_not_ours(bench: Bench) -> None:
    bench.manifests("")
    bench.world.clusters["east"] = replace(RUNNING, ours=False)
    ran = bench.prune("cluster/east", "--unreachable")
    assert (ran.status, ran.err) == (
        3,
        "modelplane-dagster: Cluster east on EKS isn't ours, so it is never deleted.\n",
    )


def test_a_name_that_nothing_of_ours_has(bench: Bench) -> None:
    ran = bench.prune("cluster/west")
    assert (ran.status, ran.err) == (
        2,
        "modelplane-dagster: No manifest and no record names a cluster west, so there is nothing of ours to prune.\n",
    )
