"""What adapters of clouds with a plain HTTP API and a key share: a JSON client, bounded in time and attempts, with errors
typed by status and code, and the base of the adapters that use it.

Nothing here waits for a state: a call is asked once, and again only where asking again can't act twice.
"""

from __future__ import annotations

import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import httpx

from modelplane_dagster.errors import (
    CloudBusyError,
    CloudCredentialsError,
    CloudError,
    CloudInvalidError,
    CloudNameTakenError,
    CloudRetryableError,
)
from resources.clouds.drift import demand_account
from resources.clouds.seam import ClusterRef

Json: TypeAlias = Any
"""A decoded JSON value; its shape is the cloud's, so each adapter reads it field by field."""

_READS = frozenset({"GET"})
# Refused before it acted, so that any method may be sent again.
_REFUSED = frozenset({429})
_PASSING = frozenset({429, 500, 502, 503, 504})


class NotThereError(CloudInvalidError):
    """The object that the call names doesn't exist."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`timeout` is for one attempt and `pause` the first pause between two, in seconds; `longest_pause` caps what the
    cloud's Retry-After asks for."""

    timeout: float = 30.0
    attempts: int = 3
    pause: float = 0.5
    longest_pause: float = 5.0


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of status 300 or more. `code` is the cloud's own code, empty where it gives none."""

    status: int
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a cloud is reached and how it speaks of errors. `scheme` stands before the key in the Authorization header,
    `key_env` names the variable of a key that no secret holds; `read_error` takes the cloud's own code and text out of
    an error body, and `classify` makes the error."""

    url: str
    key_env: str
    scheme: str
    read_error: Callable[[Json], tuple[str, str]]
    classify: Callable[[Reply], CloudError]


@contextmanager
def about(what: str) -> Iterator[None]:
    """Puts what was being done before the cloud's own words; type, code and pause stay."""
    try:
        yield
    except CloudError as error:
        raise type(error)(f"{what}: {error.message}", code=error.code, retry_after=error.retry_after) from error


def api_key(secrets: Mapping[str, str] | None, *, env: str, simulated: bool) -> str:
    """The key of a secret that holds one key; without a secret the environment's. A simulated cloud takes any. Empty
    where there is none."""
    if secrets:
        return next(iter(secrets.values())).strip()
    return os.environ.get(env, "") or ("simulated" if simulated else "")


def by_status(cloud: str, reply: Reply) -> CloudError:
    """The error type that the HTTP status alone stands for."""
    message = f"{cloud}: {reply.text}"
    code = reply.code or str(reply.status)
    if reply.status in (401, 403):
        return CloudCredentialsError(message, code=code)
    if reply.status == 404:
        return NotThereError(message, code=code)
    if reply.status == 409:
        return CloudNameTakenError(message, code=code)
    if reply.status == 423:
        return CloudBusyError(message, code=code)
    if reply.status == 429 or reply.status >= 500:
        return CloudRetryableError(message, code=code)
    return CloudInvalidError(message, code=code)


