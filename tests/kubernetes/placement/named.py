"""Cases that random runs and upstream's source turned up, each with what Kubernetes 1.36 decides.

A pod's `expected` is the nodes where it may run (empty: unschedulable); a DaemonSet's the nodes where it runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.kubernetes.placement.claims import claim_object, device_class
from tests.kubernetes.placement.devices import API
from tests.kubernetes.placement.world import (
    ADMIN_NAMESPACE,
    CLUSTER,
    NAMESPACE,
    Body,
    Case,
    Kind,
    World,
    workload,
)


@dataclass(frozen=True, slots=True)
class Named:
    """`devices` is what the claims hold where they are allocated, as `request=device`, over all claims in order; it is
    compared where it is set. `slices` get the case's own driver."""

    name: str
    expected: frozenset[str]
    kind: Kind = "Pod"
    spec: Body = field(default_factory=dict)
    slices: tuple[Body, ...] = ()
    claims: tuple[Body, ...] = ()
    devices: tuple[str, ...] = ()
    held: tuple[Body, ...] = ()
    world: str = "plain"
    admin: bool = False


def node(name: str, *taints: str, cordoned: bool = False, **labels: str) -> Body:
    """Taints as `key=value:effect`."""
    spec: Body = {"unschedulable": True} if cordoned else {}
    if taints:
        spec["taints"] = [_taint(t) for t in taints]
    conditions = [{"type": "Ready", "status": "True"}]
    if any("disk-pressure" in t for t in taints):
        conditions.append({"type": "DiskPressure", "status": "True"})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"is": name, **labels}},
        "spec": spec,
        "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "500"}, "conditions": conditions},
    }


def _taint(text: str) -> Body:
    head, _, effect = text.rpartition(":")
    key, _, value = head.partition("=")
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


NODES = (
    node("free", size="10"),
    node("gpu", "nvidia.com/gpu=present:NoSchedule", size="9"),
    node("drained", "team=a:NoExecute", "soft=x:PreferNoSchedule", size="007"),
    node("shut", cordoned=True, size="x"),
    node("pressed", "node.kubernetes.io/disk-pressure:NoSchedule"),
)
ALL = frozenset(n["metadata"]["name"] for n in NODES)
TOLERATE: Body = {"tolerations": [{"operator": "Exists"}]}


def tolerate(**toleration: str) -> Body:
    return {"tolerations": [toleration]}


def require(*terms: Body) -> Body:
    return {
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
        }
    }


def where(key: str, operator: str, *values: str) -> Body:
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}


def called(operator: str, name: str) -> Body:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [name]}]}


def part(name: str, *devices: Body | str, pool: str = "p", generation: int = 1, count: int = 1, **reach: Any) -> Body:
    """One slice of the case's driver; devices by name alone hold nothing."""
    listed = [{"name": d} if isinstance(d, str) else d for d in devices]
    return {
        "name": name,
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
        **({"devices": listed} if listed else {}),
        **reach,
    }


def on(node_name: str) -> Body:
    return {"nodeName": node_name}


def ask(name: str = "r", **exactly: Any) -> Body:
    return {"name": name, "exactly": {"deviceClassName": "DRIVER", **exactly}}


def claim(*requests: Body, **devices: Any) -> Body:
    return {"requests": list(requests), **devices}


def cel(text: str) -> list[Body]:
    return [{"cel": {"expression": text}}]


def counted(name: str, amount: str, **more: Any) -> Body:
    used = {"counterSet": "card", "counters": {"memory": {"value": amount}}}
    return {"name": name, "consumesCounters": [used], **more}


COUNTERS = {"sharedCounters": [{"name": "card", "counters": {"memory": {"value": "10"}}}]}
SHARED: Body = {"allowMultipleAllocations": True, "capacity": {"cores": {"value": "4"}}}
KEY = 'device.attributes["DRIVER"].kind'


def kinds(*values: str) -> list[Body]:
    return [{"name": f"d{i}", "attributes": {"kind": {"string": v}}} for i, v in enumerate(values)]


