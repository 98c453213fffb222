"""Hand-made clusters for the audits' tests: pools, components, and a small scheduler's reading of what runs where."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from modelplane_dagster.audit.instances import instances
from modelplane_dagster.audit.live import LiveCluster, LiveDeviceClass, LiveNode, LivePod, LiveWorkload, Owner
from modelplane_dagster.audit.slices import LiveSlice
from modelplane_dagster.cluster import ClusterView, PoolView, Role
from modelplane_dagster.components.types import (
    Component,
    CustomResource,
    DeclaredWorkload,
    Grant,
    JoinedComponent,
    Knob,
    Pin,
    Reach,
)
from modelplane_dagster.known import Known
from modelplane_dagster.kube.objects import NodeFacts, PodPlacement, Taint
from modelplane_dagster.kube.scheduling import daemon_should_run
from modelplane_dagster.manifests.classes import Device

NOW = 1_000_000.0
NV_TAINT = Taint("nvidia.com/gpu", "present")
AMD_TAINT = Taint("amd.com/gpu", "present")
CPU_TAINT = Taint("modelplane.ai/cpu", "true")
TAINTS = {"gpu.nvidia.com": NV_TAINT, "gpu.amd.com": AMD_TAINT}
PCI = "feature.node.kubernetes.io/pci-0302_10de.present"
AMD_GPU = "feature.node.kubernetes.io/amd-gpu"


def exists(*keys, effect="NoSchedule"):
    return [{"key": k, "operator": "Exists", "effect": effect} for k in keys]


def device(driver, count=1, **more):
    name = {"gpu.nvidia.com": "gpu", "gpu.amd.com": "gpu", "dra.cpu": "cpu"}.get(driver, "nic")
    return Device.model_validate({"name": name, "driver": driver, "deviceClassName": driver, "count": count, **more})


def cpus(groups, each):
    return device("dra.cpu", groups, capacity={"cpu": {"value": str(each)}})


def pool(name, *devices, count=1, source="EKS", **more):
    drivers = tuple(sorted({d.driver for d in devices if d.claim == "DRA"}))
    gpus = [d for d in drivers if d in TAINTS]
    labels = {"modelplane.ai/pool": name}
    taints = tuple(TAINTS[d] for d in gpus)
    role = Role.GPU if gpus else Role.CPU if "dra.cpu" in drivers else Role.NONE
    if gpus:
        labels["modelplane.ai/gpu"] = gpus[0].split(".")[1]
    if "dra.cpu" in drivers:
        labels["modelplane.ai/cpu"] = "true"
        taints = taints or (CPU_TAINT,)
    made = PoolView("c", name, f"class-{name}", role, drivers, tuple(devices), MappingProxyType(labels), taints, count)
    return replace(made, **more)


def view(*pools, source="EKS", mode="grouped", **more):
    claimed = frozenset(d for p in pools for d in p.drivers)
    return ClusterView("c", source, "1.36", pools, claimed, cpu_mode=mode, **more)


NV = pool("nv", device("gpu.nvidia.com", 8))
AMD = pool("amd", device("gpu.amd.com", 8))
CPU = pool("cpu", cpus(1, 6))
NVCPU = pool("nvcpu", device("gpu.nvidia.com", 8), cpus(2, 30))


def joined(component, view, **more):
    """As the join makes it; `values` and `manifests` replace the component's own."""
    values = component.values(view) if component.values else {}
    manifests = component.manifests(view) if component.manifests else ()
    made = JoinedComponent(component=component, install=True, reason="", values=values, manifests=manifests)
    return replace(made, **more)


def daemon(name, **more):
    more.setdefault("reach", Reach("only"))
    return DeclaredWorkload(
        kind="DaemonSet",
        name=name,
        node_selector=Knob("nodeSelector", {}),
        affinity=Knob("affinity", {}),
        tolerations=Knob("tolerations", []),
        **more,
    )


def deployment(name, **more):
    return DeclaredWorkload(kind="Deployment", name=name, tolerations=Knob("controller.tolerations", []), **more)


def pin(chart, version="1.0.0"):
    return Pin(chart, "https://charts.example", version, "2026-11-30", "")