class Rest:
    """`key` is sent in the Authorization header and stands in no message."""

    def __init__(self, cloud: str, dialect: Dialect, *, base_url: str, key: str, limits: Limits) -> None:
        self._cloud = cloud
        self._dialect = dialect
        self._limits = limits
        self._client = httpx.Client(
            base_url=base_url,
            headers={"Authorization": f"{dialect.scheme} {key}", "Accept": "application/json"},
            timeout=limits.timeout,
            # A proxy of the environment would be asked for a simulated cloud on loopback too.
            trust_env=not base_url.startswith("http://127.0.0.1"),
        )

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> Json:
        return self.call("GET", path, params=params)

    def call(
        self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: Mapping[str, Any] | None = None
    ) -> Json:
        """The decoded body, None for an empty one. A write is sent again only when it was refused (429): after a lost
        reply the next pass looks the object up first, and that is what keeps it to exactly one."""
        attempt = 1
        while True:
            try:
                return self._once(method, path, params, body)
            except CloudRetryableError as error:
                again = method in _READS or error.code in {str(s) for s in _REFUSED}
                if not again or attempt >= self._limits.attempts:
                    raise
                pause = error.retry_after if error.retry_after is not None else self._limits.pause * 2 ** (attempt - 1)
                time.sleep(min(pause, self._limits.longest_pause))
                attempt += 1

    def _once(self, method: str, path: str, params: Mapping[str, Any] | None, body: Mapping[str, Any] | None) -> Json:
        try:
            answer = self._client.request(method, path, params=params, json=body)
        except httpx.TransportError as error:
            text = f"{self._cloud}: no answer to {method} {path} ({type(error).__name__})"
            raise CloudRetryableError(text, code="transport") from error
        if answer.status_code < 300:
            return self._decoded(answer, method, path) if answer.content else None
        raise self._error(answer, method, path)

    def _decoded(self, answer: httpx.Response, method: str, path: str) -> Json:
        try:
            return answer.json()
        except ValueError as error:
            text = f"{self._cloud}: the answer to {method} {path} isn't JSON"
            raise CloudRetryableError(text, code="not-json") from error

    def _error(self, answer: httpx.Response, method: str, path: str) -> CloudError:
        try:
            code, text = self._dialect.read_error(answer.json())
        except (ValueError, TypeError, AttributeError, KeyError):
            code, text = "", ""
        error = self._dialect.classify(
            Reply(answer.status_code, code, text or f"{method} {path} gave status {answer.status_code}")
        )
        if answer.status_code in _PASSING:
            error.retry_after = _seconds(answer.headers.get("Retry-After"))
        if answer.status_code in _REFUSED:
            error.code = str(answer.status_code)
        return error


def _seconds(value: str | None) -> float | None:
    """None for an absent header, and for the header's date form, which neither cloud sends."""
    try:
        return float(value) if value else None
    except ValueError:
        return None


def newest_first(versions: Iterable[str]) -> tuple[str, ...]:
    """Versions as the clouds write them, ordered by every number in them."""
    return tuple(sorted(versions, key=lambda v: tuple(int(part) for part in re.findall(r"\d+", v)), reverse=True))


class KeyedCloud(ABC):
    """The base of an adapter over `Rest`. `endpoint` None is the real cloud, with the API key of `secrets` or else of the
    environment; a simulated cloud takes any key. `account` is what the key must lead to, None to accept its own.

    No connection is made, and no key asked for, before the first call."""

    source: str
    dialect: ClassVar[Dialect]

    def __init__(
        self,
        *,
        endpoint: str | None = None,
        account: str | None = None,
        secrets: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._expected = account or ""
        self._key = api_key(secrets, env=self.dialect.key_env, simulated=endpoint is not None)
        self._limits = limits or Limits()
        self._rest: Rest | None = None
        self._account = ""

    def whoami(self) -> str:
        """Asked once for the adapter's life."""
        if not self._account:
            self._account = self._read_account()
        return self._account

    @abstractmethod
    def _read_account(self) -> str:
        """The account that the key leads to, as the cloud tells it."""

    @property
    def _api(self) -> Rest:
        if self._rest is None:
            if not self._key:
                raise CloudCredentialsError(
                    f"{self.source}: no API key; set {self.dialect.key_env} or map the credentials."
                )
            url = self._endpoint or self.dialect.url
            self._rest = Rest(self.source, self.dialect, base_url=url, key=self._key, limits=self._limits)
        return self._rest

    def _check_account(self, ref: ClusterRef) -> None:
        """Before every write."""
        wanted = ref if ref.account else replace(ref, account=self._expected)
        if wanted.account:
            demand_account(wanted, self.whoami())

    def _create(self, path: str, body: Mapping[str, Any], *, made: Callable[[], bool]) -> None:
        """After a lost reply `made` looks whether the request arrived all the same."""
        try:
            self._api.call("POST", path, body=body)
        except CloudRetryableError:
            if not made():
                raise

    def _delete(self, path: str, *, params: Mapping[str, Any] | None = None) -> bool:
        """False for what went away meanwhile."""
        try:
            self._api.call("DELETE", path, params=params)
        except NotThereError:
            return False
        return True
