"""Findings: one result of a gate, an audit or a reader, with a stable code.

The table `CODES` is the one place for code, severity, meaning and fix; the docs page is made from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from modelplane_dagster.codes import CODES

if TYPE_CHECKING:
    from collections.abc import Iterable


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


_RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A place in a file: line and column count from 1."""

    file: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Finding:
    """`subject` is `cluster/C`, `pool/C/P`, `component/C/KEY`, `deployment/NS/NAME`, `class/NAME`, `KIND/NAME` or `file/PATH`.

    `message` says what was expected and what was seen, in one sentence that every channel shows unchanged; `fix` what to do.
    `lasts` where waiting mends nothing.
    """

    code: str
    severity: Severity
    subject: str
    message: str
    fix: str
    place: Place | None = None
    lasts: bool = field(default=False, compare=False)

    def as_dict(self) -> dict[str, Any]:
        """The public JSON shape; file, line and column are null where no file is to blame."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "subject": self.subject,
            "message": self.message,
            "fix": self.fix,
            "file": self.place.file if self.place else None,
            "line": self.place.line if self.place else None,
            "column": self.place.column if self.place else None,
        }

    def sort_key(self) -> tuple[int, str, str, str, str]:
        where = f"{self.place.file}:{self.place.line:08d}:{self.place.column:04d}" if self.place else ""
        return (_RANK[self.severity], self.subject, self.code, where, self.message)


def finding(
    code: str,
    subject: str,
    message: str,
    *,
    fix: str | None = None,
    place: Place | None = None,
    severity: Severity | None = None,
    lasts: bool | None = None,
) -> Finding:
    """A finding of a known code. The severity, the fix and whether it lasts come from the table unless given.

    Raises KeyError for a code that isn't in the table.
    """
    row = CODES[code]
    return Finding(
        code,
        severity or Severity(row.severity),
        subject,
        message,
        fix or row.fix,
        place,
        row.lasts if lasts is None else lasts,
    )


def file_subject(path: str) -> str:
    """`file/PATH`; an absolute path's first slash is the subject's own. The finding's place has the path as it was given."""
    return f"file/{path.lstrip('/')}"


def has_errors(findings: Iterable[Finding]) -> bool:
    return any(f.severity is Severity.ERROR for f in findings)


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Without repeats, errors first, then by subject: the order that every channel shows."""
    return tuple(sorted(set(findings), key=Finding.sort_key))
