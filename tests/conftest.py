"""How the tests are shared out among several workers."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from xdist.scheduler import LoadFileScheduling

# Each of these folders starts a control plane, a cluster or a fleet of seven once, for all its tests.
TOGETHER = ("tests/kubernetes/api", "tests/kubernetes/faults", "tests/kubernetes/legs")

# Minutes of tests that share nothing.
APART = ("tests/e2e/test_kills.py",)


class Together(LoadFileScheduling):
    """A file's tests stay on one worker, and so do those of a folder that shares what it starts. (`--dist loadgroup` of
    pytest-xdist 3.8 groups nothing under pytest 9.)"""

    def _split_scope(self, nodeid: str) -> str:
        file = PurePosixPath(nodeid.split("::", 1)[0])
        if str(file) in APART:
            return nodeid
        return next((folder for folder in TOGETHER if file.is_relative_to(folder)), str(file))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log):
    return Together(config, log) if config.getvalue("dist") == "loadfile" else None
