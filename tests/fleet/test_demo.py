"""The demo fleet: what it holds, that it passes, and that the lab's stand-in nodes are as it says."""

from __future__ import annotations

from pathlib import Path

from modelplane_dagster.plan import plan_fleet
from resources.files import load_fleet
from resources.lab.agents.machines import machine_hardware
from resources.lab.agents.seed import read_seed

ROOT = Path(__file__).resolve().parents[2]
PLAN = plan_fleet(load_fleet([ROOT / "fleet"]))

# cluster: source and pools, each with role, drivers and the nodes it starts with.
FLEET = {
    "aks-amsterdam": (
        "AKS",
        [("a100", "GPU", ("gpu.nvidia.com",), 1), ("cpu-d8", "CPU", ("dra.cpu",), 1)],
    ),
    "civo-london": ("Civo", [("cpu", "CPU", ("dra.cpu",), 1)]),
    "eks-oregon": (
        "EKS",
        [("l4", "GPU", ("gpu.nvidia.com",), 1), ("h100-efa", "GPU", ("dra.net", "gpu.nvidia.com"), 0)],
    ),
    "gke-iowa": ("GKE", [("l4", "GPU", ("gpu.nvidia.com",), 1), ("a100-idle", "GPU", ("gpu.nvidia.com",), 0)]),
    "metal-dallas": (
        "Existing",
        [
            ("mi325x", "GPU", ("gpu.amd.com",), 1),
            ("h100", "GPU", ("gpu.nvidia.com",), 1),
            ("cpu", "CPU", ("dra.cpu",), 1),
        ],
    ),
    "nebius-finland": ("Nebius", [("h100", "GPU", ("gpu.nvidia.com",), 1)]),
    "vultr-newark": ("Vultr", [("l40s", "GPU", ("dra.cpu", "gpu.nvidia.com"), 1)]),
}

# machine type: CPUs, and the devices that its driver reports with their memory.
MACHINES = {
    "g6.xlarge": (4, [("gpu.nvidia.com", 1, "23034Mi")]),
    "p5.4xlarge": (16, [("gpu.nvidia.com", 1, "81559Mi"), ("dra.net", 1, "")]),
    "g2-standard-8": (8, [("gpu.nvidia.com", 1, "23034Mi")]),
    "a2-highgpu-1g": (12, [("gpu.nvidia.com", 1, "40960Mi")]),
    "Standard_NC24ads_A100_v4": (24, [("gpu.nvidia.com", 1, "81920Mi")]),
    "Standard_D8s_v5": (8, []),
    "gpu-h100-sxm/1gpu-16vcpu-200gb": (16, [("gpu.nvidia.com", 1, "81559Mi")]),
    "vcg-l40s-16c-180g-48vram": (16, [("gpu.nvidia.com", 1, "46068Mi")]),
    "g4p.kube.medium": (8, []),
}


def test_the_fleet_is_this() -> None:
    seen = {
        c.name: (c.source, [(p.name, str(p.role), p.drivers, p.count) for p in c.view.pools])
        for c in PLAN.clusters
        if c.view
    }
    assert seen == FLEET


def test_nothing_in_it_is_refused_or_warned_of() -> None:
    told = [(c.name, f.code) for c in PLAN.clusters for f in (*c.gate.findings, *(c.audit.findings if c.audit else ()))]
    assert told == [("metal-dallas", "VersionUnknown")]


def test_the_lab_has_its_machines() -> None:
    named = set()
    for cls in PLAN.fleet.classes.values():
        if cls.spec.provisioning:
            facts = cls.spec.provisioning.block.model_dump(exclude={"accelerator", "disk_size_gb", "drivers_preset"})
            named.add("/".join(facts.values()))
    assert named == set(MACHINES)
    seen = {}
    for name in MACHINES:
        hardware = machine_hardware(name)
        memory = [(d.driver, d.count, d.capacity.get("memory", {}).get("value", "")) for d in hardware.devices]
        seen[name] = (hardware.cpus, memory)
    assert seen == MACHINES


def test_the_seeded_nodes_are_as_the_fleet_says() -> None:
    seed = read_seed(ROOT / "resources" / "lab" / "seed.yaml")
    existing = [c.view for c in PLAN.clusters if c.view and c.source == "Existing"]
    assert set(seed) == {view.name for view in existing}
    for view in existing:
        nodes = seed[view.name].nodes
        for pool in view.pools:
            mine = [n for n in nodes if n.labels.get("modelplane.ai/pool") == pool.name]
            assert len(mine) == pool.count, pool.name
            assert all(pool.labels.items() <= n.labels.items() for n in mine), pool.name
            assert all(n.taints == pool.taints for n in mine), pool.name
        assert [n.name for n in nodes if not n.taints] == [f"{view.name}-room-0"]


def test_the_seeded_hardware_is_what_the_classes_declare() -> None:
    nodes = {
        n.labels.get("modelplane.ai/pool"): n for n in read_seed(ROOT / "resources/lab/seed.yaml")["metal-dallas"].nodes
    }
    (amd,) = nodes["mi325x"].hardware.of("gpu.amd.com")
    (nvidia,) = nodes["h100"].hardware.of("gpu.nvidia.com")
    assert (amd.count, amd.capacity["memory"], amd.attributes["productName"]) == (
        8,
        {"value": "262128Mi"},
        {"string": "AMD_Instinct_MI325_OAM"},
    )
    assert (nvidia.count, nvidia.capacity["memory"], nvidia.attributes["architecture"]) == (
        8,
        {"value": "81559Mi"},
        {"string": "Hopper"},
    )
    # Two groups of 14 and 16: the driver keeps two CPUs of the first.
    assert (nodes["cpu"].hardware.cpus, nodes["cpu"].hardware.numa_nodes) == (32, 2)