def in_pools(*names):
    term = {"matchExpressions": [{"key": "modelplane.ai/pool", "operator": "In", "values": list(names)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


CPU_DRIVER = Component(
    key="dra-driver-cpu",
    release="mp-dra-driver-cpu",
    namespace="dra-driver-cpu",
    pin=pin("dra-driver-cpu"),
    drivers=frozenset({"dra.cpu"}),
    publishes="dra.cpu",
    workloads=(
        replace(
            daemon("mp-dra-driver-cpu", publishes="dra.cpu", host_network=True, host_ports=(8080,), cpu_request="100m"),
            tolerations=Knob("tolerations", [{"operator": "Exists", "effect": "NoSchedule"}]),
        ),
    ),
    values=lambda v: {
        "nodeSelector": {"modelplane.ai/cpu": "true"},
        "tolerations": exists(*sorted({t.key for p in v.claiming("dra.cpu") for t in p.taints})),
        "driverConfig": {"reservedCPUs": "0-1"},
    },
    device_classes=("dra.cpu",),
)

NFD = Component(
    key="node-feature-discovery",
    release="mp-node-feature-discovery",
    namespace="node-feature-discovery",
    pin=pin("node-feature-discovery"),
    drivers=frozenset({"gpu.nvidia.com", "gpu.amd.com"}),
    workloads=(daemon("mp-nfd-worker"), deployment("mp-nfd-master")),
    values=lambda v: {
        "affinity": in_pools(*(p.name for p in v.claiming("gpu.nvidia.com", "gpu.amd.com"))),
        "tolerations": exists("nvidia.com/gpu", "amd.com/gpu"),
    },
    grants=(
        Grant(labels={PCI: "true"}, driver="gpu.nvidia.com", by="mp-nfd-worker"),
        Grant(labels={"pci-amd": "true"}, driver="gpu.amd.com", by="mp-nfd-worker"),
        # A rule of the master's, over what the worker finds.
        Grant(labels={AMD_GPU: "true"}, driver="gpu.amd.com", needs={"pci-amd": "true"}),
    ),
)

NV_DRIVER = Component(
    key="nvidia-dra-driver-gpu",
    release="mp-dra-driver-nvidia-gpu",
    namespace="nvidia-dra-driver",
    pin=pin("dra-driver-nvidia-gpu"),
    drivers=frozenset({"gpu.nvidia.com"}),
    publishes="gpu.nvidia.com",
    workloads=(daemon("kubelet-plugin", publishes="gpu.nvidia.com", priority_class="system-node-critical"),),
    values=lambda v: {
        "nodeSelector": {PCI: "true"},
        "affinity": in_pools(*(p.name for p in v.claiming("gpu.nvidia.com"))),
        "tolerations": exists("nvidia.com/gpu"),
    },
    device_classes=("gpu.nvidia.com",),
)

DEVICE_CONFIG = CustomResource("amd.com/v1alpha1", "DeviceConfig", "deviceconfigs", namespaced=True)


def device_config(name, selector, tolerations=("amd.com/gpu",), **spec):
    return {
        "apiVersion": "amd.com/v1alpha1",
        "kind": "DeviceConfig",
        "metadata": {"name": name, "namespace": "kube-amd-gpu"},
        "spec": {
            "selector": selector,
            "draDriver": {"enable": True, "tolerations": exists(*tolerations)},
            "devicePlugin": {"enableDevicePlugin": False},
            **spec,
        },
    }


AMD_OPERATOR = Component(
    key="amd-gpu-operator",
    release="mp-gpu-operator-charts",
    namespace="kube-amd-gpu",
    pin=pin("gpu-operator-charts"),
    drivers=frozenset({"gpu.amd.com"}),
    publishes="gpu.amd.com",
    workloads=(
        deployment("mp-amd-controller"),
        DeclaredWorkload(
            kind="DaemonSet",
            name="{cr}-dra-driver",
            reach=Reach("only"),
            origin="operator",
            resource=DEVICE_CONFIG,
            node_selector=Knob("selector"),
            tolerations=Knob("draDriver.tolerations", []),
            publishes="gpu.amd.com",
            enabled="draDriver.enable",
            enabled_default=False,
        ),
    ),
    values=lambda _: {"crds": {"defaultCR": {"install": False}}, "node-feature-discovery": {"enabled": False}},
    manifests=lambda v: tuple(
        device_config(f"mp-{p.name}", {"modelplane.ai/pool": p.name}) for p in v.claiming("gpu.amd.com")
    ),
    device_classes=("gpu.amd.com",),
)

EXPORTER = Component(
    key="kube-prometheus-stack",
    release="mp-kube-prometheus-stack",
    namespace="monitoring",
    workloads=(daemon("node-exporter", reach=Reach("all")),),
    values=lambda _: {"tolerations": exists("nvidia.com/gpu", "amd.com/gpu", "modelplane.ai/cpu")},
)

CLASSES = (
    LiveDeviceClass("dra.cpu", "mp-dra-driver-cpu"),
    LiveDeviceClass("gpu.amd.com", "mp-gpu-operator-charts"),
    LiveDeviceClass("gpu.nvidia.com", "mp-dra-driver-nvidia-gpu"),
)

STACK = (EXPORTER, NFD, NV_DRIVER, AMD_OPERATOR, CPU_DRIVER)


def stack(view, *components, **changed):
    """The joined components that a view claims; `changed` maps a key (with underscores) to fields to replace."""
    parts = [c for c in components or STACK if not c.drivers or c.drivers & view.claimed]
    return tuple(joined(c, view, **changed.get(c.key.replace("-", "_"), {})) for c in parts)


def node(name, pool_view=None, *, labels=None, taints=None, capacity="8", **more):
    """A live node as its pool makes it; without a pool, one that nothing taints."""
    base = dict(pool_view.labels) if pool_view else {}
    if pool_view and "gpu.nvidia.com" in pool_view.drivers:
        base[PCI] = "true"
    if pool_view and "gpu.amd.com" in pool_view.drivers:
        base.update({AMD_GPU: "true", "pci-amd": "true"})
    base.update(labels or {})
    allocatable = {"cpu": capacity, **more.pop("allocatable", {})}
    facts = NodeFacts(
        name,
        MappingProxyType({k: v for k, v in base.items() if v is not None}),
        (pool_view.taints if pool_view else ()) if taints is None else tuple(taints),
        allocatable=MappingProxyType(allocatable),
        **more,
    )
    return LiveNode(facts, MappingProxyType({"cpu": capacity}))


def workloads_of(parts):
    """What Helm and the operators make of the plan, each with its own template."""
    made = []
    for i in instances(parts):
        if i.workload.kind == "Job":
            continue
        operator = i.workload.origin == "operator"
        made.append(
            LiveWorkload(
                kind=i.workload.kind,
                namespace=i.namespace,
                name=i.name,
                uid=f"uid-{i.name}",
                placement=i.placement,
                annotations={} if operator else {"meta.helm.sh/release-name": i.component.release},
                owners=(Owner(i.workload.resource.kind, i.resource, "cr"),) if operator else (),
                host_network=i.workload.host_network,
                host_ports=i.workload.host_ports,
                priority_class=i.workload.priority_class,
                desired=1,
                ready=1,
            )
        )
    return made


def foreign(name, placement=None, kind="DaemonSet", namespace="other", **more):
    more.setdefault("uid", f"uid-{namespace}-{name}")
    return LiveWorkload(kind=kind, namespace=namespace, name=name, placement=placement or PodPlacement(), **more)


def template(**spec):
    return PodPlacement.parse(spec)


def running(workloads, nodes, *, cpu=0.1):
    """The DaemonSet controller's pods: one where each template may run."""
    return [
        LivePod(
            namespace=w.namespace,
            name=f"{w.name}-{n.facts.name}",
            node=n.facts.name,
            owner=w.uid,
            owner_kind="DaemonSet",
            cpu=cpu,
        )
        for w in workloads
        if w.kind == "DaemonSet"
        for n in nodes
        if daemon_should_run(w.placement, n.facts, host_network=w.host_network)
    ]


def slice_of(driver, node_name, devices, *, name=None, generation=1, count=1, **spec):
    where = {"nodeName": node_name} if node_name else {}
    return LiveSlice.parse(
        {
            "metadata": {"name": name or f"{driver}-{node_name}"},
            "spec": {
                "driver": driver,
                "pool": {"name": node_name or "net", "generation": generation, "resourceSliceCount": count},
                "devices": devices,
                **where,
                **spec,
            },
        }
    )


def gpus(count, **more):
    return [{"name": f"gpu-{i}", **more} for i in range(count)]


def cpu_groups(count, each):
    return [
        {
            "name": f"cpudevnuma00{i}",
            "allowMultipleAllocations": True,
            "capacity": {"dra.cpu/cpu": {"value": str(each)}},
        }
        for i in range(count)
    ]


def published(nodes, pools):
    """The slices of drivers that see the hardware the classes declare."""
    by_name = {p.name: p for p in pools}
    made = []
    for n in nodes:
        p = by_name.get(n.facts.pool)
        for d in p.devices if p else ():
            devices = cpu_groups(d.count, d.capacity["cpu"].value) if d.driver == "dra.cpu" else gpus(d.count)
            made.append(slice_of(d.driver, n.facts.name, devices))
    return made


def live(nodes, workloads=(), pods=None, slices=(), **more):
    pods = running(workloads, nodes) if pods is None else pods
    return LiveCluster(
        taken_at=NOW,
        **{
            "nodes": Known(tuple(nodes)),
            "workloads": Known(tuple(workloads)),
            "pods": Known(tuple(pods)),
            "slices": Known(tuple(slices)),
            "device_classes": Known(CLASSES),
            "quotas": Known(()),
            **more,
        },
    )


def told(findings):
    """Code and subject of each: what tests compare."""
    return sorted((f.code, f.subject) for f in findings)
