"""Azure's client, its sign-in, and how its errors are told apart."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from modelplane_dagster import errors
from resources.clouds import drift

LAB_SUBSCRIPTION = "lab"

_CODES: dict[str, type[errors.CloudError]] = {
    "AllocationFailed": errors.CloudCapacityError,
    "ZonalAllocationFailed": errors.CloudCapacityError,
    "OverconstrainedAllocationRequest": errors.CloudCapacityError,
    "OverconstrainedZonalAllocationRequest": errors.CloudCapacityError,
    "SkuNotAvailable": errors.CloudCapacityError,
    "ErrCode_InsufficientVCPUQuota": errors.CloudQuotaError,
    "InsufficientVCPUQuota": errors.CloudQuotaError,
    "QuotaExceeded": errors.CloudQuotaError,
    "OperationNotAllowed": errors.CloudBusyError,
    "EtagMismatch": errors.CloudBusyError,
    "PreconditionFailed": errors.CloudBusyError,
    "TooManyRequests": errors.CloudRetryableError,
    "AuthorizationFailed": errors.CloudCredentialsError,
    "AuthenticationFailed": errors.CloudCredentialsError,
    "InvalidAuthenticationToken": errors.CloudCredentialsError,
    "SubscriptionNotFound": errors.CloudCredentialsError,
    "SubscriptionNotRegistered": errors.CloudCredentialsError,
}
_STATUSES: dict[int, type[errors.CloudError]] = {
    401: errors.CloudCredentialsError,
    403: errors.CloudCredentialsError,
    404: drift.AbsentError,
    409: errors.CloudBusyError,
    412: errors.CloudBusyError,
    429: errors.CloudRetryableError,
}


class AksApi:
    """The SDK's client and models, the subscription, and the operations that this process began, by cluster and pool."""

    def __init__(self, *, endpoint: str | None, account: str | None, secrets: Mapping[str, str] | None) -> None:
        from azure.core import exceptions  # noqa: PLC0415 - an SDK is imported where it is used
        from azure.core.pipeline.policies import SansIOHTTPPolicy  # noqa: PLC0415 - as above
        from azure.core.rest import HttpRequest  # noqa: PLC0415 - as above
        from azure.mgmt.containerservice import ContainerServiceClient, models  # noqa: PLC0415 - as above

        self._errors, self._request, self.models = exceptions, HttpRequest, models
        given = _secret(secrets)
        fallback = LAB_SUBSCRIPTION if endpoint else os.environ.get("AZURE_SUBSCRIPTION_ID", "")
        self.subscription = account or given.get("subscriptionId") or fallback
        if not self.subscription:
            raise errors.CloudCredentialsError("Azure's credentials name no subscription, and the fleet gives none.")
        # A simulated cloud speaks plain HTTP, over which the SDK refuses to send a token.
        options: dict[str, Any] = {"authentication_policy": SansIOHTTPPolicy()} if endpoint else {}
        self.client = ContainerServiceClient(
            _LabCredential() if endpoint else _credential(given),
            self.subscription,
            base_url=endpoint.rstrip("/") if endpoint else None,
            retry_total=drift.ATTEMPTS - 1,
            retry_backoff_factor=0.2,
            connection_timeout=drift.CONNECT_SECONDS,
            read_timeout=drift.READ_SECONDS,
            **options,
        )
        self.operations: dict[tuple[str, str], str] = {}

    # Asking

    def keep(self, key: tuple[str, str]) -> Callable[[Any], None]:
        """Remembers the operation's address, for the error that it ends with."""

        def hook(response: Any) -> None:  # noqa: ANN401 - a response of the lazy SDK
            url = response.http_response.headers.get("Azure-AsyncOperation")
            if url:
                self.operations[key] = url

        return hook

    def arm(self, method: str, url: str, query: dict[str, str], what: str, body: object = None) -> dict[str, Any]:
        """A plain Resource Manager request, for what this SDK has no methods for."""
        request = self._request(method, url, params=query, json=body)
        with self.asking(what):
            response = self.client.send_request(request)
            response.raise_for_status()
            return response.json()

    @contextmanager
    def asking(self, what: str) -> Iterator[None]:
        known = self._errors
        try:
            yield
        except known.ClientAuthenticationError as error:
            raise errors.CloudCredentialsError(f"Azure can't {what}: {error.message}", code="401") from error
        except known.DecodeError as error:
            # The reply broke off, or isn't what the SDK can read: what it stood for may have happened.
            raise drift.LostReplyError(f"Azure's answer to {what} can't be read: {error}") from error
        except known.HttpResponseError as error:
            code, text = _http_error(error)
            kind = _CODES.get(code) or _STATUSES.get(error.status_code or 0) or _fallback(error.status_code or 0)
            raise kind(f"Azure didn't {what}: {text} ({code or error.status_code})", code=code) from error
        except (known.ServiceRequestError, known.ServiceResponseError) as error:
            raise drift.LostReplyError(f"Azure couldn't be reached to {what}: {error}") from error
        except known.AzureError as error:
            raise errors.CloudRetryableError(f"Azure couldn't {what}: {error}") from error

    def raise_error(self, what: str, why: tuple[str, str]) -> NoReturn:
        code, text = why
        kind = _CODES.get(code, errors.CloudInvalidError if code else errors.CloudRetryableError)
        raise kind(f"Azure couldn't {what}: {text or 'it gives no reason'}", code=code)


class _LabCredential:
    """For simulated clouds, which ask for no token; the SDK's constructor wants an object."""

    def get_token(self, *scopes: str, **options: object) -> NoReturn:
        del scopes, options
        raise errors.CloudCredentialsError("A simulated cloud takes no token.")


def _credential(given: Mapping[str, str]) -> Any:  # noqa: ANN401 - a class of the lazy SDK
    from azure.identity import ClientSecretCredential, DefaultAzureCredential  # noqa: PLC0415 - imported where it is used

    if not given:
        return DefaultAzureCredential()
    return ClientSecretCredential(given["tenantId"], given["clientId"], given["clientSecret"])


def _secret(secrets: Mapping[str, str] | None) -> dict[str, str]:
    """The secret's JSON; empty for the default chain."""
    if secrets is None:
        return {}
    try:
        given = json.loads(next(iter(secrets.values()), ""))
        return {k: str(given[k]) for k in ("clientId", "clientSecret", "tenantId", "subscriptionId")}
    except (ValueError, KeyError, TypeError):
        # Neither chained nor quoted: the parser's error may repeat a part of the secret.
        raise errors.CloudCredentialsError(
            "Azure's secret must hold JSON with clientId, clientSecret, tenantId and subscriptionId."
        ) from None


def code_and_text(error: Mapping[str, Any]) -> tuple[str, str]:
    """The innermost code that we know, since Azure wraps one error in another; else the outermost."""
    found = (str(error.get("code") or ""), str(error.get("message") or ""))
    inner = [code_and_text(e) for e in error.get("details") or ()]
    return next((e for e in inner if e[0] in _CODES), found)


def _http_error(error: Any) -> tuple[str, str]:  # noqa: ANN401 - an error of the lazy SDK
    """The body's code and text. `raise_for_status` leaves the body unread by the SDK, so it is parsed here."""
    if error.error is not None and error.error.code:
        return error.error.code, error.error.message or ""
    try:
        return code_and_text(json.loads(error.response.text())["error"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return "", str(error.message)


def _fallback(status: int) -> type[errors.CloudError]:
    return errors.CloudRetryableError if status >= 500 else errors.CloudInvalidError
