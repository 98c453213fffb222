"""EKS's clients, its errors, and what the account must hold for our clusters.

Once for each account: the roles `modelplane-eks-cluster` and `modelplane-eks-node`, and subnets in at least two zones
tagged `modelplane-cluster` with the cluster's name or `shared`; for EFA also a security group with that tag and
`modelplane-use=efa` that lets its own members talk. What is missing is named in a CloudInvalidError.
"""

from __future__ import annotations

import configparser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from modelplane_dagster import errors
from modelplane_dagster.sources.record import CLUSTER_TAG
from resources.clouds import drift
from resources.clouds.seam import ClusterRef

CLUSTER_ROLE = "modelplane-eks-cluster"
NODE_ROLE = "modelplane-eks-node"
SHARED = "shared"

_BY_CODE: dict[str, type[errors.CloudError]] = {
    "ResourceInUseException": errors.CloudBusyError,
    "ThrottlingException": errors.CloudRetryableError,
    "Throttling": errors.CloudRetryableError,
    "TooManyRequestsException": errors.CloudRetryableError,
    "RequestLimitExceeded": errors.CloudRetryableError,
    "ServerException": errors.CloudRetryableError,
    "ServiceUnavailableException": errors.CloudRetryableError,
    "InternalError": errors.CloudRetryableError,
    "ResourceLimitExceededException": errors.CloudQuotaError,
    "InstanceLimitExceeded": errors.CloudQuotaError,
    "VcpuLimitExceeded": errors.CloudQuotaError,
    "InsufficientInstanceCapacity": errors.CloudCapacityError,
    "UnsupportedAvailabilityZoneException": errors.CloudCapacityError,
    "InsufficientFreeAddresses": errors.CloudQuotaError,
    "AccessDenied": errors.CloudCredentialsError,
    "AccessDeniedException": errors.CloudCredentialsError,
    "UnauthorizedOperation": errors.CloudCredentialsError,
    "UnrecognizedClientException": errors.CloudCredentialsError,
    "InvalidClientTokenId": errors.CloudCredentialsError,
    "AuthFailure": errors.CloudCredentialsError,
    "ExpiredToken": errors.CloudCredentialsError,
    "ExpiredTokenException": errors.CloudCredentialsError,
}
# The issue code AsgInstanceLaunchFailures says that EC2 refused; EC2's own code stands in the message.
_INSIDE = ("InsufficientInstanceCapacity", "VcpuLimitExceeded", "InstanceLimitExceeded")


