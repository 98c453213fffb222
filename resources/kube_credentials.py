"""Who we are to a cluster's API: the headers and the client certificate of a kubeconfig's user, fetched anew as they age."""

from __future__ import annotations

import base64
import binascii
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from urllib3 import HTTPHeaderDict, make_headers

from modelplane_dagster.errors import AccessError, ConfigError
from modelplane_dagster.findings import finding
from resources.exec_plugin import Answer, run_plugin
from resources.kubeconfig import invalid

Pair = tuple[str, str]
"""A client certificate and its key, as PEM."""
FILE_SECONDS = 10.0
"""How long a token that was read from a file is used; the kubelet renews one long before it expires."""
FAILED_SECONDS = 5.0
"""How long a plugin that failed isn't run again: one look at a cluster asks twenty times."""
EARLY = 10.0
"""Seconds before its end that a plugin's answer isn't used any more, or a fifth of its life where that is less."""


class Credentials:
    """One user's credentials. `renew` throws away what the server refused. Safe to share between threads."""

    def __init__(
        self,
        user: Mapping[str, Any],
        cluster: Mapping[str, Any],
        name: str,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._user = user
        self._cluster = cluster
        self._name = name
        self._clock = clock
        self._lock = threading.RLock()
        self._file: tuple[float, str] | None = None
        self._answer: tuple[float, Answer] | None = None
        self._failed: tuple[float, AccessError] | None = None

    def headers(self) -> HTTPHeaderDict:
        """Authorization and impersonation; empty for a user of a client certificate. Raises AccessError or ConfigError."""
        found = HTTPHeaderDict()
        token = self._token()
        if token:
            # http.client quotes a header that it refuses, so a token that it would refuse never gets there.
            if not (token.isascii() and token.isprintable()) or " " in token:
                raise self._invalid("holds a token that no header can carry")
            found["Authorization"] = f"Bearer {token}"
        elif self._user.get("username"):
            pair = f"{self._user['username']}:{self._user.get('password') or ''}"
            found.update({k.title(): v for k, v in make_headers(basic_auth=pair).items()})
        self._impersonate(found)
        return found

    def pair(self) -> Pair | None:
        """The client certificate; None for a user without one. Raises AccessError for one that has expired."""
        pair = self._pair()
        if pair is not None:
            self._check_dates(pair[0])
        return pair

    def renew(self) -> bool:
        """After the server refused them: forgets what was cached. True where asking again may give something else."""
        with self._lock:
            self._file = self._answer = None
        return any(self._user.get(k) for k in ("exec", "tokenFile", "client-certificate"))

    def _token(self) -> str:
        path = self._user.get("tokenFile")
        if path:
            return self._token_of(Path(str(path)))
        if self._user.get("token"):
            return str(self._user["token"]).strip()
        answer = self._plugin()
        return answer.token if answer else ""

    def _token_of(self, path: Path) -> str:
        with self._lock:
            if self._file is not None and self._clock() - self._file[0] < FILE_SECONDS:
                return self._file[1]
            try:
                token = path.read_text(encoding="utf-8").strip()
            except (OSError, ValueError) as error:
                if self._file is not None:
                    # A file that is being replaced: the last token that was read goes on serving.
                    return self._file[1]
                said = error.strerror if isinstance(error, OSError) else "it isn't text"
                raise self._access("CredentialsRefused", f"the kubeconfig's tokenFile can't be read ({said})") from None
            self._file = (self._clock(), token)
            return token

    def _plugin(self) -> Answer | None:
        plugin = self._user.get("exec")
        if not plugin:
            return None
        with self._lock:
            if self._answer is not None and self._clock() < self._answer[0]:
                return self._answer[1]
            if self._failed is not None and self._clock() - self._failed[0] < FAILED_SECONDS:
                raise AccessError(self._failed[1].message, findings=self._failed[1].findings)
            try:
                answer = run_plugin(plugin, self._cluster, self._name)
            except AccessError as error:
                self._failed = (self._clock(), error)
                raise
            self._answer = (self._good_until(answer), answer)
            return answer

    def _good_until(self, answer: Answer) -> float:
        if answer.until is None:
            return float("inf")
        until = answer.until if answer.until.tzinfo else answer.until.replace(tzinfo=UTC)
        left = until.timestamp() - self._clock()
        return until.timestamp() - min(EARLY, max(0.0, left / 5))

    def _pair(self) -> Pair | None:
        answer = self._plugin()
        if answer is not None and answer.pair is not None:
            return answer.pair
        certificate, key = self._pem("client-certificate"), self._pem("client-key")
        if not certificate:
            return None
        if not key:
            raise self._invalid("holds a client certificate without its key")
        return certificate, key

    def _pem(self, key: str) -> str:
        data, path = self._user.get(f"{key}-data"), self._user.get(key)
        try:
            if data:
                return base64.b64decode(str(data), validate=True).decode("ascii")
            return Path(str(path)).read_text(encoding="ascii") if path else ""
        except OSError as error:
            raise self._access(
                "CredentialsRefused", f"the kubeconfig's {key} can't be read ({error.strerror})"
            ) from None
        except (binascii.Error, ValueError):
            raise self._invalid(f"holds a {key} that isn't PEM") from None

    def _check_dates(self, certificate: str) -> None:
        try:
            found = x509.load_pem_x509_certificate(certificate.encode("ascii"))
        except ValueError:
            raise self._invalid("holds a client-certificate that isn't PEM") from None
        now = datetime.fromtimestamp(self._clock(), UTC)
        ended, starts = found.not_valid_after_utc, found.not_valid_before_utc
        if now > ended:
            raise self._access(
                "CertificateExpired", f"the kubeconfig's client certificate expired on {ended:%Y-%m-%d %H:%M} UTC"
            )
        if now < starts:
            raise self._access(
                "CertificateExpired", f"the kubeconfig's client certificate is valid from {starts:%Y-%m-%d %H:%M} UTC"
            )

    def _impersonate(self, headers: HTTPHeaderDict) -> None:
        """Without these a kubeconfig that lowers its own rights would act with all of them."""
        for key, header in (("as", "Impersonate-User"), ("as-uid", "Impersonate-Uid")):
            if self._user.get(key):
                headers[header] = str(self._user[key])
        for group in self._user.get("as-groups") or ():
            headers.add("Impersonate-Group", str(group))
        for key, values in (self._user.get("as-user-extra") or {}).items():
            for value in values:
                headers.add(f"Impersonate-Extra-{key}", str(value))

    def _invalid(self, what: str) -> ConfigError:
        return invalid(f"cluster/{self._name}", f"The kubeconfig of {self._name or 'the cluster'} {what}.")

    def _access(self, code: str, what: str) -> AccessError:
        message = f"Cluster {self._name}: {what}."
        return AccessError(message, findings=(finding(code, f"cluster/{self._name}", message),))
