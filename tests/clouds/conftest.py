"""What the tests of a cloud with an API key begin with. The test's module says which cloud by its fixture `keyed`."""

from __future__ import annotations

import httpx
import pytest

from tests.clouds.keyed import LIMITS
from tests.clouds.serve import serving
from tests.clouds.serving import make_state


@pytest.fixture
def state(keyed, tmp_path):
    return make_state(keyed.ref.source, tmp_path)


@pytest.fixture
def sent():
    """Path and body of every POST and PUT, as it came over the wire."""
    return []


@pytest.fixture
def url(keyed, state, sent):
    class Recording(keyed.simulator):
        def answer(self, call):
            if call.method in ("POST", "PUT"):
                sent.append((call.path, call.json))
            return super().answer(call)

    with serving(Recording(state)) as url:
        yield url


@pytest.fixture
def cloud(keyed, url):
    return keyed.adapter(endpoint=url, limits=LIMITS)


@pytest.fixture
def api(keyed, url):
    """A stranger who holds a key too."""
    with httpx.Client(base_url=url, headers={"Authorization": f"{keyed.adapter.dialect.scheme} someone"}) as client:
        yield client
