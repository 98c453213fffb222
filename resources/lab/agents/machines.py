"""The hardware of a machine type, whichever simulated cloud offers it."""

from __future__ import annotations

import re
from functools import lru_cache

from resources.lab.agents.hardware import Hardware, card, with_cards
from resources.lab.clouds.civo import SIZES
from resources.lab.clouds.machines import aws_type, azure_size, gcp_type
from resources.lab.clouds.vultr import PLANS

_PRESET = re.compile(r"(?:(\d+)gpu-)?(\d+)vcpu-(\d+)gb")
_SMALL = Hardware(4, 16384)
_B200_GB = 192


@lru_cache(maxsize=256)
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
    if machine in PLANS:
        vcpus, memory, gpu_type, vram = PLANS[machine]
        gpus = max(1, vram // _B200_GB) if gpu_type else 0
        return with_cards(machine, vcpus=vcpus, memory_mib=memory, gpus=gpus, gpu_type=gpu_type)
    if machine in SIZES:
        vcpus, memory, gpus, gpu_type = SIZES[machine]
        return with_cards(machine, vcpus=vcpus, memory_mib=memory, gpus=gpus, gpu_type=gpu_type)
    preset = _PRESET.search(machine)
    if preset:
        gpus = int(preset[1] or 0)
        return with_cards(machine, vcpus=int(preset[2]), memory_mib=int(preset[3]) * 1024, gpus=gpus)
    return with_cards(machine, vcpus=16, memory_mib=65536, gpus=1) if card(machine) else _SMALL
