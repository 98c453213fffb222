"""Where the real inputs stand: a folder `shared` beside the checkout. Tests that read it skip with the reason when it is absent."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parent.parent.parent / "shared"


def shared(*parts: str) -> Path:
    """A path in the shared folder; skips the calling test where the folder is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"the real inputs are not here: {SHARED.name} stands beside no checkout")
    return SHARED.joinpath(*parts)
