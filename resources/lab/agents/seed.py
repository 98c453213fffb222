"""The lab's own file of clusters that nobody provisions: their version, their switches, their nodes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from modelplane_dagster.errors import ConfigError
from modelplane_dagster.kube.objects import Taint
from resources.lab.agents.hardware import CARDS, DesiredNode, DeviceGroup, Hardware

SEED = Path(__file__).parents[1] / "seed.yaml"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class _Device(_Part):
    """A card by name, or any driver's device in full."""

    card: str = ""
    driver: str = ""
    count: int = 1
    attributes: dict[str, Any] = {}
    capacity: dict[str, Any] = {}


class _Taint(_Part):
    key: str
    value: str = ""
    effect: str = "NoSchedule"


class _Nodes(_Part):
    """`count` nodes named `name-0`, `name-1`, ..; one node named `name` where no count is given."""

    name: str
    count: int | None = None
    cpus: int = 8
    memory_gib: int = Field(default=32, alias="memoryGiB")
    numa_nodes: int = Field(default=1, alias="numaNodes")
    labels: dict[str, str] = {}
    taints: list[_Taint] = []
    devices: list[_Device] = []


class _Cluster(_Part):
    version: str = Field(pattern=r"^v?1\.\d+")
    consumable_capacity: bool | None = Field(default=None, alias="consumableCapacity")
    nodes: list[_Nodes] = []


class _Seed(_Part):
    clusters: dict[str, _Cluster]


@dataclass(frozen=True, slots=True)
class SeedCluster:
    name: str
    version: str
    consumable_capacity: bool | None = None
    nodes: tuple[DesiredNode, ...] = field(default=())


def seed_path() -> Path:
    """The lab's own file, or the one that MODELPLANE_LAB_SEED names."""
    return Path(os.environ.get("MODELPLANE_LAB_SEED") or SEED)


def read_seed(path: Path) -> Mapping[str, SeedCluster]:
    """The clusters by name; empty where there is no such file. Raises ConfigError for one that can't be read."""
    if not path.exists():
        return {}
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
        seed = _Seed.model_validate(raw or {"clusters": {}})
        return {
            name: SeedCluster(
                name, c.version, c.consumable_capacity, tuple(n for part in c.nodes for n in _nodes(part))
            )
            for name, c in seed.clusters.items()
        }
    except (OSError, yaml.YAMLError, UnicodeDecodeError, ValidationError, KeyError) as error:
        raise ConfigError(f"The lab's seed {path.name} can't be read: {error}") from error


def _nodes(part: _Nodes) -> list[DesiredNode]:
    names = [part.name] if part.count is None else [f"{part.name}-{n}" for n in range(part.count)]
    hardware = Hardware(part.cpus, part.memory_gib * 1024, part.numa_nodes, tuple(map(_group, part.devices)))
    taints = tuple(Taint(t.key, t.value, t.effect) for t in part.taints)
    return [DesiredNode(n, hardware, {"kubernetes.io/hostname": n, **part.labels}, taints) for n in names]


def _group(device: _Device) -> DeviceGroup:
    """Raises KeyError for a card that the lab doesn't know."""
    if not device.card:
        return DeviceGroup(device.driver, device.count, device.attributes, device.capacity)
    known = CARDS[device.card]
    attributes = {**known.attributes, **device.attributes}
    return DeviceGroup(known.driver, device.count, attributes, {**known.capacity, **device.capacity})