DAEMONS = (
    Named("no toleration", frozenset({"free", "shut", "pressed"}), "DaemonSet"),
    Named(
        "the wrong value",
        frozenset({"free", "shut", "pressed"}),
        "DaemonSet",
        tolerate(key="nvidia.com/gpu", value="true"),
    ),
    Named("the right value", ALL - {"drained"}, "DaemonSet", tolerate(key="nvidia.com/gpu", value="present")),
    Named("any value", ALL - {"drained"}, "DaemonSet", tolerate(key="nvidia.com/gpu", operator="Exists")),
    Named(
        "the wrong effect",
        ALL - {"gpu", "drained"},
        "DaemonSet",
        tolerate(key="team", operator="Exists", effect="NoSchedule"),
    ),
    Named("any key of one effect", ALL - {"drained"}, "DaemonSet", tolerate(operator="Exists", effect="NoSchedule")),
    Named("everything", ALL, "DaemonSet", TOLERATE),
    Named("a node of its name", frozenset({"free"}), "DaemonSet", TOLERATE | {"nodeName": "free"}),
    Named("an empty term", frozenset(), "DaemonSet", TOLERATE | require({})),
    Named(
        "an empty term beside another",
        frozenset({"gpu"}),
        "DaemonSet",
        TOLERATE | require({}, where("is", "In", "gpu")),
    ),
    Named(
        "not in, where the label is missing",
        ALL - {"free"},
        "DaemonSet",
        TOLERATE | require(where("size", "NotIn", "10")),
    ),
    Named(
        "greater, leading zeros", frozenset({"free", "gpu"}), "DaemonSet", TOLERATE | require(where("size", "Gt", "7"))
    ),
    Named("less, leading zeros", frozenset({"drained"}), "DaemonSet", TOLERATE | require(where("size", "Lt", "9"))),
    Named("a bound that is no number", frozenset(), "DaemonSet", TOLERATE | require(where("size", "Gt", "x"))),
    Named("all but one by name", ALL - {"gpu"}, "DaemonSet", TOLERATE | require(called("NotIn", "gpu"))),
    Named(
        "expressions and fields of one term",
        frozenset(),
        "DaemonSet",
        TOLERATE | require(where("is", "In", "free") | called("In", "gpu")),
    ),
)
PODS = (
    Named("a pod stays off cordoned and pressed nodes", frozenset({"free"})),
    Named(
        "a pod tolerates the cordon",
        frozenset({"shut"}),
        spec=tolerate(key="node.kubernetes.io/unschedulable", operator="Exists") | {"nodeSelector": {"is": "shut"}},
    ),
    Named(
        "a soft taint only ranks",
        frozenset({"drained"}),
        spec=tolerate(key="team", operator="Exists") | {"nodeSelector": {"is": "drained"}},
    ),
    Named(
        "the empty value is a value",
        frozenset(),
        spec=tolerate(key="nvidia.com/gpu", operator="Equal") | {"nodeSelector": {"is": "gpu"}},
    ),
)
CLAIMS = (
    Named(
        "all, and one of them is tainted",
        frozenset(),
        slices=(part("a", "x", {"name": "y", "taints": [{"key": "broken", "effect": "NoSchedule"}]}, **on("free")),),
        claims=(claim(ask(allocationMode="All")),),
    ),
    Named(
        "all leaves out a shared device that is full",
        frozenset({"free"}),
        slices=(part("a", {"name": "full", **SHARED}, {"name": "open", **SHARED}, **on("free")),),
        held=(
            {"device": "full", "shareID": "0e6f3a52-5d0e-4a53-9f6a-0c34cb3a1f11", "consumedCapacity": {"cores": "4"}},
        ),
        claims=(claim(ask(allocationMode="All")),),
        devices=("r=open",),
    ),
    Named(
        "more than a claim holds on one node ends it on all",
        frozenset(),
        slices=(
            part("a", *(f"d{i}" for i in range(33)), pool="a", **on("free")),
            part("b", "x", pool="b", **on("gpu")),
        ),
        spec=TOLERATE,
        claims=(claim(ask(allocationMode="All")),),
    ),
    Named(
        "a selector that fails on one node ends it on all",
        frozenset(),
        slices=(part("a", "bare", pool="a", **on("free")), part("b", *kinds("x"), pool="b", **on("gpu"))),
        spec=TOLERATE,
        claims=(claim(ask(selectors=cel(f'{KEY} == "x"'))),),
    ),
    Named(
        "a selector that would fail isn't reached",
        frozenset({"free"}),
        slices=(part("a", *kinds("x"), "bare", **on("free")),),
        claims=(claim(ask(selectors=cel(f'{KEY} == "x"'))),),
        devices=("r=d0",),
    ),
    Named(
        "a selector is judged before the device's own node",
        frozenset(),
        slices=(
            part(
                "a",
                *({**d, **on("free")} for d in kinds("y", "x")),
                {"name": "far", **on("gpu")},
                perDeviceNodeSelection=True,
            ),
        ),
        claims=(claim(ask(count=2, selectors=cel(f'{KEY} == "x"'))),),
    ),
    Named(
        "an alternative of a class that isn't there",
        frozenset(),
        slices=(part("a", "x", **on("free")),),
        claims=(
            claim(
                {
                    "name": "r",
                    "firstAvailable": [
                        {"name": "a", "deviceClassName": "DRIVER"},
                        {"name": "b", "deviceClassName": "none.example.com"},
                    ],
                }
            ),
        ),
    ),
    Named(
        "an alternative that needs more than a claim holds",
        frozenset({"free"}),
        slices=(part("a", "x", **on("free")),),
        claims=(
            claim(
                {
                    "name": "r",
                    "firstAvailable": [
                        {"name": "a", "deviceClassName": "DRIVER", "count": 33},
                        {"name": "b", "deviceClassName": "DRIVER"},
                    ],
                }
            ),
        ),
        devices=("r/b=x",),
    ),
    Named(
        "an alternative for all that a selector fails on",
        frozenset(),
        slices=(part("a", *kinds("x"), "bare", **on("free")),),
        claims=(
            claim(
                {
                    "name": "r",
                    "firstAvailable": [
                        {"name": "a", "deviceClassName": "DRIVER"},
                        {
                            "name": "b",
                            "deviceClassName": "DRIVER",
                            "allocationMode": "All",
                            "selectors": cel(f'{KEY} == "x"'),
                        },
                    ],
                }
            ),
        ),
    ),
    Named(
        "two requests of more than a claim holds",
        frozenset(),
        slices=(part("a", *(f"d{i}" for i in range(40)), **on("free")),),
        claims=(claim(ask("a", count=20), ask("b", count=13)),),
    ),
    Named(
        "the same over two claims",
        frozenset({"free"}),
        slices=(part("a", *(f"d{i}" for i in range(40)), **on("free")),),
        claims=(claim(ask("a", count=20)), claim(ask("b", count=13))),
    ),
    Named(
        "what admin access looks at is in use for the same pod",
        frozenset(),
        slices=(part("a", "x", **on("free")),),
        claims=(claim(ask("a", adminAccess=True), ask("b")),),
        admin=True,
    ),
    Named(
        "admin access sees each device of a claim once",
        frozenset({"free"}),
        slices=(part("a", "x", "y", **on("free")),),
        held=({"device": "x"},),
        claims=(claim(ask("a", adminAccess=True), ask("b", adminAccess=True)),),
        devices=("a=x", "b=y"),
        admin=True,
    ),
    Named(
        "of three distinct devices the third is compared with the second",
        frozenset({"free"}),
        slices=(part("a", *kinds("x", "y", "x"), **on("free")),),
        claims=(claim(ask(count=3), constraints=[{"distinctAttribute": "DRIVER/kind"}]),),
        devices=("r=d0", "r=d1", "r=d2"),
    ),
    Named(
        "all of unlike devices is an error",
        frozenset(),
        slices=(
            part("a", *kinds("x", "y"), pool="a", **on("free")),
            part("b", *kinds("x", "x"), pool="b", **on("gpu")),
        ),
        spec=TOLERATE,
        claims=(claim(ask(allocationMode="All"), constraints=[{"matchAttribute": "DRIVER/kind"}]),),
    ),
    Named(
        "devices of one name on two nodes",
        frozenset({"free", "gpu"}),
        slices=(part("a", "x", count=2, **on("free")), part("b", "x", count=2, **on("gpu"))),
        spec=TOLERATE,
        claims=(claim(ask()),),
        devices=("r=x",),
    ),
    Named(
        "a second share takes no counters",
        frozenset({"free"}),
        slices=(
            part("a", count=2, **COUNTERS, **on("free")),
            part("b", counted("x", "10", **SHARED), count=2, **on("free")),
        ),
        claims=(
            claim(ask("a", capacity={"requests": {"cores": "2"}}), ask("b", capacity={"requests": {"cores": "2"}})),
        ),
        devices=("a=x", "b=x"),
    ),
    Named(
        "counters run out",
        frozenset(),
        slices=(
            part("a", count=2, **COUNTERS, **on("free")),
            part("b", counted("x", "6"), counted("y", "6"), count=2, **on("free")),
        ),
        claims=(claim(ask(count=2)),),
    ),
    Named(
        "a bare key isn't the published one",
        frozenset(),
        slices=(
            part(
                "a",
                {"name": "x", "allowMultipleAllocations": True, "capacity": {"dra.cpu/cpu": {"value": "6"}}},
                **on("free"),
            ),
        ),
        claims=(claim(ask(capacity={"requests": {"cpu": "6"}})),),
    ),
    Named(
        "one group of CPUs is one engine's",
        frozenset(),
        slices=(
            part(
                "a",
                {"name": "x", "allowMultipleAllocations": True, "capacity": {"dra.cpu/cpu": {"value": "6"}}},
                **on("free"),
            ),
        ),
        claims=(
            claim(
                ask("a", capacity={"requests": {"dra.cpu/cpu": "6"}}),
                ask("b", capacity={"requests": {"dra.cpu/cpu": "1"}}),
            ),
        ),
    ),
)
UNSOUND = (
    Named(
        "an older generation stands where the newer isn't for the node",
        frozenset({"free"}),
        slices=(
            part("a", "old", generation=1, count=1, **on("free")),
            part("b", "new", generation=2, count=2, **on("gpu")),
        ),
        spec=TOLERATE,
        claims=(claim(ask()),),
        devices=("r=old",),
        world="unsound",
    ),
    Named(
        "an older generation that isn't whole gives way",
        frozenset({"gpu"}),
        slices=(
            part("a", "old", generation=1, count=2, **on("free")),
            part("b", "new", generation=2, count=1, **on("gpu")),
        ),
        spec=TOLERATE,
        claims=(claim(ask()),),
        devices=("r=new",),
        world="unsound",
    ),
    Named(
        "an incomplete pool is passed over",
        frozenset({"gpu"}),
        slices=(part("a", "x", pool="a", count=2, **on("free")), part("b", "y", pool="b", **on("gpu"))),
        spec=TOLERATE,
        claims=(claim(ask()),),
        devices=("r=y",),
        world="unsound",
    ),
    Named(
        "another driver's incomplete pool ends a request for all",
        frozenset(),
        slices=(part("a", "x", **on("free")),),
        claims=(claim(ask(allocationMode="All")),),
        world="unsound",
    ),
    Named(
        "a counter that isn't there makes the pool invalid",
        frozenset({"free"}),
        slices=(
            part("a", counted("x", "1"), pool="a", **on("free")),
            part("b", "y", pool="b", **on("free")),
        ),
        claims=(claim(ask()),),
        devices=("r=y",),
        world="unsound",
    ),
)
BROKEN = (
    Named(
        "a slice's selector that can't be read",
        frozenset(),
        slices=(part("a", "x", nodeSelector={"nodeSelectorTerms": [where("size", "Gt", "x")]}),),
        claims=(claim(ask()),),
        world="broken",
    ),
    Named(
        "and it ends every other driver's claims",
        frozenset(),
        slices=(part("a", "x", **on("free")),),
        claims=(claim(ask()),),
        world="broken",
    ),
    Named("pods without claims don't care", frozenset({"free"}), world="broken"),
)
CASES = (*DAEMONS, *PODS, *CLAIMS, *UNSOUND, *BROKEN)


