"""A kubeconfig that leads nowhere: a finding that says what to mend, in every command, and no traceback."""

from __future__ import annotations

import shutil

import pytest
import yaml

from tests.cluster_client.server import scripted
from tests.e2e.site import Site
from tests.live.clusters import OWN

pytestmark = pytest.mark.dagster

SERVER = "http://127.0.0.1:9"


def config(user=None, server=SERVER):
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user or {}}],
    }


PLUGIN = {
    "exec": {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "no-such-plugin",
        "installHint": "Get it from your cloud.",
    }
}
CASES = {
    "missing": (None, "KubeconfigMissing", "MODELPLANE_SECRETS names no folder or cluster"),
    "empty": ("", "KubeconfigInvalid", "is empty"),
    "no cluster": ("clusters: []", "KubeconfigInvalid", "holds no cluster"),
    "not yaml": ("{", "KubeconfigInvalid", "isn't YAML"),
    "nobody there": (config(), "ReadFailed", "Cluster mine: the API doesn't answer"),
    "no plugin": (config(PLUGIN), "CredentialPluginFailed", "no-such-plugin isn't installed"),
}


@pytest.fixture
def own(tmp_path):
    fleet = tmp_path / "fleet"
    fleet.mkdir()
    shutil.copy(OWN, fleet / "mine.yaml")
    home = tmp_path / "home"
    env = {
        "MODELPLANE_TARGET": "live",
        "MODELPLANE_HOME": str(home),
        "MODELPLANE_FLEET": str(fleet),
        "MODELPLANE_SECRETS": "",
        "DAGSTER_HOME": str(home / "dagster"),
    }
    return Site(fleet, home, env)


def given(site, content) -> Site:
    if content is None:
        return site
    path = site.home.parent / "kubeconfig"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return Site(site.folder, site.home, {**site.env, "MODELPLANE_KUBECONFIG_MINE": str(path)})


def live_findings(document):
    return {f["code"]: f for f in document["clusters"][0]["placement"]["findings"] if f["severity"] == "error"}


@pytest.mark.parametrize("case", CASES)
def test_a_plan_says_what_to_mend(own, case):
    content, code, said = CASES[case]
    ran = given(own, content).run("plan", str(own.folder), "--observe", "--format", "json").clean()
    found = live_findings(ran.json)
    assert (ran.status, list(found)) == (0, [code])
    assert said in found[code]["message"]
    assert {a["op"] for a in ran.json["actions"]} == {"none"}


def test_the_plugins_own_hint_is_the_fix(own):
    ran = given(own, config(PLUGIN)).run("plan", str(own.folder), "--observe").clean()
    assert "fix: Get it from your cloud. (the kubeconfig's installHint)" in ran.out


def test_a_reconcile_ends_with_the_same_word(own):
    ran = given(own, config(PLUGIN)).run("reconcile", str(own.folder), "--timeout", "0s", "--format", "json").clean()
    (cluster,) = ran.json["clusters"]
    assert (ran.status, cluster["state"]) == (4, "unknown")
    assert [f["code"] for f in cluster["findings"]] == ["CredentialPluginFailed"]
    assert (ran.json["calls"]["reads"], ran.json["calls"]["writes"]) == (0, 0)


def test_refused_credentials_end_every_read_at_once(own):
    """A 401 to each is no empty cluster."""
    refused = (401, {"kind": "Status", "code": 401, "reason": "Unauthorized"})
    with scripted(*[refused] * 40) as script:
        site = given(own, config({"token": "t"}, script.url))
        ran = site.run("plan", str(own.folder), "--observe", "--format", "json").clean()
    assert list(live_findings(ran.json)) == ["CredentialsRefused"]
    assert {a["op"] for a in ran.json["actions"]} == {"none"}
