"""The seven sources. Adding one is adding its module and its row."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from modelplane_dagster.sources import aks, civo, eks, existing, gke, nebius, vultr
from modelplane_dagster.sources.record import SourceModule, SourceRecord

__all__ = ["SOURCES", "SourceModule", "SourceRecord"]

SOURCES: Mapping[str, SourceModule] = MappingProxyType(
    {m.SOURCE.record.name: m.SOURCE for m in (eks, gke, aks, nebius, vultr, civo, existing)}
)
