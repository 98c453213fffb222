"""Placement of deployments on clusters and pools, and the objects that serve them there."""

from modelplane_dagster.placement.facts import (
    ClusterOffer,
    EnginePlacement,
    HeldReplica,
    MemberPlacement,
    Placement,
    ReplicaPlacement,
)
from modelplane_dagster.placement.place import matching_pools, place_all

__all__ = [
    "ClusterOffer",
    "EnginePlacement",
    "HeldReplica",
    "MemberPlacement",
    "Placement",
    "ReplicaPlacement",
    "matching_pools",
    "place_all",
]
