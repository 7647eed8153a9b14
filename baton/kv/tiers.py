"""The tiers of a store, best first. Contract tests run over each of them."""

from baton.internal.v1 import kvevents_pb2 as pb

TIERS = (pb.TIER_DRAM, pb.TIER_DISK)
"""Tiers in order; a block is announced in the best one that holds it."""


def tier_name(tier: int) -> str:
    """Return a tier's name for people and metrics: `engine`, `dram`, `disk`."""
    return pb.Tier.Name(pb.Tier.ValueType(tier)).removeprefix("TIER_").lower()
