"""Random claims against random slices: counts, All, alternatives, selectors, constraints, shares, what is in use already."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.kubernetes.placement.devices import (
    AMOUNTS,
    API,
    FOREIGN,
    MODELS,
    TAINT_KEYS,
    VERSIONS,
    slices,
)
from tests.kubernetes.placement.nodes import placing
from tests.kubernetes.placement.world import (
    ADMIN_NAMESPACE,
    CASE,
    CLUSTER,
    NAMESPACE,
    Body,
    Case,
    workload,
)


def make_claim_case(rng: Random, world: str, name: str, nodes: tuple[Body, ...], *, clean: bool) -> Case:
    """A pod with one claim or two, its driver's slices, and claims that hold some of the devices already."""
    drivers = [f"{name}.example.com"] if rng.random() < 0.85 else [f"{name}.example.com", f"{name}.example.org"]
    published = [s for d in drivers for s in slices(rng, world, d, nodes, clean=clean)]
    if len(drivers) == 2:
        # Upstream counts shared counters by the pool's name alone, so two drivers mix them up.
        published = [s for s in published if not _has_counters(s)]
    admin = rng.random() < 0.08
    namespace = ADMIN_NAMESPACE if admin else NAMESPACE
    evicting = any(t["effect"] == "NoExecute" for s in published for d in _devices_of(s) for t in d.get("taints") or ())
    maker = _Maker(rng, drivers, admin=admin, evicting=evicting)
    claims = [maker.claim(f"{name}-{i}", world, namespace) for i in range(rng.choice((1, 1, 1, 1, 2)))]
    held = _held(rng, name, world, published) if rng.random() < 0.35 else []
    support = [*(device_class(d, world) for d in drivers), *published, *held, *claims]
    spec = placing(rng, nodes, mild=True)
    spec["resourceClaims"] = [
        {"name": f"r{i}", "resourceClaimName": c["metadata"]["name"]} for i, c in enumerate(claims)
    ]
    names = tuple(c["metadata"]["name"] for c in claims)
    return Case(name, "Pod", workload("Pod", name, world, spec, namespace=namespace), tuple(support), names)


def device_class(driver: str, world: str, name: str = "") -> Body:
    return {
        "apiVersion": API,
        "kind": "DeviceClass",
        "metadata": {"name": name or driver, "labels": {CLUSTER: world}},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]},
    }


def claim_object(name: str, world: str, namespace: str, devices: Body) -> Body:
    return {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace, "labels": {CLUSTER: world, CASE: name}},
        "spec": {"devices": devices},
    }


def _devices_of(published: Body) -> list[Body]:
    found: list[Body] = published["spec"].get("devices") or []
    return found


def _has_counters(published: Body) -> bool:
    spec = published["spec"]
    return "sharedCounters" in spec or any("consumesCounters" in d for d in spec.get("devices") or ())


def _held(rng: Random, name: str, world: str, published: list[Body]) -> list[Body]:
    """A claim that is allocated already: some devices whole, of the shareable ones a share."""
    results: list[Body] = []
    for one in published:
        spec = one["spec"]
        for device in spec.get("devices") or ():
            if rng.random() > 0.35 or len(results) == 8:
                continue
            result = {"request": "r", "driver": spec["driver"], "pool": spec["pool"]["name"], "device": device["name"]}
            if any(all(r[k] == result[k] for k in ("driver", "pool", "device")) for r in results):
                continue
            if device.get("allowMultipleAllocations"):
                taken = {k: v["value"] for k, v in (device.get("capacity") or {}).items()}
                taken = {k: "2" if k == "cores" else "1Gi" for k in taken}
                result["shareID"] = f"{rng.getrandbits(32):08x}-0000-4000-8000-{rng.getrandbits(48):012x}"
                if taken:
                    result["consumedCapacity"] = taken
            results.append(result)
    if not results:
        return []
    request = {"name": "r", "exactly": {"deviceClassName": results[0]["driver"], "count": 8}}
    made = claim_object(f"{name}-held", world, NAMESPACE, {"requests": [request]})
    return [made | {"status": {"allocation": {"devices": {"results": results}}}}]


