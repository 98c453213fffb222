"""The helm binary for tests that run it; they skip with the reason where there is none."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

_CACHED = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "modelplane-dagster" / "tools" / "helm"


def helm_binary() -> Path:
    found = str(_CACHED) if _CACHED.is_file() else shutil.which("helm")
    if not found:
        pytest.skip("no helm binary on this machine")
    return Path(found)
