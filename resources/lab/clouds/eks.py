"""A simulated EKS, with the few calls of STS, IAM, EC2 and Auto Scaling that go with it.

Its traps: labels and taints change by delta alone, a second update while one runs is ResourceInUseException, a group
that failed to be created stays under its name, and a node group with a launch template refuses a disk size.
A region is a part of the path, as it is a part of the host on the real one: `/regions/REGION/...`.
"""

from __future__ import annotations

import base64
from typing import Any
from xml.sax.saxutils import escape

from modelplane_dagster.kube.objects import Taint
from resources.lab.clouds.machines import aws_type
from resources.lab.clouds.state import CloudState, Kind, SimCluster, SimNode, SimPool, plain_dress
from resources.lab.clouds.wire import Call, Reply, Route, Wire

ACCOUNT = "111122223333"
VERSIONS = ("1.37", "1.36", "1.35", "1.34", "1.33")
_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}
_PHASES = {"creating": "CREATING", "ready": "ACTIVE", "updating": "UPDATING", "deleting": "DELETING"}
# An Auto Scaling group's failures share one issue code; EC2's own code stands in the message.
_WORDS = {
    "no-capacity": "Could not launch On-Demand Instances. InsufficientInstanceCapacity - no sufficient {} capacity here.",
    "quota": "Could not launch On-Demand Instances. VcpuLimitExceeded - {} passes your current vCPU limit.",
}


def dress(cluster: SimCluster, pool: SimPool, index: int) -> SimNode:
    node = plain_dress(cluster, pool, index)
    labels = {
        **node.labels,
        "eks.amazonaws.com/nodegroup": pool.name,
        "eks.amazonaws.com/capacityType": pool.body["capacityType"],
        "eks.amazonaws.com/nodegroup-image": pool.body["amiType"],
    }
    taints = tuple(Taint(t["key"], t.get("value", ""), _EFFECTS[t["effect"]]) for t in pool.taints)
    provider_id = f"aws:///{labels.get('topology.kubernetes.io/zone', '')}/i-{pool.id}{index:04x}"
    return SimNode(node.name, node.pool, labels, taints, node.machine, provider_id)


