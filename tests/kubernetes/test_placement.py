"""Random clusters and workloads: the real scheduler and controllers, the lab and the plan decide alike.

`MODELPLANE_CONFORM_SEED` and `MODELPLANE_CONFORM_CLUSTERS` repeat or widen a run; a failure prints its seed.
"""

from __future__ import annotations

import os
import time

import pytest

from tests.kubernetes.placement.real import Real
from tests.kubernetes.placement.run import make_world, run

pytestmark = pytest.mark.kubernetes
SEED = os.environ.get("MODELPLANE_CONFORM_SEED") or str(int(time.time()))
CLUSTERS = int(os.environ.get("MODELPLANE_CONFORM_CLUSTERS") or 50)


def test_all_three_decide_alike(real: Real, capsys: pytest.CaptureFixture[str]) -> None:
    tally = run(real, [make_world(SEED, number) for number in range(CLUSTERS)])
    told = ", ".join(f"{number} {shape}" for shape, number in sorted(tally.shapes.items()))
    with capsys.disabled():
        print(f"\nseed {SEED}: {tally.decisions} decisions in {tally.seconds:.0f} s: {told}")  # noqa: T201 - what was tried
    assert not tally.reports, f"seed {SEED}: {len(tally.reports)} disagree\n" + "\n\n".join(tally.reports[:5])
    assert tally.decisions >= 40 * CLUSTERS
    # A generator that makes only refusals, or only pods that fit, decides nothing.
    for shape in ("DaemonSet", "Pod", "claim"):
        placed, nowhere = tally.shapes[f"{shape} placed"], tally.shapes[f"{shape} nowhere"]
        assert min(placed, nowhere) * 8 > placed + nowhere, tally.shapes
