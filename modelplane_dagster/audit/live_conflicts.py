"""What two owners do at once on a running cluster: label nodes, hand out devices, own a DeviceClass, hold a port."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

from modelplane_dagster.audit.conflicts import SYSTEM_PRIORITIES
from modelplane_dagster.audit.expect import place_name
from modelplane_dagster.audit.judged import GRACE, groups, judged_nodes, read_failures
from modelplane_dagster.audit.live import LiveCluster, LiveNode, LiveQuota, LiveWorkload, cpus
from modelplane_dagster.audit.ownership import Ownership, ownership
from modelplane_dagster.audit.slices import Ledger
from modelplane_dagster.audit.tolerations import allows, listed, pool_names
from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.components.types import JoinedComponent
from modelplane_dagster.drivers import AMD, NVIDIA
from modelplane_dagster.findings import Finding, finding, ordered
from modelplane_dagster.known import Known
from modelplane_dagster.kube.objects import NodeFacts
from modelplane_dagster.kube.scheduling import by_name

NAME_LABEL = "app.kubernetes.io/name"
NFD = "node-feature-discovery"
AMD_OPERATOR = "gpu-operator-charts"

DEVICE_PLUGIN = "device-plugin"
PLUGIN_NAMES: Mapping[str, tuple[str, ...]] = {NVIDIA: ("nvidia",), AMD: ("amd", "rocm")}
"""What stands in the name of a vendor's device plugin, beside `device-plugin`, however it was installed."""

PLUGIN_RESOURCES: Mapping[str, tuple[str, ...]] = {NVIDIA: ("nvidia.com/gpu", "nvidia.com/mig-"), AMD: ("amd.com/gpu",)}
"""The extended resources that a vendor's device plugin has the node allocate; those of a DRA driver never stand there."""


def audit_conflicts(
    view: ClusterView, joined: Iterable[JoinedComponent], live: LiveCluster, *, grace: float = GRACE
) -> tuple[Finding, ...]:
    """Each rule needs its own parts of the reading; one that couldn't be read is a finding, and that rule is silent."""
    parts = tuple(joined)
    found = list(read_failures(view, live, ("nodes", "workloads", "slices", "device_classes")))
    if isinstance(live.workloads, Known):
        whose = ownership(parts, live.workloads.value)
        found += second_nfd(view, parts, whose, live.workloads.value)
        found += second_amd_operator(view, parts, whose)
        if isinstance(live.nodes, Known):
            nodes = live.nodes.value
            found += _ports(view, whose, live.workloads.value, nodes=nodes, now=live.taken_at, grace=grace)
        if view.source == "GKE" and isinstance(live.quotas, Known):
            found += _quotas(view, whose, live.quotas.value)
    if isinstance(live.nodes, Known) and isinstance(live.ledger, Known):
        workloads = live.workloads.value if isinstance(live.workloads, Known) else ()
        found += double_ledger(view, parts, live.nodes.value, live.ledger.value, workloads=workloads)
    if isinstance(live.device_classes, Known):
        releases = {c.name: c.release for c in live.device_classes.value}
        found += _device_classes(view, parts, releases)
    return ordered(found)


def _is_nfd_worker(workload: LiveWorkload) -> bool:
    """By what the chart names and labels it, in a release of its own or as part of an operator's."""
    if workload.kind != "DaemonSet" or "topology" in workload.name:
        return False
    known = workload.labels.get(NAME_LABEL) == NFD or NFD in workload.name or workload.name.startswith("nfd-")
    return known and (workload.labels.get("role") == "worker" or workload.name.endswith("worker"))


def second_nfd(
    view: ClusterView, joined: tuple[JoinedComponent, ...], whose: Ownership, workloads: Iterable[LiveWorkload]
) -> Iterator[Finding]:
    """Ours counts from the plan on, so that the other is told before ours is installed."""
    ours = {m.live.uid for m in whose.matched if m.live}
    workers = [w for w in workloads if _is_nfd_worker(w)]
    others = [w for w in workers if w.uid not in ours]
    planned = next((j for j in joined if j.install and j.component.pin and j.component.pin.chart == NFD), None)
    if planned is None and len(workers) > 1:
        others = workers[1:]
    elif planned is None:
        return
    labelled = planned.component.bound_to(view) if planned is not None else view.pools
    for other in others:
        yield finding(
            "SecondNfd",
            f"cluster/{view.name}",
            f"DaemonSet {other.name} in {other.namespace} is a Node Feature Discovery beside "
            f"{f'our component {planned.key}' if planned is not None else workers[0].name}; both label nodes, those of "
            f"{pool_names([p.name for p in labelled])} included.",
        )


def second_amd_operator(view: ClusterView, joined: tuple[JoinedComponent, ...], whose: Ownership) -> Iterator[Finding]:
    """Two of them fight over every DeviceConfig."""
    if not any(j.install and j.component.pin and j.component.pin.chart == AMD_OPERATOR for j in joined):
        return
    for other in whose.foreign:
        if other.kind == "Deployment" and other.name.endswith(f"{AMD_OPERATOR}-controller-manager"):
            yield finding(
                "SecondOwner",
                f"cluster/{view.name}",
                f"Deployment {other.name} in {other.namespace} is an AMD GPU operator beside ours.",
                fix="Remove it, or declare gpu.amd.com in spec.cluster.existing.externalDrivers.",
            )


