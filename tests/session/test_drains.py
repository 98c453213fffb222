"""A cluster's NoExecute taint drains what runs there, whether or not there is room for it elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from assets.model_state import model_state
from modelplane_dagster.errors import RefusedError, UnreadableError
from modelplane_dagster.known import Known
from modelplane_dagster.observed import ObservedCluster, ObservedControlPlane, ObservedReplica
from modelplane_dagster.plan import plan_fleet
from resources.steps import ensure_deployment
from tests.made import cls, cluster, deployment, engine, fleet, member, nvidia, pool, request

GPU = request('device.driver == "gpu.nvidia.com"', 1, "gpu")
TAINT = {"key": "maintenance", "value": "yes", "effect": "NoExecute"}
TOLERATION = {"key": "maintenance", "operator": "Exists"}
RUNS = ObservedReplica("models", "m", {"engine/Standalone": "p"}, ready=1, desired=1)
GONE = ["Deployment c-0", "Deployment c-1", "Service c-0", "Service c-1"]


@dataclass
class Client:
    """A cluster that holds two replicas' Deployments and Services."""

    deleted: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def serves(self, api_version: str, kind: str) -> bool:
        return kind != "LeaderWorkerSet"

    def list(self, api_version: str, kind: str, *, namespace: str, labels: str) -> list[dict[str, Any]]:
        self.asked.append(f"{namespace} {labels}")
        names = ("c-0", "c-1") if kind in ("Deployment", "Service") else ()
        return [{"metadata": {"name": n, "uid": f"uid-{n}"}} for n in names]

    def delete(self, api_version: str, kind: str, name: str, *, namespace: str, uid: str) -> bool:
        self.deleted.append(f"{kind} {name}")
        return True


class Bench:
    """The little of a session that draining asks for; `admit` raises what is given for a cluster."""

    def __init__(self, *objects: Any, refuses: dict[str, Exception] | None = None) -> None:
        self.fleet = fleet(cls("g", nvidia(), source="EKS"), *objects)
        self.refuses = refuses or {}
        self.clients: dict[str, Client] = {}
        self.notes: list[tuple[str, tuple[str, str], bool]] = []
        self.wrote: list[str] = []
        observed = {name: seen(name, RUNS, RUNS) for name in self.fleet.clusters}
        self.plan = plan_fleet(self.fleet, observed=observed)

    def fleet_plan(self):
        return self.plan

    def admit(self, name: str):
        if name in self.refuses:
            raise self.refuses[name]
        return SimpleNamespace(cluster=name), self.plan.cluster(name)

    def write(self, admission: Any) -> None:
        self.wrote.append(admission.cluster)

    def client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client())

    def note_replica(self, name: str, key: tuple[str, str], *, there: bool) -> None:
        self.notes.append((name, key, there))

    @property
    def state(self):
        return model_state(self.plan, self.plan.placements[0])

    @property
    def action(self) -> tuple[str, str]:
        return next((a.op, a.reason) for a in self.plan.actions if a.subject == "deployment/models/m")

    def run(self):
        return ensure_deployment(self, "models", "m")


def seen(name: str, *replicas: ObservedReplica) -> ObservedCluster:
    return ObservedCluster(
        name=name,
        control_plane=Known(ObservedControlPlane(state="ready", version="1.36", ours=True, account="a")),
        pools=Known({}),
        components=Known({}),
        replicas=Known(replicas),
    )


def tainted(name: str, **taint: str) -> dict[str, Any]:
    return cluster(name, "EKS", pool("p", "g", 2), taints=[{**TAINT, **taint}])


def model(**more: Any) -> dict[str, Any]:
    return deployment("m", engine(member(GPU)), replicas=2, **more)


def test_a_replica_without_another_place_is_drained_all_the_same() -> None:
    bench = Bench(tainted("c"), model())
    assert bench.action == ("update", "drained from c by the cluster's taints")
    assert bench.state == ("differs", "the taints of c drain the replicas there")
    result = bench.run()
    assert (result.state, result.changed, bench.wrote) == ("pending", True, ["c"])
    assert bench.clients["c"].deleted == GONE
    assert set(bench.clients["c"].asked) == {
        "models modelplane.ai/deployment-namespace=models,modelplane.ai/deployment=m"
    }
    assert bench.notes == [("c", ("models", "m"), False)]


@pytest.mark.parametrize(
    ("objects", "drains"),
    [
        ((tainted("c"), model()), ("c",)),
        ((tainted("c"), model(tolerations=[TOLERATION])), ()),
        ((tainted("c"), model(tolerations=[{**TOLERATION, "effect": "NoSchedule"}])), ("c",)),
        ((tainted("c", effect="NoSchedule"), model()), ()),
        # A refused cluster keeps what it has, and so does one whose classes are unknown.
        ((tainted("c"), {**model(), "metadata": {"name": "other", "namespace": "models"}}), ()),
        ((cluster("c", "EKS", pool("p", "missing"), taints=[TAINT]), model()), ()),
        ((cluster("c", "EKS", pool("p", "g"), pool("q", "amd"), taints=[TAINT]), model(), cls("amd", {"name": "gpu", "driver": "gpu.amd.com", "deviceClassName": "gpu.amd.com"}, source="EKS")), ()),
        ((tainted("c"), tainted("d"), model()), ("c", "d")),
    ],
)  # fmt: skip
def test_who_is_drained(objects: Any, drains: tuple[str, ...]) -> None:
    bench = Bench(*objects)
    assert bench.plan.placements[0].drains == drains


@pytest.mark.parametrize(
    ("error", "state"), [(RefusedError("the gate refuses c"), "failed"), (UnreadableError("c is away"), "failed")]
)
def test_one_cluster_that_cannot_be_drained_does_not_hold_up_another(error: Exception, state: str) -> None:
    bench = Bench(tainted("c"), tainted("d"), model(), refuses={"c": error})
    result = bench.run()
    assert (result.state, result.sentence, result.changed) == (state, str(error), True)
    assert (sorted(bench.clients), bench.clients["d"].deleted) == (["d"], GONE)


def test_a_drained_replica_that_has_another_place_is_made_there() -> None:
    bench = Bench(tainted("c"), cluster("d", "EKS", pool("p", "g", 9)), model())
    assert bench.plan.placements[0].drains == ("c",)
    assert [r.cluster for r in bench.plan.placements[0].replicas] == ["d", "d"]
    assert bench.action == ("update", "drained from c by the cluster's taints")
