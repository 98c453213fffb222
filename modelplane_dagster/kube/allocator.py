"""Allocates devices to the claims of one pod on one node, as kube-scheduler's structured allocator does.

Depth-first in slice order, first solution wins. Not modelled: binding conditions, derived attributes, extended resources.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from modelplane_dagster.errors import ModelplaneError
from modelplane_dagster.kube.capacity import consumption, fits
from modelplane_dagster.kube.cel import AttributeValue, SelectorEvaluationError, SelectorSyntaxError, compile_selector
from modelplane_dagster.kube.claims import Claim, Constraint, DeviceClass, Usage, Wanted
from modelplane_dagster.kube.objects import NodeFacts
from modelplane_dagster.kube.quantity import parse_quantity
from modelplane_dagster.kube.scheduling import untolerated
from modelplane_dagster.kube.slices import DeviceId, DevicePool, PublishedDevice, Slice

MAX_RESULTS = 32
"""Devices that one claim can hold over all its requests, of whatever driver (AllocationResultsMaxSize)."""

_MAX_STEPS = 200_000
_SHARES = uuid.UUID("6f3f7c0e-4c53-5d2b-9a55-3f1f0f6f9d11")


@dataclass(frozen=True, slots=True)
class Result:
    """One device given to a request; `consumed` is set, with a share's id, on a device that claims share."""

    request: str
    device: DeviceId
    admin: bool = False
    share_id: str = ""
    consumed: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[dict[str, str], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        driver, pool, device = self.device
        body: dict[str, Any] = {"request": self.request, "driver": driver, "pool": pool, "device": device}
        if self.admin:
            body["adminAccess"] = True
        if self.tolerations:
            body["tolerations"] = [dict(t) for t in self.tolerations]
        if self.share_id:
            body |= {"shareID": self.share_id, "consumedCapacity": dict(self.consumed)}
        return body


@dataclass(frozen=True, slots=True)
class Allocation:
    """What goes into a claim's `status.allocation`. `node_selector` is None where every node reaches its devices."""

    claim: str
    results: tuple[Result, ...]
    node_selector: Mapping[str, Any] | None = None
    config: tuple[Mapping[str, Any], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """`status.allocation` as JSON."""
        devices: dict[str, Any] = {"results": [r.as_dict() for r in self.results]}
        if self.config:
            devices["config"] = [dict(c) for c in self.config]
        body: dict[str, Any] = {"devices": devices}
        if self.node_selector is not None:
            body["nodeSelector"] = dict(self.node_selector)
        return body


@dataclass(frozen=True, slots=True)
class Unallocatable:
    """`aborted`: the allocation met an error, which no other node mends; else this node just hasn't the devices."""

    reason: str
    aborted: bool = False


class _AbortError(ModelplaneError):
    """Ends the search; never leaves this module."""


def allocate(
    claims: Sequence[Claim],
    node: NodeFacts,
    *,
    pools: Sequence[DevicePool],
    classes: Iterable[DeviceClass],
    usage: Usage,
) -> tuple[Allocation, ...] | Unallocatable:
    """One allocation for each of a pod's claims, in order, or the reason why this node can't hold them all.

    The claims are those of the pod that aren't allocated yet; `pools` are the cluster's, from `newest_pools`. Nothing is changed: write the allocations, and count
    them in the next `usage`.
    """
    search = _Search(claims, node, pools, {c.name: c for c in classes}, usage)
    try:
        for claim in claims:
            search.check_size(claim)
        if not search.claim(0):
            return Unallocatable("cannot allocate all claims")
    except (_AbortError, SelectorEvaluationError, SelectorSyntaxError) as error:
        return Unallocatable(error.message, aborted=True)
    return tuple(search.allocation(at) for at in range(len(claims)))


@dataclass(frozen=True, slots=True)
class _Candidate:
    key: DeviceId
    device: PublishedDevice
    origin: Slice


@dataclass(frozen=True, slots=True)
class _Ask:
    """One alternative of a claim's request; `claim` and `request` count from 0."""

    claim: int
    request: int
    wanted: Wanted

    @property
    def key(self) -> tuple[int, str]:
        return self.claim, self.wanted.name


@dataclass(frozen=True, slots=True)
class _Taken:
    ask: _Ask
    candidate: _Candidate
    consumed: Mapping[str, str] | None
    """None for a device that is taken whole, or looked at with admin access."""


class _Search:
    def __init__(
        self,
        claims: Sequence[Claim],
        node: NodeFacts,
        pools: Sequence[DevicePool],
        classes: Mapping[str, DeviceClass],
        usage: Usage,
    ) -> None:
        self._claims, self._node, self._classes, self._usage = claims, node, classes, usage
        reached = [(pool, _reached(pool, node)) for pool in pools]
        self._pools = [pool for pool, found in reached if found]
        self._candidates = [c for pool, found in reached if pool.usable for c in found]
        self._counters = _left_in_counters(self._pools, usage)
        self._taken: list[_Taken] = []
        self._judged: dict[tuple[int, str, DeviceId], bool] = {}
        self._exhausted: set[tuple[int, str]] = set()
        self._steps = 0

    def check_size(self, claim: Claim) -> None:
        least = sum(min(1 if w.mode == "All" else w.count for w in alternatives) for alternatives in claim.requests)
        if least > MAX_RESULTS:
            raise _AbortError(f"the claim {claim.name} asks for {least} devices, and a claim holds {MAX_RESULTS}")

    def claim(self, at: int) -> bool:
        return at == len(self._claims) or self._request(at, 0)

    def _request(self, at: int, number: int) -> bool:
        requests = self._claims[at].requests
        if number == len(requests):
            return self.claim(at + 1)
        for wanted in requests[number]:
            if wanted.device_class not in self._classes:
                raise _AbortError(f"the device class {wanted.device_class} doesn't exist")
            ask = _Ask(at, number, wanted)
            if self._all(ask) if wanted.mode == "All" else self._pick(ask, wanted.count, 0):
                return True
        return False

    def _pick(self, ask: _Ask, need: int, start: int) -> bool:
        """Takes `need` more devices from `start` on, then what follows; False leaves everything as it was."""
        if need == 0:
            return self._request(ask.claim, ask.request + 1)
        for index in range(start, len(self._candidates)):
            self._step()
            if ask.key in self._exhausted and not self._enough(ask, need, index):
                return False
            candidate = self._candidates[index]
            if self._free(ask, candidate) and self._selectable(ask, candidate) and self._take(ask, candidate):
                if self._pick(ask, need - 1, index + 1):
                    return True
                self._drop()
        # From here on every device was judged, so looking ahead can't meet an error that the walk wouldn't have met.
        self._exhausted.add(ask.key)
        return False

    def _enough(self, ask: _Ask, need: int, start: int) -> bool:
        """Whether enough devices are left that fit beside what is taken now. Without it a shortage tries every subset."""
        for candidate in self._candidates[start:]:
            if self._free(ask, candidate) and self._selectable(ask, candidate) and self._permitted(ask, candidate):
                need -= 1
                if need == 0:
                    return True
        return False

    def _all(self, ask: _Ask) -> bool:
        for pool in self._pools:
            if not pool.usable:
                state = "invalid: it names a device twice" if pool.duplicates else "being updated"
                raise _AbortError(f"{ask.wanted.name} asks for all devices, and the pool {pool.name} is {state}")
        chosen = [c for c in self._candidates if self._selectable(ask, c)]
        return bool(chosen) and self._next_of_all(ask, chosen)

    def _next_of_all(self, ask: _Ask, left: Sequence[_Candidate]) -> bool:
        if not left:
            return self._request(ask.claim, ask.request + 1)
        self._step()
        if not self._free(ask, left[0]):
            return False
        if not all(self._constraint_holds(c, ask, left[0]) for c in self._claims[ask.claim].constraints):
            raise _AbortError(f"{ask.wanted.name} asks for all devices, and a constraint excludes one of them")
        if not self._take(ask, left[0]):
            return False
        if self._next_of_all(ask, left[1:]):
            return True
        self._drop()
        return False

    def _step(self) -> None:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise _AbortError(f"no allocation found within {_MAX_STEPS} steps")

    def _selectable(self, ask: _Ask, candidate: _Candidate) -> bool:
        """By class, request, capacity and taints, whatever is in use. Raises SelectorEvaluationError."""
        key = (*ask.key, candidate.key)
        known = self._judged.get(key)
        if known is None:
            known = self._judged[key] = self._judge(ask.wanted, candidate.device)
        return known

    def _judge(self, wanted: Wanted, device: PublishedDevice) -> bool:
        selectors = (*self._classes[wanted.device_class].selectors, *wanted.selectors)
        if not all(compile_selector(text).matches(device.facts) for text in selectors):
            return False
        return fits(wanted.capacity, device) and not untolerated(wanted.tolerations, device.taints)

    def _free(self, ask: _Ask, candidate: _Candidate) -> bool:
        """Whether the device is nobody's, or may be shared; the amounts of a share are judged when it is taken.

        A request walks the devices once, so it never gets one of them twice; another request may share it.
        """
        if not candidate.device.facts.allow_multiple and not ask.wanted.admin:
            for taken in self._taken:
                if taken.candidate.key == candidate.key and not taken.ask.wanted.admin:
                    return False
        return ask.wanted.admin or candidate.key not in self._usage.whole

    def _permitted(self, ask: _Ask, candidate: _Candidate) -> bool:
        """Whether the device fits beside what is taken: the claim's size, its constraints, shares and counters."""
        if sum(taken.ask.claim == ask.claim for taken in self._taken) >= MAX_RESULTS:
            return False
        if not all(self._constraint_holds(c, ask, candidate) for c in self._claims[ask.claim].constraints):
            return False
        return ask.wanted.admin or (self._share_fits(ask, candidate) and self._counters_allow(candidate))

    def _constraint_holds(self, constraint: Constraint, ask: _Ask, candidate: _Candidate) -> bool:
        if not constraint.applies(ask.wanted.name):
            return True
        value = candidate.device.facts.attribute(constraint.attribute)
        if value is None:
            return False
        return not any(
            _same(value, taken.candidate.device.facts.attribute(constraint.attribute)) is constraint.distinct
            for taken in self._taken
            if taken.ask.claim == ask.claim and constraint.applies(taken.ask.wanted.name)
        )

    def _share_fits(self, ask: _Ask, candidate: _Candidate) -> bool:
        facts = candidate.device.facts
        if not facts.allow_multiple:
            return True
        held = dict(self._usage.shared.get(candidate.key, {}))
        for taken in self._taken:
            if taken.candidate.key == candidate.key:
                for name, amount in (taken.consumed or {}).items():
                    held[name] = held.get(name, Decimal(0)) + parse_quantity(amount)
        return all(
            held.get(name, Decimal(0)) + parse_quantity(amount) <= parse_quantity(facts.capacity[name])
            for name, amount in consumption(ask.wanted.capacity, candidate.device).items()
        )

    def _spends(self, candidate: _Candidate) -> Iterator[tuple[_Counter, Decimal]]:
        driver, pool, _ = candidate.key
        for counter_set, counter, amount in candidate.device.consumes:
            yield (driver, pool, counter_set, counter), parse_quantity(amount)

    def _counters_allow(self, candidate: _Candidate) -> bool:
        return all(self._counters.get(counter, Decimal(0)) >= amount for counter, amount in self._spends(candidate))

    def _take(self, ask: _Ask, candidate: _Candidate) -> bool:
        if not self._permitted(ask, candidate):
            return False
        consumed = None
        if not ask.wanted.admin:
            if candidate.device.facts.allow_multiple:
                consumed = consumption(ask.wanted.capacity, candidate.device)
            for counter, amount in self._spends(candidate):
                self._counters[counter] -= amount
        self._taken.append(_Taken(ask, candidate, consumed))
        return True

    def _drop(self) -> None:
        taken = self._taken.pop()
        if not taken.ask.wanted.admin:
            for counter, amount in self._spends(taken.candidate):
                self._counters[counter] += amount

    def allocation(self, at: int) -> Allocation:
        claim = self._claims[at]
        mine = [taken for taken in self._taken if taken.ask.claim == at]
        results = tuple(_result(claim, number, taken) for number, taken in enumerate(mine))
        return Allocation(claim.name, results, _node_selector(mine, self._node), self._config(claim, mine))

    def _config(self, claim: Claim, mine: Sequence[_Taken]) -> tuple[Mapping[str, Any], ...]:
        """The classes' configuration for the requests that they serve, then the claim's own."""
        names = {taken.ask.wanted.name: taken.ask.wanted.device_class for taken in mine}
        from_class = tuple(
            {"source": "FromClass", "requests": [name], **config}
            for name, device_class in names.items()
            for config in self._classes[device_class].config
        )
        return (*from_class, *({"source": "FromClaim", **config} for config in claim.config))


_Counter = tuple[str, str, str, str]
"""Driver, pool, counter set, counter."""


def _reached(pool: DevicePool, node: NodeFacts) -> list[_Candidate]:
    return [_Candidate((pool.driver, pool.name, device.name), device, origin) for origin, device in pool.reached(node)]


def _left_in_counters(pools: Iterable[DevicePool], usage: Usage) -> dict[_Counter, Decimal]:
    left: dict[_Counter, Decimal] = {}
    for pool in pools:
        for one in pool.slices:
            for counter_set, counter, amount in one.counters:
                left[pool.driver, pool.name, counter_set, counter] = parse_quantity(amount)
        for device in (device for one in pool.slices for device in one.devices if device.consumes):
            key = (pool.driver, pool.name, device.name)
            if key in usage.whole or key in usage.shared:
                for counter_set, counter, amount in device.consumes:
                    at = (pool.driver, pool.name, counter_set, counter)
                    left[at] = left.get(at, Decimal(0)) - parse_quantity(amount)
    return left


def _same(one: AttributeValue, other: AttributeValue | None) -> bool:
    """Same type and value: 1 and true are not the same."""
    return type(one) is type(other) and one == other


def _result(claim: Claim, number: int, taken: _Taken) -> Result:
    wanted, shared = taken.ask.wanted, taken.consumed is not None
    return Result(
        wanted.name,
        taken.candidate.key,
        wanted.admin,
        # Made from the claim, not drawn: the same claim allocated again gets the same share.
        str(uuid.uuid5(_SHARES, f"{claim.uid or claim.namespace}/{claim.name}/{number}")) if shared else "",
        taken.consumed or {},
        tuple(t.as_dict() for t in wanted.tolerations),
    )


def _node_selector(taken: Sequence[_Taken], node: NodeFacts) -> Mapping[str, Any] | None:
    """Nodes that reach every device: this node alone where one device is its own, else what the slices select."""
    terms: dict[str, list[Any]] = {"matchExpressions": [], "matchFields": []}
    for one in taken:
        reach = one.candidate.device.reach or one.candidate.origin.reach
        if reach.node_name:
            name = {"key": "metadata.name", "operator": "In", "values": [node.name]}
            return {"nodeSelectorTerms": [{"matchFields": [name]}]}
        for term in (reach.node_selector or ())[:1]:
            for field_name, requirements in (("matchExpressions", term.expressions), ("matchFields", term.fields)):
                for r in requirements:
                    entry: dict[str, Any] = {"key": r.key, "operator": r.operator}
                    if r.values:
                        entry["values"] = list(r.values)
                    if entry not in terms[field_name]:
                        terms[field_name].append(entry)
    kept = {name: entries for name, entries in terms.items() if entries}
    return {"nodeSelectorTerms": [kept]} if kept else None
