"""What the lab's controllers decide: its store and engine in process, without waiting."""

from __future__ import annotations

from resources.lab.api.bootstrap import bootstrap
from resources.lab.api.errors import ApiError
from resources.lab.api.storage import Storage
from resources.lab.api.store import Store
from resources.lab.api.switches import Switches
from resources.lab.api.writes import Write
from resources.lab.controllers import _all
from resources.lab.controllers.engine import Engine
from tests.kubernetes.placement.real import NAMESPACES
from tests.kubernetes.placement.world import CASE, Body, Decision, World, collection, given


def decide(world: World) -> dict[str, Decision]:
    """By case."""
    store = Store(Switches("v1.36.3"), Storage())
    bootstrap(store)
    for body in (*NAMESPACES, *world.nodes):
        _create(store, body)
    refused: dict[str, str] = {}
    now = 0.0
    engine = Engine(store, _all, clock=lambda: now)
    for bodies in ([(c, s) for c in world.cases for s in c.support], [(c, c.body) for c in world.cases]):
        for case, body in bodies:
            if case.name not in refused:
                try:
                    _create(store, body)
                except ApiError as error:
                    refused[case.name] = error.message
    while True:
        while engine.work():
            pass
        due = engine.next_due()
        if due is None or due > 30:
            break
        now = max(now, due)
    return _look(store, world, refused)


def _create(store: Store, body: Body) -> None:
    resource, group = collection(body).rpartition("/")[2], body["apiVersion"].rpartition("/")[0]
    named = f"{resource}.{group}" if group else resource
    made = store.create(named, body)
    if body["kind"] == "ResourceClaim" and "status" in body:
        store.update(
            named,
            {**made, "status": body["status"]},
            namespace=made["metadata"]["namespace"],
            how=Write("tester", subresource="status"),
        )


def _look(store: Store, world: World, refused: dict[str, str]) -> dict[str, Decision]:
    nodes: dict[str, set[str]] = {}
    for pod in store.list("pods"):
        name = pod["metadata"]["labels"].get(CASE, "")
        nodes.setdefault(name, set()).update({pod["spec"]["nodeName"]} if pod["spec"].get("nodeName") else ())
    claims = {c["metadata"]["name"]: given(c) for c in store.list("resourceclaims.resource.k8s.io")}
    return {
        case.name: Decision(
            frozenset(nodes.get(case.name, ())),
            {name: claims[name] for name in case.claims if claims.get(name)},
            refused.get(case.name, ""),
        )
        for case in world.cases
    }
