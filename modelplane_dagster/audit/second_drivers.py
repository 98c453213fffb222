"""DRA drivers of others beside ours: two of one driver on a node publish the same devices.

They are known by the names and labels that their charts give them (facts read in the charts: dra-driver-nvidia-gpu
0.4.1, NVIDIA gpu-operator v26.7.0, k8s-gpu-dra-driver v1.0.1, AMD gpu-operator v1.5.1, dra-driver-cpu, aws-dranet 1.0.0).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from modelplane_dagster.audit.judged import Group, Told
from modelplane_dagster.audit.live import LiveWorkload
from modelplane_dagster.audit.ownership import Ownership
from modelplane_dagster.audit.tolerations import allows, listed, pool_names
from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.drivers import AMD, CPU, NETWORK, NVIDIA
from modelplane_dagster.findings import finding
from modelplane_dagster.kube.objects import PodPlacement

NAME_LABEL = "app.kubernetes.io/name"

_DRIVERS: Mapping[str, str] = {
    "dra-driver-nvidia-gpu": NVIDIA,
    "nvidia-dra-driver-gpu": NVIDIA,
    "k8s-gpu-dra-driver": AMD,
    "dra-driver-cpu": CPU,
    "aws-dranet": NETWORK,
    "dranet": NETWORK,
}
# Daemons that operators make: the kind of the custom resource, and what their name ends with.
_MADE = (("GPUCluster", "-kubelet-plugin", NVIDIA), ("DeviceConfig", "-dra-driver", AMD))


def known_placements(whose: Ownership) -> tuple[PodPlacement, ...]:
    """The templates of the foreign daemons that the audit knows, by which nodes must be told apart."""
    return tuple(f.placement for f in whose.foreign if _driver(f))


def second_drivers(view: ClusterView, whose: Ownership, groups: tuple[Group, ...]) -> Iterator[Told]:
    """One finding a foreign daemon that reaches a pool whose class claims its driver. One that reaches none isn't in
    the way; a driver that the platform team runs itself is no second one."""
    publishing = {w.publishes: m.instance.component.key for m in whose.matched if (w := m.instance.workload).publishes}
    for live in whose.foreign:
        driver = _driver(live)
        key = publishing.get(driver, "")
        if not key:
            continue
        claiming = {p.name for p in view.claiming(driver)}
        there = [g for g in groups if g.node.pool in claiming and _on(live, g)]
        if not there:
            continue
        pools = sorted({g.node.pool for g in there})
        nodes = listed(sorted(name for g in there for name in g.names))
        found = finding(
            "SecondOwner",
            f"component/{view.name}/{key}",
            f"DaemonSet {live.name} in {live.namespace} is a DRA driver for {driver} and reaches {nodes} of "
            f"{pool_names(pools)}, which {key} serves.",
            fix=f"Remove {live.name}, or keep it off those nodes.",
        )
        yield Told(found, frozenset(pools))


def _driver(live: LiveWorkload) -> str:
    """By the chart's label, else by the name that the chart or the operator gives it; empty for no driver that is known."""
    if live.kind != "DaemonSet":
        return ""
    label = live.labels.get(NAME_LABEL, "")
    driver = _DRIVERS.get(label) or next((d for name, d in _DRIVERS.items() if live.name.startswith(name)), "")
    kinds = {o.kind for o in live.owners}
    return driver or next((d for kind, ending, d in _MADE if kind in kinds and live.name.endswith(ending)), "")


def _on(live: LiveWorkload, group: Group) -> bool:
    return allows(live.placement, group.node, daemon=True, host_network=live.host_network)
