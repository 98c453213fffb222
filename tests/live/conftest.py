from __future__ import annotations

from collections.abc import Iterator

import pytest

from resources.lab.plane.assets import AssetsMissingError, find_assets
from tests.live.clusters import Own, names, own


@pytest.fixture(scope="module", params=["embedded", pytest.param("kubernetes", marks=pytest.mark.slow)])
def fresh(tmp_path_factory, request) -> Iterator[Own]:
    """A cluster that nothing of ours has ever touched."""
    if request.param == "kubernetes":
        try:
            find_assets()
        except AssetsMissingError as error:
            pytest.skip(error.message)
    with own(tmp_path_factory.mktemp("own"), request.param) as made:
        yield made


@pytest.fixture(scope="module")
def converged(fresh) -> tuple[Own, set[str]]:
    """The same after a reconcile, and what stood on it before."""
    before = names(fresh.client())
    ran = fresh.live.reconcile().clean()
    assert (ran.status, ran.json["verdict"]) == (0, "converged"), ran.json
    return fresh, before
