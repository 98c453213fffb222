"""Kubeconfigs, the token plugin, and SDKs that load only when they are used."""

from __future__ import annotations

import base64
import json
import subprocess
import sys

import pytest

from modelplane_dagster.errors import ConfigError
from resources.clouds import kube_token, make_cloud
from resources.clouds.kubeconfig import PLUGIN, exec_user, kubeconfig


def test_kubeconfig_refreshes_its_own_token():
    config = kubeconfig("demo", "https://demo", exec_user("eks", "demo", "us-east-1"), ca_pem="PEM")
    assert config == {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "demo", "cluster": {"server": "https://demo", "certificate-authority-data": "UEVN"}}],
        "users": [
            {
                "name": "demo",
                "user": {
                    "exec": {
                        "apiVersion": "client.authentication.k8s.io/v1",
                        "command": sys.executable,
                        "args": [str(PLUGIN), "eks", "demo", "us-east-1"],
                        "env": [],
                        "interactiveMode": "Never",
                    }
                },
            }
        ],
        "contexts": [{"name": "demo", "context": {"cluster": "demo", "user": "demo"}}],
        "current-context": "demo",
    }
    assert PLUGIN.is_file()


def test_eks_token_names_the_cluster(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    token, until = kube_token.eks_token("demo", "eu-west-1")
    head, _, body = token.partition("k8s-aws-v1.")
    url = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode()
    assert head == ""
    assert url.startswith("https://sts.eu-west-1.amazonaws.com/?Action=GetCallerIdentity")
    assert "X-Amz-SignedHeaders=host%3Bx-k8s-aws-id" in url
    assert "X-Amz-Expires=60" in url
    assert until.endswith("Z")


def test_plugin_prints_an_exec_credential(monkeypatch, capsys):
    monkeypatch.setattr(kube_token, "gke_token", lambda: ("t", "2026-11-30T00:00:00Z"))
    assert kube_token.main(["gke"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "t", "expirationTimestamp": "2026-11-30T00:00:00Z"},
    }
    assert kube_token.main(["eks"]) == 2


def test_no_sdk_is_loaded_before_it_is_used():
    code = (
        "import sys, resources.clouds, resources.clouds.eks, resources.clouds.gke, resources.clouds.aks\n"
        "print([m for m in ('boto3', 'google.cloud', 'azure.core', 'nebius', 'kubernetes') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_existing_has_no_cloud():
    with pytest.raises(ConfigError):
        make_cloud("Existing")
