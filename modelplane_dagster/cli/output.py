"""What the command line prints: JSON alone and compact on stdout, or text for people, coloured where the terminal allows."""

from __future__ import annotations

import os
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
    _write(orjson.dumps(document) + b"\n")


def print_plain(text: str) -> None:
    """As it is, neither wrapped nor coloured: for what another program reads."""
    _write(text.encode())


def _write(data: bytes) -> None:
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    except BrokenPipeError:
        _reader_left()


def _reader_left() -> None:
    """The reader of a pipe went away, such as `| head`: the rest goes nowhere, and the exit status still tells."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Rich would exit with status 1 here, which means invalid manifests."""
        self.quiet = True
        _reader_left()


def console() -> Console:
    """On stdout; wide enough for a log file, the terminal's own width on a terminal."""
    wide = None if sys.stdout.isatty() else 140
    return _Console(highlight=False, width=wide, soft_wrap=False)


def progress_console() -> Console:
    """On stderr, so that progress never mixes with what a pipe reads."""
    return Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else 200)


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