class EksSim(Wire):
    """An ASGI app; give its state the function `dress` of this module."""

    def __init__(self, state: CloudState) -> None:
        super().__init__(
            state,
            throttled=lambda: _error(429, "ThrottlingException", "Rate exceeded"),
            missing=lambda call: _error(404, "NotFound", f"no such path {call.path}"),
        )
        cluster, group = r"/regions/(?P<region>[^/]+)/clusters", r"/(?P<c>[^/]+)/node-groups"
        one = cluster + group + r"/(?P<g>[^/]+)"
        self.route("POST", cluster, "write", "create-cluster", self._create_cluster)
        self.route("GET", cluster + r"/(?P<c>[^/]+)", "read", "describe-cluster", self._describe_cluster)
        self.route("DELETE", cluster + r"/(?P<c>[^/]+)", "delete", "delete-cluster", self._delete_cluster)
        self.route("POST", cluster + group, "write", "create-pool", self._create_group)
        self.route("GET", cluster + group, "read", "list-pools", self._list_groups)
        self.route("GET", one, "read", "describe-pool", self._describe_group)
        self.route("POST", one + "/update-config", "write", "update-pool", self._update_group)
        self.route("DELETE", one, "delete", "delete-pool", self._delete_group)
        self.route("GET", r"/regions/(?P<region>[^/]+)/cluster-versions", "read", "list-versions", self._versions)
        self.route("POST", r"/regions/(?P<region>[^/]+)/?", "read", "query", self._query)

    def classify(self, route: Route, call: Call) -> tuple[Kind, str]:
        if route.meaning != "query":
            return super().classify(route, call)
        action = call.form.get("Action", "")
        return "write" if action.startswith("Create") else "read", f"POST {action}"

    # EKS

    def _create_cluster(self, call: Call) -> Reply:
        body = call.json
        if self.state.cluster(body["name"]):
            return _error(409, "ResourceInUseException", f"Cluster already exists with name: {body['name']}")
        if body["version"] not in VERSIONS:
            return _error(400, "InvalidParameterException", f"unsupported Kubernetes version {body['version']}")
        cluster = self.state.add_cluster(
            body["name"],
            version=body["version"],
            location=call.parts["region"],
            tags=body.get("tags", {}),
            body={k: body[k] for k in ("resourcesVpcConfig", "roleArn", "accessConfig") if k in body},
        )
        return Reply(200, {"cluster": self._cluster(cluster)}, subject=f"cluster/{cluster.name}")

    def _cluster(self, cluster: SimCluster) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "name": cluster.name,
            "arn": f"arn:aws:eks:{cluster.location}:{ACCOUNT}:cluster/{cluster.name}",
            "version": cluster.version,
            "status": _PHASES.get(cluster.phase, "FAILED"),
            "tags": cluster.tags,
            "health": {"issues": []},
            "resourcesVpcConfig": {
                **cluster.body.get("resourcesVpcConfig", {}),
                "clusterSecurityGroupId": f"sg-{cluster.id}",
            },
        }
        if cluster.phase not in ("creating", "deleting"):
            endpoint = self.state.hooks.endpoint(cluster.name)
            shown["endpoint"] = endpoint.server
            shown["certificateAuthority"] = {"data": base64.b64encode(endpoint.ca_pem.encode()).decode()}
        return shown

    def _find(self, call: Call) -> SimCluster | None:
        cluster = self.state.cluster(call.parts["c"])
        return cluster if cluster and cluster.location == call.parts["region"] else None

    def _describe_cluster(self, call: Call) -> Reply:
        cluster = self._find(call)
        return Reply(200, {"cluster": self._cluster(cluster)}) if cluster else _no_cluster(call)

    def _delete_cluster(self, call: Call) -> Reply:
        cluster = self._find(call)
        if cluster is None:
            return _no_cluster(call)
        if cluster.pools:
            return _error(409, "ResourceInUseException", "Cluster has nodegroups attached")
        self.state.remove_cluster(cluster.name)
        return Reply(200, {"cluster": self._cluster(cluster)}, subject=f"cluster/{cluster.name}")

    def _list_groups(self, call: Call) -> Reply:
        cluster = self._find(call)
        return Reply(200, {"nodegroups": list(cluster.pools)}) if cluster else _no_cluster(call)

    def _create_group(self, call: Call) -> Reply:
        cluster, body = self._find(call), call.json
        if cluster is None:
            return _no_cluster(call)
        name = body["nodegroupName"]
        if name in cluster.pools:
            return _error(409, "ResourceInUseException", f"NodeGroup already exists with name {name}")
        if cluster.phase != "ready":
            return _error(400, "InvalidRequestException", f"Cluster '{cluster.name}' is not in ACTIVE status")
        if "launchTemplate" in body and ("diskSize" in body or "instanceTypes" in body):
            return _error(
                400, "InvalidParameterException", "Disk size and types must be specified within the launch template"
            )
        if bad := [t["effect"] for t in body.get("taints", []) if t["effect"] not in _EFFECTS]:
            return _error(400, "InvalidParameterException", f"taint effect {bad[0]} isn't valid")
        template = body.get("launchTemplate", {}).get("name", "")
        machine = (body.get("instanceTypes") or [self._templates().get(template, "")])[0]
        scaling = body["scalingConfig"]
        pool = SimPool(
            name=name,
            id="",
            labels=dict(body.get("labels", {})),
            taints=list(body.get("taints", [])),
            machine=machine,
            size=scaling["desiredSize"],
            zones=[_zone(subnet) for subnet in body["subnets"]],
            tags=dict(body.get("tags", {})),
            body={k: v for k, v in body.items() if k not in ("labels", "taints", "tags", "clientRequestToken")},
        )
        self.state.add_pool(cluster.name, pool)
        return self._group_reply(cluster, pool)

    def _group_reply(self, cluster: SimCluster, pool: SimPool) -> Reply:
        return Reply(200, {"nodegroup": self._group(cluster, pool)}, subject=f"pool/{cluster.name}/{pool.true_name}")

    def _group(self, cluster: SimCluster, pool: SimPool) -> dict[str, Any]:
        status = _PHASES.get(pool.phase) or ("CREATE_FAILED" if pool.joined == 0 else "DEGRADED")
        issues = []
        if pool.failure:
            text = _WORDS[pool.failure].format(pool.machine)
            issues = [{"code": "AsgInstanceLaunchFailures", "message": text, "resourceIds": [f"eks-{pool.id}"]}]
        return {
            **pool.body,
            "clusterName": cluster.name,
            "nodegroupArn": f"arn:aws:eks:{cluster.location}:{ACCOUNT}:nodegroup/{cluster.name}/{pool.name}/{pool.id}",
            "version": cluster.version,
            "status": status,
            "labels": pool.labels,
            "taints": pool.taints,
            "tags": pool.tags,
            "health": {"issues": issues},
            "scalingConfig": {**pool.body["scalingConfig"], "desiredSize": pool.size},
            "resources": {"autoScalingGroups": [{"name": f"eks-{pool.id}"}]},
        }

    def _describe_group(self, call: Call) -> Reply:
        cluster = self._find(call)
        if cluster is None:
            return _no_cluster(call)
        pool = cluster.pools.get(call.parts["g"])
        return Reply(200, {"nodegroup": self._group(cluster, pool)}) if pool else _no_group(call)

    def _update_group(self, call: Call) -> Reply:
        cluster, body = self._find(call), call.json
        pool = cluster.pools.get(call.parts["g"]) if cluster else None
        if cluster is None or pool is None:
            return _no_group(call)
        if pool.phase != "ready" and not (pool.phase == "failed" and pool.joined):
            return _error(409, "ResourceInUseException", f"Nodegroup {pool.name} has an update in progress")
        labels = {**pool.labels, **body.get("labels", {}).get("addOrUpdateLabels", {})}
        for key in body.get("labels", {}).get("removeLabels", []):
            labels.pop(key, None)
        taints = {(t["key"], t["effect"]): t for t in pool.taints}
        for taint in body.get("taints", {}).get("addOrUpdateTaints", []):
            taints[(taint["key"], taint["effect"])] = taint
        for taint in body.get("taints", {}).get("removeTaints", []):
            taints.pop((taint["key"], taint["effect"]), None)
        scaling = {**pool.body["scalingConfig"], **body.get("scalingConfig", {})}
        if scaling["maxSize"] < 1 or scaling["minSize"] > scaling["maxSize"]:
            return _error(400, "InvalidParameterException", "the sizes of the scaling config contradict each other")
        pool.body["scalingConfig"] = scaling
        size = body.get("scalingConfig", {}).get("desiredSize", pool.size)
        size = max(scaling["minSize"], min(size, scaling["maxSize"]))
        self.state.change_pool(cluster.name, pool.name, labels=labels, taints=list(taints.values()), size=size)
        update = {"update": {"id": f"u{pool.revision}", "status": "InProgress", "type": "ConfigUpdate"}}
        return Reply(200, update, subject=f"pool/{cluster.name}/{pool.true_name}")

    def _delete_group(self, call: Call) -> Reply:
        cluster = self._find(call)
        pool = cluster.pools.get(call.parts["g"]) if cluster else None
        if cluster is None or pool is None:
            return _no_group(call)
        self.state.remove_pool(cluster.name, pool.name)
        return self._group_reply(cluster, pool)

    def _versions(self, call: Call) -> Reply:
        del call
        return Reply(
            200, {"clusterVersions": [{"clusterVersion": v, "versionStatus": "STANDARD_SUPPORT"} for v in VERSIONS]}
        )

    # The query protocol

    def _query(self, call: Call) -> Reply:
        form = call.form
        answers = {
            "GetCallerIdentity": self._identity,
            "GetRole": self._role,
            "DescribeSubnets": self._subnets,
            "DescribeSecurityGroups": self._groups,
            "DescribeInstanceTypes": self._types,
            "DescribeAutoScalingGroups": self._scaling_groups,
            "CreateLaunchTemplate": self._create_template,
            "DescribeLaunchTemplates": self._describe_templates,
        }
        action = form.get("Action", "")
        if action not in answers:
            return _xml_error("InvalidAction", f"no such action {action}")
        return answers[action](call, form)

    def _identity(self, call: Call, form: dict[str, str]) -> Reply:
        del call, form
        arn = f"arn:aws:iam::{ACCOUNT}:user/lab"
        result = {"Arn": arn, "UserId": "LAB", "Account": ACCOUNT}
        return _xml("GetCallerIdentityResponse", {"GetCallerIdentityResult": result})

    def _role(self, call: Call, form: dict[str, str]) -> Reply:
        del call
        role = {"RoleName": form["RoleName"], "Arn": f"arn:aws:iam::{ACCOUNT}:role/{form['RoleName']}", "Path": "/"}
        return _xml("GetRoleResponse", {"GetRoleResult": {"Role": role}})

    def _subnets(self, call: Call, form: dict[str, str]) -> Reply:
        del form
        zones = [f"{call.parts['region']}{letter}" for letter in "abc"]
        return _xml(
            "DescribeSubnetsResponse",
            {"subnetSet": [{"subnetId": f"subnet-{zone}", "availabilityZone": zone} for zone in zones]},
        )

    def _groups(self, call: Call, form: dict[str, str]) -> Reply:
        del call, form
        return _xml("DescribeSecurityGroupsResponse", {"securityGroupInfo": [{"groupId": "sg-efa"}]})

    def _types(self, call: Call, form: dict[str, str]) -> Reply:
        del call
        names = [v for k, v in sorted(form.items()) if k.startswith("Filter.1.Value")]
        items = []
        for name in names:
            machine = aws_type(name)
            if machine is None:
                continue
            item: dict[str, Any] = {
                "instanceType": name,
                "vCpuInfo": {"defaultVCpus": machine.vcpus},
                "memoryInfo": {"sizeInMiB": machine.memory_mib},
            }
            if machine.gpus:
                item["gpuInfo"] = {"gpus": [{"manufacturer": machine.gpu_vendor.upper(), "count": machine.gpus}]}
            items.append(item)
        return _xml("DescribeInstanceTypesResponse", {"instanceTypeSet": items})

    def _scaling_groups(self, call: Call, form: dict[str, str]) -> Reply:
        del call
        name = form["AutoScalingGroupNames.member.1"]
        pools = (p for c in self.state.clusters() for p in c.pools.values())
        pool = next((p for p in pools if f"eks-{p.id}" == name), None)
        instances = [{"InstanceId": f"i-{pool.id}{i:04x}"} for i in range(pool.joined)] if pool else []
        group = {"AutoScalingGroupName": name, "Instances": {"member": instances}}
        result = {"AutoScalingGroups": {"member": [group] if pool else []}}
        return _xml("DescribeAutoScalingGroupsResponse", {"DescribeAutoScalingGroupsResult": result}, member=True)

    def _templates(self) -> dict[str, str]:
        """Launch templates by name: their machine type."""
        return self.state.extra.setdefault("launch-templates", {})

    def _create_template(self, call: Call, form: dict[str, str]) -> Reply:
        del call
        name = form["LaunchTemplateName"]
        if name in self._templates():
            return _xml_error("InvalidLaunchTemplateName.AlreadyExistsException", f"{name} is in use")
        self._templates()[name] = form.get("LaunchTemplateData.InstanceType", "")
        self.state.save()
        return _xml("CreateLaunchTemplateResponse", {"launchTemplate": {"launchTemplateName": name}})

    def _describe_templates(self, call: Call, form: dict[str, str]) -> Reply:
        del call
        name = form.get("LaunchTemplateName.1", "")
        if name not in self._templates():
            return _xml_error("InvalidLaunchTemplateName.NotFoundException", f"{name} isn't there")
        return _xml("DescribeLaunchTemplatesResponse", {"launchTemplates": [{"launchTemplateName": name}]})


