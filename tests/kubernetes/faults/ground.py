"""One Existing cluster on a real control plane, reached directly as a live target: its fleet, its processes, what stands on
it. The lab's daemon plays the hardware and nothing between the product and the API server."""

from __future__ import annotations

import base64
import gzip
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from modelplane_dagster.errors import ModelplaneError
from resources.clouds.kubeconfig import kubeconfig
from resources.kubernetes import ClusterClient
from tests.e2e.metal import METAL, SEED
from tests.e2e.site import Ran, Site, site

NAME = "metal"
NAMESPACE = "faults"
CLUSTER = METAL.replace("metadata: {name: metal}", "metadata: {name: metal, labels: {fleet: faults}}")
DEPLOYMENT = """
apiVersion: modelplane.ai/v1alpha1
kind: ModelDeployment
metadata: {name: small, namespace: faults}
spec:
  replicas: 1
  template:
    spec:
      clusterSelector: {matchLabels: {fleet: faults}}
      engines:
      - name: engine
        members:
        - role: Standalone
          nodeSelector:
            devices: [{name: cpu, count: 1, selectors: [{cel: device.driver == "dra.cpu"}]}]
          template:
            spec:
              containers: [{name: engine, image: "public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo:v0.27.1", args: [--port=8000]}]
"""


@dataclass(frozen=True, slots=True)
class Ground:
    """`lab` is the site whose daemon runs the plane and plays the hardware; `live` is the same fleet with a home of its own,
    whose kubeconfig leads straight to the API server."""

    lab: Site
    live: Site

    @property
    def plane(self) -> Path:
        """The folder of the control plane's files."""
        return self.lab.home / "lab" / "planes" / NAME / "plane"

    def pid(self, process: str) -> int:
        """Of the running process; its file is empty for a moment when it is started anew."""
        path = self.plane / f"{process}.pid"
        return int(until(lambda: path.exists() and path.read_text().strip(), f"{process}'s number"))

    def kill(self, process: str) -> int:
        """As a crash; the daemon starts it again by itself."""
        pid = self.pid(process)
        os.kill(pid, signal.SIGKILL)
        return pid

    def revived(self, process: str, old: int) -> None:
        until(lambda: self.pid(process) != old, f"{process} back")
        until(self.answers, "the API server ready")

    @contextmanager
    def stopped(self, process: str) -> Iterator[None]:
        """Neither dead nor alive: connections are taken and nothing is answered."""
        pid = self.pid(process)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def answers(self) -> bool:
        client = ClusterClient(self.kubeconfig("user"), name=NAME, retries=0)
        try:
            client.list("v1", "Namespace")
        except ModelplaneError:
            return False
        finally:
            client.close()
        return True

    def kubeconfig(self, user: str, **credentials: str) -> dict[str, Any]:
        """Straight to the API server, with the user's token or with other credentials."""
        port = json.loads((self.plane / "ports.json").read_text())["api"]
        rows = dict(reversed(row.split(",")[:2]) for row in (self.plane / "tokens.csv").read_text().splitlines())
        server, authority = f"https://127.0.0.1:{port}", (self.plane / "ca.crt").read_text()
        return kubeconfig(NAME, server, credentials or {"token": rows[user]}, ca_pem=authority, user_name=user)

    def give(self, kubeconfig: Mapping[str, Any]) -> None:
        """To the product, as a mounted secret is replaced: whole."""
        path = self.live.folder.parent / "secrets" / "modelplane-system" / "metal-kubeconfig" / "kubeconfig"
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text(yaml.safe_dump(dict(kubeconfig)))
        fresh.replace(path)

    @contextmanager
    def client(self, manager: str = "ops") -> Iterator[ClusterClient]:
        """The cluster's own people, under a field manager's name of theirs."""
        made = ClusterClient(self.kubeconfig("user"), name=NAME, manager=manager)
        try:
            yield made
        finally:
            made.close()

    def nodes(self) -> bool:
        with self.client() as api:
            return len(api.list("v1", "Node")) == 2

    def stands(self) -> Standing:
        with self.client() as api:
            return standing(api)


@dataclass(frozen=True, slots=True)
class Revision:
    """`said` is how it ended, in helm's words. It alone tells: a revision that failed is called superseded too, once its
    retry succeeded."""

    number: int
    status: str
    said: str

    @property
    def complete(self) -> bool:
        return self.said in ("Install complete", "Upgrade complete")


