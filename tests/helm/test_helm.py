"""The wrapper against a stand-in `helm` that records how it was called and answers as told."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from modelplane_dagster.components.types import Pin
from modelplane_dagster.errors import ConfigError, ConflictError, HelmError, UnreadableError
from resources.helm import ChartRef, Helm, Release, chart_ref

KUBECONFIG = {"clusters": [], "users": [{"name": "u", "user": {"token": "tok-123456789"}}]}
UPGRADED = {
    "name": "mp-x",
    "namespace": "x",
    "version": 3,
    "info": {"status": "deployed", "last_deployed": "2026-11-30T00:00:00Z", "description": "Upgrade complete"},
    "chart": {"metadata": {"name": "x", "version": "1.0.0"}},
}
ROW = {
    "name": "mp-x",
    "namespace": "x",
    "revision": "3",
    "status": "pending-upgrade",
    "chart": "x-1.0.0",
    "updated": "now",
    "app_version": "1",
}


class FakeHelm:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.binary = folder / "helm"
        self.binary.write_text(
            f"#!{sys.executable}\n"
            "import json, os, sys, pathlib\n"
            f"folder = pathlib.Path({str(folder)!r})\n"
            "answer = json.loads((folder / 'answers.json').read_text())\n"
            "plan = answer.get(sys.argv[1], ['', '', 0])\n"
            "config = sys.argv[sys.argv.index('--kubeconfig') + 1]\n"
            "fds = [n for n in os.listdir('/proc/self/fd')]\n"
            "seen = {'argv': sys.argv[1:], 'stdin': sys.stdin.read(), 'env': dict(os.environ), 'config': config,\n"
            "        'kubeconfig': json.loads(pathlib.Path(config).read_text()), 'mode': os.stat(config).st_mode, 'fds': fds}\n"
            "with (folder / 'calls').open('a') as out: out.write(json.dumps(seen) + chr(10))\n"
            "sys.stdout.write(plan[0]); sys.stderr.write(plan[1]); sys.exit(plan[2])\n"
        )
        self.binary.chmod(0o755)
        self.answers()

    def answers(self, **plans) -> None:
        full = {
            verb: [out if isinstance(out, str) else json.dumps(out), err, code]
            for verb, (out, err, code) in plans.items()
        }
        (self.folder / "answers.json").write_text(json.dumps(full))

    def calls(self) -> list[dict]:
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def fake(tmp_path):
    return FakeHelm(tmp_path)


@pytest.fixture
def helm(fake):
    with Helm(fake.binary, KUBECONFIG, cluster="one") as wrapped:
        yield wrapped


def test_an_upgrade_passes_values_on_stdin_and_never_rolls_back(fake, helm):
    fake.answers(upgrade=(UPGRADED, "", 0))
    assert helm.upgrade_install("mp-x", ChartRef("/m/x-1.0.0.tgz"), "x", {"a": {"b": 1}}, timeout=90.0) == Release(
        "mp-x", "x", 3, "deployed", "x-1.0.0", "Upgrade complete"
    )
    (call,) = fake.calls()
    assert call["argv"][:-1] == [
        *("upgrade", "mp-x", "/m/x-1.0.0.tgz", "--install", "--namespace", "x", "--create-namespace"),
        *("--reset-values", "--values", "-", "--wait=watcher", "--timeout", "90s", "--hide-notes"),
        *("--history-max", "5", "--output", "json", "--kubeconfig"),
    ]
    assert json.loads(call["stdin"]) == {"a": {"b": 1}}


def test_helm_sees_a_private_kubeconfig_and_none_of_the_users_settings(fake, helm, monkeypatch):
    monkeypatch.setenv("HELM_NAMESPACE", "elsewhere")
    monkeypatch.setenv("KUBECONFIG", "/elsewhere")
    fake.answers(list=([], "", 0))
    helm.list()
    (call,) = fake.calls()
    folder = Path(call["config"]).parent
    assert call["kubeconfig"] == KUBECONFIG
    assert stat.S_IMODE(call["mode"]) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert "HELM_NAMESPACE" not in call["env"]
    assert "KUBECONFIG" not in call["env"]
    assert {
        name: Path(call["env"][name]).parent for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
    } == {
        "HELM_CACHE_HOME": folder,
        "HELM_CONFIG_HOME": folder,
        "HELM_DATA_HOME": folder,
    }
    helm.close()
    assert not folder.exists()


def test_a_lease_descriptor_reaches_helm(fake):
    fake.answers(list=([], "", 0))
    read, write = os.pipe()
    try:
        with Helm(fake.binary, KUBECONFIG, pass_fds=(read,)) as wrapped:
            wrapped.list()
        (call,) = fake.calls()
        assert str(read) in call["fds"]
        assert str(write) not in call["fds"]
    finally:
        os.close(read)
        os.close(write)


def test_status_reads_the_newest_revision_and_none_is_not_an_error(fake, helm):
    fake.answers(list=([ROW], "", 0))
    release = helm.status("mp-x", "x")
    assert release == Release("mp-x", "x", 3, "pending-upgrade", "x-1.0.0")
    assert release.pending
    fake.answers(list=([], "", 0))
    assert helm.status("mp-x", "x") is None
    assert helm.history("mp-x", "x") == ()
    assert helm.get_values("mp-x", "x") is None
    assert fake.calls()[0]["argv"][:5] == ["list", "--namespace", "x", "--filter", r"^mp\-x$"]


def test_values_of_a_release_that_was_given_none_are_empty(fake, helm):
    fake.answers(list=([ROW], "", 0), get=("null", "", 0))
    assert helm.get_values("mp-x", "x") == {}


def test_a_failed_read_is_unreadable(fake, helm):
    fake.answers(list=("", "Error: Kubernetes cluster unreachable: dial tcp", 1))
    with pytest.raises(UnreadableError, match="Cluster one: helm list failed: Error: Kubernetes cluster unreachable"):
        helm.status("mp-x", "x")


def test_a_failure_shows_neither_values_nor_tokens(fake, helm):
    fake.answers(
        upgrade=("", "noise\nError: template: pw hunter2 region eu-west-longvalue tok-123456789 env-secret", 1)
    )
    with pytest.raises(HelmError) as caught:
        helm.upgrade_install(
            *("mp-x", ChartRef("c"), "x", {"db": {"password": "hunter2"}, "region": "eu-west-longvalue"}),
            env={"PULL": "env-secret"},
        )
    assert str(caught.value) == "noise\nError: template: pw (hidden) region (hidden) (hidden) (hidden)"


CONFLICTS = [
    (
        'Error: UPGRADE FAILED: conflict occurred while applying object x/agent apps/v1, Kind=DaemonSet: Apply failed with 1 conflict: conflict with "ops" using apps/v1: .spec.minReadySeconds',
        "Cluster one: DaemonSet x/agent: ops owns .spec.minReadySeconds",
    ),
    (
        'Error: UPGRADE FAILED: conflict occurred while applying object x/c /v1, Kind=ConfigMap: Apply failed with 2 conflicts: conflicts with "kubectl":\n- .data.a\n- .data.b',
        "Cluster one: ConfigMap x/c: kubectl owns .data.a, .data.b",
    ),
    (
        'Error: unable to continue with install: DeviceClass "gpu.amd.com" in namespace "" exists and cannot be imported into the current release: invalid ownership metadata; label validation error',
        "Cluster one: DeviceClass gpu.amd.com exists and belongs to no release of ours.",
    ),
]


@pytest.mark.parametrize(("said", "expected"), CONFLICTS)
def test_a_second_owner_is_a_conflict(fake, helm, said, expected):
    fake.answers(upgrade=("", said, 1))
    with pytest.raises(ConflictError) as caught:
        helm.upgrade_install("mp-x", ChartRef("c"), "x", {})
    assert str(caught.value) == expected


def test_a_missing_binary_is_the_users_to_fix(tmp_path):
    with Helm(tmp_path / "absent", KUBECONFIG) as wrapped, pytest.raises(ConfigError):
        wrapped.uninstall("mp-x", "x")


@pytest.mark.parametrize(
    ("repository", "mirror", "expected"),
    [
        ("https://charts.example", "", ("x", "--version", "1.0.0", "--repo", "https://charts.example")),
        ("oci://registry.example/charts", "", ("oci://registry.example/charts/x", "--version", "1.0.0")),
        ("oci://registry.example/charts", "/mirror/", ("/mirror/x-1.0.0.tgz",)),
        ("https://charts.example", "https://mirror.example/c", ("https://mirror.example/c/x-1.0.0.tgz",)),
    ],
)
def test_a_chart_comes_from_the_mirror_or_its_repository(repository, mirror, expected):
    assert chart_ref(Pin("x", repository, "1.0.0", "2026-11-30", "values"), mirror=mirror).arguments() == expected


PLUGIN = {
    "clusters": [],
    "users": [
        {
            "name": "u",
            "user": {
                "exec": {"command": "p", "args": ["--x"], "env": [{"name": "N", "value": "env-123456789"}]},
            },
        }
    ],
}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("said by the plugin\nError: context deadline exceeded\n", "Error: context deadline exceeded"),
        ("Error: by the plugin\nError: UPGRADE FAILED: a\n  b\n", "Error: UPGRADE FAILED: a\n  b"),
        ("Error: UPGRADE FAILED: got env-123456789", "Error: UPGRADE FAILED: got (hidden)"),
        ("only by the plugin\n", "helm upgrade ended with status 1"),
    ],
)
def test_what_a_credential_plugin_says_on_helms_stderr_isnt_repeated(fake, said, expected):
    fake.answers(upgrade=("", said, 1))
    with Helm(fake.binary, PLUGIN) as helm, pytest.raises(HelmError) as caught:
        helm.upgrade_install("mp-x", ChartRef("x"), "x", {})
    assert str(caught.value) == expected


def test_processes_are_counted(fake, helm):
    fake.answers(list=("[]", "", 0))
    assert helm.processes == 0
    helm.list()
    helm.status("mp-x", "x")
    assert helm.processes == 2
