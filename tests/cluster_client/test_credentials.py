"""Tokens and certificates as they age, plugins as they fail: fetched anew where that helps, a finding where it doesn't, and
never a word of theirs in it."""

from __future__ import annotations

import base64
import ipaddress
import secrets
import ssl
import time
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from modelplane_dagster.errors import AccessError, ConfigError, ModelplaneError
from resources.kube_credentials import Credentials
from resources.kubernetes import ClusterClient
from resources.lab.plane.keys import Authority, Pair
from tests.cluster_client.plugins import plugin
from tests.cluster_client.server import Script, scripted

OK = (200, {"gitVersion": "v1.36.3"})
EXPIRED = timedelta(seconds=-30)
REFUSED = (401, {"kind": "Status", "code": 401, "reason": "Unauthorized", "message": "Unauthorized"})


def client(script: Script, user, **cluster) -> ClusterClient:
    return ClusterClient(script.kubeconfig(user, **cluster), name="one", retries=0)


def told(error: pytest.ExceptionInfo[ModelplaneError]) -> list[tuple[str, str]]:
    return [(f.code, f.message) for f in error.value.findings]


def in_seconds(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def authorizations(script: Script) -> list[str]:
    return [h.get("Authorization", "") for h in script.headers]


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ({"token": "abc"}, "Bearer abc"),
        ({"username": "u", "password": "p"}, "Basic " + base64.b64encode(b"u:p").decode()),
        ({}, ""),
    ],
)
def test_what_a_user_sends(user, header):
    with scripted(OK) as script:
        client(script, user).server_version()
        assert authorizations(script) == [header]


def test_a_user_who_lowers_his_rights_acts_with_those_alone():
    with scripted(OK) as script:
        client(script, {"token": "t", "as": "viewer", "as-groups": ["a", "b"]}).server_version()
        sent = script.headers[0]
        assert (sent["Impersonate-User"], sent["Authorization"]) == ("viewer", "Bearer t")
        assert "Impersonate-Group" in sent


def test_a_token_file_is_read_again_and_at_once_after_a_refusal(tmp_path):
    file = tmp_path / "token"
    file.write_text("first\n")
    with scripted(OK, REFUSED, OK, OK) as script:
        one = client(script, {"tokenFile": str(file)})
        one.server_version()
        file.write_text("second\n")
        one.server_version()
        one.server_version()
        assert authorizations(script) == ["Bearer first", "Bearer first", "Bearer second", "Bearer second"]


def test_a_token_file_is_read_again_as_time_goes_by(tmp_path):
    file, now = tmp_path / "token", [1000.0]
    file.write_text("first")
    found = Credentials({"tokenFile": str(file)}, {}, "one", clock=lambda: now[0])
    assert found.headers()["Authorization"] == "Bearer first"
    file.write_text("second")
    assert found.headers()["Authorization"] == "Bearer first"
    now[0] += 11
    assert found.headers()["Authorization"] == "Bearer second"
    file.unlink()
    now[0] += 11
    assert found.headers()["Authorization"] == "Bearer second"


def test_a_plugin_runs_once_while_its_token_lives_and_again_after(tmp_path):
    made = plugin(tmp_path / "p")
    made.answers({"token": "first", "expirationTimestamp": in_seconds(3600)})
    with scripted(OK, OK, REFUSED, OK) as script:
        one = client(script, made.user(args=["--x"]))
        one.server_version()
        one.server_version()
        made.answers({"token": "second", "expirationTimestamp": in_seconds(3600)})
        one.server_version()
        assert authorizations(script) == ["Bearer first", "Bearer first", "Bearer first", "Bearer second"]
    spec = {"interactive": False}
    info = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "spec": spec}
    assert made.runs() == [{"args": ["--x"], "info": info}] * 2


def test_a_run_outlives_its_token(tmp_path):
    """The server is never asked with a token past its end."""
    made = plugin(tmp_path / "p")
    made.answers({"token": "short", "expirationTimestamp": in_seconds(2)})
    with scripted(OK, OK) as script:
        one = client(script, made.user())
        one.server_version()
        made.answers({"token": "next", "expirationTimestamp": in_seconds(3600)})
        time.sleep(2.1)
        one.server_version()
        assert authorizations(script) == ["Bearer short", "Bearer next"]


