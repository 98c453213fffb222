"""The way to one cluster's API: TLS, proxy and credentials of a kubeconfig behind the official client's connection pool.

The official loader isn't used: it swallows a failing credential plugin and logs what it printed, reads a tokenFile once,
knows no proxy-url and no impersonation, and leaves keys in temporary files (kubernetes 36.0.3, read 2026-11-30).
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import urllib3
from kubernetes import client as kube_client
from requests.utils import should_bypass_proxies

from modelplane_dagster.errors import AccessError, ConfigError
from modelplane_dagster.findings import finding
from resources.kube_credentials import Credentials, Pair
from resources.kubeconfig import invalid, parts

# What OpenSSL says of a server's certificate: its end, its beginning; everything else is a matter of trust.
_EXPIRED = frozenset({9, 10})


class Connection:
    """Safe to share between threads. The pool is made anew where the client certificate changes."""

    def __init__(self, kubeconfig: Mapping[str, Any], name: str) -> None:
        self._name = name
        try:
            cluster, user = parts(kubeconfig)
            self.server = str(cluster["server"]).rstrip("/")
        except (KeyError, TypeError, StopIteration) as error:
            raise self._invalid("names no cluster, or no user of its own") from error
        self._cluster = cluster
        self._credentials = Credentials(user, cluster, name)
        self._lock = threading.Lock()
        self._pair: Pair | None = None
        self._api: kube_client.ApiClient | None = None

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: Any,  # noqa: ANN401 - a JSON body
        content: str,
        timeout: tuple[float, float],
    ) -> urllib3.BaseHTTPResponse:
        """One request; a status is returned, not raised. Raises urllib3's errors and OSError where there is no answer,
        AccessError where the server's certificate or our credentials don't do, ConfigError for a broken kubeconfig."""
        headers = self._credentials.headers()
        headers.update({"Accept": "application/json", "Content-Type": content})
        headers["User-Agent"] = "modelplane-dagster"
        api = self._pool()
        try:
            return api.rest_client.request(
                method,
                self.server + path,
                query_params=list(query.items()),
                headers=headers,
                body=body,
                _preload_content=False,
                _request_timeout=timeout,
            )
        except kube_client.ApiException as error:
            if not error.status:
                raise self._tls(error) from None
            return urllib3.HTTPResponse(
                body=error.body if isinstance(error.body, bytes) else str(error.body or "").encode(),
                headers=dict(error.headers or {}),
                status=error.status,
            )

    def renew(self) -> bool:
        """After a 401; whether asking again may help."""
        return self._credentials.renew()

    def close(self) -> None:
        with self._lock:
            if self._api is not None:
                self._api.close()
                self._api = None

    def _pool(self) -> kube_client.ApiClient:
        pair = self._credentials.pair()
        with self._lock:
            if self._api is None or pair != self._pair:
                self._api, self._pair = self._open(pair), pair
            return self._api

    def _open(self, pair: Pair | None) -> kube_client.ApiClient:
        settings = kube_client.Configuration()
        settings.host = self.server
        settings.retries = False
        settings.connection_pool_maxsize = 16
        settings.verify_ssl = not self._cluster.get("insecure-skip-tls-verify")
        settings.tls_server_name = self._cluster.get("tls-server-name") or None
        settings.proxy, settings.no_proxy = self._proxy(), None
        if settings.proxy and "@" in settings.proxy:
            address = urlsplit(settings.proxy)
            settings.proxy_headers = urllib3.make_headers(
                proxy_basic_auth=f"{address.username}:{address.password or ''}"
            )
        if not settings.verify_ssl:
            # The user asked for it in the kubeconfig; a warning a request would drown everything else.
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        api = kube_client.ApiClient(configuration=settings)
        if self.server.startswith("https://"):
            api.rest_client.pool_manager.connection_pool_kw["ssl_context"] = self._context(pair)
        return api

    def _context(self, pair: Pair | None) -> ssl.SSLContext:
        """Authority and certificate from memory: a key on disk would outlive a killed process."""
        cluster = self._cluster
        try:
            data = cluster.get("certificate-authority-data")
            authority = base64.b64decode(str(data), validate=True).decode("ascii") if data else None
            path = None if authority else cluster.get("certificate-authority")
            context = ssl.create_default_context(cadata=authority, cafile=path)
        except OSError as error:
            what = "isn't PEM" if isinstance(error, ssl.SSLError) else f"can't be read ({error.strerror})"
            raise self._invalid(f"names a certificate-authority that {what}") from None
        except (binascii.Error, ValueError):
            raise self._invalid("holds a certificate-authority-data that isn't PEM") from None
        if cluster.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if pair is not None:
            self._load(context, pair)
        return context

    def _load(self, context: ssl.SSLContext, pair: Pair) -> None:
        """OpenSSL reads a certificate from files alone: they stand, mode 600, for as long as it reads them."""
        with tempfile.TemporaryDirectory(prefix="modelplane-") as folder:
            files = [Path(folder) / name for name in ("certificate", "key")]
            for file, text in zip(files, pair, strict=True):
                with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
                    opened.write(text)
            try:
                # An encrypted key would ask for its password on the terminal.
                context.load_cert_chain(files[0], files[1], password=lambda: "")
            except (ssl.SSLError, ValueError):
                raise self._invalid(
                    "holds a client certificate and a key that don't fit, or a key with a password"
                ) from None

    def _proxy(self) -> str | None:
        """The kubeconfig's own, else the environment's for the server's scheme; never one to this host."""
        given = str(self._cluster.get("proxy-url") or "")
        if given:
            if not given.startswith(("http://", "https://")):
                raise self._invalid("names a proxy-url that is no http:// or https:// address")
            return given
        address = urlsplit(self.server)
        name = f"{address.scheme}_proxy"
        found = os.environ.get(name) or os.environ.get(name.upper())
        local = address.hostname in ("localhost", "::1") or str(address.hostname).startswith("127.")
        if not found or local or should_bypass_proxies(self.server, no_proxy=None):
            return None
        return found

    def _tls(self, error: kube_client.ApiException) -> AccessError | OSError:
        """The official client makes a status 0 of any SSL error, so its cause tells. What isn't about certificates is a
        connection that broke: an API server that is killed in a handshake comes back."""
        cause = _ssl_cause(error.__context__)
        reason = str(getattr(cause, "reason", "") or "")
        if isinstance(cause, ssl.SSLCertVerificationError):
            code = "CertificateExpired" if cause.verify_code in _EXPIRED else "ServerNotTrusted"
            what = f"the API's certificate isn't good: {cause.verify_message}"
        elif "CERTIFICATE" in reason:
            code = "CertificateExpired" if "EXPIRED" in reason else "CredentialsRefused"
            what = f"the API refuses our client certificate ({reason.replace('_', ' ').lower()})"
        else:
            return ConnectionError("TLS broke off")
        message = f"{f'Cluster {self._name}' if self._name else 'The cluster'}: {what}."
        return AccessError(message, findings=(finding(code, f"cluster/{self._name}", message),))

    def _invalid(self, what: str) -> ConfigError:
        return invalid(f"cluster/{self._name}", f"The kubeconfig of {self._name or 'the cluster'} {what}.")


def _ssl_cause(error: BaseException | None) -> ssl.SSLError | None:
    """urllib3 wraps the error of the ssl module as its first argument."""
    for _ in range(5):
        if error is None or isinstance(error, ssl.SSLError):
            return error
        inner = error.args[0] if error.args and isinstance(error.args[0], BaseException) else error.__context__
        error = inner
    return None
