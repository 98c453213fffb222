"""The search behind an allocation: which devices, tried in which order, and what ends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

from modelplane_dagster.errors import ModelplaneError
from modelplane_dagster.kube.capacity import consumption, fits
from modelplane_dagster.kube.cel import compile_selector
from modelplane_dagster.kube.claims import Claim, DeviceClass, Usage, Wanted
from modelplane_dagster.kube.constraints import State, state_of
from modelplane_dagster.kube.node_pools import NodePool, devices_of, reaches
from modelplane_dagster.kube.objects import NodeFacts
from modelplane_dagster.kube.quantity import parse_quantity
from modelplane_dagster.kube.scheduling import untolerated
from modelplane_dagster.kube.slices import DeviceId, PublishedDevice, Slice

MAX_RESULTS = 32
"""Devices that one claim can hold over all its requests, of whatever driver (AllocationResultsMaxSize)."""

_MAX_STEPS = 200_000


class AbortError(ModelplaneError):
    """Ends the search, and with it the attempt to schedule the pod at all."""


class _End(Enum):
    """`TOO_MANY`: the claim would hold more devices than a claim can; choosing other devices before it can't help."""

    FOUND = 1
    NONE = 2
    TOO_MANY = 3


@dataclass(frozen=True, slots=True)
class Candidate:
    key: DeviceId
    device: PublishedDevice
    origin: Slice
    pool: int


@dataclass(frozen=True, slots=True)
class Ask:
    """One alternative of a claim's request; `claim` and `request` count from 0. `devices` are those that a request for all
    must get, None for a request that counts."""

    claim: int
    request: int
    wanted: Wanted
    number: int
    devices: tuple[Candidate, ...] | None

    @property
    def key(self) -> tuple[int, str]:
        return self.claim, self.wanted.name


@dataclass(frozen=True, slots=True)
class Taken:
    ask: Ask
    candidate: Candidate
    consumed: Mapping[str, str] | None
    """None for a device that is taken whole."""
    counted: bool
    """Whether its counters were taken with it: a second share of a device takes none."""


_Counter = tuple[int, str, str]
"""Pool, counter set, counter."""


