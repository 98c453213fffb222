"""Where the control plane's binaries are: a folder the user names, a cache, or a build by the ordinary Go client.

The versions stand in the `go.mod` files under `modules/`, and the cache's key is a hash of these, so that a changed pin
builds anew. A first build takes about seven minutes on two cores and 6 GB of Go's own caches (measured 30 Nov 2026).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from modelplane_dagster.errors import ConfigError
from resources.tools import cache_folder

MODULES = Path(__file__).parent / "modules"
BINARIES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
VARIABLE = "KUBE_ASSETS"
_BUILD_SECONDS = 3600.0
# `go build` names a tool after its package's last part, and etcd's is called server.
_RENAMED = {"server": "etcd"}


class AssetsMissingError(ConfigError):
    """The binaries are neither there nor can be built; the message says how to get them."""


def kubernetes_version() -> str:
    """Of the pinned module, such as `v1.36.3`."""
    text = (MODULES / "kubernetes" / "go.mod").read_text(encoding="utf-8")
    found = re.search(r"^\s*(?:require )?k8s\.io/kubernetes (v\S+)", text, re.MULTILINE)
    if found is None:
        raise AssetsMissingError(f"{MODULES / 'kubernetes' / 'go.mod'} requires no k8s.io/kubernetes")
    return found[1]


def assets_key() -> str:
    """Twelve hex digits that stand for every pin of the three modules."""
    digest = hashlib.sha256()
    for path in sorted(MODULES.glob("*/go.*")):
        digest.update(path.relative_to(MODULES).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def assets_folder() -> Path:
    return cache_folder().parent / "kubernetes" / assets_key()


def find_assets(*, build: bool = False, tell: Callable[[str], None] = lambda _line: None) -> Path:
    """The folder that holds all five binaries.

    `KUBE_ASSETS` decides where it is set; then the cache; then, with `build`, the Go client. Raises AssetsMissingError.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return _whole(Path(named).expanduser(), f"{VARIABLE}={named}")
    cached = assets_folder()
    if all((cached / name).exists() for name in BINARIES):
        return cached
    how = f"set {VARIABLE} to a folder that holds {', '.join(BINARIES)}, or run `make kubernetes`, which needs Go"
    if not build:
        raise AssetsMissingError(f"No control plane's binaries in {cached}: {how}.")
    if shutil.which("go") is None:
        raise AssetsMissingError(f"Go is not on the PATH: {how}.")
    return _build(cached, tell)


def _whole(folder: Path, where: str) -> Path:
    missing = [name for name in BINARIES if not os.access(folder / name, os.X_OK)]
    if missing:
        raise AssetsMissingError(f"{where} holds no {', '.join(missing)}.")
    return folder


def _build(target: Path, tell: Callable[[str], None]) -> Path:
    """Builds beside the target and renames, so that a killed build leaves no half a folder; two builders wait for each other."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return _whole(target, str(target))
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as scratch:
            fresh = Path(scratch) / "bin"
            fresh.mkdir()
            for module in sorted(MODULES.iterdir()):
                tell(f"building {module.name}")
                _go_build(module, fresh)
            for built, name in _RENAMED.items():
                (fresh / built).rename(fresh / name)
            _whole(fresh, str(fresh))
            fresh.rename(target)
    return target


def _go_build(module: Path, into: Path) -> None:
    command = ["go", "build", "-mod=readonly", "-ldflags", _stamps(), "-o", f"{into}/", "tool"]
    env = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    try:
        done = subprocess.run(
            command, cwd=module, env=env, capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise AssetsMissingError(f"`go build` of {module.name} took over {_BUILD_SECONDS:.0f} s.") from error
    if done.returncode != 0:
        last = " / ".join(done.stderr.strip().splitlines()[-3:]) or f"exit status {done.returncode}"
        raise AssetsMissingError(f"`go build` of {module.name} failed: {last}")


def _stamps() -> str:
    """The scheduler exits when its own version doesn't parse, which it doesn't without these."""
    version = kubernetes_version()
    major, minor = version.removeprefix("v").split(".")[:2]
    base = "k8s.io/component-base/version"
    values = {
        f"{base}.gitVersion": version,
        f"{base}.gitMajor": major,
        f"{base}.gitMinor": minor,
        f"{base}.gitTreeState": "clean",
        f"{base}.gitCommit": "0" * 7,
        "k8s.io/client-go/pkg/version.gitVersion": version,
    }
    return " ".join(f"-X {path}={value}" for path, value in values.items())


def main() -> int:
    """Builds what is missing and prints where it is; 1 with one sentence where it can't be had."""
    try:
        folder = find_assets(build=True, tell=partial(print, file=sys.stderr, flush=True))
    except AssetsMissingError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    sys.stdout.write(f"Kubernetes {kubernetes_version()}: {folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
