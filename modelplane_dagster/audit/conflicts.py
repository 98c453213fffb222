"""What two components of a plan can't both do: label nodes, hand out devices, own a DeviceClass, listen on a port.

Charts are known by name, for what their values turn on: facts read in the charts (NVIDIA gpu-operator v26.3.3, AMD
gpu-operator-charts v1.5.1, node-feature-discovery 0.19.0), with the charts' own defaults.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any

from modelplane_dagster.audit.instances import dig, setting
from modelplane_dagster.audit.planned_reach import Reached
from modelplane_dagster.audit.tolerations import listed
from modelplane_dagster.cluster import ClusterView
from modelplane_dagster.components.types import JoinedComponent
from modelplane_dagster.drivers import AMD, NVIDIA
from modelplane_dagster.findings import Finding, finding

NFD_CHART = "node-feature-discovery"
NVIDIA_OPERATOR = "gpu-operator"
AMD_OPERATOR = "gpu-operator-charts"
BUNDLED_NFD: Mapping[str, str] = {NVIDIA_OPERATOR: "nfd.enabled", AMD_OPERATOR: "node-feature-discovery.enabled"}
"""Charts that bring an NFD of their own, and the switch, on by default."""

DEVICE_CONFIG = "DeviceConfig"
SYSTEM_PRIORITIES = ("system-node-critical", "system-cluster-critical")
GKE_GOOGLE_DRIVER = "cloud.google.com/gke-nvidia-gpu-dra-driver"
GKE_NO_PLUGIN = "gke-no-default-nvidia-gpu-device-plugin"


def conflicts(
    view: ClusterView,
    joined: tuple[JoinedComponent, ...],
    there: tuple[Reached, ...],
) -> Iterator[Finding]:
    """Every conflict that a plan shows by itself, in no order."""
    installed = tuple(j for j in joined if j.install)
    yield from _second_nfd(view, installed)
    yield from _device_plugins(view, installed)
    yield from _second_owners(view, installed)
    yield from _same_node_twice(view, there)
    yield from _stale_resource(view, installed)
    yield from _ports(view, there)
    yield from _quotas(view, installed, there)
    yield from _gke_driver_paths(view, installed)


def _chart(joined: JoinedComponent) -> str:
    return joined.component.pin.chart.rsplit("/", 1)[-1] if joined.component.pin else ""


def _subject(view: ClusterView, joined: JoinedComponent) -> str:
    return f"component/{view.name}/{joined.key}"


def _second_nfd(view: ClusterView, installed: tuple[JoinedComponent, ...]) -> Iterator[Finding]:
    labellers = [j for j in installed if _chart(j) == NFD_CHART]
    labellers += [
        j for j in installed if _chart(j) in BUNDLED_NFD and setting(j.values, BUNDLED_NFD[_chart(j)], default=True)
    ]
    for other in labellers[1:]:
        path = BUNDLED_NFD.get(_chart(other), "")
        yield finding(
            "SecondNfd",
            _subject(view, other),
            f"{other.key} brings a Node Feature Discovery beside the one of {labellers[0].key}; both write the same "
            "labels.",
            fix=f"Set {path} to false." if path else "Install one of the two.",
        )


def _device_plugins(view: ClusterView, installed: tuple[JoinedComponent, ...]) -> Iterator[Finding]:
    published = frozenset(d for j in installed for d in j.component.published)
    for joined in installed:
        dra = _chart(joined) == NVIDIA_OPERATOR and NVIDIA in published
        if dra and setting(joined.values, "devicePlugin.enabled", default=True):
            yield _plugin_beside(view, joined, NVIDIA, "devicePlugin.enabled")
        if _chart(joined) == AMD_OPERATOR:
            yield from _amd_plugins(view, joined, published)


def _amd_plugins(view: ClusterView, joined: JoinedComponent, published: frozenset[str]) -> Iterator[Finding]:
    """Across all DeviceConfigs: the operator compares the two switches within one of them only."""
    specs = dict(_device_configs(joined))
    dra = AMD in published or any(setting(s, "draDriver.enable", default=False) for s in specs.values())
    for name, spec in specs.items():
        if dra and setting(spec, "devicePlugin.enableDevicePlugin", default=True):
            yield _plugin_beside(view, joined, AMD, f"devicePlugin.enableDevicePlugin of DeviceConfig {name}")


def _device_configs(joined: JoinedComponent) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The DeviceConfigs that a plan makes: the chart's default one unless it is off, and ours."""
    if setting(joined.values, "crds.defaultCR.install", default=True):
        yield "default", dig(joined.values, "deviceConfig.spec") or {}
    for manifest in joined.manifests:
        if manifest.get("kind") == DEVICE_CONFIG:
            yield str(manifest["metadata"]["name"]), manifest.get("spec") or {}


