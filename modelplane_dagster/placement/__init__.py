"""Placement of deployments on clusters and pools, and the objects that serve them there."""

from modelplane_dagster.placement.facts import (
    ClusterOffer,
    EnginePlacement,
    MemberPlacement,
    Placement,
    ReplicaPlacement,
)
from modelplane_dagster.placement.place import place_all

__all__ = ["ClusterOffer", "EnginePlacement", "MemberPlacement", "Placement", "ReplicaPlacement", "place_all"]
