"""AKS through azure-mgmt-containerservice.

A cluster lies in a resource group of its own, `modelplane-CLUSTER`, which is made with it and left standing when it
goes. Pools go by short names on Azure; here they go by the manifest's, which a tag carries. No method waits for a long
operation: the state and the error are read from the resource, and where it doesn't tell, from the operation that this
process began. A failed pool is put again, which is how Azure retries.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import yaml

from modelplane_dagster import errors
from modelplane_dagster.drivers import POOL_LABEL
from modelplane_dagster.kube.objects import Taint
from modelplane_dagster.sources.aks import resource_group, short_name
from modelplane_dagster.sources.record import POOL_TAG, SYSTEM_POOL
from resources.clouds import drift
from resources.clouds.seam import CloudCluster, CloudPool, ClusterRef, ClusterState, InstanceType, PoolState, Progress

GROUPS_API = "2024-03-01"
SKUS_API = "2021-07-01"
LAB_SUBSCRIPTION = "lab"

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


class AksCloud:
    """The cloud seam for AKS. `account` is the subscription; the secret's one key holds JSON with `clientId`,
    `clientSecret`, `tenantId` and `subscriptionId`."""

    source = "AKS"

    def __init__(
        self, *, endpoint: str | None = None, account: str | None = None, secrets: Mapping[str, str] | None = None
    ) -> None:
        from azure.core import exceptions  # noqa: PLC0415 - an SDK is imported where it is used
        from azure.core.pipeline.policies import SansIOHTTPPolicy  # noqa: PLC0415 - as above
        from azure.core.rest import HttpRequest  # noqa: PLC0415 - as above
        from azure.mgmt.containerservice import ContainerServiceClient, models  # noqa: PLC0415 - as above

        self._errors, self._request, self._models = exceptions, HttpRequest, models
        given = _secret(secrets)
        fallback = LAB_SUBSCRIPTION if endpoint else os.environ.get("AZURE_SUBSCRIPTION_ID", "")
        self._subscription = account or given.get("subscriptionId") or fallback
        if not self._subscription:
            raise errors.CloudCredentialsError("Azure's credentials name no subscription, and the fleet gives none.")
        # A simulated cloud speaks plain HTTP, over which the SDK refuses to send a token.
        options: dict[str, Any] = {"authentication_policy": SansIOHTTPPolicy()} if endpoint else {}
        self._client = ContainerServiceClient(
            _LabCredential() if endpoint else _credential(given),
            self._subscription,
            base_url=endpoint.rstrip("/") if endpoint else None,
            retry_total=drift.ATTEMPTS - 1,
            retry_backoff_factor=0.2,
            connection_timeout=drift.CONNECT_SECONDS,
            read_timeout=drift.READ_SECONDS,
            **options,
        )
        self._operations: dict[tuple[str, str], str] = {}

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
        with self._asking(f"give the kubeconfig of cluster {ref.name}"):
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
            page = self._arm("GET", url, query, f"list sizes of {ref.location}")
            for item in page.get("value", []):
                if item["name"] in names and item.get("resourceType") == "virtualMachines" and not _restricted(item):
                    found[item["name"]] = _instance_type(item)
            # The next page's address holds its own query.
            url, query = page.get("nextLink") or "", {}
        return found

    def versions(self, ref: ClusterRef) -> tuple[str, ...]:
        with self._asking(f"list versions in {ref.location}"):
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
                    resource_group(ref.name), ref.name, self._models.ManagedCluster(request), **kw
                ),
                (ref.name, ""),
            )
            made = self._cluster(ref)
            drift.demand_ours(f"Cluster {ref.name}", ours=made is None or drift.is_ours(made.get("tags"), ref))
            return Progress("pending", f"cluster {ref.name} to be created", changed=True)
        drift.demand_ours(f"Cluster {ref.name}", ours=drift.is_ours(cluster.get("tags"), ref))
        state = _CLUSTER_STATES.get(cluster["properties"].get("provisioningState", ""), "updating")
        if state == "failed":
            self._raise_error(f"create cluster {ref.name}", self._why(cluster, (ref.name, "")))
        if state in ("creating", "deleting"):
            return Progress("pending", f"cluster {ref.name}, which is {state}")
        system = dict(request["properties"]["agentPoolProfiles"][0])
        return self.ensure_pool(ref, system.pop("name"), {"properties": system})

    def ensure_pool(self, ref: ClusterRef, name: str, request: Mapping[str, Any]) -> Progress:
        what = f"pool {name} of cluster {ref.name}"
        raw = self._raw_pool(ref, name)
        if raw is None:
            drift.demand_account(ref, self.whoami())
            self._put_new(
                f"create {what}", lambda kw: self._begin_put(ref, name, dict(request), **kw), (ref.name, name)
            )
            made = self._raw_pool(ref, name)
            drift.demand_ours(
                what.capitalize(), ours=made is None or drift.is_ours(made["properties"].get("tags"), ref)
            )
            return Progress("pending", f"{what} to be created", changed=True)
        properties = raw["properties"]
        drift.demand_ours(what.capitalize(), ours=drift.is_ours(properties.get("tags"), ref))
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
            self._raise_error(f"make {what}", why)
        return Progress("pending", f"{what} to be updated", changed=True)

    def delete_pool(self, ref: ClusterRef, name: str) -> Progress:
        raw = self._raw_pool(ref, name)
        if raw is None:
            return Progress("ready")
        what = f"pool {name} of cluster {ref.name}"
        drift.demand_ours(what.capitalize(), ours=drift.is_ours(raw["properties"].get("tags"), ref))
        if raw["properties"].get("provisioningState") == "Deleting":
            return Progress("pending", f"{what} to go")
        with self._asking(f"delete {what}"):
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
        with self._asking(f"delete cluster {ref.name}"):
            self._client.managed_clusters.begin_delete(resource_group(ref.name), ref.name, polling=False)
        return Progress("pending", f"cluster {ref.name} to go", changed=True)

    def _ensure_group(self, ref: ClusterRef, request: Mapping[str, Any]) -> None:
        name = resource_group(ref.name)
        url, query = f"/subscriptions/{self._subscription}/resourcegroups/{name}", {"api-version": GROUPS_API}
        try:
            group = self._arm("GET", url, query, f"describe resource group {name}")
        except drift.AbsentError:
            body = {"location": request["location"], "tags": request["tags"]}
            self._arm("PUT", url, query, f"create resource group {name}", body)
            return
        drift.demand_ours(f"Resource group {name}", ours=drift.is_ours(group.get("tags"), ref))

    def _put_new(self, what: str, put: Callable[[dict[str, Any]], object], key: tuple[str, str]) -> None:
        """A PUT that makes and never overwrites. One whose reply was lost, or that finds the thing there already, isn't
        an error: the next read finds it."""
        from azure.core import MatchConditions  # noqa: PLC0415 - an SDK is imported where it is used

        try:
            with self._asking(what):
                put(
                    {
                        "match_condition": MatchConditions.IfMissing,
                        "polling": False,
                        "raw_response_hook": self._keep(key),
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
        with self._asking(what):
            self._begin_put(ref, name, body, polling=False, raw_response_hook=self._keep((ref.name, name)), **guard)

    def _begin_put(self, ref: ClusterRef, name: str, body: dict[str, Any], **options: Any) -> object:  # noqa: ANN401 - the SDK's own keywords
        return self._client.agent_pools.begin_create_or_update(
            resource_group(ref.name), ref.name, short_name(name), self._models.AgentPool(body), **options
        )

    # What AKS tells

    def _cluster(self, ref: ClusterRef) -> dict[str, Any] | None:
        try:
            with self._asking(f"describe cluster {ref.name}"):
                return self._client.managed_clusters.get(resource_group(ref.name), ref.name).as_dict()
        except drift.AbsentError:
            return None

    def _pools(self, ref: ClusterRef) -> list[dict[str, Any]]:
        with self._asking(f"list the pools of cluster {ref.name}"):
            return [pool.as_dict() for pool in self._client.agent_pools.list(resource_group(ref.name), ref.name)]

    def _raw_pool(self, ref: ClusterRef, name: str) -> dict[str, Any] | None:
        try:
            with self._asking(f"describe pool {name} of cluster {ref.name}"):
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
        with self._asking(f"list the machines of pool {pool} of cluster {ref.name}"):
            found = [m.as_dict() for m in self._client.machines.list(resource_group(ref.name), ref.name, pool)]
        return sum(1 for m in found if (m.get("properties") or {}).get("provisioningState") == "Succeeded")

    def _why(self, thing: Mapping[str, Any], key: tuple[str, str]) -> tuple[str, str]:
        """The code and text of the last failure: the resource's own word, or that of the operation begun here. A failed
        operation answers 200 with a body that says so."""
        told = _error_of(thing)
        if told[0] or key not in self._operations:
            return told
        answer = self._arm("GET", self._operations[key], {}, "tell how its last operation ended")
        return _code_and_text(answer.get("error") or {})

    # Asking

    def _keep(self, key: tuple[str, str]) -> Callable[[Any], None]:
        """Remembers the operation's address, for the error that it ends with."""

        def hook(response: Any) -> None:  # noqa: ANN401 - a response of the lazy SDK
            url = response.http_response.headers.get("Azure-AsyncOperation")
            if url:
                self._operations[key] = url

        return hook

    def _arm(self, method: str, url: str, query: dict[str, str], what: str, body: object = None) -> dict[str, Any]:
        """A plain Resource Manager request, for what this SDK has no methods for."""
        request = self._request(method, url, params=query, json=body)
        with self._asking(what):
            response = self._client.send_request(request)
            response.raise_for_status()
            return response.json()

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
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

    def _raise_error(self, what: str, why: tuple[str, str]) -> NoReturn:
        code, text = why
        kind = _CODES.get(code, errors.CloudInvalidError if code else errors.CloudRetryableError)
        raise kind(f"Azure couldn't {what}: {text or 'it gives no reason'}", code=code)


_READ_ONLY = frozenset(
    {"eTag", "provisioningState", "status", "currentOrchestratorVersion", "nodeImageVersion", "powerState"}
)


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
    return _code_and_text(status.get("provisioningError") or {})


def _code_and_text(error: Mapping[str, Any]) -> tuple[str, str]:
    """The innermost code that we know, since Azure wraps one error in another; else the outermost."""
    found = (str(error.get("code") or ""), str(error.get("message") or ""))
    inner = [_code_and_text(e) for e in error.get("details") or ()]
    return next((e for e in inner if e[0] in _CODES), found)


def _http_error(error: Any) -> tuple[str, str]:  # noqa: ANN401 - an error of the lazy SDK
    """The body's code and text. `raise_for_status` leaves the body unread by the SDK, so it is parsed here."""
    if error.error is not None and error.error.code:
        return error.error.code, error.error.message or ""
    try:
        return _code_and_text(json.loads(error.response.text())["error"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return "", str(error.message)


def _fallback(status: int) -> type[errors.CloudError]:
    return errors.CloudRetryableError if status >= 500 else errors.CloudInvalidError


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
