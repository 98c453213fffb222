"""Nebius's API as the adapter needs it: five kinds of object, listed, made, changed and deleted; errors typed.

Importing this imports the SDK. Messages are read as their JSON form, with the API's own field names. Every call has a
deadline of its own for sign-in, which the SDK would otherwise wait 15 minutes for.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from nebius.aio.channel import NoCredentials
from nebius.aio.request import RequestError as SdkRequestError
from nebius.aio.service_error import RequestError, RequestStatusExtended
from nebius.api.nebius.compute.v1 import (
    CreateGpuClusterRequest,
    DeleteGpuClusterRequest,
    GpuClusterServiceClient,
    ListGpuClustersRequest,
    ListPlatformsRequest,
    PlatformServiceClient,
)
from nebius.api.nebius.iam.v2 import GetProjectRequest, ProjectServiceClient
from nebius.api.nebius.mk8s.v1 import (
    ClusterServiceClient,
    CreateClusterRequest,
    CreateNodeGroupRequest,
    DeleteClusterRequest,
    DeleteNodeGroupRequest,
    ListClusterControlPlaneVersionsRequest,
    ListClustersRequest,
    ListNodeGroupsRequest,
    NodeGroupServiceClient,
    UpdateNodeGroupRequest,
)
from nebius.api.nebius.vpc.v1 import (
    CreateDefaultNetworkRequest,
    CreateSubnetRequest,
    DeleteNetworkRequest,
    DeleteSubnetRequest,
    ListNetworksRequest,
    ListSubnetsRequest,
    NetworkServiceClient,
    SubnetServiceClient,
)
from nebius.base.error import SDKError
from nebius.base.options import INSECURE
from nebius.base.resolver import Constant
from nebius.base.service_account.credentials_file import ServiceAccountCredentials
from nebius.base.service_account.service_account import ServiceAccount
from nebius.sdk import SDK

from modelplane_dagster import errors
from resources.clouds.rest import Limits, NotThereError

# Every failure is raised to us and told in our words; the SDK would print each attempt's traceback besides.
logging.getLogger("nebius").setLevel(logging.CRITICAL)
_PAGE = 100
_AGENT = "modelplane-dagster/0.1"
# kind: client, list request, create method and request, delete request.
_KINDS: Mapping[str, tuple[Any, Any, str, Any, Any]] = {
    "network": (
        NetworkServiceClient,
        ListNetworksRequest,
        "create_default",
        CreateDefaultNetworkRequest,
        DeleteNetworkRequest,
    ),
    "subnet": (SubnetServiceClient, ListSubnetsRequest, "create", CreateSubnetRequest, DeleteSubnetRequest),
    "cluster": (ClusterServiceClient, ListClustersRequest, "create", CreateClusterRequest, DeleteClusterRequest),
    "node_group": (
        NodeGroupServiceClient,
        ListNodeGroupsRequest,
        "create",
        CreateNodeGroupRequest,
        DeleteNodeGroupRequest,
    ),
    "gpu_cluster": (
        GpuClusterServiceClient,
        ListGpuClustersRequest,
        "create",
        CreateGpuClusterRequest,
        DeleteGpuClusterRequest,
    ),
}
_CODES: Mapping[str, type[errors.CloudError]] = {
    "UNAUTHENTICATED": errors.CloudCredentialsError,
    "PERMISSION_DENIED": errors.CloudCredentialsError,
    "ALREADY_EXISTS": errors.CloudNameTakenError,
    "ABORTED": errors.CloudBusyError,
    "FAILED_PRECONDITION": errors.CloudBusyError,
    "INVALID_ARGUMENT": errors.CloudInvalidError,
    "OUT_OF_RANGE": errors.CloudInvalidError,
    "UNIMPLEMENTED": errors.CloudInvalidError,
    "NOT_FOUND": NotThereError,
    "UNAVAILABLE": errors.CloudRetryableError,
    "DEADLINE_EXCEEDED": errors.CloudRetryableError,
    "INTERNAL": errors.CloudRetryableError,
    "UNKNOWN": errors.CloudRetryableError,
}
# RESOURCE_EXHAUSTED says three things; the service error beside it says which.
_DETAILS: Mapping[str, type[errors.CloudError]] = {
    "quota_failure": errors.CloudQuotaError,
    "not_enough_resources": errors.CloudCapacityError,
    "too_many_requests": errors.CloudRetryableError,
    "bad_request": errors.CloudInvalidError,
    "resource_already_exists": errors.CloudNameTakenError,
    "operation_conflict": errors.CloudBusyError,
    "resource_conflict": errors.CloudBusyError,
}


class NebiusApi:
    """`endpoint` is `host:port` of a simulated cloud, None for the real one. `service_account` is the credentials file's
    JSON, None for NEBIUS_IAM_TOKEN of the environment."""

    def __init__(self, *, endpoint: str | None, service_account: str | None, limits: Limits) -> None:
        self._limits = limits
        with asking("sign in"):
            self._sdk = _sdk(endpoint, service_account)

    def project(self, identifier: str) -> dict[str, Any]:
        with asking(f"read project {identifier}"):
            return _plain(self._send(ProjectServiceClient(self._sdk).get, GetProjectRequest(id=identifier)))

    def listed(self, kind: str, parent: str) -> Iterator[dict[str, Any]]:
        """Every object of the kind under the parent, page by page."""
        client, request, _, _, _ = _KINDS[kind]
        yield from self._pages(client(self._sdk).list, request, parent, f"list each {kind}")

    def platforms(self, parent: str) -> Iterator[dict[str, Any]]:
        yield from self._pages(PlatformServiceClient(self._sdk).list, ListPlatformsRequest, parent, "list platforms")

    def versions(self) -> list[dict[str, Any]]:
        with asking("list versions"):
            listed = self._send(
                ClusterServiceClient(self._sdk).list_control_plane_versions, ListClusterControlPlaneVersionsRequest()
            )
            return _plain(listed).get("items", [])

    def create(self, kind: str, body: Mapping[str, Any]) -> tuple[str, bool]:
        """The new object's id, and whether it is made already; a creation that failed at once raises."""
        client, _, method, request, _ = _KINDS[kind]
        with asking(f"create {kind}"):
            operation = self._send(getattr(client(self._sdk), method), request.from_json(json.dumps(body)))
            _demand_success(operation)
            return operation.resource_id, operation.done()

    def update_node_group(self, group: Mapping[str, Any]) -> None:
        """`group` is the whole object as it was read, changed. The SDK names every unset field in the reset mask, so
        a part alone would take the rest away; the resource version stops it from undoing another's change."""
        body = {"metadata": group["metadata"], "spec": group["spec"]}
        with asking("update node_group"):
            request = UpdateNodeGroupRequest.from_json(json.dumps(body))
            _demand_success(self._send(NodeGroupServiceClient(self._sdk).update, request))

    def delete(self, kind: str, identifier: str) -> bool:
        """Whether it was there to be deleted."""
        client, _, _, _, request = _KINDS[kind]
        try:
            with asking(f"delete {kind}"):
                _demand_success(self._send(client(self._sdk).delete, request(id=identifier)))
        except NotThereError:
            return False
        return True

    def _pages(self, method: Any, request: Any, parent: str, what: str) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - SDK types
        token = ""
        while True:
            with asking(what):
                page = _plain(self._send(method, request(parent_id=parent, page_size=_PAGE, page_token=token)))
            yield from page.get("items", ())
            token = page.get("next_page_token", "")
            if not token:
                return

    def _send(self, method: Any, request: Any) -> Any:  # noqa: ANN401 - SDK types
        """The SDK sends a call again under one idempotency key, so its own attempts can't act twice."""
        whole = self._limits.timeout * self._limits.attempts
        return method(
            request,
            timeout=whole,
            per_retry_timeout=self._limits.timeout,
            auth_timeout=whole,
            retries=self._limits.attempts,
        ).wait()


