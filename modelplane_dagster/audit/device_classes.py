"""The DeviceClasses that pools claim through, as they stand on a running cluster: there, owned once, and selecting what
their driver publishes. A claim through a missing class never allocates, and one of two owners fails to install."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from modelplane_dagster.audit.judged import Told, judged_nodes, nodes_by_pool
from modelplane_dagster.audit.live import LiveCluster, LiveDeviceClass
from modelplane_dagster.audit.ownership import Ownership
from modelplane_dagster.audit.slices import Ledger
from modelplane_dagster.cluster import ClusterView, PoolView
from modelplane_dagster.components.types import JoinedComponent
from modelplane_dagster.errors import ModelplaneError
from modelplane_dagster.findings import finding
from modelplane_dagster.known import Known
from modelplane_dagster.kube.cel import SelectorSyntaxError, compile_selector
from modelplane_dagster.kube.objects import NodeFacts
from modelplane_dagster.kube.slices import PublishedDevice


def device_class_findings(
    view: ClusterView, parts: tuple[JoinedComponent, ...], whose: Ownership, live: LiveCluster, *, grace: float
) -> Iterator[Told]:
    """Nothing where the classes couldn't be read. `grace` is in seconds: what younger nodes publish isn't judged."""
    if not isinstance(live.device_classes, Known):
        return
    classes = {c.name: c for c in live.device_classes.value}
    yield from _owners(view, parts, whose, classes)
    yield from _missing(view, whose, classes)
    if isinstance(live.nodes, Known) and isinstance(live.ledger, Known):
        by_pool = nodes_by_pool(live.nodes.value)
        for pool in view.pools:
            nodes = judged_nodes(by_pool.get(pool.name, ()), now=live.taken_at, grace=grace)
            yield from _unselected(view, pool, nodes, live.ledger.value, classes)


def _owners(
    view: ClusterView,
    parts: tuple[JoinedComponent, ...],
    whose: Ownership,
    classes: Mapping[str, LiveDeviceClass],
) -> Iterator[Told]:
    """Helm refuses a class of another release, and one that no release owns until its own is installed."""
    for part in parts:
        release = part.component.release
        if not part.install or not release:
            continue
        for name in dict.fromkeys(part.component.device_classes):
            there = classes.get(name)
            if there is None or there.release == release or (not there.release and release in whose.releases):
                continue
            owner = f"belongs to the release {there.release}" if there.release else "was made outside Helm"
            found = finding(
                "SecondOwner",
                f"component/{view.name}/{part.key}",
                f"DeviceClass {name} {owner}, and {part.key} brings it as well.",
                fix=None if there.release else f"kubectl delete deviceclass {name}",
            )
            yield Told(found, frozenset(part.serves))


def _missing(view: ClusterView, whose: Ownership, classes: Mapping[str, LiveDeviceClass]) -> Iterator[Told]:
    """Told once the driver's daemon is there: until then its chart isn't installed, which the plan's actions say."""
    bringing = {
        m.instance.workload.publishes: m.instance.component.key
        for m in whose.matched
        if m.live and m.instance.workload.publishes
    }
    for pool in view.pools:
        for device in pool.devices:
            name = device.device_class_name
            if device.claim != "DRA" or not name or name in classes:
                continue
            key = bringing.get(device.driver)
            if key is None and device.driver in view.ours((device.driver,)):
                continue
            who = f"{key} should bring it" if key else "its driver is the platform team's own"
            found = finding(
                "DeviceClassMissing",
                f"pool/{view.name}/{pool.name}",
                f"The cluster has no DeviceClass {name}, through which pool {pool.name} hands out {device.driver} (class "
                f"{pool.class_name}, device {device.name}); {who}.",
            )
            yield Told(found, frozenset({pool.name}))


def _unselected(
    view: ClusterView,
    pool: PoolView,
    nodes: tuple[NodeFacts, ...],
    ledger: Ledger,
    classes: Mapping[str, LiveDeviceClass],
) -> Iterator[Told]:
    """One finding a device of the class, for the first node on which the DeviceClass takes too few. Where a node
    publishes too few at all, the chain tells."""
    for device in pool.devices:
        there = classes.get(device.device_class_name or "")
        if device.claim != "DRA" or there is None or not there.selectors:
            continue
        for node in nodes:
            published = ledger.at(device.driver, node).devices
            wrong = _wrong(there, published, min(device.count, len(published))) if published else ""
            if wrong:
                found = finding(
                    "DeviceClassMismatch",
                    f"pool/{view.name}/{pool.name}",
                    f"DeviceClass {there.name} on node {node.name} of pool {pool.name}: {wrong}.",
                )
                yield Told(found, frozenset({pool.name}))
            if wrong or (published and _alike(there)):
                break


def _alike(there: LiveDeviceClass) -> bool:
    """One node answers for all of a pool."""
    try:
        return all(compile_selector(text).by_driver_alone for text in there.selectors)
    except SelectorSyntaxError:
        return False


def _wrong(there: LiveDeviceClass, published: tuple[PublishedDevice, ...], needed: int) -> str:
    """What is wrong as a clause; empty where the class takes enough. An expression that errs aborts every allocation."""
    try:
        selectors = [compile_selector(text) for text in there.selectors]
        taken = sum(all(s.matches(d.facts) for s in selectors) for d in published)
    except ModelplaneError as error:
        return f"a selector errs, which aborts every allocation: {error.message}"
    if taken >= needed:
        return ""
    driver = published[0].facts.driver
    return f"its selectors take {taken} of the {len(published)} devices that {driver} publishes there"
