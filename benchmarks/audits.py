"""Times the audits of one large cluster: 10,000 nodes and 100,000 pods, budget 2 s. Run: python benchmarks/audits.py."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from modelplane_dagster.audit.existing import audit_existing
from modelplane_dagster.audit.health import audit_health
from modelplane_dagster.audit.instances import instances
from modelplane_dagster.audit.live import LiveCluster, LiveDeviceClass, LiveNode, LivePod, LiveWorkload, Owner
from modelplane_dagster.audit.live_audit import audit_live
from modelplane_dagster.audit.live_conflicts import audit_conflicts
from modelplane_dagster.audit.plan_audit import audit_plan
from modelplane_dagster.audit.slices import LiveSlice
from modelplane_dagster.cluster import ClusterView, PoolView
from modelplane_dagster.components.join import join
from modelplane_dagster.components.lists import components_for
from modelplane_dagster.components.types import JoinedComponent
from modelplane_dagster.known import Known
from modelplane_dagster.kube.objects import NodeFacts, PodPlacement, Toleration
from modelplane_dagster.kube.scheduling import daemon_should_run
from modelplane_dagster.manifests.classes import Device
from modelplane_dagster.roles import pool_labels, pool_taints, role_of

NODES = 10_000
PODS = 100_000
POOLS = 24
NOW = 1_800_000_000.0
CLASSES = tuple(
    LiveDeviceClass(driver, release, (f'device.driver == "{driver}"',))
    for driver, release in (
        ("gpu.nvidia.com", "mp-dra-driver-nvidia-gpu"),
        ("gpu.amd.com", "mp-gpu-operator-charts"),
        ("dra.cpu", "mp-dra-driver-cpu"),
    )
)
HARDWARE = (("gpu.nvidia.com",), ("gpu.amd.com",), ("dra.cpu",), ("gpu.nvidia.com", "dra.cpu"))


def _device(driver: str) -> Device:
    count = 2 if driver == "dra.cpu" else 8
    capacity = {"cpu": {"value": "30"}} if driver == "dra.cpu" else {"memory": {"value": "80Gi"}}
    return Device.model_validate(
        {"name": driver, "driver": driver, "deviceClassName": driver, "count": count, "capacity": capacity}
    )


def _view() -> ClusterView:
    pools = tuple(
        PoolView(
            "big",
            f"pool-{i}",
            f"class-{i % len(HARDWARE)}",
            role_of(drivers),
            tuple(sorted(drivers)),
            tuple(_device(d) for d in drivers),
            pool_labels(f"pool-{i}", drivers, None),
            pool_taints(drivers),
            count=NODES // POOLS,
        )
        for i in range(POOLS)
        for drivers in [HARDWARE[i % len(HARDWARE)]]
    )
    return ClusterView("big", "Existing", "1.36", pools, frozenset(d for h in HARDWARE for d in h), cpu_mode="grouped")


def _nodes(view: ClusterView) -> Iterator[LiveNode]:
    for i in range(NODES):
        pool = view.pools[i % POOLS] if i >= 100 else None
        labels = {"kubernetes.io/hostname": f"node-{i}", "kubernetes.io/os": "linux", "zone": f"z{i % 3}"}
        labels |= {f"feature.node.kubernetes.io/cpu-cpuid.F{n}": "true" for n in range(60)}
        if pool:
            labels |= pool.labels
            labels["feature.node.kubernetes.io/pci-0302_10de.present"] = "true"
            labels["feature.node.kubernetes.io/amd-gpu"] = "true"
        taints = pool.taints if pool else ()
        facts = NodeFacts(f"node-{i}", labels, taints, created=NOW - 9000, allocatable={"cpu": "64", "memory": "512Gi"})
        yield LiveNode(facts, {"cpu": "64"})


def _workloads(parts: tuple[JoinedComponent, ...]) -> Iterator[LiveWorkload]:
    for i in instances(parts):
        if i.workload.kind == "Job":
            continue
        operator = i.workload.origin == "operator" and i.workload.resource
        yield LiveWorkload(
            kind=i.workload.kind,
            namespace=i.namespace,
            name=i.name,
            uid=f"uid-{i.name}",
            placement=i.placement,
            annotations={} if operator else {"meta.helm.sh/release-name": i.component.release},
            owners=(Owner(i.workload.resource.kind, i.resource, "u"),) if i.workload.resource else (),
            host_network=i.workload.host_network,
            host_ports=i.workload.host_ports,
            desired=1,
            ready=1,
        )
    for n in range(6):
        everything = PodPlacement(tolerations=(Toleration(operator="Exists"),))
        yield LiveWorkload(kind="DaemonSet", namespace="kube-system", name=f"f{n}", uid=f"f{n}", placement=everything)


def _pods(workloads: list[LiveWorkload], nodes: list[LiveNode]) -> Iterator[LivePod]:
    made = 0
    for w in workloads:
        for n in nodes if w.kind == "DaemonSet" else ():
            if daemon_should_run(w.placement, n.facts, host_network=w.host_network):
                made += 1
                yield LivePod(namespace=w.namespace, name=f"{w.name}-{made}", node=n.facts.name, owner=w.uid, cpu=0.1)
    for i in range(made, PODS):
        yield LivePod(namespace="models", name=f"engine-{i}", node=f"node-{i % NODES}", owner=f"rs-{i % 500}", cpu=1.0)


def _slices(view: ClusterView, nodes: list[LiveNode]) -> Iterator[LiveSlice]:
    pools = {p.name: p for p in view.pools}
    for n in nodes:
        for d in pools[n.facts.pool].devices if n.facts.pool else ():
            amount = {"dra.cpu/cpu": {"value": "30"}} if d.driver == "dra.cpu" else {"memory": {"value": "81559Mi"}}
            shared = {"allowMultipleAllocations": True} if d.driver == "dra.cpu" else {}
            devices = [{"name": f"d{k}", "capacity": amount, **shared} for k in range(d.count)]
            name = n.facts.name
            pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": d.driver, "nodeName": name, "pool": pool, "devices": devices}
            yield LiveSlice.parse({"metadata": {"name": f"{d.driver}-{name}"}, "spec": spec})


def _timed(what: str, run: Callable[[], object]) -> float:
    start, cpu = time.perf_counter(), time.process_time()
    result = run()
    took, used = time.perf_counter() - start, time.process_time() - cpu
    findings = getattr(result, "findings", None)
    if findings is None:
        findings = [f for part in result for f in getattr(part, "findings", [part])]
    print(f"{what:<10} {took:6.3f} s, processor {used:6.3f} s, {len(findings)} findings")
    for f in list(findings)[:3]:
        print(f"           {f.code}: {f.message[:140]}")
    return used


def main() -> None:
    view = _view()
    parts = join(view, components_for("Existing")).components
    nodes = list(_nodes(view))
    workloads = list(_workloads(parts))
    pods = list(_pods(workloads, nodes))
    slices = tuple(_slices(view, nodes))
    live = LiveCluster(
        taken_at=NOW,
        nodes=Known(tuple(nodes)),
        workloads=Known(tuple(workloads)),
        pods=Known(tuple(pods)),
        slices=Known(slices),
        device_classes=Known(CLASSES),
    )
    print(f"{len(nodes)} nodes, {len(pods)} pods, {len(slices)} slices, {len(workloads)} workloads, {POOLS} pools")
    total = _timed("plan", lambda: audit_plan(view, parts))
    total += _timed("reach", lambda: audit_live(view, parts, live))
    total += _timed("health", lambda: audit_health(view, parts, live))
    total += _timed("conflicts", lambda: audit_conflicts(view, parts, live))
    total += _timed("existing", lambda: audit_existing(view, parts, live))
    print(f"all        processor {total:6.3f} s of 2 s")


if __name__ == "__main__":
    main()