def _zone(subnet: str) -> str:
    return subnet.removeprefix("subnet-")


def _error(status: int, name: str, message: str) -> Reply:
    return Reply(status, {"message": message}, {"x-amzn-errortype": name})


def _no_cluster(call: Call) -> Reply:
    return _error(404, "ResourceNotFoundException", f"No cluster found for name: {call.parts['c']}.")


def _no_group(call: Call) -> Reply:
    return _error(404, "ResourceNotFoundException", f"No node group found for name: {call.parts['g']}.")


def _xml(root: str, content: dict[str, Any], *, member: bool = False) -> Reply:
    return Reply(200, f"<{root}>{_elements(content, member=member)}</{root}>".encode(), {"content-type": "text/xml"})


def _xml_error(code: str, message: str) -> Reply:
    body = (
        f"<Response><Errors><Error><Code>{code}</Code><Message>{escape(message)}</Message></Error></Errors></Response>"
    )
    return Reply(400, body.encode(), {"content-type": "text/xml"})


def _elements(value: Any, *, member: bool) -> str:  # noqa: ANN401 - a tree of mappings, lists and scalars
    if isinstance(value, dict):
        return "".join(_element(k, v, member=member) for k, v in value.items())
    return escape(str(value))


def _element(key: str, value: Any, *, member: bool) -> str:  # noqa: ANN401 - as above
    if isinstance(value, list) and member:
        return "".join(f"<{key}>{_elements(v, member=member)}</{key}>" for v in value)
    if isinstance(value, list):
        value = "".join(f"<item>{_elements(v, member=member)}</item>" for v in value)
        return f"<{key}>{value}</{key}>"
    return f"<{key}>{_elements(value, member=member)}</{key}>"