def event_error(event: Mapping[str, Any], what: str) -> errors.CloudError | None:
    """What an object's event of level ERROR says, typed as if the call had failed; None where it holds no error."""
    status = event.get("error")
    if not status:
        return None
    number, text = int(status.get("code", 2)), str(status.get("message", ""))
    details = status.get("details", ())
    return _typed(_code_name(number), text or str(event.get("message", "")), [_detail(d) for d in details], what)


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Turns the SDK's errors into ours."""
    try:
        yield
    except RequestError as error:
        raise _from_status(error.status, what) from error
    except (SdkRequestError, TimeoutError) as error:
        raise errors.CloudRetryableError(
            f"Nebius: {what}: no answer ({type(error).__name__}).", code="transport"
        ) from error
    except SDKError as error:
        # Everything else that the SDK raises on its own is about signing in.
        raise errors.CloudCredentialsError(f"Nebius: {what}: {type(error).__name__}.", code="sdk") from error


def service_account_of(text: str) -> ServiceAccount:
    """From the text of a service account's credentials file. Raises CloudCredentialsError where it isn't one; the
    message holds nothing of it."""
    try:
        subject = ServiceAccountCredentials.from_json(json.loads(text)).subject_credentials
        return ServiceAccount(subject.parse_private_key(), subject.kid, subject.sub)
    except (ValueError, KeyError, TypeError):
        # The original isn't chained: a JSON error carries the whole text.
        raise errors.CloudCredentialsError(
            "Nebius: the secret holds no service account credentials (subject-credentials with an RS256 private key).",
            code="credentials-file",
        ) from None


