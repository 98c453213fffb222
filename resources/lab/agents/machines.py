"""The hardware of a machine type, whichever simulated cloud offers it."""

from __future__ import annotations

import re

from resources.lab.agents.hardware import Hardware, card, with_cards
from resources.lab.clouds.machines import aws_type, azure_size, gcp_type

_PRESET = re.compile(r"(?:(\d+)gpu-)?(\d+)vcpu-(\d+)gb")
_VULTR = re.compile(r"^v[a-z0-9]+-(?:[a-z0-9-]*?)(\d+)c-(\d+)gb?")
_CIVO_GPU = re.compile(r"\.x(\d+)$")
_CIVO_SIZES = {"xsmall": (1, 1), "small": (4, 16), "medium": (8, 32), "large": (16, 64), "xlarge": (32, 128)}
_SMALL = Hardware(4, 16384)


def machine_hardware(machine: str) -> Hardware:
    """By the clouds' own tables where one knows the type, else by what its name says; a small machine when it says
    nothing."""
    known = aws_type(machine) or gcp_type(machine) or azure_size(machine)
    if known is not None:
        return with_cards(
            machine,
            vcpus=known.vcpus,
            memory_mib=known.memory_mib,
            gpus=known.gpus,
            vendor=known.gpu_vendor,
            gpu_type=known.gpu_type,
        )
    return _by_name(machine)


def _by_name(machine: str) -> Hardware:
    preset = _PRESET.search(machine)
    if preset:
        gpus = int(preset[1] or 0)
        return with_cards(machine, vcpus=int(preset[2]), memory_mib=int(preset[3]) * 1024, gpus=gpus)
    vultr = _VULTR.search(machine)
    if vultr:
        gpus = 1 if machine.startswith("vcg-") else 0
        return with_cards(machine, vcpus=int(vultr[1]), memory_mib=int(vultr[2]) * 1024, gpus=gpus)
    if ".kube." in machine:
        count = _CIVO_GPU.search(machine)
        if card(machine):
            gpus = int(count[1]) if count else 1
            return with_cards(machine, vcpus=16 * gpus, memory_mib=131072 * gpus, gpus=gpus)
        vcpus, gib = _CIVO_SIZES.get(machine.rpartition(".")[2], (4, 16))
        return Hardware(vcpus, gib * 1024)
    found = card(machine)
    return with_cards(machine, vcpus=16, memory_mib=65536, gpus=1) if found else _SMALL
