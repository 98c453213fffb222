"""Replicas onto clusters and pools.

A replica goes to a cluster that its selector and its tolerations admit and whose pools have room for all its engines;
ties go to the fewest replicas of the same deployment, then the most free nodes, then the name. What runs already stays.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING

from modelplane_dagster.cluster import ClusterView, PoolView
from modelplane_dagster.cpu import MAX_DEVICES_PER_CLAIM
from modelplane_dagster.findings import Finding, Place, finding, ordered
from modelplane_dagster.kube.cel import SelectorEvaluationError
from modelplane_dagster.placement.facts import (
    ClusterOffer,
    EnginePlacement,
    HeldReplica,
    MemberPlacement,
    Placement,
    ReplicaPlacement,
)
from modelplane_dagster.placement.images import image_findings
from modelplane_dagster.placement.match import Match, claim_requests, match_pool, satisfies
from modelplane_dagster.placement.unplaced import DRAINS, Shortfall, keeping_out, reasons

if TYPE_CHECKING:
    from modelplane_dagster.manifests.classes import Device
    from modelplane_dagster.manifests.deployments import DeviceRequest, Engine, Member, ModelDeployment
    from modelplane_dagster.manifests.fleet import Fleet


@dataclass(frozen=True, slots=True)
class PoolRoom:
    """A pool's nodes: how many of them nothing is taken of, and what is taken of each of the others, by device."""

    free: int
    used: tuple[Counter[str], ...] = ()

    def less(self, asks: Counter[str], limits: Mapping[str, int], *, count: int) -> PoolRoom | None:
        """With the asks taken of `count` nodes, one pod a node, fullest first; None where there is no room."""
        if not asks:
            # A pod that claims nothing still stands on a node of the pool, and shares it.
            return self if count <= self.free + len(self.used) else None
        if any(asked > limits[name] for name, asked in asks.items()):
            return None
        fitting = [i for i, n in enumerate(self.used) if all(n[name] + asks[name] <= limits[name] for name in asks)]
        fitting = sorted(fitting, key=lambda i: -self.used[i].total())[:count]
        fresh = count - len(fitting)
        if fresh > self.free:
            return None
        used = list(self.used)
        for index in fitting:
            used[index] = used[index] + asks
        return PoolRoom(self.free - fresh, (*used, *(Counter(asks) for _ in range(fresh))))


@dataclass(slots=True)
class Room:
    """What is free on a cluster, by pool. A copy shares what neither changes."""

    pools: dict[str, PoolRoom] = field(default_factory=dict)

    def free(self) -> int:
        """Nodes of which nothing is taken."""
        return sum(p.free for p in self.pools.values())

    def take(self, pool: PoolView, asks: Counter[str], *, count: int) -> bool:
        """Takes `count` nodes' worth, one pod a node; False, and nothing taken, where there is no room."""
        left = self.pools[pool.name].less(asks, {d.name: d.count for d in pool.devices}, count=count)
        if left is None:
            return False
        self.pools[pool.name] = left
        return True

    def copy(self) -> Room:
        return Room(dict(self.pools))


def place_all(
    fleet: Fleet, offers: Sequence[ClusterOffer], *, held: Sequence[HeldReplica] = ()
) -> tuple[Placement, ...]:
    """Every deployment, sorted by namespace and name. `held` are replicas on clusters that offer nothing, and that count
    all the same.

    Each sees the room that the ones before it left: what runs already comes first, then those with the fewest clusters to
    choose from, so that one that may go anywhere doesn't take the only place of another; then by name.
    """
    rooms: dict[str, Room] = {}
    placer = _Placer(offers, rooms, held)
    order = sorted(fleet.deployments, key=lambda key: (key not in placer.running, placer.choice(fleet, key), key))
    done = {key: placer.place(fleet, key, fleet.deployments[key]) for key in order}
    return tuple(done[key] for key in sorted(done))


