"""Runs the command line in this process, as a shell would: status, stdout, stderr."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from modelplane_dagster.cli.main import run


@dataclass(frozen=True, slots=True)
class Ran:
    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Stdout as the one line of compact JSON that it must be."""
        parsed = json.loads(self.out)
        assert self.out == json.dumps(parsed, separators=(",", ":"), ensure_ascii=False) + "\n"
        return parsed


def modelplane(capfdbinary: pytest.CaptureFixture[bytes], *arguments: object) -> Ran:
    status = run([str(a) for a in arguments])
    caught = capfdbinary.readouterr()
    return Ran(status, caught.out.decode(), caught.err.decode())
