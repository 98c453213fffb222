"""The simulated Nebius's catalogue, and its messages in protobuf's JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc
from nebius.base.fieldmask import FieldKey, Mask

from resources.lab.clouds.state import Fault, SimCluster, SimPool, Traits

PROJECT = "project-e00lab"
TRAITS = Traits(recovers=True, nodes_follow=False)
# version: whether it is deprecated.
VERSIONS: Mapping[str, bool] = {"1.32": True, "1.33": False, "1.34": False}
# platform: preset to vCPUs, memory in GiB, GPUs, and whether it can join a GPU cluster.
PLATFORMS: Mapping[str, Mapping[str, tuple[int, int, int, bool]]] = {
    "cpu-d3": {"4vcpu-16gb": (4, 16, 0, False), "16vcpu-64gb": (16, 64, 0, False)},
    "cpu-e2": {"4vcpu-16gb": (4, 16, 0, False)},
    "gpu-l40s-a": {"1gpu-8vcpu-32gb": (8, 32, 1, False)},
    "gpu-h100-sxm": {"1gpu-16vcpu-200gb": (16, 200, 1, False), "8gpu-128vcpu-1600gb": (128, 1600, 8, True)},
    "gpu-h200-sxm": {"8gpu-128vcpu-1600gb": (128, 1600, 8, True)},
}
EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}
WORDS = {ours: theirs for theirs, ours in EFFECTS.items()}
STATES = {"creating": "PROVISIONING", "ready": "RUNNING", "updating": "RUNNING", "deleting": "DELETING"}
Json = dict[str, Any]


class RefusedError(Exception):
    """An RPC that fails. `detail` is the ServiceError's set field, empty for none."""

    def __init__(self, code: grpc.StatusCode, text: str, detail: str = "", *, again: bool = False) -> None:
        super().__init__(text)
        self.code, self.text, self.detail, self.again = code, text, detail, again


def merge(stored: Json, sent: Json, mask: Mask) -> Json:
    """An update as the API applies it: what is sent replaces (messages field by field, lists and maps whole); what isn't
    sent stays, unless the reset mask names it."""
    result = dict(stored)
    for name, value in sent.items():
        inner = mask.field_parts.get(FieldKey(name)) or Mask()
        whole = name in ("labels", "taints") or not isinstance(value, dict)
        result[name] = value if whole else merge(stored.get(name) or {}, value, inner)
    for key in mask.field_parts:
        if str(key) not in sent:
            result.pop(str(key), None)
    return result


def status_of(code: int, text: str, detail: str, *, again: bool = False) -> Json:
    status: Json = {"code": code, "message": text}
    if detail:
        error: Json = {
            "@type": "type.googleapis.com/nebius.common.v1.ServiceError",
            "service": "mk8s",
            "code": text,
            "retry_type": "CALL" if again else "NOTHING",
            detail: {},
        }
        status["details"] = [error]
    return status


def event(pool: SimPool) -> Json:
    quota = pool.failure == Fault.QUOTA.value
    text = (
        f"quota compute.instance.gpu is exceeded for {pool.machine}"
        if quota
        else f"not enough resources for {pool.machine} now"
    )
    error: Json = status_of(8, text, "quota_failure" if quota else "not_enough_resources")
    return {"level": "ERROR", "code": "NodeCreateFailed", "message": text, "error": error}


def metadata(there: SimCluster | SimPool, parent: str) -> Json:
    return {
        "id": there.id,
        "parent_id": parent,
        "name": there.name,
        "resource_version": there.revision,
        "labels": there.tags,
    }


def resources_of(spec: Json) -> tuple[str, str]:
    resources = spec.get("template", {}).get("resources", {})
    platform, preset = resources.get("platform", ""), resources.get("preset", "")
    if preset not in PLATFORMS.get(platform, {}):
        text = f"template.resources: no preset {preset!r} on platform {platform!r}"
        raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, text, "bad_request")
    return platform, preset


def labels_of(spec: Json) -> dict[str, str]:
    """Labels of Kubernetes' own domains are dropped without a word."""
    labels = spec.get("template", {}).get("metadata", {}).get("labels", {})
    return {k: v for k, v in labels.items() if not k.split("/")[0].endswith(("kubernetes.io", "k8s.io"))}


def taints_of(spec: Json) -> list[dict[str, str]]:
    rows = spec.get("template", {}).get("taints", ())
    return [{"key": r["key"], "value": r.get("value", ""), "effect": EFFECTS[r["effect"]]} for r in rows]


def size_of(spec: Json) -> int:
    """An autoscaled group begins at its minimum."""
    if "autoscaling" in spec:
        return int(spec["autoscaling"].get("min_node_count", 0))
    return int(spec.get("fixed_node_count", 0))


def platforms() -> list[Json]:
    return [
        {
            "metadata": {"id": f"platform-{name}", "name": name},
            "spec": {
                "presets": [
                    {
                        "name": preset,
                        "resources": {"vcpu_count": cpus, "memory_gibibytes": memory, "gpu_count": gpus},
                        "allow_gpu_clustering": clustered,
                    }
                    for preset, (cpus, memory, gpus, clustered) in presets.items()
                ]
            },
        }
        for name, presets in PLATFORMS.items()
    ]


def page(rows: list[Json], request: Json) -> Json:
    size, start = int(request.get("page_size", 0)) or 100, int(request.get("page_token") or 0)
    following = str(start + size) if start + size < len(rows) else ""
    return {"items": rows[start : start + size], "next_page_token": following}