def double_ledger(
    view: ClusterView,
    joined: tuple[JoinedComponent, ...],
    nodes: Iterable[LiveNode],
    ledger: Ledger,
    *,
    workloads: Iterable[LiveWorkload] = (),
) -> Iterator[Finding]:
    """Nodes whose devices a device plugin and a DRA driver both hand out, one finding a pool, driver and plugin. What the
    node allocates tells it; so does a plugin's daemon that runs there, before or without that."""
    daemons = [w for w in workloads if w.kind == "DaemonSet" and DEVICE_PLUGIN in w.name and w.desired]
    twice: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for driver in sorted(ledger.drivers & PLUGIN_RESOURCES.keys()):
        plugins = [w for w in daemons if any(word in w.name for word in PLUGIN_NAMES[driver])]
        for node in nodes:
            told = _plugin_on(node.facts, driver, plugins)
            if told and ledger.at(driver, node.facts).devices:
                twice[place_name(node.facts), driver, told].append(node.facts.name)
    publishers = {d: j.key for j in joined if j.install for d in j.component.published}
    for (place, driver, told), names in sorted(twice.items()):
        by = f", which {publishers[driver]} publishes" if driver in publishers else ""
        yield finding(
            "DevicePluginBesideDra",
            f"pool/{view.name}/{place}",
            f"On {listed(sorted(names))} of {pool_names((place,))} {told} beside the slices of {driver}{by}, so one device "
            "can be handed out twice.",
        )


def _plugin_on(node: NodeFacts, driver: str, plugins: Iterable[LiveWorkload]) -> str:
    """What hands out the driver's devices on the node as an extended resource, as a clause; empty for nothing."""
    for resource, amount in node.allocatable.items():
        if resource.startswith(PLUGIN_RESOURCES[driver]) and cpus(amount) > 0:
            return f"a device plugin offers {resource}"
    there = next((w for w in plugins if _on(w, node)), None)
    return f"the device plugin {there.name} in {there.namespace} runs" if there is not None else ""


def _device_classes(
    view: ClusterView, joined: tuple[JoinedComponent, ...], releases: Mapping[str, str]
) -> Iterator[Finding]:
    for part in joined:
        if not part.install or not part.component.release:
            continue
        for name in part.component.device_classes:
            owner = releases.get(name)
            if owner and owner != part.component.release:
                yield finding(
                    "SecondOwner",
                    f"component/{view.name}/{part.key}",
                    f"DeviceClass {name} belongs to the release {owner}, and {part.key} brings it as well.",
                )


def _ports(
    view: ClusterView,
    whose: Ownership,
    workloads: Iterable[LiveWorkload],
    *,
    nodes: Iterable[LiveNode],
    now: float,
    grace: float,
) -> Iterator[Finding]:
    ours = {m.live.uid: m.instance.component.key for m in whose.matched if m.live}
    hosts = [w for w in workloads if w.kind == "DaemonSet" and w.host_ports]
    pairs = [
        (one, other, shared)
        for one, other in combinations(hosts, 2)
        if (one.uid in ours or other.uid in ours) and (shared := sorted(set(one.host_ports) & set(other.host_ports)))
    ]
    if not pairs:
        return
    templates = [w.placement for w in hosts if not by_name(w.placement)]
    found = groups(judged_nodes(nodes, now=now, grace=grace), templates)
    for one, other, shared in pairs:
        places = sorted({g.place for g in found if all(_on(w, g.node) for w in (one, other))})
        if places:
            mine = ours.get(one.uid) or ours[other.uid]
            yield finding(
                "PortClash",
                f"component/{view.name}/{mine}",
                f"{one.name} in {one.namespace} and {other.name} in {other.namespace} both listen on host port "
                f"{listed([str(p) for p in shared])} of the nodes of {listed(places)}.",
            )


def _on(workload: LiveWorkload, node: NodeFacts) -> bool:
    return allows(workload.placement, node, daemon=True, host_network=workload.host_network)


def _quotas(view: ClusterView, whose: Ownership, quotas: Iterable[LiveQuota]) -> Iterator[Finding]:
    granted: dict[str, set[str]] = defaultdict(set)
    for quota in quotas:
        granted[quota.namespace] |= set(quota.priority_classes)
    wanted: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for match in whose.matched:
        live = match.live
        if live is None or live.namespace == "kube-system" or live.priority_class not in SYSTEM_PRIORITIES:
            continue
        if live.priority_class not in granted[live.namespace]:
            wanted[match.instance.component.key, live.namespace, live.priority_class].append(live.name)
    for (key, namespace, priority), names in sorted(wanted.items()):
        yield finding(
            "QuotaMissing",
            f"component/{view.name}/{key}",
            f"GKE refuses the pods of {listed(sorted(names))}: the priority class {priority} needs a ResourceQuota in "
            f"namespace {namespace}, and none there names it.",
        )
