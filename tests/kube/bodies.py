"""Objects of resource.k8s.io/v1 as a cluster returns them, cut to what the tests vary."""

from __future__ import annotations

from typing import Any

from modelplane_dagster.kube.allocator import Allocation, Unallocatable, allocate
from modelplane_dagster.kube.claims import Claim, DeviceClass, Usage
from modelplane_dagster.kube.node_pools import Published
from modelplane_dagster.kube.objects import NodeFacts
from modelplane_dagster.kube.slices import Slice

N1 = NodeFacts("n1", {"pool": "a"})
Body = dict[str, Any]


def slice_body(name: str, devices: list[Body], *, driver: str = "gpu.nvidia.com", **spec: Any) -> Body:
    reach = (
        {} if spec.keys() & {"nodeName", "allNodes", "nodeSelector", "perDeviceNodeSelection"} else {"nodeName": "n1"}
    )
    pool = {"name": spec.pop("pool", "n1"), "generation": spec.pop("generation", 1)}
    pool["resourceSliceCount"] = spec.pop("slices", 1)
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {"driver": driver, "pool": pool, "devices": devices, **reach, **spec},
    }


def device(name: str, **fields: Any) -> Body:
    return {"name": name, **fields}


def gpus(count: int, **attributes: Body) -> list[Body]:
    return [device(f"gpu-{i}", attributes=attributes) for i in range(count)]


def class_body(name: str, expression: str = "") -> Body:
    text = expression or f'device.driver == "{name}"'
    return {
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": text}}]},
    }


def selectors(*texts: str) -> list[Body]:
    return [{"cel": {"expression": text}} for text in texts]


def request(name: str = "gpu", device_class: str = "gpu.nvidia.com", **exactly: Any) -> Body:
    return {"name": name, "exactly": {"deviceClassName": device_class, **exactly}}


def claim_body(
    name: str, *requests: Body, constraints: list[Body] | None = None, config: list[Body] | None = None
) -> Body:
    devices: Body = {"requests": list(requests)}
    if constraints:
        devices["constraints"] = constraints
    if config:
        devices["config"] = config
    return {
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"devices": devices},
    }


CLASSES = [class_body("gpu.nvidia.com"), class_body("gpu.amd.com"), class_body("dra.cpu"), class_body("dra.net")]


def run(
    claims: list[Body],
    slices: list[Body],
    *,
    held: list[Body] | None = None,
    node: NodeFacts = N1,
    classes: list[Body] | None = None,
) -> tuple[Allocation, ...] | Unallocatable:
    return allocate(
        [Claim.parse(c) for c in claims],
        node,
        published=Published(Slice.parse(s) for s in slices),
        classes=[DeviceClass.parse(c) for c in (CLASSES if classes is None else classes)],
        usage=Usage.of(held or []),
    )


def given(outcome: tuple[Allocation, ...] | Unallocatable) -> dict[str, list[str]]:
    """Claim name to "request=device" in order; fails the test on a refusal."""
    assert not isinstance(outcome, Unallocatable), outcome.reason
    return {a.claim: [f"{r.request}={r.device[2]}" for r in a.results] for a in outcome}


def allocated(body: Body, outcome: tuple[Allocation, ...] | Unallocatable) -> Body:
    """The claim with its allocation written, as the API returns it afterwards."""
    assert not isinstance(outcome, Unallocatable), outcome.reason
    found = {a.claim: a for a in outcome}[body["metadata"]["name"]]
    return {**body, "status": {"allocation": found.as_dict()}}
