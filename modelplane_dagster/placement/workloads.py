"""The Kubernetes objects of one replica: claim templates, engine pods pinned to their pools, a Service.

Pure: a placed replica in, objects out. What is not in the manifest follows from the pool and the claim.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from modelplane_dagster.canonical import digest
from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.drivers import DRIVER_TAINT_KEYS, POOL_LABEL

if TYPE_CHECKING:
    from modelplane_dagster.manifests.deployments import Engine, Member, ModelDeployment
    from modelplane_dagster.placement.facts import EnginePlacement, MemberPlacement, ReplicaPlacement

NAMESPACE_LABEL = "modelplane.ai/deployment-namespace"
DEPLOYMENT_LABEL = "modelplane.ai/deployment"
REPLICA_LABEL = "modelplane.ai/replica"
ENGINE_LABEL = "modelplane.ai/engine"
ROLE_LABEL = "modelplane.ai/role"
DIGEST_ANNOTATION = "modelplane.ai/digest"
# Where vLLM and SGLang listen unless told otherwise; manifests that set a port set this one.
PORT = 8000
CLAIM = "devices"
Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReplicaObjects:
    """`objects` in the order to apply. `workloads` names (kind, name) whose readiness is the replica's."""

    namespace: str
    objects: tuple[Body, ...]
    workloads: tuple[tuple[str, str], ...]
    digest: str


def short_name(*parts: str, limit: int = 52) -> str:
    """The parts joined by dashes, cut with a digest where that is over the limit: controllers add suffixes of their own."""
    name = "-".join(p.lower() for p in parts if p)
    if len(name) <= limit:
        return name
    return f"{name[: limit - 9].rstrip('-.')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def replica_objects(
    key: tuple[str, str],
    deployment: ModelDeployment,
    replica: ReplicaPlacement,
    view: ClusterView,
    *,
    ordinal: int = 0,
    charged: AbstractSet[str] = frozenset(),
) -> ReplicaObjects:
    """The objects of one replica on its cluster. `charged` names the pools whose slices make the scheduler count a claim's
    CPUs itself (`nodeAllocatableResources`): mirroring them would count twice."""
    namespace, name = key
    maker = _Maker(namespace, name, deployment, view, ordinal, charged=charged)
    engines = {e.name: e for e in deployment.spec.template.spec.engines}
    bodies: list[Body] = []
    workloads: list[tuple[str, str]] = []
    for placed in replica.engines:
        made, workload = maker.engine(engines[placed.name], placed)
        bodies += made
        workloads.append(workload)
    told = digest(bodies)
    for body in bodies:
        body["metadata"].setdefault("annotations", {})[DIGEST_ANNOTATION] = told
    return ReplicaObjects(namespace, tuple(bodies), tuple(workloads), told)


def replica_variants(
    key: tuple[str, str],
    deployment: ModelDeployment,
    replica: ReplicaPlacement,
    view: ClusterView,
    *,
    ordinal: int = 0,
    charges: Mapping[str, bool],
) -> tuple[ReplicaObjects, ...]:
    """What may stand of the replica, the one to apply first. There is a second where it isn't known of a pool whether the
    scheduler charges its CPUs (`charges` leaves it out, for nothing is published there now): what runs there is right
    either way, and a driver that restarts must not restart the engines."""
    charged = frozenset(pool for pool, yes in charges.items() if yes)
    unknown = frozenset(m.pool for e in replica.engines for m in e.members if m.cpus and m.pool not in charges)
    return tuple(
        replica_objects(key, deployment, replica, view, ordinal=ordinal, charged=pools)
        for pools in dict.fromkeys((charged, charged | unknown))
    )


