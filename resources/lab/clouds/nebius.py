"""A simulated Nebius: mk8s and what it needs over gRPC, on a loopback port of its own.

Its traps: RUNNING says nothing about nodes, there is no failed state but events, an update resets every unset field that
its reset mask names, and changed labels and taints reach new nodes alone. Give its state `NebiusSim.traits`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from nebius.api.nebius.common.v1 import REGISTRY
from nebius.base.fieldmask import Mask

from resources.lab.clouds.nebius_shapes import (
    PLATFORMS,
    PROJECT,
    STATES,
    TRAITS,
    VERSIONS,
    WORDS,
    RefusedError,
    event,
    labels_of,
    merge,
    metadata,
    page,
    platforms,
    resources_of,
    size_of,
    status_of,
    taints_of,
)
from resources.lab.clouds.state import CloudState, Fault, Kind, SimCluster, SimPool

Json = dict[str, Any]
Method = Callable[[Json, Mapping[str, str]], Json]
_MK8S, _VPC, _COMPUTE = "nebius.mk8s.v1", "nebius.vpc.v1", "nebius.compute.v1"
_OPERATION = "nebius.common.v1.Operation"


# The SDK pings an idle channel more often than a server takes by default, which answers with GOAWAY.
_OPTIONS = (
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
)


class NebiusSim:
    """`start` gives the endpoint for `NebiusCloud`. Networks, subnets and GPU clusters are kept in memory: a restarted
    lab has none, and its clusters stand."""

    traits = TRAITS

    def __init__(self, state: CloudState) -> None:
        self.state = state
        self.houses: dict[str, dict[str, Json]] = {"Network": {}, "Subnet": {}, "GpuCluster": {}}
        self._answered: dict[str, bytes] = {}
        self._server: grpc.Server | None = None
        self._methods = self._table()

    def start(self, port: int = 0) -> str:
        """Serves on loopback, on a free port unless one is given."""
        threads = ThreadPoolExecutor(4, thread_name_prefix="lab-nebius")
        self._server = grpc.server(threads, handlers=(_Handler(self),), options=_OPTIONS)
        return f"grpc://127.0.0.1:{self._begin(self._server, port)}"

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(grace=0.2).wait()

    @contextmanager
    def serve(self) -> Iterator[str]:
        try:
            yield self.start()
        finally:
            self.stop()

    def answer(self, path: str, raw: bytes, context: grpc.ServicerContext) -> bytes:
        """Counts the call and runs it, as the HTTP clouds' app does."""
        service, method = path.strip("/").rsplit("/", 1)
        request_type, reply_type, run = self._methods[(service, method)]
        kind: Kind = "read" if method.startswith(("List", "Get")) else "delete" if method == "Delete" else "write"
        headers = {k: v for k, v in context.invocation_metadata() or () if isinstance(v, str)}
        self.state.count(kind, f"{service.rsplit('.', 1)[1]}/{method}")
        try:
            if self.state.take_fault(f"cloud/{self.state.source}", Fault.THROTTLING):
                raise RefusedError(
                    grpc.StatusCode.RESOURCE_EXHAUSTED, "too many requests", "too_many_requests", again=True
                )
            self.state.settle()
            with self.state.lock:
                return self._run(run, (request_type, reply_type), raw, headers)
        except RefusedError as refused:
            _abort(context, refused)
            raise

    def knows(self, path: str) -> bool:
        service, _, method = path.strip("/").rpartition("/")
        return (service, method) in self._methods

    def _run(
        self,
        run: Method,
        types: tuple[str, str],
        raw: bytes,
        headers: Mapping[str, str],
    ) -> bytes:
        """A call that was answered under the same idempotency key is answered again and not run again."""
        key = headers.get("x-idempotency-key", "")
        if key in self._answered:
            return self._answered[key]
        request = REGISTRY.message_class(types[0]).FromString(raw)
        reply = run(json.loads(request.to_json(preserving_proto_field_name=True)), headers)
        subject = reply.pop("__subject__", "")
        sent = REGISTRY.message_class(types[1]).from_json(json.dumps(reply)).SerializeToString()
        if subject:
            self._answered[key] = sent
            if self.state.take_fault(subject, Fault.LOST_REPLY):
                raise RefusedError(grpc.StatusCode.UNAVAILABLE, "connection reset")
        return sent

    @staticmethod
    def _begin(server: grpc.Server, port: int) -> int:
        bound = server.add_insecure_port(f"127.0.0.1:{port}")
        server.start()
        return bound

    def _table(self) -> dict[tuple[str, str], tuple[str, str, Method]]:
        """Service and method to the messages' types and what answers."""
        rows: list[tuple[str, str, str, str, Method]] = [
            ("nebius.iam.v2.ProjectService", "Get", "GetProjectRequest", "Project", self._project),
            (f"{_COMPUTE}.PlatformService", "List", "ListPlatformsRequest", "ListPlatformsResponse", _platforms),
            (f"{_MK8S}.ClusterService", "List", "ListClustersRequest", "ListClustersResponse", self._clusters),
            (
                f"{_MK8S}.ClusterService",
                "ListControlPlaneVersions",
                "ListClusterControlPlaneVersionsRequest",
                "ListClusterControlPlaneVersionsResponse",
                _versions,
            ),
            (f"{_MK8S}.ClusterService", "Create", "CreateClusterRequest", "", self._create_cluster),
            (f"{_MK8S}.ClusterService", "Delete", "DeleteClusterRequest", "", self._delete_cluster),
            (f"{_MK8S}.NodeGroupService", "List", "ListNodeGroupsRequest", "ListNodeGroupsResponse", self._groups),
            (f"{_MK8S}.NodeGroupService", "Create", "CreateNodeGroupRequest", "", self._create_group),
            (f"{_MK8S}.NodeGroupService", "Update", "UpdateNodeGroupRequest", "", self._update_group),
            (f"{_MK8S}.NodeGroupService", "Delete", "DeleteNodeGroupRequest", "", self._delete_group),
        ]
        for package, noun, method in (
            (_VPC, "Network", "CreateDefault"),
            (_VPC, "Subnet", "Create"),
            (_COMPUTE, "GpuCluster", "Create"),
        ):
            service = f"{package}.{noun}Service"
            rows.append((service, "List", f"List{noun}sRequest", f"List{noun}sResponse", self._lister(noun)))
            rows.append((service, method, f"{method}{noun}Request", "", self._maker(noun)))
            rows.append((service, "Delete", f"Delete{noun}Request", "", self._dropper(noun)))
        return {
            (service, method): (_typed(service, request), _typed(service, reply) if reply else _OPERATION, run)
            for service, method, request, reply, run in rows
        }

    # Reads

    def _project(self, request: Json, _headers: Mapping[str, str]) -> Json:
        if request.get("id") != PROJECT:
            raise RefusedError(grpc.StatusCode.PERMISSION_DENIED, "no access to the project", "permission_denied")
        return {"metadata": {"id": PROJECT, "name": "lab"}}

    def _cluster(self, identifier: str) -> SimCluster:
        found = self.state.cluster_by_id(identifier)
        if found is None:
            raise RefusedError(grpc.StatusCode.NOT_FOUND, f"cluster {identifier} not found", "resource_not_found")
        return found

    def _group(self, identifier: str) -> tuple[SimCluster, SimPool]:
        for cluster in self.state.clusters():
            for pool in cluster.pools.values():
                if pool.id == identifier:
                    return cluster, pool
        raise RefusedError(grpc.StatusCode.NOT_FOUND, f"node group {identifier} not found", "resource_not_found")

    def _clusters(self, request: Json, _headers: Mapping[str, str]) -> Json:
        return page([self._show_cluster(c) for c in self.state.clusters()], request)

    def _groups(self, request: Json, _headers: Mapping[str, str]) -> Json:
        cluster = self._cluster(request.get("parent_id", ""))
        return page([self._show_group(cluster, p) for p in cluster.pools.values()], request)

    def _show_cluster(self, cluster: SimCluster) -> Json:
        status: Json = {"state": STATES[cluster.phase], "control_plane": {"version": cluster.version}}
        if cluster.phase in ("ready", "updating"):
            endpoint = self.state.hooks.endpoint(cluster.name)
            status["control_plane"]["endpoints"] = {"public_endpoint": endpoint.server}
            status["control_plane"]["auth"] = {"cluster_ca_certificate": endpoint.ca_pem}
        return {"metadata": metadata(cluster, PROJECT), "spec": cluster.body["spec"], "status": status}

    def _show_group(self, cluster: SimCluster, pool: SimPool) -> Json:
        status: Json = {
            # A group runs as soon as it is known; its nodes come later, or never.
            "state": "DELETING" if pool.phase == "deleting" else "RUNNING",
            "reconciling": pool.phase in ("creating", "updating"),
            "target_node_count": pool.size,
            "node_count": pool.joined,
            "ready_node_count": pool.joined,
        }
        if pool.failure:
            status["events"] = [{"occurrence_count": 1, "last_occurrence": event(pool)}]
        spec = json.loads(json.dumps(pool.body["spec"]))
        spec["template"].setdefault("metadata", {})["labels"] = pool.labels
        spec["template"]["taints"] = [{**t, "effect": WORDS[t["effect"]]} for t in pool.taints]
        if "autoscaling" not in spec:
            spec["fixed_node_count"] = pool.size
        return {"metadata": metadata(pool, cluster.id), "spec": spec, "status": status}

    # Writes

    def _create_cluster(self, request: Json, _headers: Mapping[str, str]) -> Json:
        asked, spec = request["metadata"], request["spec"]
        if asked["name"] in {c.name for c in self.state.clusters()}:
            raise RefusedError(grpc.StatusCode.ALREADY_EXISTS, "the name is in use", "resource_already_exists")
        version = spec["control_plane"].get("version", "")
        if VERSIONS.get(version, True):
            raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, f"version {version} isn't offered", "bad_request")
        if spec["control_plane"].get("subnet_id") not in self.houses["Subnet"]:
            raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "the subnet doesn't exist", "bad_request")
        cluster = self.state.add_cluster(
            asked["name"], version=version, location="", tags=asked.get("labels", {}), body={"spec": spec}
        )
        return {**self._operation(cluster.id), "__subject__": f"cluster/{cluster.name}"}

    def _create_group(self, request: Json, _headers: Mapping[str, str]) -> Json:
        asked, spec = request["metadata"], request["spec"]
        cluster = self._cluster(asked.get("parent_id", ""))
        if cluster.phase not in ("ready", "updating"):
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, "the cluster isn't running", "bad_resource_state")
        if asked["name"] in cluster.pools:
            raise RefusedError(grpc.StatusCode.ALREADY_EXISTS, "the name is in use", "resource_already_exists")
        platform, preset = resources_of(spec)
        self._demand_fabric(spec, platform, preset)
        pool = SimPool(
            name=asked["name"],
            id="",
            labels=labels_of(spec),
            taints=taints_of(spec),
            machine=f"{platform}/{preset}",
            size=size_of(spec),
            zones=[],
            tags=asked.get("labels", {}),
            body={"spec": spec},
            system=asked["name"] == "system",
        )
        self.state.add_pool(cluster.name, pool)
        return {**self._operation(pool.id), "__subject__": f"pool/{cluster.name}/{pool.true_name}"}

    def _demand_fabric(self, spec: Json, platform: str, preset: str) -> None:
        fabric = spec["template"].get("gpu_cluster", {}).get("id")
        if fabric is None:
            return
        if fabric not in self.houses["GpuCluster"]:
            raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "the GPU cluster doesn't exist", "bad_request")
        if not PLATFORMS[platform][preset][3]:
            raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "the preset can't join a GPU cluster", "bad_request")

    def _update_group(self, request: Json, headers: Mapping[str, str]) -> Json:
        cluster, pool = self._group(request["metadata"]["id"])
        version = request["metadata"].get("resource_version")
        if version is not None and int(version) != pool.revision:
            raise RefusedError(grpc.StatusCode.ABORTED, "the group has changed meanwhile", "resource_conflict")
        mask = Mask.unmarshal(headers.get("x-resetmask", ""))
        seen = self._show_group(cluster, pool)
        merged = merge({"spec": seen["spec"]}, {"spec": request.get("spec", {})}, mask)
        spec = merged.get("spec", {})
        resources_of(spec)
        scaled = "autoscaling" in spec and "fixed_node_count" in request.get("spec", {})
        spec.pop("autoscaling" if scaled else "", None)
        if "autoscaling" in spec:
            spec.pop("fixed_node_count", None)
        pool.body["spec"] = spec
        size = None if "autoscaling" in spec else int(spec.get("fixed_node_count", 0))
        self.state.change_pool(cluster.name, pool.name, labels=labels_of(spec), taints=taints_of(spec), size=size)
        return self._operation(pool.id)

    def _delete_group(self, request: Json, _headers: Mapping[str, str]) -> Json:
        cluster, pool = self._group(request["id"])
        if pool.phase != "deleting":
            self.state.remove_pool(cluster.name, pool.name)
        return self._operation(pool.id)

    def _delete_cluster(self, request: Json, _headers: Mapping[str, str]) -> Json:
        cluster = self._cluster(request["id"])
        if cluster.pools:
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, "the cluster has node groups", "bad_resource_state")
        if cluster.phase != "deleting":
            self.state.remove_cluster(cluster.name)
        return self._operation(cluster.id)

    def _lister(self, noun: str) -> Method:
        return lambda request, _headers: page(list(self.houses[noun].values()), request)

    def _maker(self, noun: str) -> Method:
        def make(request: Json, _headers: Mapping[str, str]) -> Json:
            house, name = self.houses[noun], request["metadata"]["name"]
            if any(o["metadata"]["name"] == name for o in house.values()):
                raise RefusedError(grpc.StatusCode.ALREADY_EXISTS, "the name is in use", "resource_already_exists")
            identifier = self.state.new_id()
            house[identifier] = {"metadata": {**request["metadata"], "id": identifier}, "spec": request.get("spec", {})}
            return self._operation(identifier)

        return make

    def _dropper(self, noun: str) -> Method:
        def drop(request: Json, _headers: Mapping[str, str]) -> Json:
            if self.houses[noun].pop(request["id"], None) is None:
                raise RefusedError(grpc.StatusCode.NOT_FOUND, f"{noun} not found", "resource_not_found")
            return self._operation(request["id"])

        return drop

    def _operation(self, resource: str) -> Json:
        """Done at once: a status that is there and empty. What it asked for goes on by itself."""
        return {"id": self.state.new_id(), "resource_id": resource, "status": {}}


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, sim: NebiusSim) -> None:
        self._sim = sim

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        path = handler_call_details.method
        if not self._sim.knows(path):
            return None
        return grpc.unary_unary_rpc_method_handler(lambda raw, context: self._sim.answer(path, raw, context))


def _abort(context: grpc.ServicerContext, refused: RefusedError) -> None:
    status = status_of(refused.code.value[0], refused.text, refused.detail, again=refused.again)
    raw = REGISTRY.message_class("google.rpc.Status").from_json(json.dumps(status)).SerializeToString()
    context.set_trailing_metadata((("grpc-status-details-bin", raw),))
    context.abort(refused.code, refused.text)


def _typed(service: str, message: str) -> str:
    """A message of the service's own package, by its whole name."""
    return f"{service.rsplit('.', 1)[0]}.{message}"


def _platforms(request: Json, _headers: Mapping[str, str]) -> Json:
    return page(platforms(), request)


def _versions(_request: Json, _headers: Mapping[str, str]) -> Json:
    return {"items": [{"version": v, "deprecated": old} for v, old in VERSIONS.items()]}
