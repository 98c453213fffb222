"""What random runs turned up, decided by the lab and the plan in every run, and by the real scheduler where there is one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import pytest

from tests.kubernetes.placement import lab, plan
from tests.kubernetes.placement.compare import differs
from tests.kubernetes.placement.named import CASES, Named, case_name, world
from tests.kubernetes.placement.real import Real
from tests.kubernetes.placement.world import Case, Decision, Forecast

by_name = pytest.mark.parametrize("named", CASES, ids=[c.name for c in CASES])


@lru_cache
def by_lab(name: str) -> Mapping[str, Decision]:
    return lab.decide(world(name))


@lru_cache
def by_plan(name: str) -> Mapping[str, Forecast]:
    return plan.forecast(world(name))


@pytest.fixture(scope="module")
def by_real(real: Real) -> Mapping[str, Mapping[str, Decision]]:
    expected = {case_name(c): c for c in CASES}

    def agrees(case: Case, decision: Decision) -> bool:
        return bool(decision.refused) or not _wrong(expected[case.name], decision)

    return {name: real.decide(world(name), agrees=agrees) for name in sorted({c.world for c in CASES})}


def _wrong(named: Named, decision: Decision) -> str:
    """Where a decision isn't the expected one."""
    if decision.refused:
        return decision.refused
    if named.kind == "DaemonSet":
        return "" if decision.nodes == named.expected else f"runs on {sorted(decision.nodes)}"
    if bool(decision.nodes) != bool(named.expected) or not decision.nodes <= named.expected:
        return f"runs on {sorted(decision.nodes)}"
    got = tuple(_short(d) for name in sorted(decision.devices) for d in decision.devices[name])
    return f"holds {got}" if named.devices and got != named.devices else ""


def _short(result: str) -> str:
    request, _, device = result.partition("=")
    return f"{request}={device.rpartition('/')[2]}"


@by_name
def test_the_plan_says(named: Named) -> None:
    said = by_plan(named.world)[case_name(named)]
    assert said.nodes == named.expected
    for devices in said.devices.values() if named.devices else ():
        assert tuple(_short(d) for name in sorted(devices) for d in devices[name]) == named.devices


@by_name
def test_the_lab_decides(named: Named) -> None:
    assert _wrong(named, by_lab(named.world)[case_name(named)]) == ""


@pytest.mark.kubernetes
@by_name
def test_the_real_scheduler_decides(named: Named, by_real: Mapping[str, Mapping[str, Decision]]) -> None:
    decision = by_real[named.world][case_name(named)]
    assert _wrong(named, decision) == ""
    case = next(c for c in world(named.world).cases if c.name == case_name(named))
    assert differs(case, decision, by_plan(named.world)[case.name]) == ""