class _Maker:
    def __init__(
        self,
        namespace: str,
        name: str,
        deployment: ModelDeployment,
        view: ClusterView,
        ordinal: int,
        *,
        charged: AbstractSet[str],
    ) -> None:
        self.namespace = namespace
        self.name = name
        self.deployment = deployment
        self.view = view
        self.ordinal = ordinal
        self.charged = charged

    def engine(self, engine: Engine, placed: EnginePlacement) -> tuple[list[Body], tuple[str, str]]:
        members: Mapping[str, Member] = {m.role: m for m in engine.members}
        at = {m.role: m for m in placed.members}
        bodies = [self._claim(engine, m) for m in placed.members if m.requests]
        if "Standalone" in members:
            workload = self._deployment(engine, members["Standalone"], at["Standalone"])
            bodies += [workload, self._service(engine, members["Standalone"].role)]
            return bodies, ("Deployment", workload["metadata"]["name"])
        gang = self._gang(engine, members, at)
        return [*bodies, gang, self._service(engine, "Leader")], ("LeaderWorkerSet", gang["metadata"]["name"])

    def _name(self, engine: Engine, *rest: str) -> str:
        return short_name(self.name, str(self.ordinal), engine.name, *rest)

    def _labels(self, engine: Engine, role: str = "") -> dict[str, str]:
        labels = {
            **self.deployment.spec.template.metadata.labels,
            "app.kubernetes.io/managed-by": "modelplane-dagster",
            NAMESPACE_LABEL: self.namespace,
            DEPLOYMENT_LABEL: short_name(self.name, limit=63),
            REPLICA_LABEL: str(self.ordinal),
            ENGINE_LABEL: engine.name,
        }
        return {**labels, ROLE_LABEL: role} if role else labels

    def _meta(self, engine: Engine, name: str, role: str = "") -> Body:
        return {"name": name, "namespace": self.namespace, "labels": self._labels(engine, role)}

    def _claim(self, engine: Engine, placed: MemberPlacement) -> Body:
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": self._meta(engine, self._name(engine, placed.role), placed.role),
            "spec": {"spec": {"devices": {"requests": [dict(r) for r in placed.requests]}}},
        }

    def _deployment(self, engine: Engine, member: Member, placed: MemberPlacement) -> Body:
        labels = self._labels(engine, "Standalone")
        select = {k: labels[k] for k in (NAMESPACE_LABEL, DEPLOYMENT_LABEL, REPLICA_LABEL, ENGINE_LABEL, ROLE_LABEL)}
        meta = self._meta(engine, self._name(engine), "Standalone")
        meta["labels"][POOL_LABEL] = placed.pool
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta,
            "spec": {
                "replicas": engine.copies,
                # A device is held until the old pod is gone: a surge pod would wait for it for ever.
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": select},
                "template": self._pod(engine, member, placed),
            },
        }

    def _gang(self, engine: Engine, members: Mapping[str, Member], at: dict[str, MemberPlacement]) -> Body:
        worker = members["Worker"]
        nodes = worker.worker.nodes if worker.worker else 1
        return {
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": self._meta(engine, self._name(engine)),
            "spec": {
                "replicas": engine.copies,
                "leaderWorkerTemplate": {
                    "size": 1 + nodes,
                    "leaderTemplate": self._pod(engine, members["Leader"], at["Leader"], gang=True),
                    "workerTemplate": self._pod(engine, worker, at["Worker"], gang=True),
                },
            },
        }

    def _pod(self, engine: Engine, member: Member, placed: MemberPlacement, *, gang: bool = False) -> Body:
        keys = dict.fromkeys([*DRIVER_TAINT_KEYS, *(e.taint for e in self.view.external if e.taint)])
        spec: Body = {
            "nodeSelector": {POOL_LABEL: placed.pool},
            "tolerations": [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys],
            "containers": [self._container(member, placed, gang=gang)],
            "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
        }
        if member.template.spec and member.template.spec.image_pull_secrets:
            spec["imagePullSecrets"] = [{"name": s.name} for s in member.template.spec.image_pull_secrets]
        if placed.requests:
            template = self._name(engine, placed.role)
            spec["resourceClaims"] = [{"name": CLAIM, "resourceClaimTemplateName": template}]
        metadata: Body = {
            "labels": {**member.template.metadata.labels, **self._labels(engine, placed.role), POOL_LABEL: placed.pool}
        }
        if member.template.metadata.annotations:
            metadata["annotations"] = dict(member.template.metadata.annotations)
        return {"metadata": metadata, "spec": spec}

    def _container(self, member: Member, placed: MemberPlacement, *, gang: bool) -> Body:
        if member.template.spec is None:
            return {"name": "engine"}
        declared = member.template.spec.containers[0]
        body: Body = declared.model_dump(mode="json", by_alias=True, exclude_none=True)
        body = {k: v for k, v in body.items() if v not in ([], {})}
        if gang:
            body["env"] = [*_GANG_ENV, *body.get("env", [])]
        body["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]
        resources: Body = {}
        if placed.requests:
            resources["claims"] = [{"name": CLAIM}]
        if placed.cpus and placed.pool in self.charged:
            # Without any request the pod would be BestEffort, the first to go when the node runs out of memory.
            resources["requests"] = {"cpu": "1m"}
        elif placed.cpus:
            amount = {"cpu": str(placed.cpus)}
            resources |= {"requests": amount, "limits": dict(amount)}
        if resources:
            body["resources"] = resources
        if placed.role != "Worker":
            body["ports"] = [{"name": "http", "containerPort": PORT, "protocol": "TCP"}]
        return body

    def _service(self, engine: Engine, role: str) -> Body:
        labels = self._labels(engine, role)
        select = {k: labels[k] for k in (NAMESPACE_LABEL, DEPLOYMENT_LABEL, REPLICA_LABEL, ENGINE_LABEL, ROLE_LABEL)}
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self._meta(engine, self._name(engine), role),
            "spec": {
                "selector": select,
                "ports": [{"name": "http", "port": PORT, "targetPort": "http", "protocol": "TCP"}],
            },
        }


# LeaderWorkerSet gives the leader's address as an environment variable and the rank as a label of each pod.
_GANG_ENV: tuple[Body, ...] = (
    {"name": "MODELPLANE_LEADER_ADDRESS", "value": "$(LWS_LEADER_ADDRESS)"},
    {
        "name": "MODELPLANE_RANK",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['leaderworkerset.sigs.k8s.io/worker-index']"}},
    },
)


def endpoint(namespace: str, name: str, engine: str, ordinal: int = 0) -> str:
    """The engine's OpenAI-compatible address inside its cluster."""
    return f"http://{short_name(name, str(ordinal), engine)}.{namespace}.svc:{PORT}/v1"