class Search:
    """One node's. `run` says whether all claims can be had; `taken_for` then gives what each got."""

    def __init__(
        self,
        claims: Sequence[Claim],
        node: NodeFacts,
        pools: Sequence[NodePool],
        classes: Mapping[str, DeviceClass],
        usage: Usage,
    ) -> None:
        self._node, self._pools, self._classes, self._usage = node, pools, classes, usage
        self._candidates = [
            Candidate((pool.driver, pool.name, device.name), device, origin, at)
            for at, pool in enumerate(pools)
            if pool.usable
            for origin, device in devices_of(pool)
        ]
        self._left = _left(pools, usage)
        self._taken: list[Taken] = []
        self._judged: dict[tuple[int, str, DeviceId], bool] = {}
        self._exhausted: set[tuple[int, str]] = set()
        self._steps = 0
        self._claims = claims
        self._constraints: list[list[State]] = [[state_of(c) for c in claim.constraints] for claim in claims]
        # All of them before any is tried: one that can't be had at all ends the others too.
        self._asks = [self._asks_of(at, claim) for at, claim in enumerate(claims)]

    def run(self) -> bool:
        return self._claim(0) is _End.FOUND

    def why_not(self) -> str:
        bad = next((pool for pool in self._pools if pool.state == "invalid"), None)
        return f"the pool {bad.name} of {bad.driver} {bad.why}" if bad else "cannot allocate all claims"

    def taken_for(self, claim: int) -> list[Taken]:
        return [taken for taken in self._taken if taken.ask.claim == claim]

    # What is asked for

    def _asks_of(self, at: int, claim: Claim) -> list[tuple[Ask, ...]]:
        for wanted in (w for alternatives in claim.requests for w in alternatives):
            if wanted.device_class not in self._classes:
                raise AbortError(f"the device class {wanted.device_class} doesn't exist")
        asks = [
            tuple(self._ask(at, number, wanted) for wanted in alternatives)
            for number, alternatives in enumerate(claim.requests)
        ]
        least = sum(min(ask.number for ask in alternatives) for alternatives in asks)
        if least > MAX_RESULTS:
            raise AbortError(f"the claim {claim.name} asks for {least} devices, and a claim holds {MAX_RESULTS}")
        return asks

    def _ask(self, claim: int, request: int, wanted: Wanted) -> Ask:
        if wanted.mode != "All":
            return Ask(claim, request, wanted, wanted.count, None)
        for pool in self._pools:
            if not pool.usable:
                raise AbortError(f"{wanted.name} asks for all devices, and the pool {pool.name} {pool.why}")
        probe = Ask(claim, request, wanted, 0, None)
        # What others hold of a shared device counts here, what this pod's claims take doesn't yet.
        found = [c for c in self._candidates if self._selectable(probe, c) and self._has_room(probe, c)]
        return Ask(claim, request, wanted, len(found), tuple(found))

    # The search

    def _claim(self, at: int) -> _End:
        return _End.FOUND if at == len(self._claims) else self._request(at, 0)

    def _request(self, at: int, number: int) -> _End:
        asks = self._asks[at]
        if number == len(asks):
            end = self._claim(at + 1)
            # Another choice in this claim may let the next one's alternatives need fewer.
            return _End.NONE if end is _End.TOO_MANY else end
        ends = []
        for ask in asks[number]:
            end = self._next(ask, 0, 0)
            if end is _End.FOUND:
                return end
            ends.append(end)
        return _End.TOO_MANY if all(end is _End.TOO_MANY for end in ends) else _End.NONE

    def _next(self, ask: Ask, have: int, start: int) -> _End:
        """One device more for a request that has `have`, from candidate `start` on; unless FOUND all is as before."""
        if ask.devices is not None and not ask.devices:
            return _End.NONE
        if have >= ask.number:
            return self._request(ask.claim, ask.request + 1)
        if len(self.taken_for(ask.claim)) + ask.number - have > MAX_RESULTS:
            return _End.TOO_MANY
        return self._pick(ask, have, start) if ask.devices is None else self._take_all(ask, ask.devices, have)

    def _take_all(self, ask: Ask, devices: Sequence[Candidate], have: int) -> _End:
        self._step()
        if not self._take(ask, devices[have], must=True):
            return _End.NONE
        end = self._next(ask, have + 1, 0)
        if end is not _End.FOUND:
            self._drop()
        return end

    def _pick(self, ask: Ask, have: int, start: int) -> _End:
        for index in range(start, len(self._candidates)):
            self._step()
            if ask.key in self._exhausted and not self._enough(ask, ask.number - have, index):
                return _End.NONE
            candidate = self._candidates[index]
            if not (self._free(ask, candidate) and self._selectable(ask, candidate) and self._has_room(ask, candidate)):
                continue
            if not self._take(ask, candidate):
                continue
            end = self._next(ask, have + 1, index + 1)
            if end is _End.FOUND:
                return end
            self._drop()
            if end is _End.TOO_MANY:
                return end
        # From here on every device was judged, so looking ahead can't meet an error that the walk wouldn't have met.
        self._exhausted.add(ask.key)
        return _End.NONE

    def _enough(self, ask: Ask, need: int, start: int) -> bool:
        """Whether enough devices are left that fit beside what is taken now. Without it a shortage tries every subset."""
        if any(c.distinct for c in self._claims[ask.claim].constraints):
            # Taking one more device can make room for another, see `Distinct`.
            return True
        for candidate in self._candidates[start:]:
            if not (self._free(ask, candidate) and self._selectable(ask, candidate) and self._has_room(ask, candidate)):
                continue
            if self._take(ask, candidate):
                self._drop()
                need -= 1
                if need == 0:
                    return True
        return False

    def _step(self) -> None:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise AbortError(f"no allocation found within {_MAX_STEPS} steps")

    # One device

    def _free(self, ask: Ask, candidate: Candidate) -> bool:
        """Admin access sees past what is in use, but not twice in one claim, and what it looks at is in use for others of
        the pod. A shareable device is never in use; its amounts are judged apart."""
        held = not candidate.device.facts.allow_multiple and [
            taken for taken in self._taken if taken.candidate.key == candidate.key
        ]
        if ask.wanted.admin:
            return not any(taken.ask.claim == ask.claim for taken in held or ())
        return candidate.key not in self._usage.whole and not held

    def _selectable(self, ask: Ask, candidate: Candidate) -> bool:
        """By class, request and the device's own nodes, whatever is in use. Raises SelectorEvaluationError."""
        key = (*ask.key, candidate.key)
        known = self._judged.get(key)
        if known is None:
            known = self._judged[key] = self._judge(ask.wanted, candidate)
        return known

    def _judge(self, wanted: Wanted, candidate: Candidate) -> bool:
        selectors = (*self._classes[wanted.device_class].selectors, *wanted.selectors)
        if not all(compile_selector(text).matches(candidate.device.facts) for text in selectors):
            return False
        reach = candidate.device.reach
        return reach is None or reaches(reach, self._node)

    def _has_room(self, ask: Ask, candidate: Candidate) -> bool:
        """Whether the capacity that is left holds what the request takes."""
        device, wanted = candidate.device, ask.wanted.capacity
        if not fits(wanted, device):
            return False
        held = dict(self._usage.shared.get(candidate.key, {}))
        for taken in self._taken:
            if taken.candidate.key == candidate.key:
                for name, amount in (taken.consumed or {}).items():
                    held[name] = held.get(name, Decimal(0)) + parse_quantity(amount)
        return all(
            held.get(name, Decimal(0)) + parse_quantity(amount) <= parse_quantity(device.facts.capacity[name])
            for name, amount in consumption(wanted, device).items()
        )

    def _take(self, ask: Ask, candidate: Candidate, *, must: bool = False) -> bool:
        """False, and nothing changed, where it can't be had beside what is taken. Raises AbortError where it `must` be and
        a constraint excludes it."""
        if not self._free(ask, candidate):
            return False
        counted = self._counts(candidate)
        if counted and not self._counters_allow(candidate):
            return False
        if untolerated(ask.wanted.tolerations, candidate.device.taints):
            return False
        states, added = self._constraints[ask.claim], 0
        for state in states:
            if not state.add(ask.wanted.name, candidate.device.facts):
                break
            added += 1
        whole = added == len(states)
        if not whole or not self._has_room(ask, candidate):
            for state in states[:added]:
                state.remove(ask.wanted.name)
            if must and not whole:
                raise AbortError(f"{ask.wanted.name} asks for all devices, and a constraint excludes one of them")
            return False
        if counted:
            self._spend(candidate, 1)
        consumed = consumption(ask.wanted.capacity, candidate.device) if candidate.device.facts.allow_multiple else None
        self._taken.append(Taken(ask, candidate, consumed, counted))
        return True

    def _drop(self) -> None:
        taken = self._taken.pop()
        for state in self._constraints[taken.ask.claim]:
            state.remove(taken.ask.wanted.name)
        if taken.counted:
            self._spend(taken.candidate, -1)

    # Counters

    def _counts(self, candidate: Candidate) -> bool:
        """A share of a device of which something is taken already takes none of its counters again."""
        if not candidate.device.consumes:
            return False
        shared = self._usage.shared.get(candidate.key) or any(
            taken.candidate.key == candidate.key and taken.consumed is not None for taken in self._taken
        )
        return not (candidate.device.facts.allow_multiple and shared)

    def _counters_allow(self, candidate: Candidate) -> bool:
        """Every counter of the pool must hold out, not only those that the device takes from."""
        self._spend(candidate, 1)
        holds = all(amount >= 0 for (pool, _, _), amount in self._left.items() if pool == candidate.pool)
        self._spend(candidate, -1)
        return holds

    def _spend(self, candidate: Candidate, sign: int) -> None:
        for counter_set, counter, amount in candidate.device.consumes:
            self._left[candidate.pool, counter_set, counter] -= sign * parse_quantity(amount)


def _left(pools: Sequence[NodePool], usage: Usage) -> dict[_Counter, Decimal]:
    left: dict[_Counter, Decimal] = {}
    for at, pool in enumerate(pools):
        for (counter_set, counter), amount in pool.counters:
            left[at, counter_set, counter] = parse_quantity(amount)
        for device in (device for one in (*pool.slices, *pool.others) for device in one.devices):
            key = (pool.driver, pool.name, device.name)
            if key in usage.whole or key in usage.shared:
                for counter_set, counter, amount in device.consumes:
                    left[at, counter_set, counter] -= parse_quantity(amount)
    return left
