"""Machines' hardware, and what drivers make of it."""

from __future__ import annotations

import pytest

from resources.lab.agents.hardware import CARDS, DeviceGroup, Hardware, parse_hardware
from resources.lab.agents.machines import machine_hardware
from resources.lab.agents.slices import cpu_set, devices_of, slices_of

NV, AMD = "gpu.nvidia.com", "gpu.amd.com"


@pytest.mark.parametrize(
    ("machine", "cpus", "driver", "count", "memory"),
    [
        ("g6.xlarge", 4, NV, 1, "23034Mi"),
        ("p5.48xlarge", 192, NV, 8, "81559Mi"),
        ("m7i.2xlarge", 8, "", 0, ""),
        ("g2-standard-8", 8, NV, 1, "23034Mi"),
        ("a2-highgpu-1g", 12, NV, 1, "40960Mi"),
        ("a3-highgpu-8g", 208, NV, 8, "81559Mi"),
        ("Standard_NC24ads_A100_v4", 24, NV, 1, "81920Mi"),
        ("Standard_ND96isr_MI300X_v5", 96, AMD, 8, "196592Mi"),
        ("Standard_D8s_v5", 8, "", 0, ""),
        ("gpu-h100-sxm/8gpu-128vcpu-1600gb", 128, NV, 8, "81559Mi"),
        ("cpu-d3/4vcpu-16gb", 4, "", 0, ""),
        ("vcg-l40s-16c-180g-48vram", 16, NV, 1, "46068Mi"),
        ("vc2-4c-8gb", 4, "", 0, ""),
        ("an.g1.l40s.kube.x2", 24, NV, 2, "46068Mi"),
        ("g4p.kube.medium", 8, "", 0, ""),
    ],
)
def test_a_machine_has_its_makers_cards(machine, cpus, driver, count, memory):
    hardware = machine_hardware(machine)
    groups = [g for g in hardware.devices if g.driver.startswith("gpu.")]
    assert hardware.cpus == cpus
    seen = [(g.driver, g.count, g.capacity["memory"]["value"]) for g in groups]
    assert seen == ([(driver, count, memory)] if driver else [])


def test_efa_machines_have_their_adapters():
    assert [(g.driver, g.count) for g in machine_hardware("p5.48xlarge").devices] == [(NV, 8), ("dra.net", 32)]


def test_hardware_survives_its_annotation():
    hardware = Hardware(8, 1024, 2, (CARDS["l4"],))
    assert parse_hardware(hardware.text()) == hardware
    assert parse_hardware("") is None
    assert parse_hardware("[]") is None


@pytest.mark.parametrize(("text", "cpus"), [("", set()), ("0-1", {0, 1}), ("0,2-3", {0, 2, 3}), ("5", {5})])
def test_cpu_sets(text, cpus):
    assert cpu_set(text) == cpus


def test_grouped_cpus_are_a_device_a_numa_node():
    devices = devices_of("dra.cpu", Hardware(8, 1, 2), {"driverConfig.reservedCPUs": "0-1"})
    shown = [(d["name"], d["allowMultipleAllocations"], d["capacity"]) for d in devices]
    assert shown == [
        ("cpudevnuma000", True, {"dra.cpu/cpu": {"value": "2"}}),
        ("cpudevnuma001", True, {"dra.cpu/cpu": {"value": "4"}}),
    ]


def test_individual_cpus_fill_slices_of_bounded_size():
    settings = {"driverConfig.cpuDeviceMode": "individual", "driverConfig.reservedCPUs": "0-1"}
    devices = devices_of("dra.cpu", Hardware(200, 1, 2), settings)
    slices = slices_of({"metadata": {"name": "n", "uid": "u"}}, "dra.cpu", devices, 3)
    assert [(len(s["spec"]["devices"]), s["spec"]["pool"]) for s in slices] == [
        (128, {"name": "n", "generation": 3, "resourceSliceCount": 2}),
        (70, {"name": "n", "generation": 3, "resourceSliceCount": 2}),
    ]


def test_a_driver_publishes_only_its_own_hardware():
    hardware = Hardware(8, 1, 1, (DeviceGroup(NV, 2, {"type": {"string": "gpu"}}, {"memory": {"value": "1Mi"}}),))
    assert devices_of(AMD, hardware, {}) == []
    assert devices_of(NV, hardware, {}) == [
        {
            "name": f"gpu-{n}",
            "attributes": {"type": {"string": "gpu"}, "index": {"int": n}},
            "capacity": {"memory": {"value": "1Mi"}},
        }
        for n in range(2)
    ]