def case_name(named: Named) -> str:
    return f"n{CASES.index(named)}"


def world(name: str) -> World:
    """The nodes with the cases of one world, each under its number."""
    nodes = [{**n, "metadata": {**n["metadata"], "labels": {**n["metadata"]["labels"], CLUSTER: name}}} for n in NODES]
    return World(name, tuple(nodes), tuple(_case(c, name) for c in CASES if c.world == name))


def _case(named: Named, world_name: str) -> Case:
    name = case_name(named)
    driver, namespace = f"{name}.example.com", ADMIN_NAMESPACE if named.admin else NAMESPACE
    slices = [_slice(s, driver, world_name) for s in named.slices]
    claims = [claim_object(f"{name}-{i}", world_name, namespace, _own(c, driver)) for i, c in enumerate(named.claims)]
    spec = dict(named.spec)
    if claims:
        entries = enumerate(c["metadata"]["name"] for c in claims)
        spec["resourceClaims"] = [{"name": f"r{i}", "resourceClaimName": claimed} for i, claimed in entries]
    support = [
        *([device_class(driver, world_name)] if claims else []),
        *slices,
        *_held(named, driver, world_name),
        *claims,
    ]
    body = workload(named.kind, name, world_name, spec, namespace=namespace)
    return Case(name, named.kind, body, tuple(support), tuple(c["metadata"]["name"] for c in claims))


def _slice(made: Body, driver: str, world_name: str) -> Body:
    spec = {k: v for k, v in made.items() if k != "name"}
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{driver}-{made['name']}", "labels": {CLUSTER: world_name}},
        "spec": {"driver": driver, **spec},
    }


def _held(named: Named, driver: str, world_name: str) -> Iterable[Body]:
    if named.held:
        results = [{"request": "r", "driver": driver, "pool": "p", **h} for h in named.held]
        made = claim_object(f"{case_name(named)}-held", world_name, NAMESPACE, _own(claim(ask(count=8)), driver))
        yield made | {"status": {"allocation": {"devices": {"results": results}}}}


def _own(value: Any, driver: str) -> Any:
    """The same with the case's own driver in it."""
    if isinstance(value, dict):
        return {k: _own(v, driver) for k, v in value.items()}
    if isinstance(value, list):
        return [_own(v, driver) for v in value]
    return value.replace("DRIVER", driver) if isinstance(value, str) else value
