"""What the command line prints: JSON alone and compact on stdout, or text for people, coloured where the terminal allows."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import orjson
from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from modelplane_dagster.findings import Finding

MARKS = {"error": ("✗", "bold red"), "warning": ("!", "yellow"), "info": ("·", "dim")}


def print_json(document: Any) -> None:  # noqa: ANN401 - any JSON value
    sys.stdout.buffer.write(orjson.dumps(document) + b"\n")
    sys.stdout.flush()


def console() -> Console:
    """On stdout; wide enough for a log file, the terminal's own width on a terminal."""
    wide = None if sys.stdout.isatty() else 140
    return Console(highlight=False, width=wide, soft_wrap=False)


def progress_console() -> Console:
    """On stderr, so that progress never mixes with what a pipe reads."""
    return Console(stderr=True, highlight=False)


def finding_lines(finding: Finding, indent: str = "") -> Text:
    """The sentence, where it is, and what to do."""
    mark, style = MARKS[finding.severity.value]
    text = Text(indent)
    text.append(f"{mark} {finding.code}", style)
    text.append(f"  {finding.subject}\n", "bold")
    text.append(f"{indent}  {finding.message}\n")
    if finding.place:
        text.append(f"{indent}  at {finding.place.file}:{finding.place.line}:{finding.place.column}\n", "dim")
    text.append(f"{indent}  fix: {finding.fix}", "green")
    return text


def print_findings(out: Console, findings: Iterable[Finding], *, indent: str = "") -> None:
    for finding in findings:
        out.print(finding_lines(finding, indent), overflow="fold")
