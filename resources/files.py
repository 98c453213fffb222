"""Manifest files: which ones a set of paths holds, and their bytes. What can't be read is a finding, and is skipped."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from modelplane_dagster.errors import ConfigError
from modelplane_dagster.findings import Finding, Place, file_subject, finding
from modelplane_dagster.manifests.fleet import build_fleet

if TYPE_CHECKING:
    from modelplane_dagster.manifests.fleet import Fleet

SUFFIXES = (".yaml", ".yml", ".json")
NOT_MANIFESTS = ("recipe.yaml",)
MAX_FILE = 256 * 1024 * 1024
MAX_FOLDERS = 100

_Identity = tuple[int, int]
"""Device and inode: the same for every path that leads to a file."""


def load_fleet(paths: Iterable[Path]) -> Fleet:
    """The fleet that the files and folders hold. Raises ConfigError for a path that doesn't exist."""
    files, found = read_paths(paths)
    return build_fleet(files, found)


def read_paths(paths: Iterable[Path]) -> tuple[list[tuple[str, bytes]], list[Finding]]:
    """Every manifest under the paths, sorted by name, each once however many paths lead to it.

    A name is the path as given and, under a folder, the way down from it. Of a folder, files that end in .yaml, .yml or
    .json are read; hidden files and folders and `recipe.yaml` are not. Raises ConfigError for a path that doesn't exist.
    """
    walk = _Walk()
    for path in paths:
        if not _exists(path):
            raise ConfigError(f"{path} doesn't exist; name a file or folder that holds YAML manifests")
        before = walk.met
        walk.visit(path, name=str(path), above=(), named=True)
        if walk.met == before:
            walk.report("NothingFound", str(path), f"{path} holds no file that ends in {', '.join(SUFFIXES)}")
    return sorted(walk.files), walk.findings


def _exists(path: Path) -> bool:
    """Whether there is anything at the path, readable or not."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return True
    return True


@dataclass(frozen=True, slots=True)
class _Seen:
    identity: _Identity
    mode: int
    size: int


class _Walk:
    def __init__(self) -> None:
        self.files: list[tuple[str, bytes]] = []
        self.findings: list[Finding] = []
        self._passed_over = 0
        self._done: set[_Identity] = set()

    @property
    def met(self) -> int:
        """How many manifests, findings and files passed over for a reason there are so far."""
        return len(self.files) + len(self.findings) + self._passed_over

    def report(self, code: str, name: str, message: str) -> None:
        self.findings.append(finding(code, file_subject(name), message, place=Place(name, 1, 1)))

    def visit(self, path: Path, *, name: str, above: tuple[_Identity, ...], named: bool = False) -> None:
        """A file or a folder. `above` holds the folders on the way down; `named` that the user gave this very path."""
        seen = self._stat(path, name)
        if seen is None:
            return
        if stat.S_ISDIR(seen.mode):
            self._folder(path, name, above=above, seen=seen)
        elif named or path.suffix in SUFFIXES:
            self._file(path, name, seen)

    def _stat(self, path: Path, name: str) -> _Seen | None:
        try:
            found = path.stat()
        except FileNotFoundError:
            self.report("BrokenLink", name, f"{name} leads nowhere")
        except OSError as error:
            if error.errno == errno.ELOOP:
                self.report("LoopingLink", name, f"{name} leads back to itself")
            else:
                self._unreadable(name, error)
        else:
            return _Seen((found.st_dev, found.st_ino), found.st_mode, found.st_size)
        return None

    def _unreadable(self, name: str, error: OSError) -> None:
        self.report("FileUnreadable", name, f"{name} can't be read: {(error.strerror or 'unknown error').lower()}")

    def _folder(self, path: Path, name: str, *, above: tuple[_Identity, ...], seen: _Seen) -> None:
        if seen.identity in above:
            self.report("LoopingLink", name, f"{name} leads back to a folder that it stands in")
            return
        if seen.identity in self._done:
            self._passed_over += 1
            return
        if len(above) >= MAX_FOLDERS:
            self.report("FileUnreadable", name, f"{name} is nested more than {MAX_FOLDERS} folders deep")
            return
        self._done.add(seen.identity)
        for entry in self._entries(path, name):
            self.visit(path / entry, name=os.path.join(name, entry), above=(*above, seen.identity))  # noqa: PTH118  keeps ./ as given

    def _entries(self, path: Path, name: str) -> Iterator[str]:
        try:
            entries = sorted(os.listdir(path))  # noqa: PTH208  names are all that is asked for
        except OSError as error:
            self._unreadable(name, error)
            return
        yield from (entry for entry in entries if not entry.startswith("."))

    def _file(self, path: Path, name: str, seen: _Seen) -> None:
        if path.name in NOT_MANIFESTS or seen.identity in self._done:
            self._passed_over += 1
            return
        self._done.add(seen.identity)
        if not stat.S_ISREG(seen.mode):
            self.report("FileUnreadable", name, f"{name} isn't a regular file")
        elif seen.size > MAX_FILE:
            self.report("ManifestTooLarge", name, f"a file has at most {MAX_FILE} bytes, and {name} has {seen.size}")
        else:
            try:
                self.files.append((name, path.read_bytes()))
            except OSError as error:
                self._unreadable(name, error)
