"""Helm 4 by its command line: typed answers, no shell, nothing of the user's own Helm settings, no secret in a message."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import yaml

from modelplane_dagster.components.types import Pin
from modelplane_dagster.errors import ConfigError, ConflictError, HelmError, UnreadableError
from resources.dead_man import DeadMan
from resources.helm_text import conflict_in, last_lines, own_words, owners_in, secrets_in
from resources.kubeconfig import secrets_of
from resources.mortal import mortal
from resources.obstacles import webhook_finding

Values = Mapping[str, Any]
Wait = Literal["none", "ready"]
# An operator's CRDs are a megabyte of YAML, which takes the pure Python parser half a minute.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Helm gives up by itself at its own timeout; this is how long it then may take to record that.
_GRACE = 20.0
# Credential plugins get the rest of the environment, as they do from kubectl.
_STEERS = frozenset({"KUBECONFIG", "KUBERNETES_MASTER"})
# Go collects at this growth of the heap, in per cent. A helm process lives for a second: at Go's 100 it spends a quarter of
# its processor time on collecting, here it takes 20 MB more (measured on Helm 4.3.1). The process's own GOGC goes before.
_GOGC = "400"


@dataclass(frozen=True, slots=True)
class ChartRef:
    """A chart where Helm finds it: a file or URL alone, an `oci://` reference with a version, or a chart's name in the
    repository at `repository`."""

    reference: str
    version: str = ""
    repository: str = ""

    def arguments(self) -> tuple[str, ...]:
        version = ("--version", self.version) if self.version else ()
        repository = ("--repo", self.repository) if self.repository else ()
        return (self.reference, *version, *repository)


@dataclass(frozen=True, slots=True)
class Release:
    """A revision of a release. `status` is Helm's word: deployed, failed, superseded, uninstalled, uninstalling,
    pending-install, pending-upgrade, pending-rollback or unknown. `chart` is name-version as Helm joins them."""

    name: str
    namespace: str
    revision: int
    status: str
    chart: str
    description: str = ""

    @property
    def pending(self) -> bool:
        return self.status.startswith("pending-")


def chart_ref(pin: Pin, *, mirror: str = "") -> ChartRef:
    """Where a pinned chart is had: in the mirror (a folder or URL prefix that holds `<chart>-<version>.tgz`) when one is
    given, else in the pin's repository."""
    if mirror:
        return ChartRef(f"{mirror.rstrip('/')}/{pin.chart}-{pin.version}.tgz")
    if pin.repository.startswith("oci://"):
        return ChartRef(f"{pin.repository.rstrip('/')}/{pin.chart}", pin.version)
    return ChartRef(pin.chart, pin.version, pin.repository)


