"""One control plane in one folder: its files, its processes in their order, its users and their kubeconfigs."""

from __future__ import annotations

import json
import secrets
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from modelplane_dagster.errors import ModelplaneError
from resources.clouds.kubeconfig import kubeconfig
from resources.lab.api.certificates import write_private
from resources.lab.plane.assets import find_assets
from resources.lab.plane.child import Child
from resources.lab.plane.keys import Authority, service_account_keys

STAGES = Path(__file__).parent / "stages.yaml"
USERS = ("product", "user", "agent", "controller")
_READY = 90.0  # seconds until the API server must answer; it takes three on an idle machine of two cores
_POLL = 0.1
_RATE = 400  # requests a second that the controllers may make: the defaults are meant for large clusters
CAPACITY_GATE = "DRAConsumableCapacity"


class PlaneError(ModelplaneError):
    """The control plane didn't come up, or went; the message holds the last lines of what ended."""


class Plane:
    """A control plane under `folder`, whose state outlives a restart. `with Plane(folder) as plane:` starts and stops it.

    `consumable_capacity=False` turns the gate DRAConsumableCapacity off everywhere, as Kubernetes 1.34 and 1.35 have it.
    `extra` are more arguments of the API server. `tokens` are those of USERS, all of `system:masters`; made where none are
    given.
    """

    API = ("etcd", "kube-apiserver")

    def __init__(
        self,
        folder: Path,
        *,
        consumable_capacity: bool = True,
        extra: Iterable[str] = (),
        tokens: Mapping[str, str] | None = None,
        assets: Path | None = None,
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        self.authority = Authority(folder)
        self._assets = assets or find_assets()
        self._gates = [] if consumable_capacity else [f"--feature-gates={CAPACITY_GATE}=false"]
        self._extra = list(extra)
        self._ports = self._kept_ports()
        self.tokens = dict(tokens) if tokens is not None else self._kept_tokens()
        self._files()
        self._children = {child.name: child for child in self._commands()}

    # Life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when the API server is ready and the others run. The processes end with the calling thread."""
        self.begin()
        self.wait_ready()
        self.finish()

    def begin(self) -> None:
        """Starts etcd and the API server and doesn't wait."""
        for name in self.API:
            self._children[name].start()

    def finish(self) -> None:
        """Starts what needs a ready API server: the controller manager gives up on one that isn't there."""
        for name, child in self._children.items():
            if name not in self.API:
                child.start()

    def wait_ready(self, seconds: float = _READY) -> None:
        """Until `/readyz` says ok; PlaneError where a process ended or the time is up."""
        end = time.monotonic() + seconds
        while not self.is_ready():
            if failed := self.failed(self.API):
                raise PlaneError(failed)
            if time.monotonic() > end:
                raise PlaneError(f"the API server of {self.folder} was not ready in {seconds:.0f} s")
            time.sleep(_POLL)

    @cached_property
    def client_context(self) -> ssl.SSLContext:
        """Trusts this plane's authority alone."""
        return ssl.create_default_context(cafile=str(self.authority.file))

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}/readyz", context=self.client_context, timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def failed(self, names: Iterable[str] = ()) -> str:
        """The first of the named processes, by default of all, that isn't running, and its last words; empty while they run."""
        return next((text for name in names or self._children if (text := self._children[name].failed())), "")

    def stop(self) -> None:
        """The API server and etcd last, and without a long grace: their state is on disk."""
        for name in reversed(self._children):
            self._children[name].stop(grace=0.5)

    def kill(self) -> None:
        """All at once and without a grace, as a machine that loses its power: what was acknowledged is on disk."""
        for name in reversed(self._children):
            self._children[name].kill()

    def revive(self) -> None:
        """Starts again what has ended, in order."""
        for child in self._children.values():
            if child.failed():
                child.start()

    def process(self, name: str) -> Child:
        """`etcd`, `kube-apiserver`, `kube-controller-manager`, `kube-scheduler` or `kwok`: to kill and start anew."""
        return self._children[name]

    # Users

    @property
    def address(self) -> str:
        return f"https://127.0.0.1:{self._ports['api']}"

    def kubeconfig(self, user: str = "user", *, address: str = "") -> dict[str, Any]:
        """With the user's token. KeyError for a user that isn't there."""
        return self._config(user, {"token": self.tokens[user]}, address)

    def certificate_kubeconfig(
        self, user: str, *, groups: Iterable[str] = ("system:masters",), valid: timedelta = timedelta(hours=1)
    ) -> dict[str, Any]:
        """With a client certificate for the time `valid`; a negative time gives an expired one."""
        pair = self.authority.client(user, groups, valid=valid)
        return self._config(user, pair.user())

    def _config(self, user: str, credentials: Mapping[str, str], address: str = "") -> dict[str, Any]:
        ca_pem = self.authority.certificate.decode()
        return kubeconfig("plane", address or self.address, credentials, ca_pem=ca_pem, user_name=user)

    # Files and processes

    def _kept_ports(self) -> dict[str, int]:
        """Those of the last time where they are still free, so that kubeconfigs stay good; else fresh ones."""
        path = self.folder / "ports.json"
        with suppress(FileNotFoundError):
            kept: dict[str, int] = json.loads(path.read_text())
            if all(_is_free(port) for port in kept.values()):
                return kept
        ports = dict(zip(("etcd", "peer", "api"), _free_ports(3), strict=True))
        path.write_text(json.dumps(ports))
        return ports

    def _kept_tokens(self) -> dict[str, str]:
        path = self.folder / "tokens.json"
        if not path.exists():
            write_private(path, json.dumps({user: secrets.token_urlsafe(24) for user in USERS}).encode())
        found: dict[str, str] = json.loads(path.read_bytes())
        return found

    def _files(self) -> None:
        rows = "".join(f'{token},{user},{user},"system:masters"\n' for user, token in self.tokens.items())
        write_private(self.folder / "tokens.csv", rows.encode())
        if not (self.folder / "sa.key").exists():
            keys = service_account_keys()
            (self.folder / "sa.pub").write_bytes(keys.certificate)
            write_private(self.folder / "sa.key", keys.key)
        server = self.authority.server()
        (self.folder / "server.crt").write_bytes(server.certificate)
        write_private(self.folder / "server.key", server.key)
        write_private(self.folder / "controller.kubeconfig", yaml.safe_dump(self.kubeconfig("controller")).encode())
        scheduler = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {
                "kubeconfig": str(self.folder / "controller.kubeconfig"),
                "qps": _RATE,
                "burst": 2 * _RATE,
            },
        }
        (self.folder / "scheduler.yaml").write_text(yaml.safe_dump(scheduler))

    def _commands(self) -> list[Child]:
        f, etcd, peer = self.folder, self._ports["etcd"], self._ports["peer"]
        config = f"--kubeconfig={f / 'controller.kubeconfig'}"
        arguments = {
            "etcd": [
                f"--data-dir={f / 'etcd'}",
                f"--listen-client-urls=http://127.0.0.1:{etcd}",
                f"--advertise-client-urls=http://127.0.0.1:{etcd}",
                f"--listen-peer-urls=http://127.0.0.1:{peer}",
                f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
                f"--initial-cluster=default=http://127.0.0.1:{peer}",
                "--unsafe-no-fsync",
                "--log-level=warn",
            ],
            "kube-apiserver": [
                f"--etcd-servers=http://127.0.0.1:{etcd}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                f"--secure-port={self._ports['api']}",
                f"--tls-cert-file={f / 'server.crt'}",
                f"--tls-private-key-file={f / 'server.key'}",
                f"--client-ca-file={self.authority.file}",
                f"--token-auth-file={f / 'tokens.csv'}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={f / 'sa.pub'}",
                f"--service-account-signing-key-file={f / 'sa.key'}",
                "--authorization-mode=Node,RBAC",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--allow-privileged=true",
                "--endpoint-reconciler-type=none",
                "--profiling=false",
                *self._gates,
                *self._extra,
            ],
            "kube-controller-manager": [
                config,
                f"--service-account-private-key-file={f / 'sa.key'}",
                f"--root-ca-file={self.authority.file}",
                "--leader-elect=false",
                "--secure-port=0",
                f"--kube-api-qps={_RATE}",
                f"--kube-api-burst={2 * _RATE}",
                *self._gates,
            ],
            "kube-scheduler": [f"--config={f / 'scheduler.yaml'}", "--secure-port=0", *self._gates],
            "kwok": [config, "--manage-all-nodes=true", f"--config={STAGES}", "--node-lease-duration-seconds=40"],
        }
        return [Child(name, [str(self._assets / name), *args], f) for name, args in arguments.items()]


def _free_ports(number: int) -> list[int]:
    """All are held open until the last is known, so that they differ."""
    held = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(number)]
    try:
        for sock in held:
            sock.bind(("127.0.0.1", 0))
        return [int(sock.getsockname()[1]) for sock in held]
    finally:
        for sock in held:
            sock.close()


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
