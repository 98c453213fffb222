"""EKS through boto3.

What the account must hold, once, for our clusters: the roles `modelplane-eks-cluster` and `modelplane-eks-node`, and
subnets in at least two zones tagged `modelplane-cluster` with the cluster's name or `shared`; for EFA also a security
group with that tag and `modelplane-use=efa` that lets its own members talk. What is missing is named in a
CloudInvalidError. EKS's own autoscaling group tells how many machines stand behind a group that failed.
"""

from __future__ import annotations

import base64
import configparser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from modelplane_dagster import errors
from modelplane_dagster.kube.objects import Taint
from modelplane_dagster.sources.record import CLUSTER_TAG, POOL_TAG, SYSTEM_POOL
from resources.clouds import drift
from resources.clouds.kubeconfig import LAB_USER, exec_user, kubeconfig
from resources.clouds.seam import CloudCluster, CloudPool, ClusterRef, ClusterState, InstanceType, PoolState, Progress

CLUSTER_ROLE = "modelplane-eks-cluster"
NODE_ROLE = "modelplane-eks-node"
SHARED = "shared"

_CLUSTER_STATES: dict[str, ClusterState] = {
    "CREATING": "creating",
    "PENDING": "creating",
    "ACTIVE": "ready",
    "UPDATING": "updating",
    "DELETING": "deleting",
    "FAILED": "failed",
}
_POOL_STATES: dict[str, PoolState] = {
    "CREATING": "creating",
    "ACTIVE": "ready",
    "UPDATING": "updating",
    "DELETING": "deleting",
    "DELETE_FAILED": "degraded",
    "DEGRADED": "degraded",
    "CREATE_FAILED": "create-failed",
}
_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}

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


