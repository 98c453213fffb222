"""EKS through boto3. `eks_api` says what the account must hold and how errors are told apart.

The autoscaling group of a node group that failed tells how many machines stand behind it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from modelplane_dagster import errors
from modelplane_dagster.kube.objects import Taint
from modelplane_dagster.sources.record import EFFECTS, POOL_TAG, SYSTEM_POOL
from resources.clouds import drift
from resources.clouds.eks_api import CLUSTER_ROLE, EksApi
from resources.clouds.kubeconfig import LAB_USER, exec_user, kubeconfig
from resources.clouds.seam import CloudCluster, CloudPool, ClusterRef, ClusterState, InstanceType, PoolState, Progress

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


class EksCloud:
    """The cloud seam for EKS. `secrets["credentials"]` is an AWS credentials file's text, its profile `default`."""

    source = "EKS"

    def __init__(
        self, *, endpoint: str | None = None, account: str | None = None, secrets: Mapping[str, str] | None = None
    ) -> None:
        del account  # Credentials lead to one AWS account; `whoami` says which.
        self._api = EksApi(endpoint=endpoint, secrets=secrets)
        self._account = ""

    # Reading

    def whoami(self) -> str:
        if not self._account:
            with self._api.asking("say whose credentials these are"):
                self._account = self._api.client("sts", "us-east-1").get_caller_identity()["Account"]
        return self._account

    def observe(self, ref: ClusterRef) -> CloudCluster | None:
        cluster = self._cluster(ref)
        if cluster is None:
            return None
        pools = [self._pool(ref, group) for group in self._groups(ref)]
        system = next((p for p in pools if _is_system(p)), None)
        return CloudCluster(
            name=ref.name,
            state=drift.standing(_CLUSTER_STATES.get(cluster["status"], "updating"), system),
            version=cluster.get("version", ""),
            ours=drift.is_ours(cluster.get("tags"), ref),
            account=cluster["arn"].split(":")[4],
            pools=tuple(p for p in pools if not _is_system(p)),
            system_pool=system,
            message=_issues(cluster)[1],
        )

    def credentials(self, ref: ClusterRef) -> dict[str, Any]:
        cluster = self._cluster(ref)
        if cluster is None or not cluster.get("endpoint"):
            raise errors.NotReadyError(f"The API of cluster {ref.name} has no endpoint yet.")
        ca_pem = base64.b64decode(cluster.get("certificateAuthority", {}).get("data", "")).decode()
        env = {f"AWS_{k.removeprefix('aws_').upper()}": v for k, v in self._api.keys.items()}
        user = LAB_USER if self._api.simulated else exec_user("eks", ref.name, ref.location, env=env)
        return kubeconfig(ref.name, cluster["endpoint"], user, ca_pem=ca_pem)

    def instance_types(self, ref: ClusterRef, names: tuple[str, ...]) -> Mapping[str, InstanceType]:
        if not names:
            return {}
        found: dict[str, InstanceType] = {}
        with self._api.asking(f"describe instance types in {ref.location}"):
            pages = self._api.client("ec2", ref.location).get_paginator("describe_instance_types")
            # A filter, since naming an unknown type fails the whole call.
            for page in pages.paginate(Filters=[{"Name": "instance-type", "Values": list(names)}]):
                for item in page["InstanceTypes"]:
                    found[item["InstanceType"]] = _instance_type(item)
        return found

    def versions(self, ref: ClusterRef) -> tuple[str, ...]:
        with self._api.asking(f"list versions in {ref.location}"):
            pages = self._api.client("eks", ref.location).get_paginator("describe_cluster_versions")
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
            body["roleArn"] = self._api.role(ref, CLUSTER_ROLE)
            body["resourcesVpcConfig"] = {**body["resourcesVpcConfig"], "subnetIds": self._api.subnets(ref, ())}
            self._api.create(f"create cluster {ref.name}", lambda: self._api.eks(ref).create_cluster(**body))
            cluster = self._cluster(ref)
            drift.demand_ours(f"Cluster {ref.name}", ours=cluster is None or drift.is_ours(cluster.get("tags"), ref))
            return Progress("pending", f"cluster {ref.name} to be created", changed=True)
        drift.demand_ours(f"Cluster {ref.name}", ours=drift.is_ours(cluster.get("tags"), ref))
        state = _CLUSTER_STATES.get(cluster["status"], "updating")
        if state == "failed":
            self._api.raise_issue(f"create cluster {ref.name}", *_issues(cluster))
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
            body = self._api.completed(ref, request)
            self._api.create(f"create {what}", lambda: self._api.eks(ref).create_nodegroup(**body))
            made = self._group(ref, name)
            drift.demand_ours(what, ours=made is None or drift.is_ours(made.get("tags"), ref))
            return Progress("pending", f"{what} to be created", changed=True)
        drift.demand_ours(what, ours=drift.is_ours(group.get("tags"), ref))
        pool = self._pool(ref, group)
        if pool.state == "create-failed":
            if pool.joined == 0:
                with self._api.asking(f"clear {what}, which failed"):
                    self._api.eks(ref).delete_nodegroup(clusterName=ref.name, nodegroupName=name)
            self._api.raise_issue(f"create {what}", *_issues(group))
        if pool.state in ("updating", "deleting"):
            return Progress("pending", f"{what}, which is {pool.state}")
        if pool.state == "creating":
            if _issues(group)[0]:
                self._api.raise_issue(f"create {what}", *_issues(group))
            return Progress("pending", f"{what} to be created")
        return self._update(ref, pool, request) or self._settled(what, group)

    def _settled(self, what: str, group: Mapping[str, Any]) -> Progress:
        if group["status"] != "ACTIVE":
            self._api.raise_issue(f"keep {what}", *_issues(group))
        return Progress("ready")

    def _update(self, ref: ClusterRef, pool: CloudPool, request: Mapping[str, Any]) -> Progress | None:
        """One call with the delta, since a second one would meet the first still running; None for no drift."""
        change: dict[str, Any] = {}
        if labels := drift.labels_to_set(request["labels"], pool.labels):
            change["labels"] = {"addOrUpdateLabels": labels}
        missing = {(t.key, t.effect) for t in drift.taints_to_add(_taints(request), pool.taints)}
        if missing:
            add = [t for t in request["taints"] if (t["key"], EFFECTS[t["effect"]]) in missing]
            change["taints"] = {"addOrUpdateTaints": add}
        if scaling := _scaling_change(request["scalingConfig"], pool.provider["scalingConfig"]):
            change["scalingConfig"] = scaling
        if not change:
            return None
        what = f"pool {pool.name} of cluster {ref.name}"
        with self._api.asking(f"update {what}"):
            self._api.eks(ref).update_nodegroup_config(clusterName=ref.name, nodegroupName=pool.name, **change)
        return Progress("pending", f"{what} to be updated", changed=True)

    def delete_pool(self, ref: ClusterRef, name: str) -> Progress:
        group = self._group(ref, name)
        if group is None:
            return Progress("ready")
        what = f"pool {name} of cluster {ref.name}"
        drift.demand_ours(what, ours=drift.is_ours(group.get("tags"), ref))
        if group["status"] == "DELETING":
            return Progress("pending", f"{what} to go")
        with self._api.asking(f"delete {what}"):
            self._api.eks(ref).delete_nodegroup(clusterName=ref.name, nodegroupName=name)
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
        with self._api.asking(f"delete cluster {ref.name}"):
            self._api.eks(ref).delete_cluster(name=ref.name)
        return Progress("pending", f"cluster {ref.name} to go", changed=True)

    # What EKS tells

    def _cluster(self, ref: ClusterRef) -> dict[str, Any] | None:
        return self._api.found(
            f"describe cluster {ref.name}", lambda: self._api.eks(ref).describe_cluster(name=ref.name)["cluster"]
        )

    def _group(self, ref: ClusterRef, name: str) -> dict[str, Any] | None:
        return self._api.found(
            f"describe pool {name} of cluster {ref.name}",
            lambda: self._api.eks(ref).describe_nodegroup(clusterName=ref.name, nodegroupName=name)["nodegroup"],
        )

    def _groups(self, ref: ClusterRef) -> list[dict[str, Any]]:
        with self._api.asking(f"list the pools of cluster {ref.name}"):
            pages = self._api.eks(ref).get_paginator("list_nodegroups").paginate(clusterName=ref.name)
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
        with self._api.asking(f"count the machines of pool {group['nodegroupName']} of cluster {ref.name}"):
            found = self._api.client("autoscaling", ref.location).describe_auto_scaling_groups(
                AutoScalingGroupNames=names
            )
        machines = {i["InstanceId"] for g in found["AutoScalingGroups"] for i in g["Instances"]}
        for issue in (group.get("health") or {}).get("issues", []):
            if issue["code"] == "NodeCreationFailure":
                machines -= set(issue.get("resourceIds", []))
        return len(machines)


def _taints(body: Mapping[str, Any]) -> tuple[Taint, ...]:
    return tuple(Taint(t["key"], t.get("value") or "", EFFECTS[t["effect"]]) for t in body.get("taints") or ())


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