def histories(api: ClusterClient) -> dict[str, list[Revision]]:
    """Every release's revisions, oldest first."""
    found: dict[str, list[Revision]] = {}
    for secret in api.list("v1", "Secret", labels="owner=helm"):
        body = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(secret["data"]["release"]))))
        info = body["info"]
        revision = Revision(int(body["version"]), str(info["status"]), str(info.get("description") or ""))
        found.setdefault(str(body["name"]), []).append(revision)
    return {name: sorted(rows, key=lambda r: r.number) for name, rows in sorted(found.items())}


@dataclass(frozen=True, slots=True)
class Standing:
    """What the product made: every release's revisions with their states, and the uid of each object of a release or of
    ours. The engine's pods and what controllers derive are left out."""

    releases: Mapping[str, tuple[str, ...]]
    uids: Mapping[str, str]


_KINDS = (
    ("v1", "Namespace"),
    ("v1", "ServiceAccount"),
    ("v1", "Service"),
    ("v1", "ConfigMap"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("resource.k8s.io/v1", "DeviceClass"),
    ("resource.k8s.io/v1", "ResourceClaimTemplate"),
)


def standing(api: ClusterClient) -> Standing:
    releases: dict[str, list[tuple[int, str]]] = {}
    for secret in api.list("v1", "Secret", labels="owner=helm"):
        labels = secret["metadata"]["labels"]
        releases.setdefault(labels["name"], []).append((int(labels["version"]), labels["status"]))
    uids: dict[str, str] = {}
    for api_version, kind in _KINDS:
        for body in api.list(api_version, kind):
            metadata = body["metadata"]
            managers = {m["manager"] for m in metadata.get("managedFields") or ()}
            if managers & {"helm", "modelplane-dagster"}:
                uids[f"{kind}/{metadata.get('namespace', '')}/{metadata['name']}"] = metadata["uid"]
    return Standing({name: tuple(s for _, s in sorted(rows)) for name, rows in sorted(releases.items())}, uids)


@contextmanager
def kept(made: Ground, *, but: str = "", upgraded: str = "") -> Iterator[Standing]:
    """Whatever happens inside, the cluster converges afterwards, with every object that was there before, none of them made
    anew, and no release installed or taken away. `but` is a namespace that others empty meanwhile, `upgraded` a release that
    has a new revision afterwards."""
    before = made.stands()
    yield before
    converges(made)
    after = made.stands()
    wanted = {ref: uid for ref, uid in before.uids.items() if not but or but not in ref.split("/")}
    assert {ref: after.uids.get(ref) for ref in wanted} == wanted
    steady = {name: states for name, states in before.releases.items() if name != upgraded}
    assert {name: states for name, states in after.releases.items() if name != upgraded} == steady
    assert not upgraded or after.releases[upgraded][-1] == "deployed"


def converges(made: Ground, timeout: str = "120s") -> Ran:
    ran = made.live.reconcile(timeout).clean()
    assert (ran.status, ran.json["verdict"], ran.json["findings"]) == (0, "converged", []), ran.json
    return ran


def late(ran: Ran) -> dict[str, tuple[str, str, str]]:
    """Of a reconcile that ended late: code, to subject, message and fix of what stood in the way."""
    assert (ran.clean().status, ran.json["verdict"]) == (4, "late"), ran
    findings = [*ran.json["findings"], *(f for c in ran.json["clusters"] for f in c["findings"])]
    return {f["code"]: (f["subject"], f["message"], f["fix"]) for f in findings}


def until(holds: Callable[[], Any], what: str, *, within: float = 60.0) -> Any:
    """What `holds` gives, once it is true."""
    end = time.monotonic() + within
    while not (found := holds()):
        assert time.monotonic() < end, f"not in {within:.0f} s: {what}"
        time.sleep(0.1)
    return found


@contextmanager
def ground(folder: Path) -> Iterator[Ground]:
    """A plane whose nodes are there, and a live site beside it whose fleet is empty still."""
    with site(folder / "lab", seed=SEED, kind="kubernetes") as lab:
        fleet = folder / "live" / "fleet"
        home = folder / "live" / "home"
        fleet.mkdir(parents=True)
        env = {
            **{k: v for k, v in lab.env.items() if not k.startswith("MODELPLANE_LAB")},
            "MODELPLANE_TARGET": "live",
            "MODELPLANE_FLEET": str(fleet),
            "MODELPLANE_HOME": str(home),
            "MODELPLANE_SECRETS": str(folder / "live" / "secrets"),
            "MODELPLANE_CHART_MIRROR": str(lab.home / "lab" / "charts"),
            "DAGSTER_HOME": str(home / "dagster"),
        }
        made = Ground(lab, Site(fleet, home, env))
        until((made.plane / "ports.json").exists, "the plane's files")
        until(made.answers, "the API server ready")
        until(made.nodes, "the nodes")
        made.give(made.kubeconfig("user"))
        yield made
