"""Kubeconfigs from a file, a folder of secrets and a management cluster: one context of them, with absolute paths."""

from __future__ import annotations

import base64
import json
import secrets
from pathlib import Path

import pytest
import yaml

from modelplane_dagster.errors import AccessError, ConfigError
from resources.helm import Helm
from resources.kubeconfig import parse_kubeconfig, secrets_of
from resources.secrets import ClusterSecrets, open_secrets
from resources.settings import Settings, from_environment
from resources.world import live_world
from tests.cluster_client.server import scripted

MANY = """
apiVersion: v1
kind: Config
current-context: a
contexts:
- {name: a, context: {cluster: ca, user: ua, namespace: n}}
- {name: b, context: {cluster: cb, user: ub}}
- {name: nobody, context: {cluster: ca}}
- {name: lost, context: {cluster: gone, user: ua}}
- {name: lonely, context: {cluster: ca, user: gone}}
- {name: bare}
clusters:
- {name: ca, cluster: {server: "https://a.example", certificate-authority: ca.crt}}
- {name: cb, cluster: {server: "https://b.example", certificate-authority: /pki/ca.crt}}
users:
- name: ua
  user: {client-certificate: pki/me.crt, client-key: ../me.key, tokenFile: t, exec: {command: ./bin/plugin}}
- {name: ub, user: {exec: {command: aws, apiVersion: client.authentication.k8s.io/v1}}}
"""


def parsed(context: str = "", folder: Path | None = Path("/home/me"), text: str = MANY):
    return parse_kubeconfig(text.encode(), "cluster/c", "here", folder=folder, context=context)


def one(cluster, user):
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "context", "context": {"cluster": "cluster", "user": "user"}}],
        "current-context": "context",
    }


def test_the_current_context_alone_with_absolute_paths():
    assert parsed() == one(
        {"server": "https://a.example", "certificate-authority": "/home/me/ca.crt"},
        {
            "client-certificate": "/home/me/pki/me.crt",
            "client-key": "/home/me/../me.key",
            "tokenFile": "/home/me/t",
            "exec": {"command": "/home/me/bin/plugin"},
        },
    )


def test_another_context_by_name_and_a_plugin_by_the_path_variable():
    assert parsed("b", folder=None) == one(
        {"server": "https://b.example", "certificate-authority": "/pki/ca.crt"},
        {"exec": {"command": "aws", "apiVersion": "client.authentication.k8s.io/v1"}},
    )


def text(cluster="{server: 'https://a.example'}", user="{}"):
    return (
        "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
        f"clusters: [{{name: c, cluster: {cluster}}}]\nusers: [{{name: u, user: {user}}}]\n"
    )


@pytest.mark.parametrize(
    ("context", "content", "said"),
    [
        ("none", MANY, "has no context none"),
        ("lost", MANY, "names a cluster in its context that it doesn't hold"),
        ("lonely", MANY, "names a user in its context that it doesn't hold"),
        ("bare", MANY, "has no current context"),
        ("", text("{}"), "names no server"),
        ("", text("{server: a.example}"), "names a server that is no https:// or http:// address"),
        ("", text("[a]"), "holds a cluster that isn't a mapping"),
        ("", text(user="{token: 12345}"), "holds a token that isn't text; quote it"),
        ("", text(user="{exec: {args: [a]}}"), "holds an exec plugin without a command"),
        (
            "",
            text(user="{exec: {command: p, interactiveMode: Always}}"),
            "uses an exec plugin that needs a terminal (interactiveMode: Always)",
        ),
        (
            "",
            text(user="{auth-provider: {name: gcp}}"),
            "uses an auth-provider, which Kubernetes clients no longer speak; use an exec plugin",
        ),
        (
            "",
            text("{server: 'https://a', insecure-skip-tls-verify: true, certificate-authority-data: eA==}"),
            "both skips the check of the server's certificate and names its authority",
        ),
        ("", "a: b\n" * 400_000, "is larger than 1 MiB"),
    ],
)
def test_what_cannot_work_is_said_before_it_is_tried(context, content, said):
    with pytest.raises(ConfigError) as caught:
        parsed(context, text=content)
    assert [(f.code, f.subject, f.message) for f in caught.value.findings] == [
        ("KubeconfigInvalid", "cluster/c", f"The kubeconfig at here {said}.")
    ]


def test_a_relative_path_without_a_folder_is_an_error():
    with pytest.raises(ConfigError, match=r"gives its certificate-authority as a relative path .* \(--flatten\)"):
        parsed(folder=None)


def test_yaml_that_stumbles_over_a_secret_doesnt_show_it():
    hidden = secrets.token_urlsafe(24)
    with pytest.raises(ConfigError) as caught:
        parsed(text=f"users: [{{token: {hidden}\n")
    assert hidden not in str(caught.getrepr(chain=True))