class EksApi:
    """boto3 clients by service and region, made when first needed. `keys` are what the session was given, empty for the
    default chain; `simulated` says that no real AWS is behind it."""

    def __init__(self, *, endpoint: str | None, secrets: Mapping[str, str] | None) -> None:
        import boto3  # noqa: PLC0415 - an SDK is imported where it is used
        from botocore import UNSIGNED, exceptions  # noqa: PLC0415 - as above
        from botocore.config import Config  # noqa: PLC0415 - as above

        self._endpoint = endpoint.rstrip("/") if endpoint else None
        self.keys = _keys(secrets)
        self._session = boto3.Session(**self.keys)
        self._config = Config(
            retries={"mode": "standard", "total_max_attempts": drift.ATTEMPTS},
            connect_timeout=drift.CONNECT_SECONDS,
            read_timeout=drift.READ_SECONDS,
            **({"signature_version": UNSIGNED} if endpoint else {}),
        )
        self.simulated = endpoint is not None
        self._errors = exceptions
        self._clients: dict[tuple[str, str], Any] = {}

    # Asking

    def client(self, service: str, region: str) -> Any:  # noqa: ANN401 - boto3 makes its clients' classes as it runs
        if (service, region) not in self._clients:
            url = f"{self._endpoint}/regions/{region}" if self._endpoint else None
            self._clients[(service, region)] = self._session.client(
                service, region_name=region, endpoint_url=url, config=self._config
            )
        return self._clients[(service, region)]

    def eks(self, ref: ClusterRef) -> Any:  # noqa: ANN401 - as above
        if not ref.location:
            raise errors.CloudInvalidError(f"Cluster {ref.name} has no region.")
        return self.client("eks", ref.location)

    def create(self, what: str, call: Callable[[], object]) -> None:
        """A create whose reply was lost, or that another attempt has done already, isn't an error: the caller reads
        again. The one that fails otherwise raises."""
        try:
            with self.asking(what):
                call()
        except (errors.CloudBusyError, drift.LostReplyError):
            return

    def found(self, what: str, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - a boto3 answer
        """What the call gives, or None where the cloud knows no such thing."""
        try:
            with self.asking(what):
                return call()
        except drift.AbsentError:
            return None

    @contextmanager
    def asking(self, what: str) -> Iterator[None]:
        known = self._errors
        try:
            yield
        except known.ClientError as error:
            code = error.response["Error"]["Code"]
            message = f"EKS didn't {what}: {error.response['Error'].get('Message', '')} ({code})"
            raise _by_code(code, error)(message, code=code) from error
        except (known.NoCredentialsError, known.PartialCredentialsError, known.TokenRetrievalError) as error:
            raise errors.CloudCredentialsError(f"EKS can't {what} without credentials: {error}") from error
        except known.ProfileNotFound as error:
            raise errors.CloudCredentialsError(f"EKS can't {what}: {error}") from error
        except known.ParamValidationError as error:
            raise errors.CloudInvalidError(f"EKS can't {what}: {error}") from error
        except (known.HTTPClientError, known.ResponseStreamingError) as error:
            raise drift.LostReplyError(f"EKS couldn't be reached to {what}: {error}") from error
        except known.BotoCoreError as error:
            raise errors.CloudRetryableError(f"EKS couldn't be asked to {what}: {error}") from error

    def raise_issue(self, what: str, code: str, text: str) -> NoReturn:
        inside = next((c for c in _INSIDE if c in text), code)
        kind = _BY_CODE.get(inside, errors.CloudInvalidError)
        raise kind(f"EKS couldn't {what}: {text or 'it gives no reason'}", code=inside)

    # What the account holds

    def completed(self, ref: ClusterRef, request: Mapping[str, Any]) -> dict[str, Any]:
        body = dict(request)
        zones = tuple(body.pop("zones", ()))
        body["nodeRole"] = self.role(ref, NODE_ROLE)
        body["subnets"] = self.subnets(ref, zones)
        if data := body.pop("launchTemplateData", None):
            self.template(ref, body["launchTemplate"]["name"], data)
        return body

    def role(self, ref: ClusterRef, name: str) -> str:
        role = self.found(
            f"look up the role {name}", lambda: self.client("iam", ref.location).get_role(RoleName=name)["Role"]
        )
        if role is None:
            raise errors.CloudInvalidError(f"Cluster {ref.name} needs the IAM role {name}, and the account has none.")
        return role["Arn"]

    def subnets(self, ref: ClusterRef, zones: tuple[str, ...]) -> list[str]:
        """Subnet ids, those of `zones` where any are given."""
        filters = [{"Name": f"tag:{CLUSTER_TAG}", "Values": [ref.name, SHARED]}]
        with self.asking(f"list the subnets of cluster {ref.name}"):
            pages = self.client("ec2", ref.location).get_paginator("describe_subnets").paginate(Filters=filters)
            found = [(s["AvailabilityZone"], s["SubnetId"]) for page in pages for s in page["Subnets"]]
        there = {zone for zone, _ in found}
        absent = sorted(set(zones) - there)
        if absent or (not zones and len(there) < 2):
            needs = f"in {', '.join(absent)}" if absent else "in two zones"
            raise errors.CloudInvalidError(
                f"Cluster {ref.name} needs a subnet {needs} of {ref.location}, tagged {CLUSTER_TAG}={ref.name} or"
                f" {CLUSTER_TAG}={SHARED}; such subnets lie in {', '.join(sorted(there)) or 'no zone'}."
            )
        return sorted(subnet for zone, subnet in found if not zones or zone in zones)

    def template(self, ref: ClusterRef, name: str, data: Mapping[str, Any]) -> None:
        """Makes the launch template unless it is there."""
        ec2 = self.client("ec2", ref.location)
        if self.found("look", lambda: ec2.describe_launch_templates(LaunchTemplateNames=[name])["LaunchTemplates"]):
            return
        body = dict(data)
        if "NetworkInterfaces" in body:
            groups = self.efa_groups(ref)
            body["NetworkInterfaces"] = [{**card, "Groups": groups} for card in body["NetworkInterfaces"]]
        with self.asking(f"create the launch template {name}"):
            ec2.create_launch_template(LaunchTemplateName=name, ClientToken=name, LaunchTemplateData=body)

    def efa_groups(self, ref: ClusterRef) -> list[str]:
        filters = [
            {"Name": f"tag:{CLUSTER_TAG}", "Values": [ref.name, SHARED]},
            {"Name": "tag:modelplane-use", "Values": ["efa"]},
        ]
        with self.asking(f"list the security groups of cluster {ref.name}"):
            found = self.client("ec2", ref.location).describe_security_groups(Filters=filters)["SecurityGroups"]
        if not found:
            raise errors.CloudInvalidError(
                f"Cluster {ref.name} needs a security group for EFA, tagged modelplane-use=efa and {CLUSTER_TAG}={ref.name}"
                f" or {CLUSTER_TAG}={SHARED}, and {ref.location} has none."
            )
        what = f"describe cluster {ref.name}"
        cluster = self.found(what, lambda: self.eks(ref).describe_cluster(name=ref.name)["cluster"]) or {}
        own = cluster.get("resourcesVpcConfig", {}).get("clusterSecurityGroupId")
        return [g for g in (own, *sorted(f["GroupId"] for f in found)) if g]


def _by_code(code: str, error: Any) -> type[errors.CloudError]:  # noqa: ANN401 - a ClientError, typed by the lazy SDK
    if code in ("ResourceNotFoundException", "NoSuchEntity") or code.endswith(".NotFoundException"):
        return drift.AbsentError
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    fallback = errors.CloudRetryableError if status == 429 or status >= 500 else errors.CloudInvalidError
    return _BY_CODE.get(code, fallback)


def _keys(secrets: Mapping[str, str] | None) -> dict[str, str]:
    """The keyword arguments of a boto3 session; empty for the default chain."""
    if secrets is None:
        return {}
    parser = configparser.ConfigParser()
    try:
        parser.read_string(secrets.get("credentials", ""))
        profile = parser["default"]
        given = {k: profile[k] for k in ("aws_access_key_id", "aws_secret_access_key")}
    except (configparser.Error, KeyError):
        # Neither chained nor quoted: the parser's error repeats the line, which may hold the key.
        raise errors.CloudCredentialsError(
            "The secret's key credentials must hold an AWS credentials file with the profile default."
        ) from None
    return given | ({"aws_session_token": profile["aws_session_token"]} if "aws_session_token" in profile else {})