def test_a_plugin_that_asks_gets_the_clusters_facts(tmp_path):
    made = plugin(tmp_path / "p")
    made.answers({"token": "t"})
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    with scripted(OK) as script:
        client(script, made.user(provideClusterInfo=True), extensions=[extension]).server_version()
        assert made.runs()[0]["info"]["spec"]["cluster"] == {"server": script.url, "config": {"audience": "a"}}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"code": 3}, "ended with status 3"),
        ({"text": "no json"}, "gave an answer that is no ExecCredential with a token or a certificate"),
        ({"text": "{}"}, "gave an answer that is no ExecCredential with a token or a certificate"),
        ({"status": {}}, "gave an answer that is no ExecCredential with a token or a certificate"),
        (
            {"status": {"clientCertificateData": "x"}},
            "gave an answer that is no ExecCredential with a token or a certificate",
        ),
        (
            {"status": {"token": "t", "expirationTimestamp": "soon"}},
            "gave an answer that is no ExecCredential with a token or a certificate",
        ),
    ],
)
def test_a_plugin_that_fails_is_named_and_not_quoted(tmp_path, answer, said):
    made, hidden = plugin(tmp_path / "p"), secrets.token_urlsafe(24)
    made.answers(
        answer.get("status"), text=answer.get("text"), code=answer.get("code", 0), stderr=hidden, tell=["GIVEN"]
    )
    user = made.user(env=[{"name": "GIVEN", "value": hidden}], args=[hidden])
    with scripted() as script, pytest.raises(AccessError) as caught:
        client(script, user).server_version()
    assert told(caught) == [
        ("CredentialPluginFailed", f"Cluster one: the kubeconfig's credential plugin plugin {said}.")
    ]
    shown = caught.getrepr(chain=True, showlocals=False)
    assert hidden not in str(shown)


@pytest.mark.parametrize(
    ("change", "said", "fix"),
    [
        (
            {"command": "no-such-plugin", "installHint": "Get it\n\x1b[31mhere"},
            "no-such-plugin isn't installed",
            "Get it [31mhere (the kubeconfig's installHint)",
        ),
        ({"command": "/"}, " can't be started (Permission denied)", None),
        (
            {"apiVersion": "client.authentication.k8s.io/v1alpha1"},
            (
                "plugin is of apiVersion 'client.authentication.k8s.io/v1alpha1'; client.authentication.k8s.io/v1 and "
                "client.authentication.k8s.io/v1beta1 are spoken"
            ),
            None,
        ),
    ],
)
def test_a_plugin_that_cannot_run_says_how_to_get_it(tmp_path, change, said, fix):
    made = plugin(tmp_path / "p")
    with scripted() as script, pytest.raises(AccessError) as caught:
        client(script, made.user(**change)).server_version()
    assert caught.value.message == f"Cluster one: the kubeconfig's credential plugin {said}."
    if fix:
        assert caught.value.findings[0].fix == fix


def test_refused_credentials_are_a_finding():
    with scripted(REFUSED) as script, pytest.raises(AccessError) as caught:
        client(script, {"token": "old"}).server_version()
    message = "Cluster one: the API refuses the kubeconfig's credentials (401 Unauthorized)."
    assert told(caught) == [("CredentialsRefused", message)]


def test_a_kubeconfig_that_was_replaced_is_read_again_after_a_refusal():
    with scripted(REFUSED, OK) as script:
        one = ClusterClient(
            script.kubeconfig({"token": "old"}), name="one", reload=lambda: script.kubeconfig({"token": "new"})
        )
        one.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
        assert authorizations(script) == ["Bearer old", "Bearer new"]


@pytest.mark.parametrize("token", ["a\nb: c", "a b", "caf\u00e9"])
def test_a_token_that_no_header_carries_is_not_quoted(token):
    with scripted() as script, pytest.raises(ConfigError) as caught:
        client(script, {"token": token}).server_version()
    assert told(caught) == [("KubeconfigInvalid", "The kubeconfig of one holds a token that no header can carry.")]


# TLS


def b64(text: bytes) -> str:
    return base64.b64encode(text).decode()


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def server(authority, tmp_path_factory):
    return context(authority, authority.server(), tmp_path_factory.mktemp("server"))


