"""One lab with all seven clusters, converged once by the product; what a test changes it puts back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.site import Site, site
from tests.kubernetes.legs.fleet import LEGS, Leg, manifests, seed
from tests.kubernetes.legs.reading import Reading


@dataclass
class Fleet:
    """The seven clusters. `folder` of a leg holds its manifests alone, so that a plan looks at that cluster alone."""

    site: Site
    readings: dict[str, Reading] = field(default_factory=dict)

    def folder(self, leg: Leg) -> Path:
        return self.site.folder / leg.name

    def read(self, leg: Leg) -> Reading:
        if leg.name not in self.readings:
            self.readings[leg.name] = Reading.of(self.site.lab.kubeconfig(leg.name, "user"))
        return self.readings[leg.name]

    def observed(self, leg: Leg) -> dict[str, Any]:
        """How the cluster stands by the product's own audits: its state, its pools' states, its findings."""
        ran = self.site.run("status", str(self.folder(leg)), "--format", "json").clean()
        (cluster,) = ran.json["clusters"]
        found: dict[str, Any] = cluster
        return found

    def until(self, leg: Leg, holds: Callable[[dict[str, Any]], Any], *, within: float = 120.0) -> dict[str, Any]:
        """Looks until it holds; the last look in the failure's text."""
        end = time.monotonic() + within
        while not holds(seen := self.observed(leg)):
            assert time.monotonic() < end, json.dumps(seen, indent=1)
            time.sleep(0.2)
        return seen

    def until_clean(self, leg: Leg) -> None:
        self.until(leg, lambda seen: seen["state"] == "converged" and not loud(seen))

    @cached_property
    def reconciled(self) -> dict[str, Any]:
        """What the one run that made all of them said."""
        ran = self.site.reconcile(timeout="20m").clean()
        assert ran.status == 0, f"{ran.err}\n{ran.out}"
        return ran.json


def loud(seen: dict[str, Any]) -> list[dict[str, Any]]:
    return [f for f in seen["findings"] if f["severity"] != "info"]


def codes(seen: dict[str, Any]) -> list[str]:
    return sorted({f["code"] for f in loud(seen)})


@pytest.fixture(scope="package")
def fleet(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    assert assets
    with site(tmp_path_factory.mktemp("legs"), seed=seed(), kind="kubernetes") as made:
        for leg in LEGS:
            made.write(f"{leg.name}/leg.yaml", manifests(leg))
        found = Fleet(made)
        assert found.reconciled
        yield found