def _plugin_beside(view: ClusterView, joined: JoinedComponent, driver: str, switch: str) -> Finding:
    return finding(
        "DevicePluginBesideDra",
        _subject(view, joined),
        f"{joined.key} runs a device plugin, and the DRA driver {driver} hands out the same devices.",
        fix=f"Set {switch} to false.",
    )


def _second_owners(view: ClusterView, installed: tuple[JoinedComponent, ...]) -> Iterator[Finding]:
    owners: dict[str, list[JoinedComponent]] = defaultdict(list)
    for joined in installed:
        for name in dict.fromkeys(joined.component.device_classes):
            owners[f"DeviceClass {name}"].append(joined)
        for driver in sorted(joined.component.published):
            owners[f"driver {driver}"].append(joined)
    for external in view.external:
        for other in owners.get(f"driver {external.driver}", ()):
            yield finding(
                "SecondOwner",
                _subject(view, other),
                f"The driver {external.driver} is declared external, and {other.key} publishes it as well.",
            )
    for what, members in owners.items():
        for other in members[1:]:
            yield finding(
                "SecondOwner", _subject(view, other), f"{what} is brought by both {members[0].key} and {other.key}."
            )
    publishers = [j for j in installed if NVIDIA in j.component.published]
    for joined in installed:
        stacked = _chart(joined) == NVIDIA_OPERATOR and setting(joined.values, "gpuCluster.deployCR", default=False)
        if stacked and any(p is not joined for p in publishers):
            yield finding(
                "SecondOwner",
                _subject(view, joined),
                f"{joined.key} deploys a GPUCluster, which brings the driver {NVIDIA} beside {publishers[0].key}.",
                fix="Set gpuCluster.deployCR to false.",
            )


def _same_node_twice(view: ClusterView, there: tuple[Reached, ...]) -> Iterator[Finding]:
    """An operator refuses a node that another of its custom resources already took."""
    made: dict[int, list[Reached]] = defaultdict(list)
    for each in there:
        if each.instance.daemon and each.instance.resource:
            made[id(each.instance.workload)].append(each)
    clashes: dict[tuple[str, str, str], tuple[str, list[str]]] = {}
    for members in made.values():
        for one, other in combinations(members, 2):
            both = [n.name for n in one.nodes if other.on(n)]
            if both:
                first, second = one.instance, other.instance
                kind = first.workload.resource.kind if first.workload.resource else ""
                clashes.setdefault((first.component.key, first.resource, second.resource), (kind, both))
    for (key, one_name, other_name), (kind, both) in clashes.items():
        yield finding(
            "SecondOwner",
            f"component/{view.name}/{key}",
            f"{kind} {one_name} and {kind} {other_name} both select nodes of {listed(both)}; the operator serves "
            "a node by one of them.",
            fix="Let their selectors name different pools.",
        )