def matching_pools(fleet: Fleet, key: tuple[str, str], offers: Sequence[ClusterOffer]) -> tuple[tuple[str, str], ...]:
    """Every pool, as cluster and name, that a member of the deployment could be placed on by its selectors alone, room
    left aside."""
    deployment = fleet.deployments[key]
    search = _Search(fleet, key, deployment)
    found = []
    for offer in sorted(offers, key=lambda o: o.view.name):
        if not search.selects(offer):
            continue
        for pool in offer.view.pools:
            engines = deployment.spec.template.spec.engines
            if any(search.matches(engine, member, pool, offer) for engine in engines for member in engine.members):
                found.append((offer.view.name, pool.name))
    return tuple(found)


class _Placer:
    def __init__(
        self, offers: Sequence[ClusterOffer], rooms: dict[str, Room], held: Sequence[HeldReplica] = ()
    ) -> None:
        self.held = held
        self.offers = sorted(offers, key=lambda o: o.view.name)
        self.index = {o.view.name: i for i, o in enumerate(self.offers)}
        self.views = {o.view.name: o.view for o in self.offers}
        self.rooms = rooms
        self.free: dict[str, int] = {}
        self.running: dict[tuple[str, str], list[tuple[ClusterOffer, Mapping[str, str]]]] = {}
        for offer in self.offers:
            for replica in offer.replicas:
                self.running.setdefault((replica.namespace, replica.deployment), []).append((offer, replica.pools))

    def room(self, offer: ClusterOffer) -> Room:
        name = offer.view.name
        if name not in self.rooms:
            self.rooms[name] = Room({p.name: PoolRoom(_size(offer, p)) for p in offer.view.pools})
            self.free[name] = self.rooms[name].free()
        return self.rooms[name]

    def choice(self, fleet: Fleet, key: tuple[str, str]) -> int:
        """How many clusters the deployment's selector leaves it."""
        wanted = fleet.deployments[key].spec.template.spec.cluster_selector.match_labels
        return sum(_selected(wanted, offer) for offer in self.offers) if wanted else len(self.offers)

    def place(self, fleet: Fleet, key: tuple[str, str], deployment: ModelDeployment) -> Placement:
        search = _Search(fleet, key, deployment)
        replicas: list[ReplicaPlacement] = []
        own: Counter[str] = Counter()
        for offer, pools in self.running.get(key, ()):
            if len(replicas) < deployment.spec.replicas and not keeping_out(deployment, offer.view, DRAINS):
                kept = search.stay(offer, pools, self.room(offer)) or search.fit(offer, self.room(offer))
                if kept is not None:
                    own[offer.view.name] += 1
                    replicas.append(self._settle(offer, kept))
        for cluster, why, lasts in self._holding(key, search):
            search.hold(cluster, why, lasts=lasts)
        # A cluster's rank changes only when it is given a replica, so the heap holds the order of the rest.
        queue = [self._rank(o, own) for o in self.offers if search.admits(o)]
        heapq.heapify(queue)
        while queue and len(replicas) + len(search.held) < deployment.spec.replicas:
            *_, index = heapq.heappop(queue)
            best = self.offers[index]
            chosen = search.fit(best, self.room(best))
            if chosen is None:
                continue
            own[best.view.name] += 1
            replicas.append(self._settle(best, chosen))
            heapq.heappush(queue, self._rank(best, own))
        found = search.result(tuple(sorted(replicas, key=lambda r: r.cluster)), self.offers, self.views)
        # A deployment that can't be placed as written is left as it runs, like a cluster that is refused.
        return found if found.verdict == "refused" else replace(found, drains=self._drains(key, deployment))

    def _drains(self, key: tuple[str, str], deployment: ModelDeployment) -> tuple[str, ...]:
        """The API drains by NoExecute what runs on a cluster and doesn't tolerate it, as one drains a node: unasked whether
        there is room elsewhere."""
        there = dict.fromkeys(o.view.name for o, _ in self.running.get(key, ()))
        offers = [self.offers[self.index[name]] for name in there]
        return tuple(o.view.name for o in offers if o.admitted and keeping_out(deployment, o.view, DRAINS))

    def _holding(self, key: tuple[str, str], search: _Search) -> Iterator[tuple[str, str, bool]]:
        """Clusters that hold a replica or may hold one, each with the reason that it isn't placed like the others, and
        whether that lasts: manifests are mended by an edit, an API may answer again."""
        for replica in self.held:
            if (replica.namespace, replica.deployment) == key:
                yield replica.cluster, "its manifests are unknown", True
        for offer in self.offers:
            if offer.could_hold(key) and search.could_run(offer):
                yield offer.view.name, f"whether a replica runs there can't be read: {offer.unread}", False

    def _rank(self, offer: ClusterOffer, own: Counter[str]) -> tuple[int, int, int]:
        """Fewest own replicas, most free nodes, name; the offers stand in order of their names."""
        name = offer.view.name
        if name not in self.rooms:
            self.room(offer)
        return own[name], -self.free[name], self.index[name]

    def _settle(self, offer: ClusterOffer, fit: tuple[ReplicaPlacement, Room]) -> ReplicaPlacement:
        replica, room = fit
        self.rooms[offer.view.name] = room
        self.free[offer.view.name] = room.free()
        return replica