class Helm:
    """Helm against one cluster. Holds the kubeconfig (mode 600) and Helm's own folders in a private temporary folder
    until `close`. `pass_fds` are handed to every helm process, so that a lease that a descriptor stands for isn't free
    while one still runs; each ends with the process that started it, for a helm whose parent was killed renews no Lease, and
    `dead_man` ends it where that process is stopped.
    `processes` counts those that were started. Safe to share between threads."""

    def __init__(
        self,
        binary: Path,
        kubeconfig: Mapping[str, Any],
        *,
        cluster: str = "",
        pass_fds: Sequence[int] = (),
        dead_man: DeadMan | None = None,
    ) -> None:
        self._binary = binary
        self._dead_man = dead_man
        self._cluster = cluster
        self._pass_fds = tuple(pass_fds)
        self._folder = Path(tempfile.mkdtemp(prefix="modelplane-helm-"))
        self._kubeconfig = self._folder / "kubeconfig"
        self._lock = threading.Lock()
        self._given: Mapping[str, Any] | None = None
        self._secrets: frozenset[str] = frozenset()
        self._plugin = False
        self.processes = 0
        self._running: set[subprocess.Popen[str]] = set()
        self.use(kubeconfig)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def use(self, kubeconfig: Mapping[str, Any]) -> None:
        """The kubeconfig of the helm processes from now on; nothing where it is the one that is used already. Its
        `exec` and `tokenFile` stay, so that a process that runs longer than a token lives asks for the next itself."""
        with self._lock:
            if kubeconfig == self._given:
                return
            self._given = kubeconfig
            self._secrets |= secrets_in(kubeconfig, every_value=False) | secrets_of(kubeconfig)
            self._plugin = any((u.get("user") or {}).get("exec") for u in kubeconfig.get("users") or ())
            # Replaced whole: a helm that starts meanwhile reads the old one or the new one.
            handle, temporary = tempfile.mkstemp(dir=self._folder)
            with os.fdopen(handle, "w") as file:
                json.dump(kubeconfig, file)
            Path(temporary).replace(self._kubeconfig)

    def end(self) -> None:
        """Kills what runs, which leaves its release's record pending: the cluster is another writer's, or may be soon."""
        with self._lock:
            for process in self._running:
                process.kill()

    def close(self) -> None:
        """Removes the private folder, kubeconfig included; a second call does nothing."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def upgrade_install(
        self,
        release: str,
        chart: ChartRef,
        namespace: str,
        values: Values,
        *,
        wait: Wait = "ready",
        timeout: float = 300.0,
        env: Mapping[str, str] | None = None,
    ) -> Release:
        """Installs the release or brings it to `chart` and `values`; returns the revision that now stands.

        `values` are the whole of them: nothing of an earlier revision is kept. The namespace is made when missing. With
        wait "ready" Helm waits for what it applied, hooks are waited for in either case. Never rolls back: a first
        install that failed stays to be looked at, and a later call goes on from it. Raises ConflictError where a field
        or an object belongs to someone else, HelmError for everything else.
        """
        arguments = (
            *("upgrade", release, *chart.arguments(), "--install", "--namespace", namespace, "--create-namespace"),
            *("--reset-values", "--values", "-", "--wait=watcher" if wait == "ready" else "--wait=hookOnly"),
            *("--timeout", f"{max(1, round(timeout))}s", "--hide-notes", "--history-max", "5", "--output", "json"),
        )
        answer = _object(self._run(arguments, values=values, timeout=timeout, env=env))
        info, chart_meta = answer["info"], answer["chart"]["metadata"]
        return Release(
            name=str(answer["name"]),
            namespace=str(answer["namespace"]),
            revision=int(answer["version"]),
            status=str(info["status"]),
            chart=f"{chart_meta['name']}-{chart_meta['version']}",
            description=str(info.get("description") or ""),
        )

    def list(self, *, namespace: str = "") -> tuple[Release, ...]:
        """The newest revision of every release, whatever its status; an empty namespace means all. Raises
        UnreadableError where the read fails."""
        scope = ("--namespace", namespace) if namespace else ("--all-namespaces",)
        return self._listed(scope)

    def status(self, release: str, namespace: str) -> Release | None:
        """The newest revision; None when no such release is recorded. Raises UnreadableError where the read fails."""
        return next(iter(self._listed(("--namespace", namespace, "--filter", f"^{re.escape(release)}$"))), None)

    def history(self, release: str, namespace: str) -> tuple[Release, ...]:
        """Every revision on record, oldest first; empty when no such release is recorded."""
        if self.status(release, namespace) is None:
            return ()
        answer = self._read(("history", release, "--namespace", namespace, "--output", "json"))
        return tuple(
            Release(
                name=release,
                namespace=namespace,
                revision=int(row["revision"]),
                status=str(row["status"]),
                chart=str(row["chart"]),
                description=str(row.get("description") or ""),
            )
            for row in answer
        )

    def get_values(self, release: str, namespace: str) -> dict[str, Any] | None:
        """The values that the newest revision was given, chart defaults left out; None when no such release is recorded."""
        if self.status(release, namespace) is None:
            return None
        return dict(self._read(("get", "values", release, "--namespace", namespace, "--output", "json")) or {})

    def uninstall(self, release: str, namespace: str, *, timeout: float = 300.0) -> None:
        """Removes the release, running the chart's delete hooks; nothing when it is already gone. Reachable from prune alone."""
        arguments = ("uninstall", release, "--namespace", namespace, "--ignore-not-found", "--timeout")
        self._run((*arguments, f"{max(1, round(timeout))}s"), timeout=timeout)

    def template(
        self, release: str, chart: ChartRef, namespace: str, values: Values, *, api_versions: Sequence[str] = ()
    ) -> str:
        """What an install would apply, as YAML documents, hooks and CRDs included; asks no cluster."""
        apis = tuple(part for version in api_versions for part in ("--api-versions", version))
        arguments = (
            "template",
            release,
            *chart.arguments(),
            "--namespace",
            namespace,
            "--include-crds",
            "--values",
            "-",
        )
        return self._run((*arguments, *apis), values=values, timeout=60.0)

    def crds(self, chart: ChartRef) -> tuple[dict[str, Any], ...]:
        """What stands in the chart's `crds/` folders, its subcharts' included; asks no cluster. Raises HelmError where the
        chart can't be had."""
        documents = yaml.load_all(self._run(("show", "crds", *chart.arguments()), timeout=60.0), _Loader)
        return tuple(d for d in documents if isinstance(d, dict) and d.get("kind") == "CustomResourceDefinition")

    def _listed(self, arguments: tuple[str, ...]) -> tuple[Release, ...]:
        answer = self._read(("list", *arguments, "--max", "10000", "--output", "json"))
        return tuple(
            Release(
                name=str(row["name"]),
                namespace=str(row["namespace"]),
                revision=int(row["revision"]),
                status=str(row["status"]),
                chart=str(row["chart"]),
            )
            for row in answer or ()
        )

    def _read(self, arguments: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON whose shape the caller knows
        try:
            return json.loads(self._run(arguments, timeout=60.0))
        except (HelmError, ValueError) as error:
            said = error.message if isinstance(error, HelmError) else "the answer isn't JSON"
            raise UnreadableError(f"{self._where()}: helm {arguments[0]} failed: {said}") from error

    def _run(
        self,
        arguments: tuple[str, ...],
        *,
        timeout: float,
        values: Values | None = None,
        env: Mapping[str, str] | None = None,
    ) -> str:
        command = [str(self._binary), *arguments, "--kubeconfig", str(self._kubeconfig)]
        hidden = (
            self._secrets | secrets_in(values or {}, every_value=True) | frozenset(v for v in (env or {}).values() if v)
        )
        with self._lock:
            self.processes += 1
        if not os.access(self._binary, os.X_OK):
            raise ConfigError(f"helm can't be started: {self._binary} can't be run.")
        try:
            process = subprocess.Popen(
                mortal(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**self._environment(), **(env or {})},
                cwd=self._folder,
                pass_fds=self._pass_fds,
            )
        except OSError as error:
            raise ConfigError(f"helm can't be started: {error.strerror or type(error).__name__}.") from error
        with self._lock:
            self._running.add(process)
        if self._dead_man is not None:
            self._dead_man.watch(process.pid)
        try:
            out, err = _talk(process, json.dumps(values) if values is not None else "", timeout + _GRACE)
        finally:
            with self._lock:
                self._running.discard(process)
            if self._dead_man is not None:
                self._dead_man.forget(process.pid)
        if process.returncode == 0:
            return out
        # A credential plugin writes to helm's own stderr, and may write what it must not.
        said = last_lines(own_words(err, process.returncode) if self._plugin else err, hidden)
        conflict = conflict_in(said)
        if conflict:
            raise ConflictError(f"{self._where()}: {conflict}", owners=owners_in(said))
        text = said or f"helm {arguments[0]} ended with status {process.returncode}"
        raise HelmError(text, findings=webhook_finding(self._cluster, f"{self._where()}: {text}"))

    def _environment(self) -> dict[str, str]:
        """The process's own (cloud credentials and proxies are needed there), without what steers Helm or kubectl."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("HELM_") and k not in _STEERS}
        own = {
            name: str(self._folder / name.lower()) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
        }
        return {"GOGC": _GOGC, **kept, **own}

    def _where(self) -> str:
        return f"Cluster {self._cluster}" if self._cluster else "The cluster"


def _talk(process: subprocess.Popen[str], text: str, timeout: float) -> tuple[str, str]:
    """Output and errors; a process that overstays gets SIGTERM, which lets Helm record the failure, then SIGKILL."""
    try:
        return process.communicate(text, timeout=timeout)
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            return process.communicate(timeout=_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.communicate()


def _object(text: str) -> dict[str, Any]:
    """Helm prints warnings before the JSON now and then."""
    start = text.find("{")
    try:
        return json.loads(text[start:]) if start >= 0 else {}
    except ValueError as error:
        raise HelmError("Helm's answer isn't JSON.") from error
