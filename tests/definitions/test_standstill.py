"""When the passes end before their time: whatever isn't settled was asked as it stands, and only what lasts is left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from assets.keys import cluster_key, devices_key, model_key, pool_key
from assets.passes import Look
from assets.standstill import Memory, standstill
from modelplane_dagster.findings import Finding, finding
from modelplane_dagster.plan import plan_fleet
from modelplane_dagster.summary import ClusterSummary
from tests.made import cls, cluster, deployment, engine, fleet, member, nvidia, pool, request

MADE = fleet(cls("k", nvidia()), cluster("c", "Existing", pool("p", "k")), deployment("m", engine(member(request()))))
PLAN = plan_fleet(MADE)
MODEL = ("models", "m")
PLANE, BASE, NFD = (cluster_key("c", leaf) for leaf in ("control_plane", "serving_base", "node-feature-discovery"))
POOL, DEVICES = pool_key("c", "p"), devices_key("c", "p")
KEYS = (PLANE, BASE, NFD, POOL, DEVICES, model_key(*MODEL))
SECOND = finding("SecondNfd", "cluster/c", "Another NFD is there.")
OWNED = finding("ComponentsConflict", "component/c/node-feature-discovery", "Another owns it.")
LABEL = finding("LabelMissing", "pool/c/p", "n should carry the label.", lasts=True)
WAITS = finding("Pending", "component/c/node-feature-discovery", "0 of 1 pods are ready")
BLOCKED = ClusterSummary(name="c", state="pending", why="SecondNfd", findings=(SECOND,), at_rest=True)
CHANGES = replace(BLOCKED, state="differs", changes=("install component/c/node-feature-discovery: it isn't installed",))
DONE = ClusterSummary(name="c", state="converged", why="it stands")


def told(**by_leaf: tuple[Finding, ...]) -> dict[dg.AssetKey, tuple[Finding, ...]]:
    return {
        {"base": BASE, "nfd": NFD, "pool": POOL, "devices": DEVICES, "model": KEYS[-1]}[k]: v
        for k, v in by_leaf.items()
    }


def ends(
    summary: ClusterSummary,
    said: Mapping[dg.AssetKey, tuple[Finding, ...]],
    *,
    states: Mapping[dg.AssetKey, str] | None = None,
    model: tuple[Any, str] = ("serving", ""),
    asked: bool = True,
    pools_ready: bool = True,
    **memory: Any,
) -> bool:
    """After a pass in which everything was ready but what it `said` something of."""
    look = Look(PLAN, {"c": summary}, {MODEL: model})
    marks = {"c": summary.fingerprint(), "models/m": f"{model[0]} {model[1]}"} if asked else {}
    assets = {**dict.fromkeys(KEYS, "ready"), **dict.fromkeys(said, "pending"), **(states or {})}
    steps = {key.to_python_identifier(): found for key, found in said.items()}
    kept = Memory(assets=assets, told=dict(steps), marks=marks, **memory)
    return standstill(look, kept, KEYS, key_of=lambda _: NFD, pools_ready=lambda _: pools_ready)


@pytest.mark.parametrize(
    ("summary", "said", "expected"),
    [
        (BLOCKED, {}, True),
        # What a pool's or its devices' asset says is in the summary already.
        (BLOCKED, told(devices=(WAITS,), pool=(WAITS,)), True),
        (BLOCKED, told(base=(WAITS,)), False),
        (replace(BLOCKED, at_rest=False), {}, False),
        # A change that can't be made because of what lasts, and those that wait for it.
        (CHANGES, told(nfd=(OWNED,)), True),
        (CHANGES, told(nfd=(OWNED,), base=()), True),
        (CHANGES, told(nfd=(OWNED, WAITS)), False),
        (CHANGES, told(nfd=(WAITS,)), False),
        # Changes that nobody was asked to make, or of which nothing is known.
        (CHANGES, {}, False),
        (CHANGES, told(nfd=()), False),
        # The summary knows more of a finding than its code.
        (replace(BLOCKED, findings=(LABEL,)), told(base=(replace(LABEL, lasts=False),)), True),
        (BLOCKED, told(base=(replace(LABEL, lasts=False),)), False),
    ],
)
def test_a_cluster(summary: ClusterSummary, said: dict[dg.AssetKey, tuple[Finding, ...]], expected: bool) -> None:
    assert ends(summary, said) is expected


def test_a_pool_on_a_cloud_speaks_for_itself() -> None:
    made = fleet(cls("k", nvidia(), source="EKS"), cluster("c", "EKS", pool("p", "k")))
    look = Look(plan_fleet(made), {"c": BLOCKED}, {})
    memory = Memory(assets=dict.fromkeys(KEYS, "ready"), marks={"c": BLOCKED.fingerprint()})
    asks: Any = {"key_of": lambda _: NFD, "pools_ready": lambda _: True}
    assert standstill(look, memory, KEYS, **asks)
    memory.assets[POOL], memory.told[POOL.to_python_identifier()] = "pending", (WAITS,)
    assert not standstill(look, memory, KEYS, **asks)


@pytest.mark.parametrize(
    "more",
    [
        {"wrote": True},
        # It changed since it was asked.
        {"asked": False},
        # A step that raised what can't be described.
        {"raised": {BASE.to_python_identifier()}, "states": {BASE: "pending"}},
        {"states": {BASE: None}},
    ],
)
def test_a_pass_that_proves_nothing(more: dict[str, Any]) -> None:
    assert ends(BLOCKED, {}, **more) is False


@pytest.mark.parametrize(
    ("summary", "model", "said", "pools_ready", "expected"),
    [
        (DONE, ("differs", "0 of 1 replicas are there"), told(model=(OWNED,)), True, True),
        (DONE, ("differs", "0 of 1 replicas are there"), told(model=(WAITS,)), True, False),
        (DONE, ("waiting", "0 of 1 engine pods are ready"), told(model=()), True, False),
        # It waits for pools, and those wait for somebody.
        (BLOCKED, ("differs", "0 of 1 replicas are there"), {}, False, True),
        (BLOCKED, ("waiting", "0 of 1 engine pods are ready"), {}, False, False),
        (replace(BLOCKED, at_rest=False), ("differs", "0 of 1 replicas are there"), {}, False, False),
    ],
)
def test_a_model(
    summary: ClusterSummary,
    model: tuple[Any, str],
    said: dict[dg.AssetKey, tuple[Finding, ...]],
    pools_ready: bool,
    expected: bool,
) -> None:
    assert ends(summary, said, model=model, pools_ready=pools_ready) is expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ((finding("NoPoolMatches", "deployment/models/m", "None."),), True),
        ((finding("ClusterTainted", "deployment/models/m", "Tainted."),), True),
        ((finding("NoNodesFree", "deployment/models/m", "Full."),), False),
        ((finding("ClusterNotReady", "deployment/models/m", "Unread."),), False),
        ((finding("ClusterNotReady", "deployment/models/m", "Refused.", lasts=True),), True),
        (
            (
                finding("NoPoolMatches", "deployment/models/m", "None."),
                finding("ReplicaHeld", "deployment/models/m", "Held."),
            ),
            False,
        ),
    ],
)
def test_a_model_without_a_place(found: tuple[Finding, ...], expected: bool) -> None:
    (placement,) = PLAN.placements
    plan = replace(PLAN, placements=(replace(placement, verdict="unplaced", findings=found),))
    look = Look(plan, {"c": DONE}, {MODEL: ("unplaced", found[0].message)})
    assert standstill(look, Memory(), KEYS, key_of=lambda _: None, pools_ready=lambda _: False) is expected
