"""The transports and tiers of KV, best first. Contract tests run over each of them."""

from baton.internal.v1 import kvevents_pb2 as pb

SHM = "shm"
GRPC = "grpc"
TRANSPORTS = (SHM, GRPC)
"""Between a worker and its store."""

NIXL = "nixl"
PEER_TRANSPORTS = (NIXL, GRPC)
"""Between stores of different hosts."""

TIERS = (pb.TIER_DRAM, pb.TIER_DISK)
"""Of a store. A block is announced in the best one that has it."""


def tier_name(tier: int) -> str:
    """Return a tier's name for people and metrics: `engine`, `dram`, `disk`."""
    return pb.Tier.Name(pb.Tier.ValueType(tier)).removeprefix("TIER_").lower()


ALWAYS = "always"
REMOTE = "remote"
NEVER = "never"
VERIFY = (ALWAYS, REMOTE, NEVER)
"""Which copies of KV are checked against their digest: all, those that crossed a network, none.

Without it a flipped bit is a wrong answer; NEVER is for tests of what would notice one.
"""
