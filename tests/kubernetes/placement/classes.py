"""Random classes and deployments: whether the plan's placement finds a pool, against whether its claim is allocated there."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from modelplane_dagster.manifests.fleet import Fleet
from modelplane_dagster.placement import ClusterOffer, place_all
from modelplane_dagster.resolve import resolve
from tests.kubernetes.placement.claims import claim_object, device_class, expression
from tests.kubernetes.placement.devices import API, MODELS, VERSIONS
from tests.kubernetes.placement.world import CLUSTER, NAMESPACE, Body, Case, workload
from tests.made import CPU, cls, cluster, deployment, engine, fleet, member, pool, request

POOL = "modelplane.ai/pool"


def make_class_case(rng: Random, world: str, name: str, nodes: tuple[Body, ...], *, cpu: bool) -> Case:
    """A pod on one pool, with the claim that the plan makes for it; where the plan finds that the pool won't do, with the
    claim that it would have made. `cpu` uses the driver dra.cpu, of which a cluster can have one case alone."""
    pools = sorted({n["metadata"]["labels"][POOL] for n in nodes if POOL in n["metadata"]["labels"]})
    at = rng.choice(pools) if pools else "p0"
    devices = [_cpus(rng)] if cpu else _devices(rng, name)
    requests = _requests(rng, devices)
    placed = _placed(name, at, devices, requests)
    if placed is None:
        classes = {d["driver"]: d["deviceClassName"] for d in devices}
        wanted = [_by_hand(r, classes, devices) for r in requests]
    else:
        wanted = placed
    here = [n["metadata"]["name"] for n in nodes if n["metadata"]["labels"].get(POOL) == at]
    drivers = sorted({d["driver"] for d in devices})
    published = [s for node in here for driver in drivers for s in _slices(world, node, driver, devices)]
    claim = claim_object(f"{name}-0", world, NAMESPACE, {"requests": wanted})
    classes_made = [device_class(driver, world) for driver in drivers]
    spec: dict[str, Any] = {
        "nodeSelector": {POOL: at},
        "tolerations": [{"operator": "Exists"}],
        "resourceClaims": [{"name": "devices", "resourceClaimName": f"{name}-0"}],
    }
    made = Case(name, "Pod", workload("Pod", name, world, spec), (*classes_made, *published, claim), (f"{name}-0",))
    return replace(made, match=frozenset(here if placed is not None else ()))


def _cpus(rng: Random) -> Body:
    cpus = str(rng.choice((4, 6, 8)))
    capacity = {"cpu": {"value": cpus}}
    return {"name": "cpus", "driver": CPU, "deviceClassName": CPU, "count": rng.choice((1, 2, 4)), "capacity": capacity}


def _devices(rng: Random, name: str) -> list[Body]:
    made = []
    for kind in ("gpu", "nic")[: rng.choice((1, 1, 2))]:
        driver = f"{name}-{kind}.example.com"
        device: Body = {"name": kind, "driver": driver, "deviceClassName": driver, "count": rng.choice((1, 2, 4, 8))}
        attributes: Body = {}
        for key, kind_of, values in (
            ("model", "string", MODELS),
            ("version", "version", [v for v in VERSIONS if "+" not in v]),
            ("index", "int", (0, 1, 2)),
            ("ok", "bool", (True, False)),
        ):
            if rng.random() < 0.85:
                attributes[key] = {kind_of: rng.choice(values)}
        if attributes:
            device["attributes"] = attributes
        if rng.random() < 0.9:
            device["capacity"] = {"memory": {"value": rng.choice(("16Gi", "40960Mi", "80Gi"))}}
        made.append(device)
    return made


def _requests(rng: Random, devices: list[Body]) -> list[Body]:
    found = []
    for number in range(rng.choice((1, 1, 2))):
        device = rng.choice(devices)
        driver, count = device["driver"], rng.choice((1, 1, 1, 2, 4, 8))
        selector = f'device.driver == "{driver}"'
        if driver == CPU:
            selector += f' && device.capacity["{CPU}"].cpu.compareTo(quantity("{rng.choice((4, 6, 8))}")) >= 0'
        elif rng.random() < 0.7:
            selector += f" && ({expression(rng, driver)})"
        found.append(request(selector, count, f"r{number}"))
    return found


def _placed(name: str, at: str, devices: list[Body], requests: list[Body]) -> list[Body] | None:
    """The claim's requests; None where the plan places nothing."""
    made: Fleet = fleet(
        cls("k", *devices), cluster("c", "Existing", pool(at, "k")), deployment(name, engine(member(*requests)))
    )
    view = resolve(made, "c", default_version="1.36").view
    assert view is not None, made.findings
    view = replace(view, version="1.36.3", cpu_mode="grouped")
    (placement,) = place_all(made, [ClusterOffer(view=view, admitted=True, nodes=None)])
    if placement.verdict != "placed":
        return None
    return [dict(r) for r in placement.replicas[0].engines[0].members[0].requests]


def _by_hand(asked: Body, classes: dict[str, str], devices: list[Body]) -> Body:
    text = asked["selectors"][0]["cel"]
    driver = next(d for d in classes if f'"{d}"' in text)
    exactly: Body = {
        "deviceClassName": classes[driver],
        "count": asked["count"],
        "selectors": [{"cel": {"expression": text}}],
    }
    if driver == CPU:
        (device,) = devices
        exactly["capacity"] = {"requests": {f"{CPU}/cpu": device["capacity"]["cpu"]["value"]}}
    return {"name": asked["name"], "exactly": exactly}


def _slices(world: str, node: str, driver: str, devices: list[Body]) -> list[Body]:
    """As a driver publishes the class's hardware on one node."""
    published = []
    for device in devices:
        if device["driver"] != driver:
            continue
        for number in range(device["count"]):
            one: Body = {"name": f"{device['name']}-{number}"}
            if device.get("attributes"):
                one["attributes"] = device["attributes"]
            if driver == CPU:
                one |= {"allowMultipleAllocations": True, "capacity": {f"{CPU}/cpu": device["capacity"]["cpu"]}}
            elif device.get("capacity"):
                one["capacity"] = device["capacity"]
            published.append(one)
    pool_of = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return [
        {
            "apiVersion": API,
            "kind": "ResourceSlice",
            "metadata": {"name": f"{driver}-{node}", "labels": {CLUSTER: world}},
            "spec": {"driver": driver, "pool": pool_of, "nodeName": node, "devices": published},
        }
    ]