def context(authority: Authority, pair: Pair, folder) -> ssl.SSLContext:
    """Asks for a client's certificate and takes a client without one, as an API server does."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    (folder / "crt").write_bytes(pair.certificate)
    (folder / "key").write_bytes(pair.key)
    made.load_cert_chain(folder / "crt", folder / "key")
    made.load_verify_locations(authority.file)
    made.verify_mode = ssl.CERT_OPTIONAL
    return made


def certificate(pair: Pair) -> dict[str, str]:
    return {"client-certificate-data": b64(pair.certificate), "client-key-data": b64(pair.key)}


def test_a_client_certificate_from_data_and_from_files(authority, server, tmp_path):
    pair = authority.client("ada")
    (tmp_path / "crt").write_bytes(pair.certificate)
    (tmp_path / "key").write_bytes(pair.key)
    files = {"client-certificate": str(tmp_path / "crt"), "client-key": str(tmp_path / "key")}
    with scripted(OK, OK, tls=server) as script:
        client(script, certificate(pair), **{"certificate-authority-data": b64(authority.certificate)}).server_version()
        client(script, files, **{"certificate-authority": str(authority.file)}).server_version()
        assert script.certificates == ["ada", "ada"]


def test_a_plugin_may_give_a_certificate_and_then_another(authority, server, tmp_path):
    made = plugin(tmp_path / "p")

    def gives(user):
        pair = authority.client(user)
        made.answers({"clientCertificateData": pair.certificate.decode(), "clientKeyData": pair.key.decode()})

    gives("first")
    with scripted(OK, REFUSED, OK, tls=server) as script:
        one = client(script, made.user(), **{"certificate-authority-data": b64(authority.certificate)})
        one.server_version()
        gives("second")
        one.server_version()
        assert script.certificates == ["first", "first", "second"]


def test_an_expired_client_certificate_is_told_before_it_is_sent(authority, server):
    pair = authority.client("ada", valid=EXPIRED)
    with scripted(tls=server) as script, pytest.raises(AccessError) as caught:
        client(script, certificate(pair), **{"certificate-authority-data": b64(authority.certificate)}).server_version()
    ((code, message),) = told(caught)
    assert code == "CertificateExpired"
    assert message.startswith("Cluster one: the kubeconfig's client certificate expired on 20")


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ({"client-certificate-data": "!!"}, "holds a client-certificate that isn't PEM"),
        (
            {"client-certificate-data": b64(b"x"), "client-key-data": b64(b"y")},
            "holds a client-certificate that isn't PEM",
        ),
        ("no key", "holds a client certificate without its key"),
        ("another key", "holds a client certificate and a key that don't fit, or a key with a password"),
    ],
)
def test_a_broken_client_certificate_is_the_kubeconfigs(authority, server, user, said):
    pair, other = authority.client("ada"), authority.client("bob")
    if user == "no key":
        user = {"client-certificate-data": b64(pair.certificate)}
    elif user == "another key":
        user = certificate(Pair(pair.certificate, other.key))
    with scripted(tls=server) as script, pytest.raises(ConfigError) as caught:
        client(script, user, **{"certificate-authority-data": b64(authority.certificate)}).server_version()
    assert told(caught) == [("KubeconfigInvalid", f"The kubeconfig of one {said}.")]


def test_a_server_of_another_authority_is_not_trusted(server, tmp_path):
    with scripted(tls=server) as script, pytest.raises(AccessError) as caught:
        other = Authority(tmp_path)
        client(script, {}, **{"certificate-authority-data": b64(other.certificate)}).server_version()
    assert [code for code, _ in told(caught)] == ["ServerNotTrusted"]


def test_a_server_by_another_name_needs_tls_server_name(authority, server):
    trusted = {"certificate-authority-data": b64(authority.certificate)}
    with scripted(OK, tls=server) as script:
        named = client(script, {}, **trusted, **{"tls-server-name": "kubernetes.default.svc"})
        assert named.server_version() == "v1.36.3"
        with pytest.raises(AccessError) as caught:
            client(script, {}, **trusted, **{"tls-server-name": "elsewhere.example"}).server_version()
        assert [code for code, _ in told(caught)] == ["ServerNotTrusted"]


def test_who_asks_for_no_check_gets_none(server):
    with scripted(OK, tls=server) as script:
        assert client(script, {}, **{"insecure-skip-tls-verify": True}).server_version() == "v1.36.3"


def test_an_expired_server_certificate_is_told(authority, tmp_path):
    names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    pair = authority._issue("kubernetes", (), ExtendedKeyUsageOID.SERVER_AUTH, EXPIRED, names)
    expired = context(authority, pair, tmp_path)
    with scripted(tls=expired) as script, pytest.raises(AccessError) as caught:
        client(script, {}, **{"certificate-authority-data": b64(authority.certificate)}).server_version()
    assert [code for code, _ in told(caught)] == ["CertificateExpired"]


# Proxies


def test_a_proxy_of_the_kubeconfigs_own_is_used():
    """The request for the server goes to the proxy, by its whole address."""
    with scripted(OK) as proxy:
        config = Script([], url="http://cluster.example").kubeconfig(**{"proxy-url": proxy.url})
        assert ClusterClient(config, name="one", retries=0).server_version() == "v1.36.3"
        assert proxy.asked[0][1] == "http://cluster.example/version"


def test_the_environments_proxy_is_used_and_never_for_this_host(monkeypatch):
    with scripted(OK) as proxy, scripted(OK) as script:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        client(script, {}).server_version()
        far = Script([], url="http://cluster.example").kubeconfig()
        ClusterClient(far, name="one", retries=0).server_version()
        assert [path for _, path, _, _ in proxy.asked] == ["http://cluster.example/version"]
        monkeypatch.setenv("NO_PROXY", ".example")
        with pytest.raises(ModelplaneError):
            ClusterClient(far, name="one", retries=0).server_version()


def test_a_proxys_password_is_never_told():
    password = secrets.token_urlsafe(18)
    with scripted((407, {"message": "no"})) as proxy:
        url = proxy.url.replace("://", f"://me:{password}@")
        config = Script([], url="http://cluster.example").kubeconfig(**{"proxy-url": url})
        with pytest.raises(ModelplaneError) as caught:
            ClusterClient(config, name="one", retries=0).server_version()
        assert proxy.headers[0]["proxy-authorization"] == "Basic " + b64(f"me:{password}".encode())
    assert password not in str(caught.getrepr(chain=True))