def _stale_resource(view: ClusterView, installed: tuple[JoinedComponent, ...]) -> Iterator[Finding]:
    for joined in installed:
        if _chart(joined) != AMD_OPERATOR:
            continue
        made = setting(joined.values, "crds.defaultCR.install", default=True)
        if made and not setting(joined.values, "crds.defaultCR.upgrade", default=False):
            yield finding(
                "ConfigNotApplied",
                _subject(view, joined),
                f"{joined.key} makes its DeviceConfig at install alone, so later changes of deviceConfig.spec never "
                "reach it.",
                fix="Set crds.defaultCR.install to false and apply a DeviceConfig, or crds.defaultCR.upgrade to true.",
            )


def _ports(view: ClusterView, there: tuple[Reached, ...]) -> Iterator[Finding]:
    hosts = [r for r in there if r.instance.daemon and r.instance.workload.host_ports]
    for first, second in combinations(hosts, 2):
        one, other = first.instance, second.instance
        shared = sorted(set(one.workload.host_ports) & set(other.workload.host_ports))
        if not shared:
            continue
        both = [n.name for n in first.nodes if second.on(n)]
        if both:
            yield finding(
                "PortClash",
                f"component/{view.name}/{other.component.key}",
                f"{one.name} of {one.component.key} and {other.name} of {other.component.key} both listen on host "
                f"port {listed([str(p) for p in shared])} of the nodes of {listed(both)}.",
            )


def _quotas(view: ClusterView, installed: tuple[JoinedComponent, ...], there: tuple[Reached, ...]) -> Iterator[Finding]:
    """GKE refuses pods of the system priority classes outside its own namespaces without a quota for them."""
    if view.source != "GKE":
        return
    granted: dict[str, set[str]] = defaultdict(set)
    for joined in installed:
        for manifest in (*joined.prepares, *joined.manifests):
            if manifest.get("kind") == "ResourceQuota":
                namespace = manifest["metadata"].get("namespace") or joined.component.namespace
                granted[str(namespace)] |= set(_quota_classes(manifest))
    wanted: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for instance in (r.instance for r in there):
        priority = instance.workload.priority_class
        asks = priority in SYSTEM_PRIORITIES and instance.namespace != "kube-system"
        if asks and priority not in granted[instance.namespace]:
            wanted[instance.component.key, instance.namespace, priority].append(instance.name)
    for (key, namespace, priority), names in wanted.items():
        yield finding(
            "QuotaMissing",
            f"component/{view.name}/{key}",
            f"GKE refuses {listed(names)}: the priority class {priority} needs a ResourceQuota in namespace "
            f"{namespace}, and the plan holds none there.",
        )


def _quota_classes(manifest: Mapping[str, Any]) -> Iterable[str]:
    for part in dig(manifest, "spec.scopeSelector.matchExpressions") or ():
        if part.get("scopeName") == "PriorityClass" and part.get("operator") == "In":
            yield from part.get("values") or ()


def _gke_driver_paths(view: ClusterView, installed: tuple[JoinedComponent, ...]) -> Iterator[Finding]:
    """Google's own driver install goes with its DRA label; a driver of one's own goes with the other label."""
    if view.source != "GKE":
        return
    operators = [
        j for j in installed if _chart(j) == NVIDIA_OPERATOR and setting(j.values, "driver.enabled", default=True)
    ]
    for pool in view.claiming(NVIDIA):
        google = pool.labels.get(GKE_GOOGLE_DRIVER) == "true"
        if google and pool.labels.get(GKE_NO_PLUGIN) == "true":
            yield finding(
                "DriverPathMixed",
                f"pool/{view.name}/{pool.name}",
                f"Pool {pool.name} carries both {GKE_GOOGLE_DRIVER} and {GKE_NO_PLUGIN}, which name two ways to bring "
                "the driver.",
            )
        elif google and operators:
            yield finding(
                "DriverPathMixed",
                f"pool/{view.name}/{pool.name}",
                f"Google installs the driver on pool {pool.name}, and {operators[0].key} would install another.",
                fix="Set driver.enabled to false.",
            )
