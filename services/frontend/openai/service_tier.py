"""`service_tier`: requests that can wait run in the class batch, at its price."""

from typing import Literal

from baton.v1 import common_pb2

ServiceTier = Literal["auto", "default", "flex", "scale", "priority", "fast"]
FLEX, DEFAULT = "flex", "default"


def class_of(tier: ServiceTier | None) -> int:
    """Return the `PriorityClass` of a request with this tier."""
    if tier == FLEX:
        return common_pb2.PRIORITY_CLASS_BATCH
    return common_pb2.PRIORITY_CLASS_UNSPECIFIED


def answered_tier(tier: ServiceTier | None) -> str | None:
    """Return what a response says of its tier; None: nothing, as its request says nothing."""
    if tier is None:
        return None
    return FLEX if tier == FLEX else DEFAULT