def test_the_texts_that_no_message_may_hold():
    user = {
        "token": "tok",
        "password": "pw",
        "client-key-data": "key",
        "exec": {
            "command": "p",
            "args": ["--region", "a-long-argument-of-a-plugin"],
            "env": [{"name": "N", "value": "long-value"}],
        },
    }
    assert secrets_of(one({}, user)) == {"tok", "pw", "key", "a-long-argument-of-a-plugin", "long-value"}


# Where it comes from


def settings(**more) -> Settings:
    return from_environment({"MODELPLANE_TARGET": "live", "MODELPLANE_HOME": "/nowhere", **more})


def test_a_file_named_in_the_environment_goes_before_the_secret(tmp_path):
    (tmp_path / "config").write_text(MANY)
    world = live_world(settings(MODELPLANE_KUBECONFIG_METAL_DALLAS=str(tmp_path / "config")))
    found = world.kubeconfig("metal-dallas", ("any", "kubeconfig"))
    assert found["clusters"][0]["cluster"]["certificate-authority"] == str(tmp_path / "ca.crt")
    with pytest.raises(ConfigError, match="MODELPLANE_SECRETS names no folder or cluster"):
        world.kubeconfig("other", ("any", "kubeconfig"))


def test_another_context_of_that_file(tmp_path):
    (tmp_path / "config").write_text(MANY)
    given = {"MODELPLANE_KUBECONFIG_MINE": str(tmp_path / "config"), "MODELPLANE_CONTEXT_MINE": "b"}
    found = live_world(settings(**given)).kubeconfig("mine", ("any", "kubeconfig"))
    assert found["clusters"][0]["cluster"]["server"] == "https://b.example"


def test_a_file_that_isnt_there_is_missing(tmp_path):
    world = live_world(settings(MODELPLANE_KUBECONFIG_MINE=str(tmp_path / "none")))
    with pytest.raises(ConfigError) as caught:
        world.kubeconfig("mine", ("any", "kubeconfig"))
    assert [(f.code, f.subject) for f in caught.value.findings] == [("KubeconfigMissing", "cluster/mine")]


def test_a_secret_of_the_folder_has_its_own_folder_for_relative_paths(tmp_path):
    place = tmp_path / "modelplane-system" / "mine"
    place.mkdir(parents=True)
    (place / "kubeconfig").write_text(MANY)
    world = live_world(settings(MODELPLANE_SECRETS=str(tmp_path)))
    found = world.kubeconfig("mine", ("mine", "kubeconfig"))
    assert found["users"][0]["user"]["tokenFile"] == str(place / "t")


def secret(data):
    return {
        "kind": "Secret",
        "metadata": {"name": "s"},
        "data": {k: base64.b64encode(v).decode() for k, v in data.items()},
    }


def test_a_management_clusters_secrets(tmp_path):
    content = text().encode()
    missing = (404, {"kind": "Status", "code": 404, "reason": "NotFound"})
    with scripted((200, secret({"kubeconfig": content})), (200, secret({})), missing) as script:
        (tmp_path / "management").write_text(yaml.safe_dump(script.kubeconfig()))
        world = live_world(settings(MODELPLANE_SECRETS=str(tmp_path / "management")))
        assert world.kubeconfig("mine", ("s", "kubeconfig"))["clusters"][0]["cluster"] == {
            "server": "https://a.example"
        }
        for said in ("has no key kubeconfig", "isn't on the management cluster"):
            with pytest.raises(ConfigError) as caught:
                world.kubeconfig("mine", ("s", "kubeconfig"))
            message = f"The secret modelplane-system/s {said}."
            assert [(f.code, f.message) for f in caught.value.findings] == [("KubeconfigMissing", message)]
        assert [path for _, path, _, _ in script.asked] == ["/api/v1/namespaces/modelplane-system/secrets/s"] * 3


def test_a_management_cluster_that_refuses_us_isnt_a_missing_secret():
    with (
        scripted((401, {"kind": "Status", "code": 401})) as script,
        pytest.raises(AccessError, match="Cluster management"),
    ):
        ClusterSecrets(script.kubeconfig()).read("ns", "s", "k")


def test_in_cluster_needs_a_pod(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="isn't a pod"):
        open_secrets("in-cluster")


# What helm is given


def test_helm_gets_what_fetches_its_token_itself_and_the_new_one_when_it_is_replaced(tmp_path):
    first = one({"server": "https://a"}, {"tokenFile": "/run/token"})
    second = one({"server": "https://a"}, {"exec": {"command": "aws"}})
    with Helm(tmp_path / "helm", first) as helm:
        file = helm._kubeconfig
        assert (json.loads(file.read_text()), file.stat().st_mode & 0o777) == (first, 0o600)
        helm.use(second)
        assert (json.loads(file.read_text()), file.stat().st_mode & 0o777) == (second, 0o600)
    assert not file.exists()
