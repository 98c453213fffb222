"""The table of gaps against the docs."""

from __future__ import annotations

from pathlib import Path

from tests.kubernetes.api.gaps import GAPS

DOCS = Path(__file__).parents[3] / "docs" / "lab.md"


def test_every_gap_is_told() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert [why for why in GAPS.values() if why not in text] == []
