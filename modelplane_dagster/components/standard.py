"""The Standard serving stack: LeaderWorkerSet, which starts the members of a multi-node engine together."""

from __future__ import annotations

from modelplane_dagster.components.pins import PINS
from modelplane_dagster.components.substrate import deployment
from modelplane_dagster.components.types import Component, CustomResource

LWS = Component(
    key="lws",
    release="mp-lws",
    namespace="lws-system",
    pin=PINS["lws"],
    settings={
        "enableCertManager": "boolean",
        "enablePrometheus": "boolean",
        "replicaCount": "integer",
        "image.manager.repository": "string",
        "image.manager.tag": "string",
        "imagePullSecrets": "array",
        "resources": "object",
    },
    workloads=(deployment("mp-lws-controller-manager"),),
    crds=(CustomResource("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "leaderworkersets", namespaced=True),),
    crds_need_apply=True,
)

STANDARD: tuple[Component, ...] = (LWS,)
