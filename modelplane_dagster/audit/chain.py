"""The chain of one driver on one node: label, daemon, driver, slice. The first broken link is the one to mend."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, Literal

from modelplane_dagster.audit.live import LivePod, LiveWorkload
from modelplane_dagster.audit.ownership import Matched, ownership
from modelplane_dagster.audit.slices import Published
from modelplane_dagster.cluster import ClusterView, CpuMode, PoolView
from modelplane_dagster.components.types import JoinedComponent
from modelplane_dagster.cpu import CAPACITY_KEY, cpu_device, devices_for
from modelplane_dagster.drivers import CPU
from modelplane_dagster.kube.objects import NodeFacts
from modelplane_dagster.kube.quantity import QuantityError, parse_quantity
from modelplane_dagster.kube.scheduling import daemon_should_run, daemon_tolerations, untolerated, why_not

Link = Literal["label", "daemon", "driver", "slice", "incomplete", "devices"]


@dataclass(frozen=True, slots=True)
class Fault:
    """The broken link, and what is wrong with it as a clause."""

    link: Link
    message: str

    CODES: ClassVar[dict[Link, str]] = {
        "label": "LabelMissing",
        "daemon": "DaemonMissing",
        "driver": "DriverNotReady",
        "slice": "SliceMissing",
        "incomplete": "SliceIncomplete",
        "devices": "DevicesMissing",
    }


@dataclass(frozen=True, slots=True)
class _Plugin:
    """The daemons that publish a driver, and their pods by node."""

    matches: tuple[Matched, ...]
    pods: dict[str, LivePod]


class Chain:
    """The publishing daemons of each driver and what runs of them; built once a reading."""

    def __init__(
        self,
        view: ClusterView,
        joined: tuple[JoinedComponent, ...],
        workloads: Iterable[LiveWorkload],
        pods: Iterable[LivePod],
    ) -> None:
        self.view = view
        self.external = {e.driver: e.kind for e in view.external}
        matched = [m for m in ownership(joined, workloads).matched if m.instance.workload.publishes]
        drivers = {m.live.uid: m.instance.workload.publishes for m in matched if m.live}
        on_node: dict[str, dict[str, LivePod]] = defaultdict(dict)
        for pod in pods:
            driver = drivers.get(pod.owner)
            if driver is None or not pod.node or pod.over:
                continue
            seen = on_node[driver].get(pod.node)
            # While a daemon is replaced two of its pods are there: the ready one publishes.
            if seen is None or (pod.ready and not pod.terminating):
                on_node[driver][pod.node] = pod
        self._plugins = {
            driver: _Plugin(tuple(m for m in matched if m.instance.workload.publishes == driver), on_node[driver])
            for driver in {m.instance.workload.publishes for m in matched}
        }

    def plugin(self, driver: str) -> _Plugin | None:
        """None where no component of the plan publishes the driver: an external one, or a preinstalled one."""
        return self._plugins.get(driver)


def judge_node(chain: Chain, pool: PoolView, driver: str, node: NodeFacts, published: Published) -> Fault | None:
    """The first broken link of a claimed driver on a node; None where it is whole. An external driver of kind Other
    needn't publish on each node."""
    if chain.external.get(driver) == "Other":
        return None
    plugin = chain.plugin(driver)
    if plugin is not None:
        broken = _daemon_fault(plugin, node)
        if broken:
            # kubelet takes a dead plugin's slices away after half a minute; until then pods are bound and stay stuck.
            stale = "; the slices that still reach the node are stale" if published.reached else ""
            return Fault(broken.link, broken.message + stale)
    if not published.reached:
        return Fault("slice", "no slice of the newest generation reaches the node")
    if published.faults and not published.devices:
        return Fault("incomplete", "; ".join(published.faults))
    lack = devices_lacking(pool, driver, published, chain.view.cpu_mode)
    return Fault("devices", lack) if lack else None


def _daemon_fault(plugin: _Plugin, node: NodeFacts) -> Fault | None:
    pod = plugin.pods.get(node.name)
    if pod is None:
        return _why_absent(plugin, node)
    if not pod.ready:
        return Fault("driver", f"pod {pod.namespace}/{pod.name} isn't ready (phase {pod.phase})")
    return None


def _why_absent(plugin: _Plugin, node: NodeFacts) -> Fault:
    live = [m.live for m in plugin.matches if m.live]
    if not live:
        names = ", ".join(m.instance.name for m in plugin.matches)
        return Fault("daemon", f"the cluster has no DaemonSet {names}")
    wanting = [w for w in live if daemon_should_run(w.placement, node, host_network=w.host_network)]
    if wanting:
        return Fault("daemon", f"DaemonSet {wanting[0].name} selects the node, and no pod of it is there")
    for workload in live:
        tolerations = daemon_tolerations(workload.placement.tolerations, host_network=workload.host_network)
        if untolerated(tolerations, node.taints):
            reason = why_not(workload.placement, node, daemon=True, host_network=workload.host_network) or ""
            if "taint" in reason:
                return Fault("daemon", f"DaemonSet {workload.name} stays off: {reason}")
    reason = why_not(live[0].placement, node, daemon=True, host_network=live[0].host_network) or ""
    return Fault("label", f"DaemonSet {live[0].name} stays off: {reason}")


def devices_lacking(pool: PoolView, driver: str, published: Published, mode: CpuMode | None) -> str:
    """What a node publishes too little of, as a clause; empty where it publishes what the class declares."""
    seen = len(published.devices)
    if driver == CPU:
        return _cpus_lacking(pool, published, mode)
    expected = sum(d.count for d in pool.devices if d.driver == driver and d.claim == "DRA")
    return f"it publishes {seen} devices, and class {pool.class_name} declares {expected}" if seen < expected else ""


def _cpus_lacking(pool: PoolView, published: Published, mode: CpuMode | None) -> str:
    """Grouped: groups with their capacity. Individual: a device a CPU. Where the mode isn't known the slices show it:
    only groups publish a capacity."""
    device = cpu_device(pool.devices)
    if device is None:
        return "" if published.devices else "it publishes no device"
    amounts = [_cpus(d.facts.amount(CAPACITY_KEY)) for d in published.devices]
    grouped = mode == "grouped" or (mode is None and any(a is not None for a in amounts))
    if not grouped:
        expected = devices_for("individual", groups=device.groups, cpus=device.cpus)
        if len(amounts) >= expected:
            return ""
        return f"it publishes {len(amounts)} CPUs, and class {pool.class_name} declares {expected}"
    whole = sum(1 for a in amounts if a is not None and a >= device.cpus)
    if whole >= device.groups:
        return ""
    shown = ", ".join("none" if a is None else f"{a.normalize():f}" for a in amounts) or "none"
    return f"it publishes groups of {shown} CPUs, and class {pool.class_name} declares {device.groups} of {device.cpus}"


def _cpus(amount: str | None) -> Decimal | None:
    try:
        return parse_quantity(amount) if amount is not None else None
    except QuantityError:
        return None
