"""Prints how long the placement rules take at fleet size: `python -m benchmarks.kube`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from modelplane_dagster.kube.cel import DeviceFacts, compile_selector
from modelplane_dagster.kube.objects import NodeFacts, PodPlacement, Taint, Toleration
from modelplane_dagster.kube.scheduling import daemon_should_run, group_nodes, labels_of_interest, may_run

SELECTOR = (
    'device.driver == "gpu.nvidia.com" && device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("20Gi")) >= 0'
)


@contextmanager
def timed(what: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    print(f"{what}: {time.perf_counter() - start:.3f} s")


def main() -> None:
    taints = (Taint("nvidia.com/gpu", "present"),)
    nodes = [
        NodeFacts(
            f"n{i}", {"modelplane.ai/pool": f"p{i % 30}", "kubernetes.io/hostname": f"n{i}"}, taints if i % 3 else ()
        )
        for i in range(10_000)
    ]
    exists = (Toleration("nvidia.com/gpu", "Exists"), Toleration("amd.com/gpu", "Exists"))
    templates = [PodPlacement({"modelplane.ai/pool": f"p{i}"}, None, exists) for i in range(10)]
    with timed("10 pod templates over 10,000 nodes, pair by pair"):
        sum(may_run(t, n) for t in templates for n in nodes)
    with timed("10 daemon templates over 10,000 nodes, in groups"):
        groups = group_nodes(nodes, labels_of_interest(templates))
        sum(len(g) for t in templates for g in groups if daemon_should_run(t, g[0]))
    devices = [DeviceFacts("gpu.nvidia.com", {"index": i}, {"memory": "80Gi"}, f"gpu-{i}") for i in range(10_000)]
    selector = compile_selector(SELECTOR)
    with timed("one selector over 10,000 devices, all different"):
        sum(selector.matches(d) for d in devices)
    with timed("the same again, remembered"):
        sum(selector.matches(d) for d in devices)


if __name__ == "__main__":
    main()
