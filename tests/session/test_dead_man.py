"""What writes without asking us ends where nobody renews the lease, though who started it can't end it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from resources.host import _stat as stat

ROOT = Path(__file__).resolve().parents[2]
CODE = """
import subprocess, time
from resources.dead_man import DeadMan
from resources.host import Host
man, clock = DeadMan(), Host().clock
child = subprocess.Popen(["sleep", "60"])
man.watch(child.pid)
man.stands(clock() + 0.6)
print(child.pid, flush=True)
while True:
    time.sleep(0.1)
    man.stands(clock() + 0.6)
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CODE)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    yield process
    process.kill()
    process.communicate()


def started(parent: subprocess.Popen[str]) -> int:
    assert parent.stdout is not None
    return int(parent.stdout.readline())


def ended(pid: int, *, within: float) -> bool:
    """Its parent may not have asked for it yet."""
    end = time.monotonic() + within
    while stat(pid)[0] not in ("", "Z"):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_it_lives_while_the_lease_is_renewed(parent: subprocess.Popen[str]) -> None:
    child = started(parent)
    assert not ended(child, within=1.5)
    os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("group", [False, True])
def test_it_ends_though_its_parent_is_stopped(parent: subprocess.Popen[str], group: bool) -> None:
    """Alone, or with its whole group, as a terminal stops it: then the child is stopped too."""
    child = started(parent)
    (os.killpg if group else os.kill)(parent.pid, signal.SIGSTOP)
    assert ended(child, within=10)