def _sdk(endpoint: str | None, service_account: str | None) -> SDK:
    if endpoint is not None:
        return SDK(
            resolver=Constant(endpoint),
            # A proxy of the environment would be asked for loopback too.
            options=[(INSECURE, True), ("grpc.enable_http_proxy", 0)],
            credentials=NoCredentials(),
            user_agent_prefix=_AGENT,
            domain="local.invalid",
        )
    credentials = service_account_of(service_account) if service_account else None
    return SDK(credentials=credentials, user_agent_prefix=_AGENT)


def _plain(message: Any) -> dict[str, Any]:  # noqa: ANN401 - any message of the SDK
    """64-bit numbers are strings in it, as protobuf's JSON has them."""
    return json.loads(message.to_json(preserving_proto_field_name=True))


def _demand_success(operation: Any) -> None:  # noqa: ANN401 - the SDK's operation is generic over its message
    if operation.done() and not operation.successful():
        status = operation.status()
        if isinstance(status, RequestStatusExtended):
            raise _from_status(status, "operation")
        raise _typed(status.code.name, status.message or "", [], "operation")


def _from_status(status: RequestStatusExtended, what: str) -> errors.CloudError:
    kinds = [str(getattr(e.details, "field", "") or "") for e in status.service_errors if e.details is not None]
    return _typed(status.code.name, status.message or "", kinds, what)


def _typed(code: str, text: str, kinds: list[str], what: str) -> errors.CloudError:
    made = next((_DETAILS[k] for k in kinds if k in _DETAILS), None)
    if made is None:
        # Without a detail, an exhausted resource is a quota: the project's own limit is what Nebius states this way.
        made = _CODES.get(code, errors.CloudQuotaError if code == "RESOURCE_EXHAUSTED" else errors.CloudRetryableError)
    return made(f"Nebius: {what}: {text or code}", code=code)


def _code_name(number: int) -> str:
    import grpc  # noqa: PLC0415 - only where a status number has to be named

    return next((c.name for c in grpc.StatusCode if c.value[0] == number), "UNKNOWN")


def _detail(detail: Mapping[str, Any]) -> str:
    """The set field of a ServiceError that an event's status holds."""
    return next((kind for kind in _DETAILS if kind in detail or _camel(kind) in detail), "")


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)
