"""A real Kubernetes control plane on loopback: etcd, API server, controller manager, scheduler, and kwok for the kubelets."""

from __future__ import annotations

from resources.lab.plane.assets import AssetsMissingError, find_assets
from resources.lab.plane.plane import Plane, PlaneError

__all__ = ["AssetsMissingError", "Plane", "PlaneError", "find_assets"]
