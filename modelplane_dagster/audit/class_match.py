"""What a class declares of its devices against what the slices show. Placement reads the class, so a value that no
slice shows lets a deployment be placed where its claim never allocates."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from modelplane_dagster.audit.slices import Ledger
from modelplane_dagster.cluster import ClusterView, PoolView
from modelplane_dagster.drivers import CPU
from modelplane_dagster.findings import Finding, finding
from modelplane_dagster.kube.cel import AttributeValue
from modelplane_dagster.kube.objects import NodeFacts
from modelplane_dagster.kube.quantity import QuantityError, parse_quantity
from modelplane_dagster.kube.slices import PublishedDevice
from modelplane_dagster.kube.versions import SemverValue

if TYPE_CHECKING:
    from modelplane_dagster.manifests.classes import Device, DeviceAttribute


def class_differences(
    view: ClusterView, pool: PoolView, nodes: tuple[NodeFacts, ...], ledger: Ledger
) -> Iterator[Finding]:
    """One finding a declared attribute or capacity, naming the first node that shows something else. A node that
    publishes nothing shows nothing: that is the chain's to tell."""
    for device in pool.devices:
        if device.claim != "DRA":
            continue
        # In individual mode a CPU device has neither capacity nor the group's attributes.
        if device.driver == CPU and view.cpu_mode == "individual":
            continue
        told: set[str] = set()
        for node in nodes:
            if len(told) == len(device.attributes) + len(device.capacity):
                break
            published = ledger.at(device.driver, node).devices
            for part, says in _unlike(device, published) if published else ():
                if part not in told:
                    told.add(part)
                    yield finding(
                        "ClassDiffers",
                        f"pool/{view.name}/{pool.name}",
                        f"Class {pool.class_name}, device {device.name}, {part}: {says} on node {node.name}.",
                    )


def _unlike(device: Device, published: tuple[PublishedDevice, ...]) -> Iterator[tuple[str, str]]:
    """(part, what differs) where fewer devices than the class counts show it."""
    for name, declared in device.attributes.items():
        wanted = _typed(declared)
        seen = [d.facts.attribute(f"{device.driver}/{name}") for d in published]
        if sum(1 for value in seen if _same(value, wanted)) < min(device.count, len(published)):
            yield f"attribute {name}", f"declared {_text(wanted)}, seen {_shown(seen)}"
    for name, stated in device.capacity.items():
        # Groups of CPUs are counted by the chain.
        if device.driver == CPU and name == "cpu":
            continue
        amounts = [d.facts.amount(f"{device.driver}/{name}") for d in published]
        if sum(1 for a in amounts if _at_least(a, stated.value)) < min(device.count, len(published)):
            yield f"capacity {name}", f"declared {stated.value}, seen {_shown(amounts)}"


def _typed(declared: DeviceAttribute) -> AttributeValue:
    """As a slice holds it: a version isn't a string to a selector."""
    return SemverValue(declared.version) if declared.version is not None else declared.value


def _same(seen: AttributeValue | None, declared: AttributeValue) -> bool:
    """Of one type as well: a claim's selector compares typed values, and true isn't 1."""
    return type(seen) is type(declared) and seen == declared


@lru_cache(maxsize=4096)
def _at_least(seen: str | None, declared: str) -> bool:
    try:
        return seen is not None and parse_quantity(seen) >= parse_quantity(declared)
    except QuantityError:
        return False


def _text(value: AttributeValue) -> str:
    if isinstance(value, SemverValue):
        return f"version {value.text}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(seen: list[AttributeValue | None] | list[str | None]) -> str:
    texts = dict.fromkeys("none" if v is None else _text(v) for v in seen)
    return ", ".join(list(texts)[:3])
