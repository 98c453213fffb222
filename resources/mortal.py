"""Commands that end with the process that started them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache

# Linux's prctl(PR_SET_PDEATHSIG, SIGKILL), then the command in the place of this interpreter. Not by `preexec_fn`, which may
# hang in a process with threads.
_WRAPPED = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
os.execv(sys.argv[1], sys.argv[1:])
"""


def mortal(command: Sequence[str]) -> list[str]:
    """The command, killed by Linux when the thread that starts it ends, however it ends; elsewhere the command as it is."""
    if sys.platform != "linux":
        return list(command)
    return [*_prefix(), *command]


@lru_cache(maxsize=1)
def _prefix() -> tuple[str, ...]:
    """util-linux's setpriv, which costs a millisecond where the interpreter costs thirty; busybox has one that can't."""
    found = shutil.which("setpriv")
    prefix = (found or "", "--pdeathsig", "KILL")
    if (
        found
        and subprocess.run([*prefix, sys.executable, "-ISc", ""], capture_output=True, check=False).returncode == 0
    ):
        return prefix
    return (sys.executable, "-ISc", _WRAPPED)
