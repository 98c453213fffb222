"""Random devices and the slices that publish them."""

from __future__ import annotations

from random import Random

from tests.kubernetes.placement.nodes import LABELS, requirement
from tests.kubernetes.placement.world import CLUSTER, Body

API = "resource.k8s.io/v1"
FOREIGN = "vendor.example.com"
MODELS = ("A100", "H100", "h100", "L4")
VERSIONS = ("1.2.3", "1.10.0", "2.0.0", "2.0.0-rc.1", "1.2.3+build.5")
AMOUNTS = ("16Gi", "17179869184", "20Gi", "40960Mi", "80Gi", "1500m", "1.5Gi", "16G")
TAINT_KEYS = ("broken", "reserved")


def device(rng: Random, name: str, *, shared: bool) -> Body:
    made: Body = {"name": name}
    attributes: dict[str, Body] = {}
    for key, values in (("model", MODELS), ("version", VERSIONS), ("index", (0, 1, 2, 3)), ("ok", (True, False))):
        if rng.random() < 0.85:
            kind = {"model": "string", "version": "version", "index": "int", "ok": "bool"}[key]
            attributes[key] = {kind: rng.choice(values)}
    if rng.random() < 0.3:
        attributes[f"{FOREIGN}/rack"] = {"string": rng.choice(("r1", "r2"))}
    if attributes:
        made["attributes"] = attributes
    capacity: dict[str, Body] = {}
    if rng.random() < 0.9:
        capacity["memory"] = {"value": rng.choice(AMOUNTS)}
    if shared or rng.random() < 0.2:
        capacity["cores"] = {"value": rng.choice(("4", "6", "8"))}
        if shared and rng.random() < 0.5:
            capacity["cores"]["requestPolicy"] = _policy(rng)
    if capacity:
        made["capacity"] = capacity
    if shared and rng.random() < 0.8:
        made["allowMultipleAllocations"] = True
    elif "cores" in capacity:
        # A policy is allowed only on a device that can be shared.
        capacity["cores"].pop("requestPolicy", None)
    if rng.random() < 0.12:
        effect = rng.choice(("NoSchedule", "NoExecute", "None"))
        made["taints"] = [{"key": rng.choice(TAINT_KEYS), "value": rng.choice(("x", "y")), "effect": effect}]
    return made


def _policy(rng: Random) -> Body:
    return rng.choice(
        (
            {"default": "2", "validValues": ["1", "2", "4"]},
            {"default": "1", "validRange": {"min": "1", "max": "4"}},
            {"default": "2", "validRange": {"min": "2", "step": "2"}},
        )
    )


