"""A small fleet in a folder of its own, on a lab of its own: the command line in process and as a subprocess, and what
reached each API."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from modelplane_dagster.cli.main import run
from modelplane_dagster.manifests.fleet import Fleet
from resources.files import load_fleet
from resources.lab.client import LabClient, ensure_running, stop
from resources.session import Session, open_session
from resources.settings import LabKind, Settings, from_environment

ROOT = Path(__file__).resolve().parents[2]
EMPTY_SEED = "clusters: {}\n"


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command left: its status, stdout and stderr."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    def clean(self) -> Ran:
        """Fails where anything looks like a traceback."""
        assert "Traceback" not in self.err, self.err
        assert "Traceback" not in self.out, self.out
        return self


@dataclass(frozen=True, slots=True)
class Changes:
    """Writes and deletes that an API took, the lab's own traffic left out."""

    writes: int
    deletes: int


@dataclass(frozen=True, slots=True)
class Site:
    """`folder` holds the manifests, `home` the lab and everything of ours."""

    folder: Path
    home: Path
    env: Mapping[str, str] = field(repr=False)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def copy(self, *names: str) -> None:
        """Manifests of the tree, by their paths from its root."""
        for name in names:
            shutil.copy(ROOT / name, self.folder / Path(name).name)

    def with_env(self, **more: str) -> Site:
        """The same site with more settings."""
        return replace(self, env={**self.env, **more})

    @property
    def lab(self) -> LabClient:
        return LabClient(self.home / "lab")

    def settings(self) -> Settings:
        return from_environment(self.env)

    def fleet(self) -> Fleet:
        return load_fleet([self.folder])

    @contextmanager
    def session(self, *, wait: float = 0.0) -> Iterator[Session]:
        with open_session(self.settings(), self.fleet(), wait=wait) as session:
            yield session

    def run(self, *arguments: str) -> Ran:
        """The command line in this process."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.env.items():
                patch.setenv(name, value)
            raw, err = io.BytesIO(), io.StringIO()
            out = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
            patch.setattr(sys, "stdout", out)
            with redirect_stderr(err):
                status = run(arguments)
            out.flush()
        return Ran(status, raw.getvalue().decode(), err.getvalue())

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """The command line in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "modelplane_dagster", *arguments],
            cwd=ROOT,
            env={**os.environ, **self.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def spawn(self, *arguments: str, timeout: float = 180.0) -> Ran:
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.kill()
        return Ran(process.returncode, out, err)

    def reconcile(self, timeout: str = "120s") -> Ran:
        return self.run("reconcile", str(self.folder), "--timeout", timeout, "--format", "json")

    def status(self) -> dict[str, Any]:
        return self.lab.status()

    def changes(self) -> dict[str, Changes]:
        """By API, those that took none left out."""
        found = self.status()
        rows = {f"cloud {name}": row for name, row in found["clouds"].items()}
        rows |= {f"cluster {row['name']}": row for row in found["clusters"]}
        counted = {name: Changes(row["writes"], row["deletes"]) for name, row in rows.items()}
        return {name: c for name, c in sorted(counted.items()) if c != Changes(0, 0)}

    def total(self) -> int:
        return sum(c.writes + c.deletes for c in self.changes().values())

    def clouds(self, source: str) -> dict[str, dict[str, int]]:
        """What the simulated cloud holds: by cluster, its pools with their nodes."""
        path = self.home / "lab" / "clouds" / f"{source.lower()}.json"
        data = json.loads(path.read_text()) if path.exists() else {"clusters": []}
        return {c["name"]: {name: p["joined"] for name, p in c["pools"].items()} for c in data["clusters"]}


@contextmanager
def site(folder: Path, *, seed: str = EMPTY_SEED, kind: LabKind = "embedded") -> Iterator[Site]:
    """A started lab with an empty fleet; stopped at the end."""
    fleet, home = folder / "fleet", folder / "home"
    fleet.mkdir(parents=True)
    (folder / "seed.yaml").write_text(seed, encoding="utf-8")
    env = {
        "MODELPLANE_HOME": str(home),
        "MODELPLANE_FLEET": str(fleet),
        "MODELPLANE_TARGET": "lab",
        "MODELPLANE_LAB": kind,
        "MODELPLANE_GRACE": "1",
        "MODELPLANE_LAB_SEED": str(folder / "seed.yaml"),
        "DAGSTER_HOME": str(home / "dagster"),
        **{f"MODELPLANE_LAB_{n}_SECONDS": "0.05" for n in ("CLUSTER", "POOL", "UPDATE", "DELETE")},
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        ensure_running(home / "lab", kind)
    try:
        yield Site(fleet, home, env)
    finally:
        stop(home / "lab")
    # A fault of the lab's own is answered 500 and tried again, so that nothing else would tell of it.
    assert "Traceback" not in (home / "lab" / "lab.log").read_text(encoding="utf-8")


def eventually(holds: Any, *, within: float = 15.0) -> None:
    """Asks until `holds()` is true."""
    end = time.monotonic() + within
    while not holds():
        assert time.monotonic() < end, "it didn't come true in time"
        time.sleep(0.05)
