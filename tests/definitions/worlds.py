"""A world that records every write that reaches it: clouds as objects, the Kubernetes API as a loopback server, helm as a
script. It answers reads with nothing there."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import dagster as dg

from assets.build import build_defs
from modelplane_dagster.accounts import Account
from modelplane_dagster.errors import NotReadyError
from modelplane_dagster.manifests.fleet import Fleet
from resources.clouds.seam import CloudCluster, ClusterRef, InstanceType, Progress
from resources.settings import Settings


@dataclass
class RecordingCloud:
    source: str
    writes: list[str]
    clusters: Mapping[str, CloudCluster]
    server: str

    def whoami(self) -> str:
        return "account"

    def observe(self, ref: ClusterRef) -> CloudCluster | None:
        return self.clusters.get(ref.name)

    def ensure_control_plane(self, ref: ClusterRef, request: Mapping[str, Any]) -> Progress:
        self.writes.append(f"{self.source} ensure_control_plane {ref.name}")
        return Progress("pending", "the control plane is being made", changed=True)

    def ensure_pool(self, ref: ClusterRef, name: str, request: Mapping[str, Any]) -> Progress:
        self.writes.append(f"{self.source} ensure_pool {ref.name}/{name}")
        return Progress("pending", "the pool is being made", changed=True)

    def credentials(self, ref: ClusterRef) -> dict[str, Any]:
        if ref.name not in self.clusters:
            msg = f"the API of {ref.name} has no endpoint yet"
            raise NotReadyError(msg)
        return kubeconfig(self.server)

    def delete_pool(self, ref: ClusterRef, name: str) -> Progress:
        self.writes.append(f"{self.source} delete_pool {ref.name}/{name}")
        return Progress("ready")

    def delete_cluster(self, ref: ClusterRef) -> Progress:
        self.writes.append(f"{self.source} delete_cluster {ref.name}")
        return Progress("ready")

    def instance_types(self, ref: ClusterRef, names: tuple[str, ...]) -> Mapping[str, InstanceType]:
        return {}

    def versions(self, ref: ClusterRef) -> tuple[str, ...]:
        return ()


@dataclass
class RecordingWorld:
    """`writes` holds everything that would have changed something; `reads` counts what was asked of the API."""

    server: str
    script: Path
    writes: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    clusters: dict[str, CloudCluster] = field(default_factory=dict)
    chart_mirror: str = ""

    def cloud(self, source: str, account: Account) -> RecordingCloud:
        return RecordingCloud(source, self.writes, self.clusters, self.server)

    def kubeconfig(self, cluster: str, secret: tuple[str, str]) -> Mapping[str, Any]:
        return kubeconfig(self.server)

    def helm(self) -> Path:
        return self.script

    def all_writes(self) -> list[str]:
        ran = self.script.with_suffix(".log")
        return [*self.writes, *(ran.read_text().splitlines() if ran.exists() else [])]


def kubeconfig(server: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


@contextmanager
def recording_world(folder: Path) -> Iterator[RecordingWorld]:
    script = folder / "helm"
    script.write_text(f'#!/bin/sh\necho "helm $*" >> {folder}/helm.log\n')
    script.chmod(0o755)
    world = RecordingWorld("", script)

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            (world.reads if self.command == "GET" else world.writes).append(f"{self.command} {self.path}")
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, body = _reply(self.path) if self.command == "GET" else (201, json.loads(sent or b"{}"))
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

        def log_message(self, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    world.server = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield world
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def _reply(path: str) -> tuple[int, dict[str, Any]]:
    """A cluster that answers and holds nothing."""
    plain = path.split("?", 1)[0].rstrip("/")
    if "/leases/" in plain:
        return 404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
    if plain == "/version":
        return 200, {"major": "1", "minor": "34", "gitVersion": "v1.34.1"}
    if plain in ("/api", "/apis"):
        return 200, {"kind": "APIGroupList", "groups": [], "versions": ["v1"]}
    if plain.rsplit("/", 1)[-1] in ("v1", "v1beta1"):
        return 200, {"kind": "APIResourceList", "groupVersion": "v1", "resources": []}
    return 200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}


def settings(home: Path, **more: Any) -> Settings:
    return Settings(fleet=(), target="live", home=home, grace=0.0, **more)


def no_world() -> RecordingWorld:
    msg = "something that must only read manifests opened the world"
    raise AssertionError(msg)


def build(of: Fleet, **more: Any) -> dg.Definitions:
    """The graph of a fleet whose world must stay closed."""
    return build_defs(of, settings(Path("/nowhere"), **more), no_world)
