"""The CPU mode is asked of the server before the driver's first install: what comes back decides, and nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from modelplane_dagster.errors import KubernetesError, UnreadableError
from resources.session import Session
from resources.settings import from_environment
from resources.steps.cpu_probe import probe_grouped, probe_mode
from resources.world import World
from tests.made import cls, cluster, cpus, fleet, pool
from tests.session.world import FakeApi

MADE = fleet(cls("k", cpus(), source="EKS"), cluster("c", "EKS", pool("p", "k"), kubernetesVersion="1.36"))


class Server(FakeApi):
    """Drops `drops` from a request, as a server whose gate is off does; or refuses it."""

    def __init__(self, drops: str = "", refuses: bool = False) -> None:
        super().__init__()
        self.drops, self.refuses = drops, refuses
        self.asked: list[tuple[dict[str, Any], bool]] = []

    def create(self, body: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        self.asked.append((body, dry_run))
        if self.refuses:
            raise KubernetesError("forbidden", status=403)
        answer = super().create(body, dry_run=dry_run)
        answer["spec"]["devices"]["requests"][0]["exactly"].pop(self.drops, None)
        return answer


def session(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Session:
    settings = from_environment({"MODELPLANE_HOME": str(tmp_path)})
    made = Session(settings, MADE, World.__new__(World))
    monkeypatch.setattr(made, "client", lambda _: server)
    return made


@pytest.mark.parametrize(
    ("drops", "mode", "codes"), [("", "grouped", []), ("capacity", "individual", ["FieldDropped"])]
)
def test_what_comes_back_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drops: str, mode: str, codes: list[str]
) -> None:
    server = Server(drops)
    made = session(tmp_path, server, monkeypatch)
    found = probe_mode(made, made.plan("c"))
    view = made.plan("c").view
    assert view is not None
    assert (view.cpu_mode, [f.code for f in found], server.writes) == (mode, codes, [])
    assert made.plan("c").component("dra-driver-cpu").values["driverConfig"]["cpuDeviceMode"] == mode


def test_the_probe_carries_no_other_gated_field_and_writes_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    server = Server()
    made = session(tmp_path, server, monkeypatch)
    probe_mode(made, made.plan("c"))
    ((body, dry_run),) = server.asked
    assert (dry_run, body["spec"]) == (
        True,
        {
            "devices": {
                "requests": [
                    {
                        "name": "cpus",
                        "exactly": {
                            "deviceClassName": "dra.cpu",
                            "allocationMode": "ExactCount",
                            "count": 1,
                            "capacity": {"requests": {"dra.cpu/cpu": "1"}},
                        },
                    }
                ]
            }
        },
    )


def test_a_refused_probe_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = session(tmp_path, Server(refuses=True), monkeypatch)
    with pytest.raises(UnreadableError, match="so the CPU mode is unknown"):
        probe_mode(made, made.plan("c"))


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (Server(), []),
        (Server(refuses=True), []),
        (
            Server("capacity"),
            [
                (
                    "FieldDropped",
                    "error",
                    "cluster/c",
                    (
                        "Cluster c drops capacity.requests from claims, as with DRAConsumableCapacity off; dra.cpu runs in "
                        "grouped mode there, so a claim takes whole groups."
                    ),
                )
            ],
        ),
    ],
)
def test_a_grouped_install_on_a_server_that_drops_the_field_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server, expected: Any
) -> None:
    made = session(tmp_path, server, monkeypatch)
    found = probe_grouped(made, "c")
    assert [(f.code, f.severity.value, f.subject, f.message) for f in found] == expected
