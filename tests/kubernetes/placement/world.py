"""What is decided, and what each decider said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Body = dict[str, Any]
CLUSTER, CASE = "conform/cluster", "conform/case"
NAMESPACE, ADMIN_NAMESPACE = "conform", "conform-admin"
"""Admin access is allowed only in a namespace that carries its label."""

Kind = Literal["DaemonSet", "Deployment", "Pod"]


@dataclass(frozen=True, slots=True)
class Case:
    """One workload. `support` is created before it: classes, slices and claims, a claim's `status` included; `match` holds
    what the plan's placement says of a claim where it is one of a class's devices: the nodes of the pools that match."""

    name: str
    kind: Kind
    body: Body
    support: tuple[Body, ...] = ()
    claims: tuple[str, ...] = ()
    match: frozenset[str] | None = None

    @property
    def spec(self) -> Body:
        """The pod's."""
        found: Body = self.body["spec"] if self.kind == "Pod" else self.body["spec"]["template"]["spec"]
        return found

    @property
    def namespace(self) -> str:
        return str(self.body["metadata"]["namespace"])


@dataclass(frozen=True, slots=True)
class World:
    """One cluster. Slices and classes of a case can be seen by every other case's claims."""

    name: str
    nodes: tuple[Body, ...]
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """`nodes` of a DaemonSet are those with a pod; of a pod the chosen one, none where it is unschedulable. `devices` holds,
    by claim, what was allocated, as `request=driver/pool/device`. `refused` is the API's refusal of one of the objects."""

    nodes: frozenset[str] = frozenset()
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the rules allow: every node where the workload may run, and what its claims would get on each."""

    nodes: frozenset[str]
    devices: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)


def given(claim: Mapping[str, Any]) -> tuple[str, ...]:
    """What a claim holds; empty where it isn't allocated."""
    results = (((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}).get("results") or ()
    return tuple(f"{r['request']}={r['driver']}/{r['pool']}/{r['device']}" for r in results)


def pod_template(name: str, world: str, spec: Body) -> Body:
    labels = {CASE: name, CLUSTER: world}
    containers = [{"name": "c", "image": "stand-in:1"}]
    return {
        "metadata": {"labels": labels},
        "spec": {"containers": containers, "terminationGracePeriodSeconds": 0, **spec},
    }


def workload(kind: Kind, name: str, world: str, spec: Body, *, namespace: str = NAMESPACE, replicas: int = 1) -> Body:
    template = pod_template(name, world, spec)
    labels = template["metadata"]["labels"]
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    inner: Body = {"selector": {"matchLabels": {CASE: name}}, "template": template}
    if kind == "Deployment":
        inner["replicas"] = replicas
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": inner}


def collection(body: Mapping[str, Any]) -> str:
    """The path that an object is posted to."""
    plural = {
        "Node": "nodes",
        "Namespace": "namespaces",
        "Pod": "pods",
        "DaemonSet": "daemonsets",
        "Deployment": "deployments",
        "DeviceClass": "deviceclasses",
        "ResourceSlice": "resourceslices",
        "ResourceClaim": "resourceclaims",
        "ResourceClaimTemplate": "resourceclaimtemplates",
    }[body["kind"]]
    version = body["apiVersion"]
    root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    namespace = body["metadata"].get("namespace")
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"