def _size(offer: ClusterOffer, pool: PoolView) -> int:
    """How many nodes the pool can have: an autoscaled pool grows to its bound, another has what is ready or declared."""
    declared = max(pool.count, pool.maximum or 0) if pool.autoscaled else pool.count
    if pool.autoscaled or offer.nodes is None:
        return declared
    return offer.nodes.get(pool.name, 0)


def _selected(labels: Mapping[str, str], offer: ClusterOffer) -> bool:
    return not labels or all(offer.view.labels.get(k) == v for k, v in labels.items())


class _Search:
    """One deployment's search: what its selectors say of each shape of class is worked out once."""

    def __init__(self, fleet: Fleet, key: tuple[str, str], deployment: ModelDeployment) -> None:
        self.fleet = fleet
        self.namespace, self.name = key
        self.deployment = deployment
        self.subject = f"deployment/{self.namespace}/{self.name}"
        self.refusals: dict[str, Finding] = {}
        self._admits: dict[tuple[str, str], dict[tuple[str, str], bool]] = {}
        self._matches: dict[tuple[str, str, str, str | None], Match | None] = {}
        self.selected = 0
        self.matched = 0
        self.held: list[Finding] = []

    def selects(self, offer: ClusterOffer) -> bool:
        return _selected(self.deployment.spec.template.spec.cluster_selector.match_labels, offer)

    def matches(self, engine: Engine, member: Member, pool: PoolView, offer: ClusterOffer) -> bool:
        return self._match(engine, member, pool, offer) is not None

    def admits(self, offer: ClusterOffer) -> bool:
        if not self.selects(offer):
            return False
        self.selected += 1
        return offer.admitted and not offer.unread and not keeping_out(self.deployment, offer.view)

    def could_run(self, offer: ClusterOffer) -> bool:
        """A replica may have been placed there: its selectors and tolerations admit the cluster, room left aside."""
        return self.selects(offer) and not keeping_out(self.deployment, offer.view, DRAINS) and self._could(offer)

    def hold(self, cluster: str, why: str, *, lasts: bool) -> None:
        text = f"A replica of {self.name} on cluster {cluster} counts and is left as it is: {why}."
        self.held.append(finding("ReplicaHeld", self.subject, text.replace("..", "."), place=self._at(), lasts=lasts))

    def stay(self, offer: ClusterOffer, pools: Mapping[str, str], room: Room) -> tuple[ReplicaPlacement, Room] | None:
        """The replica on the very pools that it runs on, whether or not their nodes are ready now; None where a pool is
        gone or no longer satisfies it. `pools` maps member (engine/role) to pool."""
        there = {p.name: p for p in offer.view.pools}
        trial = room.copy()
        engines = []
        for engine in self.deployment.spec.template.spec.engines:
            chosen: dict[int, tuple[PoolView, Match | None]] = {}
            for member in engine.members:
                pool = there.get(pools.get(f"{engine.name}/{member.role}", ""))
                match = self._match(engine, member, pool, offer) if pool else None
                if pool is None or (match is None and member.node_selector is not None):
                    return None
                chosen[id(member)] = (pool, match)
            asking = [m for m in engine.members if m.node_selector is not None]
            at = [chosen[id(m)] for m in asking]
            # Without room it stays all the same: its pods hold their devices, or wait for nodes to come back.
            self._take(engine, asking, [p for p, _ in at], [m for _, m in at], trial)
            engines.append(self._placed(engine, offer, chosen))
        self.matched += 1
        return ReplicaPlacement(offer.view.name, tuple(engines)), trial

    def fit(self, offer: ClusterOffer, room: Room) -> tuple[ReplicaPlacement, Room] | None:
        """The replica on this cluster with the room it leaves; None where it doesn't fit."""
        if not self._could(offer):
            return None
        self.matched += 1
        trial = room.copy()
        engines = []
        for engine in self.deployment.spec.template.spec.engines:
            placed = self._engine(engine, offer, trial)
            if placed is None:
                return None
            engines.append(placed)
        return ReplicaPlacement(offer.view.name, tuple(engines)), trial

    def _could(self, offer: ClusterOffer) -> bool:
        """Every member that asks for devices has a pool that matches, room left aside."""
        return all(
            any(self._match(engine, member, pool, offer) is not None for pool in offer.view.pools)
            for engine in self.deployment.spec.template.spec.engines
            for member in engine.members
            if member.node_selector is not None
        )

    def _engine(self, engine: Engine, offer: ClusterOffer, room: Room) -> EnginePlacement | None:
        """One pool for the whole engine where one has room for it; else the first pools, one a member, that have."""
        asking = [m for m in engine.members if m.node_selector is not None]
        by_member = [[(p, x) for p in offer.view.pools if (x := self._match(engine, m, p, offer))] for m in asking]
        choices = sorted(product(*by_member), key=lambda chosen: len({p.name for p, _ in chosen}))
        for chosen in choices:
            if self._take(engine, asking, [p for p, _ in chosen], [x for _, x in chosen], room):
                return self._placed(engine, offer, {id(m): c for m, c in zip(asking, chosen, strict=True)})
        return None

    def _take(
        self, engine: Engine, members: list[Member], pools: list[PoolView], matches: Sequence[Match | None], room: Room
    ) -> bool:
        trial = room.copy()
        for _ in range(engine.copies):
            for member, pool, match in zip(members, pools, matches, strict=True):
                if match is None or member.node_selector is None:
                    return False
                asks: Counter[str] = Counter()
                for request, device in zip(member.node_selector.devices, match.devices, strict=True):
                    asks[device.name] += request.count
                if not trial.take(pool, asks, count=member.worker.nodes if member.worker else 1):
                    return False
        room.pools = trial.pools
        return True

    def _match(self, engine: Engine, member: Member, pool: PoolView, offer: ClusterOffer) -> Match | None:
        """By class: pools of one class are alike in what they match."""
        if member.node_selector is None:
            return None
        key = (engine.name, member.role, pool.class_name, offer.view.cpu_mode)
        if key not in self._matches:
            self._matches[key] = self._match_class(engine, member, pool, offer)
        return self._matches[key]

    def _match_class(self, engine: Engine, member: Member, pool: PoolView, offer: ClusterOffer) -> Match | None:
        requests = member.node_selector.devices if member.node_selector else ()
        match = match_pool(requests, pool, self._judged(engine, member, requests, pool))
        if match is None:
            return None
        _, _, total = claim_requests(requests, match, pool, offer.view.cpu_mode)
        if total > MAX_DEVICES_PER_CLAIM:
            self._refuse(
                "ClaimTooLarge",
                f"A claim of engine {engine.name} needs {total} devices on pool {pool.name} of {offer.view.name}; one claim "
                f"holds {MAX_DEVICES_PER_CLAIM}.",
            )
            return None
        return match

    def _judged(
        self, engine: Engine, member: Member, requests: tuple[DeviceRequest, ...], pool: PoolView
    ) -> dict[tuple[str, str], bool]:
        key = (f"{engine.name}/{member.role}", pool.class_name)
        if key not in self._admits:
            admits: dict[tuple[str, str], bool] = {}
            for request in requests:
                said = {d.name: self._satisfies(request, d) for d in pool.devices}
                # The allocator shows a request every device of its driver on the node, and one that a selector fails on
                # aborts the whole claim, even where another device would do.
                aborted = {d.driver for d in pool.devices if said[d.name] is None}
                admits |= {(request.name, d.name): bool(said[d.name]) and d.driver not in aborted for d in pool.devices}
            self._admits[key] = admits
        return self._admits[key]

    def _satisfies(self, request: DeviceRequest, device: Device) -> bool | None:
        """None where a selector fails on the device."""
        try:
            return satisfies(request, device)
        except SelectorEvaluationError as error:
            # The class's other devices (a fabric beside the GPU) lack the fields that a GPU's selector reads: DRA never
            # shows them to it, since the request names a DeviceClass. On a device of a driver that it names it is a fault.
            if any(device.driver in (s.cel or "") for s in request.selectors):
                self._refuse(
                    "SelectorError", f"The selector of request {request.name} fails on {device.driver}: {error.message}"
                )
            return None if device.claim == "DRA" else False

    def _placed(
        self, engine: Engine, offer: ClusterOffer, chosen: dict[int, tuple[PoolView, Match | None]]
    ) -> EnginePlacement:
        fallback = next(iter(chosen.values()))[0]
        members = []
        for member in engine.members:
            pool, match = chosen.get(id(member), (fallback, None))
            if match is None or member.node_selector is None:
                members.append(MemberPlacement(member.role, pool.name, ()))
                continue
            requests, cpus, _ = claim_requests(member.node_selector.devices, match, pool, offer.view.cpu_mode)
            members.append(MemberPlacement(member.role, pool.name, requests, cpus))
        return EnginePlacement(engine.name, tuple(members))

    def _refuse(self, code: str, message: str) -> None:
        self.refusals.setdefault(code, finding(code, self.subject, message, place=self._at()))

    def _at(self) -> Place | None:
        return self.fleet.place(
            "ModelDeployment", self.name, ("spec", "template", "spec", "engines"), namespace=self.namespace
        )

    def result(
        self, replicas: tuple[ReplicaPlacement, ...], offers: Sequence[ClusterOffer], views: Mapping[str, ClusterView]
    ) -> Placement:
        wanted = self.deployment.spec.replicas
        notes = image_findings(self.subject, self.deployment, replicas, views)
        if len(replicas) == wanted:
            return Placement(self.namespace, self.name, "placed", replicas, ordered(notes))
        if len(replicas) + len(self.held) >= wanted:
            return Placement(self.namespace, self.name, "unplaced", replicas, ordered([*self.held, *notes]))
        if self.refusals and not self.matched:
            return Placement(self.namespace, self.name, "refused", replicas, ordered([*self.refusals.values(), *notes]))
        why = self._reasons(len(replicas), offers)
        found = ordered([*self.refusals.values(), *self.held, *why, *notes])
        return Placement(self.namespace, self.name, "unplaced", replicas, found)

    def _reasons(self, placed: int, offers: Sequence[ClusterOffer]) -> tuple[Finding, ...]:
        could = [o for o in offers if self.selects(o) and self._could(o)]
        admitted = [o for o in could if o.admitted]
        read = [o for o in admitted if not o.unread]
        tainted = {o.view.name: keeping_out(self.deployment, o.view) for o in read}
        return reasons(
            Shortfall(
                name=self.name,
                subject=self.subject,
                placed=placed,
                wanted=self.deployment.spec.replicas,
                labels=self.deployment.spec.template.spec.cluster_selector.match_labels,
                selected=self.selected > 0,
                open=any(not taints for taints in tainted.values()),
                tainted={name: taints for name, taints in tainted.items() if taints},
                refused=tuple(o.view.name for o in could if not o.admitted),
                unread=tuple(o.view.name for o in admitted if o.unread),
                at=self._at(),
            )
        )