class _Maker:
    """`evicting`: some device evicts. The eviction controller wants the effect spelled out, and takes pods away that the
    scheduler let on with a toleration of any effect; evictions aren't what is compared here."""

    def __init__(self, rng: Random, drivers: list[str], *, admin: bool, evicting: bool) -> None:
        self.rng, self.drivers, self.admin, self.evicting = rng, drivers, admin, evicting

    def claim(self, name: str, world: str, namespace: str) -> Body:
        rng = self.rng
        requests = [self._request(f"r{i}") for i in range(rng.choice((1, 1, 1, 1, 2, 3)))]
        devices: Body = {"requests": requests}
        constraints = self._constraints(requests)
        if constraints:
            devices["constraints"] = constraints
        return claim_object(name, world, namespace, devices)

    def _request(self, name: str) -> Body:
        rng = self.rng
        if rng.random() < 0.2 and not self.admin:
            return {
                "name": name,
                "firstAvailable": [self._exact(n) for n in ("s0", "s1", "s2")[: rng.choice((1, 2, 3))]],
            }
        made = {"name": name, "exactly": self._exact("")}
        if self.admin and rng.random() < 0.7:
            made["exactly"]["adminAccess"] = True
        return made

    def _exact(self, name: str) -> Body:
        rng = self.rng
        driver = rng.choice(self.drivers)
        made: Body = {"deviceClassName": driver if rng.random() < 0.97 else "nowhere.example.com"}
        if name:
            made["name"] = name
        if rng.random() < 0.25:
            made["allocationMode"] = "All"
        else:
            made["count"] = rng.choice((1, 1, 1, 1, 1, 1, 2, 2, 3, 33))
            if made["count"] == 33 and rng.random() < 0.8:
                made["count"] = 5
        if rng.random() < 0.5:
            made["selectors"] = [
                {"cel": {"expression": expression(rng, driver)}} for _ in range(rng.choice((1, 1, 1, 2)))
            ]
        if rng.random() < 0.12:
            requests = {"cores": rng.choice(("1", "2", "3", "5", "9"))}
            if rng.random() < 0.2:
                requests = {rng.choice(("memory", "absent")): rng.choice(AMOUNTS)}
            made["capacity"] = {"requests": requests}
        if rng.random() < 0.3:
            made["tolerations"] = [self._toleration()]
        return made

    def _toleration(self) -> Body:
        rng = self.rng
        if rng.random() < 0.2:
            return {"operator": "Exists", **({"effect": "NoExecute"} if self.evicting else {})}
        made: Body = {"key": rng.choice(TAINT_KEYS)}
        if rng.random() < 0.5:
            made["operator"] = "Exists"
        else:
            made |= {"operator": "Equal", "value": rng.choice(("x", "y"))}
        if self.evicting or rng.random() < 0.5:
            made["effect"] = rng.choice(("NoSchedule", "NoExecute"))
        return made

    def _constraints(self, requests: list[Body]) -> list[Body]:
        rng = self.rng
        found: list[Body] = []
        while rng.random() < 0.18 and len(found) < 2:
            domain = rng.choice((self.drivers[0], self.drivers[0], FOREIGN))
            attribute = f"{domain}/{'rack' if domain == FOREIGN else rng.choice(('model', 'index', 'ok', 'version'))}"
            entry: Body = {rng.choice(("matchAttribute", "matchAttribute", "distinctAttribute")): attribute}
            if rng.random() < 0.5:
                names = [r["name"] for r in requests]
                names += [f"{r['name']}/{s['name']}" for r in requests for s in r.get("firstAvailable") or ()]
                entry["requests"] = rng.sample(names, rng.randint(1, len(names)))
            found.append(entry)
        return found


_COSTLY = (
    '["A100", "L4"].exists(m, m == D.?model.orValue(""))',
    'D.model.matches("^[AH]100$")',
)


def expression(rng: Random, driver: str) -> str:
    """A selector that the API server takes. Some of them err on devices that lack what they read."""
    if rng.random() < 0.06:
        # Alone: the API server estimates what an expression may cost, and two of these cost too much.
        return rng.choice(_COSTLY).replace("D", f'device.attributes["{driver}"]')
    made = _atom(rng, driver)
    while rng.random() < 0.35:
        other = _atom(rng, driver)
        made = rng.choice(
            (
                f"({made}) && ({other})",
                f"({made}) || ({other})",
                f"({made}) || !({other})",
                f"!({made})",
                f"({other}) ? ({made}) : true",
            )
        )
    return made


def _atom(rng: Random, driver: str) -> str:
    attributes, capacity = f'device.attributes["{driver}"]', f'device.capacity["{driver}"]'
    model, version, amount, number = (
        rng.choice(MODELS),
        rng.choice(VERSIONS),
        rng.choice(AMOUNTS),
        rng.choice((0, 1, 2)),
    )
    guarded = (
        f'{attributes}.?model.orValue("") == "{model}"',
        f'"model" in {attributes}',
        f"has({attributes}.index) && {attributes}.index > {number}",
        f'"version" in {attributes} && {attributes}.version.compareTo(semver("{version}")) >= 0',
        f'"memory" in {capacity} && {capacity}.memory.compareTo(quantity("{amount}")) >= 0',
        f'"cores" in {capacity} && {capacity}.cores.isGreaterThan(quantity("5"))',
        f'cel.bind(d, {attributes}, "ok" in d && d.ok)',
        f'"rack" in device.attributes["{FOREIGN}"]',
        f'device.attributes["{FOREIGN}"].?rack.orValue("") == "r1"',
        f'device.driver == "{driver}"',
        f'device.driver.startsWith("{driver[:6]}")',
        f"{attributes}.?index.orValue(7) in [0, 2, 7]",
        f"{attributes}.?index.hasValue()",
        "device.allowMultipleAllocations",
        "true",
    )
    bare: tuple[Any, ...] = (
        f'{attributes}.model == "{model}"',
        f'{attributes}["model"] != "{model}"',
        f"{attributes}.index % 2 == 0",
        f"{attributes}.index < {number}",
        f"{attributes}.ok",
        f'{attributes}.version.isLessThan(semver("{version}"))',
        f'{attributes}.version == semver("{version}")',
        f"{attributes}.version.major() == 2",
        f'{capacity}.memory.compareTo(quantity("{amount}")) == 0',
        f'{capacity}.memory == quantity("{amount}")',
        f'{capacity}.memory.isLessThan(quantity("{amount}"))',
        f'{capacity}.memory.add(quantity("1Gi")).isGreaterThan(quantity("{amount}"))',
        f"{capacity}.cores.asInteger() > 4",
        f'device.attributes["{FOREIGN}"].rack == "r2"',
        f'{attributes}.index == "{model}"',
        f"{attributes}.model > 1",
        f"{attributes}.missing == 1",
    )
    return rng.choice(guarded if rng.random() < 0.8 else bare)
