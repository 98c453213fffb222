"""Allocates devices to the claims of one pod on one node, as kube-scheduler's structured allocator does.

Depth-first in slice order, first solution wins. Source: k8s.io/dynamic-resource-allocation v0.36, its incubating allocator,
which Kubernetes 1.36 runs by default. Not modelled: binding conditions, derived attributes, extended resources, and that
upstream counts the shared counters of two drivers together where their pools have one name.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from modelplane_dagster.kube.cel import SelectorEvaluationError, SelectorSyntaxError
from modelplane_dagster.kube.claims import Claim, DeviceClass, Usage
from modelplane_dagster.kube.node_pools import MalformedSelectorError, Published
from modelplane_dagster.kube.objects import NodeFacts
from modelplane_dagster.kube.search import MAX_RESULTS, AbortError, Search, Taken
from modelplane_dagster.kube.slices import DeviceId

__all__ = ["MAX_RESULTS", "Allocation", "Result", "Unallocatable", "allocate"]

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
            body["shareID"] = self.share_id
        if self.consumed:
            body["consumedCapacity"] = dict(self.consumed)
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
    """`aborted`: the allocation met an error, and the scheduler gives the pod up whatever the other nodes hold; else this
    node just hasn't the devices."""

    reason: str
    aborted: bool = False


def allocate(
    claims: Sequence[Claim],
    node: NodeFacts,
    *,
    published: Published,
    classes: Iterable[DeviceClass],
    usage: Usage,
) -> tuple[Allocation, ...] | Unallocatable:
    """One allocation for each of a pod's claims, in order, or the reason why this node can't hold them all.

    The claims are those of the pod that aren't allocated yet. Nothing is changed: write the allocations, and count them in
    the next `usage`.
    """
    known = {c.name: c for c in classes}
    try:
        search = Search(claims, node, published.pools(node), known, usage)
        if not search.run():
            return Unallocatable(search.why_not())
    except (AbortError, MalformedSelectorError, SelectorEvaluationError, SelectorSyntaxError) as error:
        return Unallocatable(error.message, aborted=True)
    return tuple(_allocation(claim, search.taken_for(at), node, known) for at, claim in enumerate(claims))


def _allocation(claim: Claim, mine: Sequence[Taken], node: NodeFacts, classes: Mapping[str, DeviceClass]) -> Allocation:
    results = tuple(_result(claim, number, taken) for number, taken in enumerate(mine))
    return Allocation(claim.name, results, _node_selector(mine, node), _config(claim, mine, classes))


def _config(claim: Claim, mine: Sequence[Taken], classes: Mapping[str, DeviceClass]) -> tuple[Mapping[str, Any], ...]:
    """Each class's configuration once, for the requests that it serves, then what of the claim's own is for them."""
    names = {taken.ask.wanted.name: taken.ask.wanted.device_class for taken in mine}
    served: dict[str, list[str]] = {}
    for name, device_class in names.items():
        served.setdefault(device_class, []).append(name)
    from_class = tuple(
        {"source": "FromClass", "requests": requests, **config}
        for device_class, requests in served.items()
        for config in classes[device_class].config
    )
    chosen = {name for full in names for name in (full, full.partition("/")[0])}
    own = (c for c in claim.config if not c.get("requests") or chosen & set(c["requests"]))
    return (*from_class, *({"source": "FromClaim", **config} for config in own))


def _result(claim: Claim, number: int, taken: Taken) -> Result:
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


def _node_selector(taken: Sequence[Taken], node: NodeFacts) -> Mapping[str, Any] | None:
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
