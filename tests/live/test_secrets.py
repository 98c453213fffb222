"""No secret in any event, metadata, log, exception or file: a fleet with planted ones, made here, goes well and goes wrong in
every way that touches one, and then everything that it left is searched."""

from __future__ import annotations

import base64
import json
import secrets
import subprocess
import sys
import tempfile
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from assets.build import build_defs
from assets.converge import JOB
from assets.instance import open_instance
from assets.keys import cluster_of
from assets.run import execute
from assets.runs import OBSERVE
from resources.lab.plane.keys import Authority
from resources.settings import from_environment
from resources.world import open_world
from tests.cluster_client.plugins import plugin
from tests.e2e.site import ROOT, Ran, Site
from tests.live.clusters import Own, own
from tests.live.sweep import contents, needles, told

pytestmark = [pytest.mark.lab, pytest.mark.dagster]

EXISTING = """
apiVersion: modelplane.ai/v1alpha1
kind: InferenceCluster
metadata: {{name: {name}}}
spec:
  cluster:
    source: Existing
    existing: {{secretRef: {{name: {name}-kubeconfig}}}}
  nodePools:
  - {{name: cpu, className: my-cpu, nodeCount: 1}}
"""
# What a wrong key holds for each cloud: text that its SDK stumbles over before it asks anybody.
CLOUDS = {
    "eks-oregon": ("aws", "[default\naws_secret_access_key = {}\n", ("eks-l4", "eks-h100-efa")),
    "gke-iowa": ("gcp", '{{"type": "service_account", "private_key": "{}"', ("gke-l4", "gke-a100")),
    "aks-amsterdam": ("azure", '{{"clientSecret": "{}"', ("aks-a100", "aks-cpu")),
    "nebius-finland": ("nebius", '{{"subject-credentials": {{"private-key": "{}"}}}}', ("nebius-h100",)),
}


@dataclass(frozen=True)
class Planted:
    """`texts` are the secrets by what they are; `site` the process that is given them all."""

    texts: dict[str, str]
    site: Site
    temporary: Path


def token() -> str:
    return secrets.token_urlsafe(36)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secrets")
    with own(folder / "own") as made:
        yield _plant(made, folder)


def _plant(made: Own, folder: Path) -> Planted:
    real = made.lab.lab.kubeconfig("mine", "product")
    texts = {"the cluster's token": real["users"][0]["user"]["token"]}
    store = folder / "store" / "modelplane-system"
    cluster = real["clusters"][0]["cluster"]

    def keep(name: str, user: dict[str, object], **more: str) -> None:
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {**cluster, **more}}],
            "users": [{"name": "u", "user": user}],
        }
        place = store / f"{name}-kubeconfig" / "kubeconfig"
        place.parent.mkdir(parents=True)
        place.write_text(yaml.safe_dump(config))
        if name != "mine":
            made.live.write(f"{name}.yaml", EXISTING.format(name=name))

    def new(what: str) -> str:
        texts[what] = token()
        return texts[what]

    # Goes well, and its plugin says more than it should, each time that helm or we ask it.
    loud = plugin(folder / "loud")
    environment = new("a plugin's environment")
    loud.answers({"token": texts["the cluster's token"]}, stderr=texts["the cluster's token"], tell=["PLUGIN_SECRET"])
    keep(
        "mine",
        loud.user(env=[{"name": "PLUGIN_SECRET", "value": environment}], args=["--secret", new("a plugin's argument")]),
    )
    # Goes wrong, each in its own way.
    broken = plugin(folder / "broken")
    broken.answers(
        {"token": new("a failing plugin's token")},
        code=1,
        stderr=texts["a failing plugin's token"],
        tell=["PLUGIN_SECRET"],
    )
    keep("plugin-fails", broken.user(env=[{"name": "PLUGIN_SECRET", "value": new("a failing plugin's environment")}]))
    garbled = plugin(folder / "garbled")
    garbled.answers(text=f"token: {new('a garbled answer')}")
    keep("plugin-garbles", garbled.user())
    keep("token-refused", {"token": new("a refused token")})
    keep("token-broken", {"token": f"{new('a token of two lines')}\nX-Header: 1"})
    keep("password-refused", {"username": "me", "password": new("a refused password")})
    pair = Authority(folder).client("ada")
    texts["a client's key"] = pair.key.decode()
    certificate = {"client-certificate-data": pair.certificate, "client-key-data": pair.key}
    keep("certificate-refused", {k: base64.b64encode(v).decode() for k, v in certificate.items()})
    keep(
        "proxy-fails",
        {"token": new("a token behind a proxy")},
        **{"proxy-url": f"http://me:{new('a proxy password')}@127.0.0.1:9"},
    )
    (store / "not-yaml-kubeconfig").mkdir()
    (store / "not-yaml-kubeconfig" / "kubeconfig").write_text(f"users: [{{token: {new('a token in broken YAML')}\n")
    made.live.write("not-yaml.yaml", EXISTING.format(name="not-yaml"))
    for name, (provider, text, classes) in CLOUDS.items():
        _cloud(made.live, name, provider, classes)
        place = store / f"{name}-account" / "credentials"
        place.parent.mkdir()
        place.write_text(text.format(new(f"the account of {name}")))
    # A chart that can't be had makes helm fail after its plugin has spoken.
    for chart in (made.live.home.parent / "charts").glob("lws-*"):
        chart.unlink()
    temporary = folder / "tmp"
    temporary.mkdir()
    env = {k: v for k, v in made.live.env.items() if k != "MODELPLANE_KUBECONFIG_MINE"}
    site = replace(made.live, env={**env, "MODELPLANE_SECRETS": str(store.parent), "TMPDIR": str(temporary)})
    return Planted(texts, site, temporary)


