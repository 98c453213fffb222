"""GKE's client, its sign-in, and how its errors are told apart."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from modelplane_dagster import errors
from resources.clouds import drift

if TYPE_CHECKING:
    from google.cloud.container_v1 import Cluster, NodePool

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
COMPUTE = "https://compute.googleapis.com/compute/v1"
LAB_PROJECT = "lab"

_CONDITIONS: dict[str, type[errors.CloudError]] = {
    "GCE_STOCKOUT": errors.CloudCapacityError,
    "GCE_QUOTA_EXCEEDED": errors.CloudQuotaError,
    "GKE_SERVICE_ACCOUNT_DELETED": errors.CloudCredentialsError,
    "NODE_SERVICE_ACCOUNT_MISSING_PERMISSIONS": errors.CloudCredentialsError,
}
_STATUSES: dict[str, type[errors.CloudError]] = {
    "NOT_FOUND": drift.AbsentError,
    "ALREADY_EXISTS": errors.CloudBusyError,
    "ABORTED": errors.CloudBusyError,
    "FAILED_PRECONDITION": errors.CloudBusyError,
    "RESOURCE_EXHAUSTED": errors.CloudRetryableError,
    "UNAVAILABLE": errors.CloudRetryableError,
    "DEADLINE_EXCEEDED": errors.CloudRetryableError,
    "INTERNAL": errors.CloudRetryableError,
    "PERMISSION_DENIED": errors.CloudCredentialsError,
    "UNAUTHENTICATED": errors.CloudCredentialsError,
}
_CODES: dict[int, type[errors.CloudError]] = {
    401: errors.CloudCredentialsError,
    403: errors.CloudCredentialsError,
    404: drift.AbsentError,
    408: errors.CloudRetryableError,
    409: errors.CloudBusyError,
    429: errors.CloudRetryableError,
}


class GkeApi:
    """The SDK's client and messages, the project, and a session for Compute Engine. `simulated` says that no real Google
    is behind it."""

    def __init__(self, *, endpoint: str | None, account: str | None, secrets: Mapping[str, str] | None) -> None:
        import google.auth.credentials  # noqa: PLC0415 - an SDK is imported where it is used
        import requests  # noqa: PLC0415 - as above
        from google.api_core import exceptions, retry  # noqa: PLC0415 - as above
        from google.auth import exceptions as auth_exceptions  # noqa: PLC0415 - as above
        from google.auth.transport.requests import AuthorizedSession  # noqa: PLC0415 - as above
        from google.cloud import container_v1  # noqa: PLC0415 - as above

        self._api_errors, self._auth_errors, self._requests = exceptions, auth_exceptions, requests.exceptions
        self.sdk = container_v1
        self.simulated = endpoint is not None
        self.secrets = secrets
        self.compute = f"{endpoint.rstrip('/')}/compute/v1" if endpoint else COMPUTE
        if endpoint:
            credentials, project = google.auth.credentials.AnonymousCredentials(), LAB_PROJECT
        else:
            credentials, project = self._sign_in(secrets)
        self.project = account or project
        options = {"api_endpoint": endpoint.rstrip("/")} if endpoint else None
        self.client = container_v1.ClusterManagerClient(
            credentials=credentials, transport="rest", client_options=options
        )
        self._session = AuthorizedSession(credentials)
        transient = retry.if_exception_type(exceptions.ServiceUnavailable, exceptions.GatewayTimeout)
        self._retry = retry.Retry(predicate=transient, initial=0.2, maximum=2.0, timeout=10.0)

    def _sign_in(self, secrets: Mapping[str, str] | None) -> tuple[Any, str]:
        import google.auth  # noqa: PLC0415 - an SDK is imported where it is used
        from google.oauth2 import service_account  # noqa: PLC0415 - as above

        if secrets is None:
            with self.asking("find credentials"):
                credentials, project = google.auth.default(scopes=[SCOPE])
            return credentials, project or ""
        try:
            given = json.loads(secrets.get("credentials", ""))
            credentials = service_account.Credentials.from_service_account_info(given, scopes=[SCOPE])
        except (ValueError, self._auth_errors.GoogleAuthError):
            # Neither chained nor quoted: the parser's error may repeat a part of the key.
            raise errors.CloudCredentialsError(
                "The secret's key credentials must hold the JSON of a Google service account."
            ) from None
        return credentials, credentials.project_id or ""

    # Asking

    def get(self, what: str, url: str, query: dict[str, str]) -> dict[str, Any]:
        with self.asking(what):
            answer = self._session.get(url, params=query, timeout=(drift.CONNECT_SECONDS, drift.READ_SECONDS))
            if answer.status_code >= 400:
                raise self._api_errors.from_http_response(answer)
            return answer.json()

    def read(self, what: str, call: Callable[[dict[str, Any]], Any]) -> Any:  # noqa: ANN401 - one of the SDK's messages
        with self.asking(what):
            return call({"retry": self._retry, "timeout": drift.READ_SECONDS})

    def create(self, what: str, call: Callable[[dict[str, Any]], object]) -> None:
        """A create whose reply was lost, or that another attempt has done already, isn't an error: the next read finds
        it. One that meets another operation is CloudBusyError."""
        try:
            with self.asking(what):
                call({"retry": None, "timeout": drift.READ_SECONDS})
        except drift.LostReplyError:
            return
        except errors.CloudBusyError as error:
            if error.code != "ALREADY_EXISTS":
                raise

    @contextmanager
    def asking(self, what: str) -> Iterator[None]:
        auth = self._auth_errors
        try:
            yield
        except self._api_errors.GoogleAPICallError as error:
            status = _status(error)
            message = f"GKE didn't {what}: {error.message} ({status or error.code})"
            raise _kind(status, error)(message, code=status or str(error.code)) from error
        except (auth.DefaultCredentialsError, auth.RefreshError) as error:
            raise errors.CloudCredentialsError(f"GKE can't {what} without credentials: {error}") from error
        except (self._requests.RequestException, auth.TransportError) as error:
            raise drift.LostReplyError(f"GKE couldn't be reached to {what}: {error}") from error
        except self._api_errors.RetryError as error:
            raise errors.CloudRetryableError(f"GKE couldn't {what}: {error}") from error

    def raise_condition(self, what: str, thing: Cluster | NodePool) -> NoReturn:
        code = thing.conditions[0].code.name if thing.conditions else ""
        text = " ".join(c.message for c in thing.conditions) or thing.status_message or "it gives no reason"
        raise _CONDITIONS.get(code, errors.CloudInvalidError)(f"GKE couldn't {what}: {text}", code=code)


def _status(error: Any) -> str:  # noqa: ANN401 - an error of the lazy SDK
    """Google's own word, such as FAILED_PRECONDITION; empty where the reply has none."""
    try:
        return str(error.response.json()["error"]["status"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return ""


def _kind(status: str, error: Any) -> type[errors.CloudError]:  # noqa: ANN401 - as above
    # A quota on machines comes as 403 like a missing permission, and no code tells the two apart.
    if error.code == 403 and "quota" in (error.message or "").lower():
        return errors.CloudQuotaError
    if status in _STATUSES:
        return _STATUSES[status]
    fallback = errors.CloudRetryableError if (error.code or 0) >= 500 else errors.CloudInvalidError
    return _CODES.get(error.code, fallback)
