"""Documents of a file: bytes are decoded and cut at the document markers, and places are found again on demand.

A document keeps its text and where it starts, not the position of every node: that would cost ten times the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from modelplane_dagster.findings import Finding, Place, file_subject, finding
from modelplane_dagster.manifests.positions import find

MAX_DOCUMENT = 4 * 1024 * 1024

# A line of --- or ... ends a document wherever it stands, inside a block scalar too.
_MARKER = re.compile(r"^(?:---|\.\.\.)(?=[ \t\n]|\Z)", re.MULTILINE)
_ONLY_DIRECTIVES = re.compile(r"(?:[ \t]*(?:#.*)?\n|%.*\n)*[ \t]*(?:#.*)?\Z")
_BLANK = re.compile(r"(?:[ \t]*(?:#.*)?\n)*[ \t]*(?:#.*)?\Z")


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """One document of a file. `line` is the number of lines before it."""

    file: str
    text: str
    line: int

    @property
    def subject(self) -> str:
        return file_subject(self.file)

    @property
    def start(self) -> Place:
        """Its first line that holds something."""
        for number, row in enumerate(self.text.split("\n", 1000)):
            bare = row.strip()
            if bare and bare != "---" and bare[0] not in "#%":
                return Place(self.file, self.line + number + 1, len(row) - len(row.lstrip()) + 1)
        return Place(self.file, self.line + 1, 1)

    def at(self, line: int, column: int) -> Place:
        """A place from a line and column of this document, both from 0."""
        return Place(self.file, self.line + line + 1, column + 1)

    def place(self, path: tuple[str | int, ...] = ()) -> Place:
        """Where a field stands: its key, or the entry of a list. For a missing one, its nearest existing parent."""
        found = find(self.text, path)
        return self.start if found is None else self.at(*found)


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """Where an object comes from: `base` is its path in the document, not empty for an item of a List."""

    document: Document
    base: tuple[str | int, ...] = ()

    def place(self, path: tuple[str | int, ...] = ()) -> Place:
        """Where a field of the object stands; of a missing one, its nearest parent."""
        return self.document.place((*self.base, *path))


def documents(file: str, data: bytes) -> tuple[list[Document], tuple[Finding, ...]]:
    """The documents of a file that hold anything, in order, and what was refused before it could be parsed."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        place = Place(file, before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1)
        message = f"expected UTF-8, and byte {error.start} isn't"
        return [], (finding("NotUtf8", file_subject(file), message, place=place),)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    whole: list[Document] = []
    refused: list[Finding] = []
    for document in _cut(file, text):
        size = _size(document.text)
        if size > MAX_DOCUMENT:
            message = f"a document has at most {MAX_DOCUMENT} bytes, and this one has {size}"
            place = Place(file, document.line + 1, 1)
            refused.append(finding("ManifestTooLarge", document.subject, message, place=place))
        else:
            whole.append(document)
    return whole, tuple(refused)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _cut(file: str, text: str) -> Iterator[Document]:
    """Slices from marker to marker. Directives belong to the document that the next marker opens."""
    start, lines, counted = 0, 0, 0
    bounds = [match.start() for match in _MARKER.finditer(text)]
    for end in (*bounds, len(text)):
        piece = text[start:end]
        if end < len(text) and "%" in piece and text.startswith("---", end) and _ONLY_DIRECTIVES.match(piece):
            continue
        if piece.startswith("..."):
            piece = "   " + piece[3:]
        body = piece.removeprefix("---")
        lines += text.count("\n", counted, start)
        counted = start
        if not _BLANK.match(body):
            yield Document(file, piece, lines)
        start = end