def _cloud(site: Site, name: str, provider: str, classes: tuple[str, ...]) -> None:
    for row in classes:
        site.copy(f"fleet/classes/{row}.yaml")
    body = yaml.safe_load((ROOT / "fleet" / "clusters" / f"{name}.yaml").read_text())
    source = next(v for k, v in body["spec"]["cluster"].items() if k != "source")
    source["credentials"] = {"name": name}
    config = {
        "apiVersion": f"{provider}.m.upbound.io/v1beta1",
        "kind": "ClusterProviderConfig",
        "metadata": {"name": name},
        "spec": {
            "projectID": "project",
            "subscriptionID": "subscription",
            "credentials": {
                "source": "Secret",
                "secretRef": {"namespace": "modelplane-system", "name": f"{name}-account", "key": "credentials"},
            },
        },
    }
    site.write(f"{name}.yaml", yaml.safe_dump_all([body, config]))


def _materialise(site: Site) -> None:
    """The jobs of the UI, on the instance that keeps everything."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in site.env.items():
            patch.setenv(name, value)
        settings = from_environment()
        instance = open_instance(settings)
        defs = build_defs(site.fleet(), settings, lambda: open_world(settings))
        try:
            converge = defs.resolve_job_def(JOB)
            # One that goes well, one that goes wrong and one on a cloud: the commands asked the others.
            chosen = ("mine", "plugin-fails", "gke-iowa")
            keys = [k for k in sorted(converge.asset_layer.executable_asset_keys) if cluster_of(k) in chosen]
            execute(converge, instance, keys, tags={})
            defs.resolve_job_def(OBSERVE).execute_in_process(instance=instance, raise_on_error=False)
        finally:
            instance.dispose()


def _commands(site: Site) -> list[Ran]:
    folder = str(site.folder)
    return [
        # Long enough for one pass on a busy machine; what is broken here would wait for ever.
        site.spawn("reconcile", folder, "--timeout", "45s"),
        site.run("reconcile", folder, "--timeout", "0s", "--format", "json"),
        site.run("status", folder, "--format", "json"),
        site.run("plan", folder, "--observe"),
        site.run("prune", "cluster/token-refused"),
        site.run("prune", "component/mine/dra-driver-cpu"),
    ]


def test_the_search_finds_what_is_there(tmp_path):
    hidden = token()
    for number, data in enumerate(
        (
            hidden.encode(),
            base64.b64encode(f"x{hidden}y".encode()),
            json.dumps({"a": f"b {hidden[3:30]}"}).encode(),
            hidden[-16:].encode(),
        )
    ):
        (tmp_path / str(number)).write_bytes(data)
    script = "import sqlite3,sys; c=sqlite3.connect(sys.argv[1]); c.execute('create table t (b blob)'); "
    script += "c.execute('insert into t values (?)', (bytes.fromhex(sys.argv[2]),)); c.commit()"
    packed = zlib.compress(hidden.encode() * 3).hex()
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "d.db"), packed], check=True)
    found = {where for _, where in told({"it": hidden}, contents([tmp_path]))}
    assert found == {*(str(tmp_path / str(n)) for n in (0, 1, 3)), f"{tmp_path}/d.db:t unpacked"}
    assert told({"it": token()}, contents([tmp_path])) == set()


def test_no_secret_is_told_anywhere(planted, monkeypatch):
    site = planted.site
    monkeypatch.setattr(tempfile, "tempdir", str(planted.temporary))
    ran = _commands(site)
    _materialise(site)
    printed = [(f"output {n}", (r.out + r.err).encode()) for n, r in enumerate(ran)]
    kept = list(contents([site.home, planted.temporary]))
    # The run did touch every one of them, and left word of it.
    everything = b"".join(data for _, data in [*printed, *kept])
    for said in (
        b"CredentialPluginFailed",
        b"CredentialsRefused",
        b"KubeconfigInvalid",
        b"plugin-garbles",
        b"token-broken",
        b"certificate-refused",
        b"proxy-fails",
        b"lws",
        b"InstallFailed",
        *(name.encode() for name in CLOUDS),
    ):
        assert said in everything, said
    assert all(needles(text) for text in planted.texts.values())
    assert told(planted.texts, [*printed, *kept]) == set()
    assert [r.err for r in ran if "Traceback" in r.err + r.out] == []


def test_what_must_hold_a_secret_is_readable_by_its_owner_alone(planted):
    """Helm's kubeconfig and a certificate stand in temporary folders for as long as they are used."""
    assert [p for p in planted.temporary.rglob("*") if p.is_file() and p.stat().st_mode & 0o077] == []
