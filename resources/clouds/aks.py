"""AKS through azure-mgmt-containerservice.

A cluster lies in a resource group of its own, `modelplane-CLUSTER`, which is made with it and left standing when it
goes. Pools go by short names on Azure; here they go by the manifest's, which a tag carries. No method waits for a long
operation: the state and the error are read from the resource, and where it doesn't tell, from the operation that this
process began. A failed pool is put again, which is how Azure retries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import yaml

from modelplane_dagster import errors
from modelplane_dagster.drivers import POOL_LABEL
from modelplane_dagster.kube.objects import Taint
from modelplane_dagster.sources.aks import resource_group, short_name
from modelplane_dagster.sources.record import POOL_TAG, SYSTEM_POOL
from resources.clouds import drift
from resources.clouds.aks_api import AksApi, code_and_text
from resources.clouds.seam import CloudCluster, CloudPool, ClusterRef, ClusterState, InstanceType, PoolState, Progress

GROUPS_API = "2024-03-01"
SKUS_API = "2021-07-01"

_CLUSTER_STATES: dict[str, ClusterState] = {
    "Creating": "creating",
    "Succeeded": "ready",
    "Deleting": "deleting",
    "Failed": "failed",
    "Canceled": "failed",
}
_POOL_STATES: dict[str, PoolState] = {
    "Creating": "creating",
    "Succeeded": "ready",
    "Deleting": "deleting",
    "Failed": "degraded",
    "Canceled": "degraded",
}


class AksCloud:
    """The cloud seam for AKS. `account` is the subscription; the secret's one key holds JSON with `clientId`,
    `clientSecret`, `tenantId` and `subscriptionId`."""

    source = "AKS"

    def __init__(
        self, *, endpoint: str | None = None, account: str | None = None, secrets: Mapping[str, str] | None = None
    ) -> None:
        self._api = AksApi(endpoint=endpoint, account=account, secrets=secrets)
        self._client, self._subscription = self._api.client, self._api.subscription

    # Reading

    def whoami(self) -> str:
        return self._subscription

    def observe(self, ref: ClusterRef) -> CloudCluster | None:
        cluster = self._cluster(ref)
        if cluster is None:
            return None
        pools = [self._pool(ref, raw) for raw in self._pools(ref)]
        properties = cluster["properties"]
        return CloudCluster(
            name=ref.name,
            state=_CLUSTER_STATES.get(properties.get("provisioningState", ""), "updating"),
            version=properties.get("currentKubernetesVersion") or properties.get("kubernetesVersion", ""),
            ours=drift.is_ours(cluster.get("tags"), ref),
            account=self._subscription,
            pools=tuple(p for p in pools if not _is_system(p)),
            system_pool=next((p for p in pools if _is_system(p)), None),
            message=_error_of(cluster)[1],
        )

    def credentials(self, ref: ClusterRef) -> dict[str, Any]:
        cluster = self._cluster(ref)
        if cluster is None or cluster["properties"].get("provisioningState") == "Creating":
            raise errors.NotReadyError(f"The API of cluster {ref.name} has no endpoint yet.")
        with self._api.asking(f"give the kubeconfig of cluster {ref.name}"):
            answer = self._client.managed_clusters.list_cluster_user_credentials(
                resource_group(ref.name), ref.name, format="exec"
            )
        found = answer.kubeconfigs or []
        config = yaml.safe_load(found[0].value or b"") if found else None
        if not isinstance(config, dict):
            raise errors.CloudCredentialsError(f"AKS gives no kubeconfig for cluster {ref.name}.")
        return config

    def instance_types(self, ref: ClusterRef, names: tuple[str, ...]) -> Mapping[str, InstanceType]:
        if not names:
            return {}
        query = {"api-version": SKUS_API, "$filter": f"location eq '{ref.location}'"}
        url = f"/subscriptions/{self._subscription}/providers/Microsoft.Compute/skus"
        found: dict[str, InstanceType] = {}
        while url:
            page = self._api.arm("GET", url, query, f"list sizes of {ref.location}")
            for item in page.get("value", []):
                if item["name"] in names and item.get("resourceType") == "virtualMachines" and not _restricted(item):
                    found[item["name"]] = _instance_type(item)
            # The next page's address holds its own query.
            url, query = page.get("nextLink") or "", {}
        return found

    def versions(self, ref: ClusterRef) -> tuple[str, ...]:
        with self._api.asking(f"list versions in {ref.location}"):
            answer = self._client.managed_clusters.list_kubernetes_versions(ref.location)
        found = {
            version
            for minor in answer.values_property or []
            for version in (minor.version, *(minor.patch_versions or {}))
            if version
        }
        return tuple(sorted(found, key=lambda v: [int(part) for part in v.split(".")], reverse=True))

    # Writing

    def ensure_control_plane(self, ref: ClusterRef, request: Mapping[str, Any]) -> Progress:
        cluster = self._cluster(ref)
        if cluster is None:
            drift.demand_account(ref, self.whoami())
            self._ensure_group(ref, request)
            self._put_new(
                f"create cluster {ref.name}",
                lambda kw: self._client.managed_clusters.begin_create_or_update(
                    resource_group(ref.name), ref.name, self._api.models.ManagedCluster(request), **kw
                ),
                (ref.name, ""),
            )
            made = self._cluster(ref)
            drift.demand_ours(f"Cluster {ref.name}", ours=made is None or drift.is_ours(made.get("tags"), ref))
            return Progress("pending", f"cluster {ref.name} to be created", changed=True)
        drift.demand_ours(f"Cluster {ref.name}", ours=drift.is_ours(cluster.get("tags"), ref))
        state = _CLUSTER_STATES.get(cluster["properties"].get("provisioningState", ""), "updating")
        if state == "failed":
            self._api.raise_error(f"create cluster {ref.name}", self._why(cluster, (ref.name, "")))
        if state in ("creating", "deleting"):
            return Progress("pending", f"cluster {ref.name}, which is {state}")
        system = dict(request["properties"]["agentPoolProfiles"][0])
        return self.ensure_pool(ref, system.pop("name"), {"properties": system})

    def ensure_pool(self, ref: ClusterRef, name: str, request: Mapping[str, Any]) -> Progress:
        # The caller may know the pool by its short name; people know it by the true one.
        name = request["properties"]["tags"].get(POOL_TAG, name)
        what = f"pool {name} of cluster {ref.name}"
        raw = self._raw_pool(ref, name)
        if raw is None:
            drift.demand_account(ref, self.whoami())
            self._put_new(
                f"create {what}", lambda kw: self._begin_put(ref, name, dict(request), **kw), (ref.name, name)
            )
            made = self._raw_pool(ref, name)
            drift.demand_ours(what, ours=made is None or drift.is_ours(made["properties"].get("tags"), ref))
            return Progress("pending", f"{what} to be created", changed=True)
        properties = raw["properties"]
        drift.demand_ours(what, ours=drift.is_ours(properties.get("tags"), ref))
        state = properties.get("provisioningState", "")
        failed = _POOL_STATES.get(state) == "degraded"
        if state != "Succeeded" and not failed:
            return Progress("pending", f"{what}, which is {state.lower()}")
        merged = _merged(properties, request["properties"])
        if merged is None and not failed:
            return Progress("ready")
        why = self._why(raw, (ref.name, name))
        self._put(ref, name, merged or properties, f"update {what}")
        if failed:
            self._api.raise_error(f"make {what}", why)
        return Progress("pending", f"{what} to be updated", changed=True)

    def delete_pool(self, ref: ClusterRef, name: str) -> Progress:
        raw = self._raw_pool(ref, name)
        if raw is None:
            return Progress("ready")
        what = f"pool {name} of cluster {ref.name}"
        drift.demand_ours(what, ours=drift.is_ours(raw["properties"].get("tags"), ref))
        if raw["properties"].get("provisioningState") == "Deleting":
            return Progress("pending", f"{what} to go")
        with self._api.asking(f"delete {what}"):
            self._client.agent_pools.begin_delete(resource_group(ref.name), ref.name, raw["name"], polling=False)
        return Progress("pending", f"{what} to go", changed=True)

    def delete_cluster(self, ref: ClusterRef) -> Progress:
        """The pools go with the cluster; its resource group stays."""
        cluster = self._cluster(ref)
        if cluster is None:
            return Progress("ready")
        drift.demand_ours(f"Cluster {ref.name}", ours=drift.is_ours(cluster.get("tags"), ref))
        if cluster["properties"].get("provisioningState") == "Deleting":
            return Progress("pending", f"cluster {ref.name} to go")
        with self._api.asking(f"delete cluster {ref.name}"):
            self._client.managed_clusters.begin_delete(resource_group(ref.name), ref.name, polling=False)
        return Progress("pending", f"cluster {ref.name} to go", changed=True)

    def _ensure_group(self, ref: ClusterRef, request: Mapping[str, Any]) -> None:
        name = resource_group(ref.name)
        url, query = f"/subscriptions/{self._subscription}/resourcegroups/{name}", {"api-version": GROUPS_API}
        try:
            group = self._api.arm("GET", url, query, f"describe resource group {name}")
        except drift.AbsentError:
            body = {"location": request["location"], "tags": request["tags"]}
            self._api.arm("PUT", url, query, f"create resource group {name}", body)
            return
        drift.demand_ours(f"Resource group {name}", ours=drift.is_ours(group.get("tags"), ref))

    def _put_new(self, what: str, put: Callable[[dict[str, Any]], object], key: tuple[str, str]) -> None:
        """A PUT that makes and never overwrites. One whose reply was lost, or that finds the thing there already, isn't
        an error: the next read finds it."""
        from azure.core import MatchConditions  # noqa: PLC0415 - an SDK is imported where it is used

        try:
            with self._api.asking(what):
                put(
                    {
                        "match_condition": MatchConditions.IfMissing,
                        "polling": False,
                        "raw_response_hook": self._api.keep(key),
                    }
                )
        except drift.LostReplyError:
            return
        except errors.CloudBusyError as error:
            if error.code != "PreconditionFailed":
                raise

    def _put(self, ref: ClusterRef, name: str, properties: Mapping[str, Any], what: str) -> None:
        """A whole PUT, refused where someone else changed the pool since it was read."""
        from azure.core import MatchConditions  # noqa: PLC0415 - an SDK is imported where it is used

        etag = properties.get("eTag")
        guard = {"etag": etag, "match_condition": MatchConditions.IfNotModified} if etag else {}
        body = {"properties": {k: v for k, v in properties.items() if k not in _READ_ONLY}}
        with self._api.asking(what):
            self._begin_put(ref, name, body, polling=False, raw_response_hook=self._api.keep((ref.name, name)), **guard)

    def _begin_put(self, ref: ClusterRef, name: str, body: dict[str, Any], **options: Any) -> object:  # noqa: ANN401 - the SDK's own keywords
        return self._client.agent_pools.begin_create_or_update(
            resource_group(ref.name), ref.name, short_name(name), self._api.models.AgentPool(body), **options
        )

    # What AKS tells

    def _cluster(self, ref: ClusterRef) -> dict[str, Any] | None:
        try:
            with self._api.asking(f"describe cluster {ref.name}"):
                return self._client.managed_clusters.get(resource_group(ref.name), ref.name).as_dict()
        except drift.AbsentError:
            return None

    def _pools(self, ref: ClusterRef) -> list[dict[str, Any]]:
        with self._api.asking(f"list the pools of cluster {ref.name}"):
            return [pool.as_dict() for pool in self._client.agent_pools.list(resource_group(ref.name), ref.name)]

    def _raw_pool(self, ref: ClusterRef, name: str) -> dict[str, Any] | None:
        try:
            with self._api.asking(f"describe pool {name} of cluster {ref.name}"):
                return self._client.agent_pools.get(resource_group(ref.name), ref.name, short_name(name)).as_dict()
        except drift.AbsentError:
            return None

    def _pool(self, ref: ClusterRef, raw: Mapping[str, Any]) -> CloudPool:
        properties = raw["properties"]
        state = _POOL_STATES.get(properties.get("provisioningState", ""), "updating")
        labels, tags = dict(properties.get("nodeLabels") or {}), properties.get("tags") or {}
        name = tags.get(POOL_TAG) or labels.get(POOL_LABEL) or raw["name"]
        count, scaled = properties.get("count", 0), bool(properties.get("enableAutoScaling"))
        joined = self._machines(ref, raw["name"]) if state == "degraded" else 0 if state == "creating" else count
        return CloudPool(
            name=name,
            state="create-failed" if state == "degraded" and joined == 0 else state,
            labels=labels,
            taints=_taints(properties),
            count=count,
            joined=joined,
            minimum=properties.get("minCount") if scaled else None,
            maximum=properties.get("maxCount") if scaled else None,
            message=self._why(raw, (ref.name, name))[1] if state == "degraded" else "",
            ours=drift.is_ours(tags, ref),
            provider={
                "name": raw["name"],
                "vmSize": properties.get("vmSize", ""),
                "osDiskSizeGB": properties.get("osDiskSizeGB"),
                "availabilityZones": list(properties.get("availabilityZones") or ()),
                "gpuProfile": properties.get("gpuProfile"),
            },
        )

    def _machines(self, ref: ClusterRef, pool: str) -> int:
        """How many machines of the pool were made; AKS tells no count of nodes beside it."""
        with self._api.asking(f"list the machines of pool {pool} of cluster {ref.name}"):
            found = [m.as_dict() for m in self._client.machines.list(resource_group(ref.name), ref.name, pool)]
        return sum(1 for m in found if (m.get("properties") or {}).get("provisioningState") == "Succeeded")

    def _why(self, thing: Mapping[str, Any], key: tuple[str, str]) -> tuple[str, str]:
        """The code and text of the last failure: the resource's own word, or that of the operation begun here. A failed
        operation answers 200 with a body that says so."""
        told = _error_of(thing)
        if told[0] or key not in self._api.operations:
            return told
        answer = self._api.arm("GET", self._api.operations[key], {}, "tell how its last operation ended")
        return code_and_text(answer.get("error") or {})


_READ_ONLY = frozenset(
    {"eTag", "provisioningState", "status", "currentOrchestratorVersion", "nodeImageVersion", "powerState"}
)


def _merged(have: Mapping[str, Any], want: Mapping[str, Any]) -> dict[str, Any] | None:
    """The pool's properties with what is wanted on top; None where nothing differs. The size of an autoscaled pool is
    repeated as it is, since a PUT without it would be refused."""
    new: dict[str, Any] = {}
    if labels := drift.labels_to_set(want.get("nodeLabels") or {}, have.get("nodeLabels") or {}):
        new["nodeLabels"] = {**(have.get("nodeLabels") or {}), **labels}
    if taints := drift.taints_to_add(_taints(want), _taints(have)):
        new["nodeTaints"] = [*(have.get("nodeTaints") or ()), *(str(t) for t in taints)]
    scaled = bool(want.get("enableAutoScaling"))
    if scaled != bool(have.get("enableAutoScaling")):
        new["enableAutoScaling"] = scaled
    if scaled:
        new |= {k: want[k] for k in ("minCount", "maxCount") if want[k] != have.get(k)}
        low, high, count = want["minCount"], want["maxCount"], have.get("count", 0)
        if not low <= count <= high:
            new["count"] = max(low, min(count, high))
    elif want["count"] != have.get("count"):
        new["count"] = want["count"]
    if not new:
        return None
    merged = {**have, **new}
    return merged if scaled else {k: v for k, v in merged.items() if k not in ("minCount", "maxCount")}


def _taints(properties: Mapping[str, Any]) -> tuple[Taint, ...]:
    return tuple(_taint(text) for text in properties.get("nodeTaints") or ())


def _taint(text: str) -> Taint:
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return Taint(key, value, effect)


def _error_of(thing: Mapping[str, Any]) -> tuple[str, str]:
    status = thing["properties"].get("status") or {}
    return code_and_text(status.get("provisioningError") or {})


def _restricted(item: Mapping[str, Any]) -> bool:
    return any(r.get("type") == "Location" for r in item.get("restrictions") or ())


def _is_system(pool: CloudPool) -> bool:
    return pool.ours and pool.name == SYSTEM_POOL


def _instance_type(item: Mapping[str, Any]) -> InstanceType:
    facts = {c["name"]: c["value"] for c in item.get("capabilities", [])}
    gpus = int(facts.get("GPUs", "0"))
    # No capability names the vendor; AMD's sizes carry the GPU's name (MI300X) or are of the NGads and NVv4 series.
    amd = "_MI" in item["name"] or item["name"].startswith("Standard_NG") or item["name"].endswith("as_v4")
    vendor = ("amd" if amd and not item["name"].startswith("Standard_NC") else "nvidia") if gpus else ""
    return InstanceType(item["name"], int(facts["vCPUs"]), int(float(facts["MemoryGB"]) * 1024), gpus, vendor)