class EksCloud:
    """The cloud seam for EKS. `secrets["credentials"]` is an AWS credentials file's text, its profile `default`."""

    source = "EKS"

    def __init__(
        self, *, endpoint: str | None = None, account: str | None = None, secrets: Mapping[str, str] | None = None
    ) -> None:
        import boto3  # noqa: PLC0415 - an SDK is imported where it is used
        from botocore import UNSIGNED, exceptions  # noqa: PLC0415 - as above
        from botocore.config import Config  # noqa: PLC0415 - as above

        self._endpoint = endpoint.rstrip("/") if endpoint else None
        del account  # Credentials lead to one AWS account; `whoami` says which.
        self._account = ""
        self._keys = _keys(secrets)
        self._session = boto3.Session(**self._keys)
        self._config = Config(
            retries={"mode": "standard", "total_max_attempts": drift.ATTEMPTS},
            connect_timeout=drift.CONNECT_SECONDS,
            read_timeout=drift.READ_SECONDS,
            **({"signature_version": UNSIGNED} if endpoint else {}),
        )
        self._errors = exceptions
        self._clients: dict[tuple[str, str], Any] = {}

    # Reading

    def whoami(self) -> str:
        if not self._account:
            with self._asking("say whose credentials these are"):
                self._account = self._client("sts", "us-east-1").get_caller_identity()["Account"]
        return self._account

    def observe(self, ref: ClusterRef) -> CloudCluster | None:
        cluster = self._cluster(ref)
        if cluster is None:
            return None
        pools = [self._pool(ref, group) for group in self._groups(ref)]
        return CloudCluster(
            name=ref.name,
            state=_CLUSTER_STATES.get(cluster["status"], "updating"),
            version=cluster.get("version", ""),
            ours=drift.is_ours(cluster.get("tags"), ref),
            account=cluster["arn"].split(":")[4],
            pools=tuple(p for p in pools if not _is_system(p)),
            system_pool=next((p for p in pools if _is_system(p)), None),
            message=_issues(cluster)[1],
        )

    def credentials(self, ref: ClusterRef) -> dict[str, Any]:
        cluster = self._cluster(ref)
        if cluster is None or not cluster.get("endpoint"):
            raise errors.NotReadyError(f"The API of cluster {ref.name} has no endpoint yet.")
        ca_pem = base64.b64decode(cluster.get("certificateAuthority", {}).get("data", "")).decode()
        env = {f"AWS_{k.removeprefix('aws_').upper()}": v for k, v in self._keys.items()}
        user = LAB_USER if self._endpoint else exec_user("eks", ref.name, ref.location, env=env)
        return kubeconfig(ref.name, cluster["endpoint"], user, ca_pem=ca_pem)

    def instance_types(self, ref: ClusterRef, names: tuple[str, ...]) -> Mapping[str, InstanceType]:
        if not names:
            return {}
        found: dict[str, InstanceType] = {}
        with self._asking(f"describe instance types in {ref.location}"):
            pages = self._client("ec2", ref.location).get_paginator("describe_instance_types")
            # A filter, since naming an unknown type fails the whole call.
            for page in pages.paginate(Filters=[{"Name": "instance-type", "Values": list(names)}]):
                for item in page["InstanceTypes"]:
                    found[item["InstanceType"]] = _instance_type(item)
        return found

    def versions(self, ref: ClusterRef) -> tuple[str, ...]:
        with self._asking(f"list versions in {ref.location}"):
            pages = self._client("eks", ref.location).get_paginator("describe_cluster_versions")
            found = [
                v["clusterVersion"]
                for page in pages.paginate(versionStatus="STANDARD_SUPPORT")
                for v in page["clusterVersions"]
            ]
        return tuple(sorted(found, key=lambda v: [int(part) for part in v.split(".")], reverse=True))

    # Writing

    def ensure_control_plane(self, ref: ClusterRef, request: Mapping[str, Any]) -> Progress:
        body = dict(request)
        system = body.pop("systemNodegroup")
        cluster = self._cluster(ref)
        if cluster is None:
            drift.demand_account(ref, self.whoami())
            body["roleArn"] = self._role(ref, CLUSTER_ROLE)
            body["resourcesVpcConfig"] = {**body["resourcesVpcConfig"], "subnetIds": self._subnets(ref, ())}
            self._create(f"create cluster {ref.name}", lambda: self._eks(ref).create_cluster(**body))
            cluster = self._cluster(ref)
            drift.demand_ours(f"Cluster {ref.name}", ours=cluster is None or drift.is_ours(cluster.get("tags"), ref))
            return Progress("pending", f"cluster {ref.name} to be created", changed=True)
        drift.demand_ours(f"Cluster {ref.name}", ours=drift.is_ours(cluster.get("tags"), ref))
        state = _CLUSTER_STATES.get(cluster["status"], "updating")
        if state == "failed":
            self._raise_issue(f"create cluster {ref.name}", *_issues(cluster))
        if state != "ready":
            return Progress("pending", f"cluster {ref.name}, which is {state}")
        return self._ensure_group(ref, system)

    def ensure_pool(self, ref: ClusterRef, name: str, request: Mapping[str, Any]) -> Progress:
        del name  # EKS takes the pool's own name, which the request holds.
        return self._ensure_group(ref, request)

    def _ensure_group(self, ref: ClusterRef, request: Mapping[str, Any]) -> Progress:
        name = request["nodegroupName"]
        what = f"pool {name} of cluster {ref.name}"
        group = self._group(ref, name)
        if group is None:
            drift.demand_account(ref, self.whoami())
            body = self._completed(ref, request)
            self._create(f"create {what}", lambda: self._eks(ref).create_nodegroup(**body))
            made = self._group(ref, name)
            drift.demand_ours(what.capitalize(), ours=made is None or drift.is_ours(made.get("tags"), ref))
            return Progress("pending", f"{what} to be created", changed=True)
        drift.demand_ours(what.capitalize(), ours=drift.is_ours(group.get("tags"), ref))
        pool = self._pool(ref, group)
        if pool.state == "create-failed":
            if pool.joined == 0:
                with self._asking(f"clear {what}, which failed"):
                    self._eks(ref).delete_nodegroup(clusterName=ref.name, nodegroupName=name)
            self._raise_issue(f"create {what}", *_issues(group))
        if pool.state in ("updating", "deleting"):
            return Progress("pending", f"{what}, which is {pool.state}")
        if pool.state == "creating":
            if _issues(group)[0]:
                self._raise_issue(f"create {what}", *_issues(group))
            return Progress("pending", f"{what} to be created")
        return self._update(ref, pool, request) or self._settled(what, group)

    def _settled(self, what: str, group: Mapping[str, Any]) -> Progress:
        if group["status"] != "ACTIVE":
            self._raise_issue(f"keep {what}", *_issues(group))
        return Progress("ready")

    def _update(self, ref: ClusterRef, pool: CloudPool, request: Mapping[str, Any]) -> Progress | None:
        """One call with the delta, since a second one would meet the first still running; None for no drift."""
        change: dict[str, Any] = {}
        if labels := drift.labels_to_set(request["labels"], pool.labels):
            change["labels"] = {"addOrUpdateLabels": labels}
        missing = {(t.key, t.effect) for t in drift.taints_to_add(_taints(request), pool.taints)}
        if missing:
            add = [t for t in request["taints"] if (t["key"], _EFFECTS[t["effect"]]) in missing]
            change["taints"] = {"addOrUpdateTaints": add}
        if scaling := _scaling_change(request["scalingConfig"], pool.provider["scalingConfig"]):
            change["scalingConfig"] = scaling
        if not change:
            return None
        what = f"pool {pool.name} of cluster {ref.name}"
        with self._asking(f"update {what}"):
            self._eks(ref).update_nodegroup_config(clusterName=ref.name, nodegroupName=pool.name, **change)
        return Progress("pending", f"{what} to be updated", changed=True)

    def delete_pool(self, ref: ClusterRef, name: str) -> Progress:
        group = self._group(ref, name)
        if group is None:
            return Progress("ready")
        what = f"pool {name} of cluster {ref.name}"
        drift.demand_ours(what.capitalize(), ours=drift.is_ours(group.get("tags"), ref))
        if group["status"] == "DELETING":
            return Progress("pending", f"{what} to go")
        with self._asking(f"delete {what}"):
            self._eks(ref).delete_nodegroup(clusterName=ref.name, nodegroupName=name)
        return Progress("pending", f"{what} to go", changed=True)

    def delete_cluster(self, ref: ClusterRef) -> Progress:
        """Asks for the groups' deletion first: EKS refuses to delete a cluster that still has one."""
        cluster = self._cluster(ref)
        if cluster is None:
            return Progress("ready")
        drift.demand_ours(f"Cluster {ref.name}", ours=drift.is_ours(cluster.get("tags"), ref))
        if cluster["status"] == "DELETING":
            return Progress("pending", f"cluster {ref.name} to go")
        groups = self._groups(ref)
        if groups:
            changed = any([self.delete_pool(ref, g["nodegroupName"]).changed for g in groups])  # noqa: C419 - every group is asked for
            return Progress("pending", f"the pools of cluster {ref.name} to go", changed=changed)
        with self._asking(f"delete cluster {ref.name}"):
            self._eks(ref).delete_cluster(name=ref.name)
        return Progress("pending", f"cluster {ref.name} to go", changed=True)

    # What EKS tells

    def _cluster(self, ref: ClusterRef) -> dict[str, Any] | None:
        return self._found(
            f"describe cluster {ref.name}", lambda: self._eks(ref).describe_cluster(name=ref.name)["cluster"]
        )

    def _group(self, ref: ClusterRef, name: str) -> dict[str, Any] | None:
        return self._found(
            f"describe pool {name} of cluster {ref.name}",
            lambda: self._eks(ref).describe_nodegroup(clusterName=ref.name, nodegroupName=name)["nodegroup"],
        )

    def _groups(self, ref: ClusterRef) -> list[dict[str, Any]]:
        with self._asking(f"list the pools of cluster {ref.name}"):
            pages = self._eks(ref).get_paginator("list_nodegroups").paginate(clusterName=ref.name)
            names = [name for page in pages for name in page["nodegroups"]]
        # One that went away between the two reads is left out.
        return [group for group in (self._group(ref, name) for name in names) if group is not None]

    def _pool(self, ref: ClusterRef, group: Mapping[str, Any]) -> CloudPool:
        state = _POOL_STATES.get(group["status"], "updating")
        scaling = group["scalingConfig"]
        low, high = scaling["minSize"], scaling["maxSize"]
        fixed = _fixed(scaling)
        tags = group.get("tags") or {}
        return CloudPool(
            name=group["nodegroupName"],
            state=state,
            labels=dict(group.get("labels") or {}),
            taints=_taints(group),
            count=scaling["desiredSize"],
            joined=self._joined(ref, group, state),
            minimum=None if fixed else low,
            maximum=None if fixed else high,
            message=_issues(group)[1],
            ours=drift.is_ours(tags, ref),
            provider={
                "pool": tags.get(POOL_TAG, ""),
                "amiType": group.get("amiType", ""),
                "instanceTypes": list(group.get("instanceTypes") or ()),
                "diskSize": group.get("diskSize"),
                "capacityType": group.get("capacityType", ""),
                "scalingConfig": dict(scaling),
            },
        )

    def _joined(self, ref: ClusterRef, group: Mapping[str, Any], state: PoolState) -> int:
        """An active group has all its nodes. Otherwise: the machines of its autoscaling group, less those that EKS
        says never joined."""
        if state in ("ready", "updating"):
            return int(group["scalingConfig"]["desiredSize"])
        names = [g["name"] for g in (group.get("resources") or {}).get("autoScalingGroups", [])]
        if not names:
            return 0
        with self._asking(f"count the machines of pool {group['nodegroupName']} of cluster {ref.name}"):
            found = self._client("autoscaling", ref.location).describe_auto_scaling_groups(AutoScalingGroupNames=names)
        machines = {i["InstanceId"] for g in found["AutoScalingGroups"] for i in g["Instances"]}
        for issue in (group.get("health") or {}).get("issues", []):
            if issue["code"] == "NodeCreationFailure":
                machines -= set(issue.get("resourceIds", []))
        return len(machines)

    # What the account holds

    def _completed(self, ref: ClusterRef, request: Mapping[str, Any]) -> dict[str, Any]:
        body = dict(request)
        zones = tuple(body.pop("zones", ()))
        body["nodeRole"] = self._role(ref, NODE_ROLE)
        body["subnets"] = self._subnets(ref, zones)
        if data := body.pop("launchTemplateData", None):
            self._template(ref, body["launchTemplate"]["name"], data)
        return body

    def _role(self, ref: ClusterRef, name: str) -> str:
        role = self._found(
            f"look up the role {name}", lambda: self._client("iam", ref.location).get_role(RoleName=name)["Role"]
        )
        if role is None:
            raise errors.CloudInvalidError(f"Cluster {ref.name} needs the IAM role {name}, and the account has none.")
        return role["Arn"]

    def _subnets(self, ref: ClusterRef, zones: tuple[str, ...]) -> list[str]:
        """Subnet ids, those of `zones` where any are given."""
        filters = [{"Name": f"tag:{CLUSTER_TAG}", "Values": [ref.name, SHARED]}]
        with self._asking(f"list the subnets of cluster {ref.name}"):
            pages = self._client("ec2", ref.location).get_paginator("describe_subnets").paginate(Filters=filters)
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

    def _template(self, ref: ClusterRef, name: str, data: Mapping[str, Any]) -> None:
        """Makes the launch template unless it is there."""
        ec2 = self._client("ec2", ref.location)
        if self._found("look", lambda: ec2.describe_launch_templates(LaunchTemplateNames=[name])["LaunchTemplates"]):
            return
        body = dict(data)
        if "NetworkInterfaces" in body:
            groups = self._efa_groups(ref)
            body["NetworkInterfaces"] = [{**card, "Groups": groups} for card in body["NetworkInterfaces"]]
        with self._asking(f"create the launch template {name}"):
            ec2.create_launch_template(LaunchTemplateName=name, ClientToken=name, LaunchTemplateData=body)

    def _efa_groups(self, ref: ClusterRef) -> list[str]:
        filters = [
            {"Name": f"tag:{CLUSTER_TAG}", "Values": [ref.name, SHARED]},
            {"Name": "tag:modelplane-use", "Values": ["efa"]},
        ]
        with self._asking(f"list the security groups of cluster {ref.name}"):
            found = self._client("ec2", ref.location).describe_security_groups(Filters=filters)["SecurityGroups"]
        if not found:
            raise errors.CloudInvalidError(
                f"Cluster {ref.name} needs a security group for EFA, tagged modelplane-use=efa and {CLUSTER_TAG}={ref.name}"
                f" or {CLUSTER_TAG}={SHARED}, and {ref.location} has none."
            )
        cluster = self._cluster(ref) or {}
        own = cluster.get("resourcesVpcConfig", {}).get("clusterSecurityGroupId")
        return [g for g in (own, *sorted(f["GroupId"] for f in found)) if g]

    # Asking

    def _client(self, service: str, region: str) -> Any:  # noqa: ANN401 - boto3 makes its clients' classes as it runs
        if (service, region) not in self._clients:
            url = f"{self._endpoint}/regions/{region}" if self._endpoint else None
            self._clients[(service, region)] = self._session.client(
                service, region_name=region, endpoint_url=url, config=self._config
            )
        return self._clients[(service, region)]

    def _eks(self, ref: ClusterRef) -> Any:  # noqa: ANN401 - as above
        if not ref.location:
            raise errors.CloudInvalidError(f"Cluster {ref.name} has no region.")
        return self._client("eks", ref.location)

    def _create(self, what: str, call: Callable[[], object]) -> None:
        """A create whose reply was lost, or that another attempt has done already, isn't an error: the caller reads
        again. The one that fails otherwise raises."""
        try:
            with self._asking(what):
                call()
        except (errors.CloudBusyError, drift.LostReplyError):
            return

    def _found(self, what: str, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - a boto3 answer
        """What the call gives, or None where the cloud knows no such thing."""
        try:
            with self._asking(what):
                return call()
        except drift.AbsentError:
            return None

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
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

    def _raise_issue(self, what: str, code: str, text: str) -> NoReturn:
        inside = next((c for c in _INSIDE if c in text), code)
        kind = _BY_CODE.get(inside, errors.CloudInvalidError)
        raise kind(f"EKS couldn't {what}: {text or 'it gives no reason'}", code=inside)


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


def _taints(body: Mapping[str, Any]) -> tuple[Taint, ...]:
    return tuple(Taint(t["key"], t.get("value") or "", _EFFECTS[t["effect"]]) for t in body.get("taints") or ())


def _fixed(scaling: Mapping[str, int]) -> bool:
    """A pool whose size is asked for. Its greatest size is at least one, since EKS takes no less."""
    return scaling["minSize"] == scaling["desiredSize"] and scaling["maxSize"] == max(1, scaling["minSize"])


def _scaling_change(want: Mapping[str, int], have: Mapping[str, int]) -> dict[str, int]:
    """What to send, empty for nothing. The desired size of an autoscaled pool is the autoscaler's."""
    keys = ("minSize", "maxSize", "desiredSize") if _fixed(want) else ("minSize", "maxSize")
    return {k: want[k] for k in keys} if any(want[k] != have[k] for k in keys) else {}


def _issues(thing: Mapping[str, Any]) -> tuple[str, str]:
    """The first issue's code, and all their messages; empty for none."""
    issues = (thing.get("health") or {}).get("issues") or []
    return (issues[0]["code"] if issues else ""), " ".join(i.get("message", i["code"]) for i in issues)


def _is_system(pool: CloudPool) -> bool:
    return pool.ours and pool.name == SYSTEM_POOL


def _instance_type(item: Mapping[str, Any]) -> InstanceType:
    gpus = (item.get("GpuInfo") or {}).get("Gpus") or []
    return InstanceType(
        name=item["InstanceType"],
        vcpus=item["VCpuInfo"]["DefaultVCpus"],
        memory_mib=item["MemoryInfo"]["SizeInMiB"],
        gpus=sum(g.get("Count", 0) for g in gpus),
        gpu_vendor=gpus[0]["Manufacturer"].lower() if gpus else "",
    )
