"""How a pod in the lab says which declared workload it plays, and what the agents read of it."""

from __future__ import annotations

from dataclasses import dataclass

PLAYS = "lab.modelplane.ai/plays"
SETTINGS = "lab.modelplane.ai/settings"
WORKLOAD = "lab.modelplane.ai/workload"
HARDWARE = "lab.modelplane.ai/hardware"
NEEDS = "lab.modelplane.ai/needs"
FOUND = "lab.modelplane.ai/found"
IMAGES = "lab.modelplane.ai"


@dataclass(frozen=True, slots=True)
class Part:
    """A declared workload by its component's key and its own name, `{cr}` unfilled."""

    component: str
    workload: str

    def __str__(self) -> str:
        return f"{self.component}/{self.workload}"


def part(text: str) -> Part | None:
    """From the annotation's value; None for one that names no workload."""
    component, _, workload = text.partition("/")
    return Part(component, workload) if component and workload else None
