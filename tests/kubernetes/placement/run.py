"""A whole run: so many random clusters, each decided three times."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from tests.kubernetes.placement import lab, plan
from tests.kubernetes.placement.claims import make_claim_case
from tests.kubernetes.placement.classes import make_class_case
from tests.kubernetes.placement.compare import differs, report
from tests.kubernetes.placement.nodes import make_case, make_nodes
from tests.kubernetes.placement.real import Real
from tests.kubernetes.placement.world import Case, Decision, Forecast, World

PLAIN, CLAIMS, CLASSES = 20, 14, 8
"""Workloads of one cluster: without claims, with random ones, and with those of classes."""


@dataclass
class Tally:
    """`shapes` counts what was decided, so that a generator that only makes refusals is seen."""

    decisions: int = 0
    shapes: Counter[str] = field(default_factory=Counter)
    reports: list[str] = field(default_factory=list)
    seconds: float = 0.0


def make_world(seed: str, number: int) -> World:
    """The same for the same seed and number, whatever else runs."""
    rng = Random(f"{seed}/{number}")
    name = f"c{number}"
    nodes = make_nodes(rng, name, rng.randint(4, 9))
    clean = rng.random() < 0.7
    plain = [make_case(rng, name, f"{name}-w{i}", nodes) for i in range(PLAIN)]
    claims = [make_claim_case(rng, name, f"{name}-k{i}", nodes, clean=clean) for i in range(CLAIMS)]
    classes = [make_class_case(rng, name, f"{name}-m{i}", nodes, cpu=i == 0) for i in range(CLASSES)]
    return World(name, nodes, (*plain, *claims, *classes))


def run(real: Real, worlds: list[World]) -> Tally:
    tally, begun = Tally(), time.monotonic()
    for world in worlds:
        forecasts = plan.forecast(world)
        by_lab = lab.decide(world)

        def agrees(case: Case, decision: Decision, forecasts: dict[str, Forecast] = forecasts) -> bool:
            return bool(decision.refused) or not differs(case, decision, forecasts[case.name])

        by_real = real.decide(world, agrees=agrees)
        for case in world.cases:
            tally.decisions += 1
            tally.shapes[_shape(case, by_real[case.name])] += 1
            told = differs(case, by_real[case.name], forecasts[case.name])
            also = differs(case, by_lab[case.name], forecasts[case.name])
            if told or also:
                head = f"real {told or 'agrees'}; lab {also or 'agrees'} with the plan"
                tally.reports.append(
                    head + "\n" + report(world, case, by_real[case.name], by_lab[case.name], forecasts[case.name])
                )
    tally.seconds = time.monotonic() - begun
    return tally


def _shape(case: Case, decision: Decision) -> str:
    what = case.kind if not case.claims else "claim" if case.match is None else "class"
    return f"{what} {'refused' if decision.refused else 'placed' if decision.nodes else 'nowhere'}"