def slices(rng: Random, world: str, driver: str, nodes: tuple[Body, ...], *, clean: bool) -> list[Body]:
    """The pools of one driver, in one of the shapes that drivers publish. `clean` leaves out incomplete and invalid ones."""
    shape = rng.choice(("node", "node", "node", "all", "selector", "device", "counters", "split", "shared", "shared"))
    names = [n["metadata"]["name"] for n in nodes]
    if shape in ("node", "shared", "counters"):
        chosen = rng.sample(names, rng.randint(len(names) // 2, len(names)))
        reaches: list[tuple[str, Body]] = [(name, {"nodeName": name}) for name in chosen]
    elif shape == "all":
        reaches = [("everywhere", {"allNodes": True})]
    elif shape == "selector":
        reaches = [(f"s{i}", {"nodeSelector": _selector(rng)}) for i in range(rng.choice((1, 1, 2)))]
    else:
        reaches = [("pool", {})]
    found: list[Body] = []
    for pool, reach in reaches:
        found += _pool(rng, Frame(world, driver, pool), reach, shape, names, clean=clean)
    return found


class Frame:
    """Where a slice belongs; makes its object."""

    def __init__(self, world: str, driver: str, pool: str) -> None:
        self.world, self.driver, self.pool = world, driver, pool

    def slice(self, suffix: str, *, generation: int, count: int, **spec: object) -> Body:
        pool = {"name": self.pool, "generation": generation, "resourceSliceCount": count}
        return {
            "apiVersion": API,
            "kind": "ResourceSlice",
            "metadata": {"name": f"{self.driver}-{self.pool}-{suffix}", "labels": {CLUSTER: self.world}},
            "spec": {"driver": self.driver, "pool": pool, **spec},
        }


def _pool(rng: Random, frame: Frame, reach: Body, shape: str, names: list[str], *, clean: bool) -> list[Body]:
    generation = rng.choice((1, 2))
    if shape == "counters":
        return _counters(rng, frame, reach, generation, clean=clean)
    if shape == "device":
        return _per_device(rng, frame, names, generation)
    if shape == "split":
        return _split(rng, frame, names, generation, clean=clean)
    number = rng.choice((1, 1, 1, 2))
    shared = shape == "shared"
    made = []
    for part in range(number):
        devices = [device(rng, f"d{part}-{i}", shared=shared) for i in range(rng.choice((0, 1, 2, 3, 3, 4, 5)))]
        made.append(frame.slice(f"g{part}", generation=generation, count=number, devices=devices, **reach))
    if not clean and rng.random() < 0.25:
        if rng.random() < 0.5 and number == 2:
            made.pop()
        elif made[0]["spec"]["devices"] and number == 2:
            made[1]["spec"]["devices"] = [dict(made[0]["spec"]["devices"][0])]
        else:
            for one in made:
                # Slices of one generation that disagree on their number are judged by whichever is seen first.
                one["spec"]["pool"]["resourceSliceCount"] += 1
    if generation == 2 and rng.random() < 0.5:
        old = [device(rng, f"old-{i}", shared=shared) for i in range(3)]
        made.append(frame.slice("old", generation=1, count=1, devices=old, **reach))
    return made


def _counters(rng: Random, frame: Frame, reach: Body, generation: int, *, clean: bool) -> list[Body]:
    """Partitions of one piece of hardware, which take from what they share."""
    counters = {"memory": {"value": rng.choice(("40Gi", "80Gi"))}, "engines": {"value": "4"}}
    shared = frame.slice(
        "a-counters", generation=generation, count=2, sharedCounters=[{"name": "card", "counters": counters}], **reach
    )
    devices = []
    for i in range(rng.randint(1, 4)):
        made = device(rng, f"part-{i}", shared=rng.random() < 0.2)
        used = {"memory": {"value": rng.choice(("10Gi", "20Gi", "40Gi"))}}
        if rng.random() < 0.5:
            used["engines"] = {"value": rng.choice(("1", "2", "3"))}
        made["consumesCounters"] = [{"counterSet": "card", "counters": used}]
        devices.append(made)
    if not clean and rng.random() < 0.1:
        devices[0]["consumesCounters"][0]["counterSet"] = "missing"
    return [shared, frame.slice("b-parts", generation=generation, count=2, devices=devices, **reach)]


def _per_device(rng: Random, frame: Frame, names: list[str], generation: int) -> list[Body]:
    devices = []
    for i in range(rng.randint(1, 6)):
        where = rng.choice(({"nodeName": rng.choice(names)}, {"allNodes": True}, {"nodeSelector": _selector(rng)}))
        devices.append(device(rng, f"own-{i}", shared=rng.random() < 0.2) | where)
    return [frame.slice("own", generation=generation, count=1, devices=devices, perDeviceNodeSelection=True)]


def _split(rng: Random, frame: Frame, names: list[str], generation: int, *, clean: bool) -> list[Body]:
    """One pool whose slices are for different nodes, perhaps in the middle of an update."""
    chosen = rng.sample(names, min(len(names), rng.randint(2, 4)))
    made = []
    for i, name in enumerate(chosen):
        devices = [device(rng, f"n{i}-{j}", shared=False) for j in range(rng.randint(1, 3))]
        made.append(frame.slice(f"p{i}", generation=generation, count=len(chosen), devices=devices, nodeName=name))
    if not clean and rng.random() < 0.5:
        if rng.random() < 0.5:
            made.pop()
        else:
            # The newer generation of one node's slice is out, the others' isn't yet.
            made[-1]["spec"]["pool"] |= {
                "generation": generation + 1,
                "resourceSliceCount": rng.choice((1, len(chosen))),
            }
    return made


def _selector(rng: Random) -> Body:
    """Of exactly one term, which is all that a slice may hold."""
    if rng.random() < 0.5:
        key = rng.choice(tuple(LABELS))
        return {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "Exists"}]}]}
    wanted = [requirement(rng) for _ in range(rng.choice((1, 2)))]
    if rng.random() < 0.98:
        # One that can't be read ends every claim's allocation in the whole cluster.
        wanted = [r for r in wanted if r["operator"] not in ("Gt", "Lt") or r["values"][0].isdigit()]
    return {"nodeSelectorTerms": [{"matchExpressions": wanted or [{"key": "zone", "operator": "Exists"}]}]}
