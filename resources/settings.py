"""Settings, all from the environment, read once and passed on."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import yaml

from modelplane_dagster.errors import ConfigError

Target = Literal["lab", "live"]
LabKind = Literal["embedded", "kubernetes"]
_TARGETS: tuple[Target, ...] = ("lab", "live")
_LAB_KINDS: tuple[LabKind, ...] = ("embedded", "kubernetes")
_Choice = TypeVar("_Choice", bound=str)
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Settings:
    """`fleet` holds the folders of manifests; `home` the lab's state, the default Dagster instance, records and locks;
    `chart_mirror` a folder or URL prefix of chart archives, empty for the charts' own repositories; `components` the
    site's overlay, None for none; `secrets` a folder NAMESPACE/NAME/KEY, the kubeconfig file of a management cluster, or
    `in-cluster`, empty for none; `kubeconfigs` the files and contexts of clusters that have one of their own, by the
    cluster's name as `variable` writes it; `webserver` the Dagster webserver's address, empty where it isn't told; `grace`
    the seconds that a young node is left out of audits; `lab_kind` says what answers the lab clusters' APIs: the embedded
    server, or real control planes."""

    fleet: tuple[Path, ...]
    target: Target
    home: Path
    chart_mirror: str = ""
    components: Path | None = None
    secrets: str = ""
    kubeconfigs: Mapping[str, tuple[Path, str]] = field(default_factory=dict)
    webserver: str = ""
    reconcile: bool = False
    grace: float = 120.0
    lab_kind: LabKind = "embedded"

    @property
    def instance(self) -> Path:
        """The folder of the default Dagster instance: DAGSTER_HOME where it is set."""
        return Path(os.environ.get("DAGSTER_HOME") or self.home / "dagster")

    def overlay(self) -> Mapping[str, Mapping[str, object]] | None:
        """The site's overlay as a mapping, None for none. Raises ConfigError when the file isn't one, naming it and all that
        is wrong with it."""
        if self.components is None:
            return None
        # Only a site with an overlay needs the component lists here.
        from modelplane_dagster.components.lists import EVERY  # noqa: PLC0415 - as above
        from modelplane_dagster.components.overlay import overlay_findings  # noqa: PLC0415 - as above

        named = f"MODELPLANE_COMPONENTS names {self.components}"
        try:
            parsed = yaml.safe_load(self.components.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(f"{named}, which can't be read as YAML: {_reason(error)}.") from error
        found = overlay_findings(parsed, EVERY)
        if found:
            told = (f"{f.subject.removeprefix('overlay/')}: {f.message.rstrip('.')}" for f in found)
            raise ConfigError(f"{named}, which isn't an overlay: {'; '.join(told)}.", findings=found)
        return parsed


def _reason(error: OSError | UnicodeDecodeError | yaml.YAMLError) -> str:
    """In one line, with the place in the file where there is one."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    if isinstance(error, OSError):
        return (error.strerror or type(error).__name__).lower()
    return " ".join(str(error).split())


def default_home() -> Path:
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "modelplane-dagster"


def from_environment(environ: Mapping[str, str] | None = None) -> Settings:
    """An empty value counts as unset. Raises ConfigError for a value that isn't one of its setting's."""
    env = {k: v for k, v in (os.environ if environ is None else environ).items() if v}
    target = _chosen(env, "MODELPLANE_TARGET", _TARGETS)
    fleet = env.get("MODELPLANE_FLEET")
    folders = tuple(Path(p) for p in fleet.split(os.pathsep) if p) if fleet else (ROOT / "fleet", ROOT / "recipes")
    home = Path(env["MODELPLANE_HOME"]) if "MODELPLANE_HOME" in env else default_home()
    lab_seconds(env)
    return Settings(
        fleet=folders,
        target=target,
        home=home.expanduser().resolve(),
        chart_mirror=env.get("MODELPLANE_CHART_MIRROR", ""),
        components=Path(env["MODELPLANE_COMPONENTS"]) if "MODELPLANE_COMPONENTS" in env else None,
        secrets=env.get("MODELPLANE_SECRETS", ""),
        kubeconfigs=_kubeconfigs(env),
        webserver=env.get("MODELPLANE_WEBSERVER", ""),
        reconcile=env.get("MODELPLANE_RECONCILE") == "1",
        # A node of the lab is whole in a second or two; a real one takes minutes to pull its daemons' images.
        grace=_seconds("MODELPLANE_GRACE", env.get("MODELPLANE_GRACE", "120" if target == "live" else "2")),
        lab_kind=_chosen(env, "MODELPLANE_LAB", _LAB_KINDS),
    )


def variable(cluster: str) -> str:
    """A cluster's name as the end of its environment variable: `metal-dallas` is METAL_DALLAS."""
    return re.sub(r"[^A-Z0-9]", "_", cluster.upper())


def _kubeconfigs(env: Mapping[str, str]) -> dict[str, tuple[Path, str]]:
    """MODELPLANE_KUBECONFIG_<CLUSTER> names a file, MODELPLANE_CONTEXT_<CLUSTER> a context of it other than the current."""
    start = "MODELPLANE_KUBECONFIG_"
    return {
        name.removeprefix(start): (
            Path(value).expanduser(),
            env.get("MODELPLANE_CONTEXT_" + name.removeprefix(start), ""),
        )
        for name, value in sorted(env.items())
        if name.startswith(start) and value
    }


def _chosen(env: Mapping[str, str], name: str, choices: tuple[_Choice, ...]) -> _Choice:
    """The first of the choices where the variable isn't set."""
    value = env.get(name, choices[0])
    for known in choices:
        if value == known:
            return known
    first, *others = choices
    raise ConfigError(f"{name} is {value!r}; it is {first} (the default) or {' or '.join(others)}.")


def lab_seconds(env: Mapping[str, str]) -> Mapping[str, float]:
    """What the lab is told to take for things, by variable: every MODELPLANE_LAB_*_SECONDS that is set and not empty. Raises
    ConfigError here, before a daemon is started that could only die of it."""
    named = {k: v for k, v in env.items() if k.startswith("MODELPLANE_LAB_") and k.endswith("_SECONDS") and v}
    return {name: _seconds(name, text) for name, text in named.items()}


def _seconds(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        msg = f"{name} is {text!r}; it is a number of seconds."
        raise ConfigError(msg)
    return value


def main() -> None:
    """Prints the folder of the default Dagster instance, made where it isn't there, for `make ui`."""
    folder = from_environment().instance
    folder.mkdir(parents=True, exist_ok=True)
    sys.stdout.write(f"{folder}\n")


if __name__ == "__main__":
    main()
