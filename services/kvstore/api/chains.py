"""Where the blocks of a reservation are in their chains, as its writer says."""

from collections.abc import Sequence

from baton.errors import invalid_field
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.cuts import CutRules
from baton.kv.keys import KEY_BYTES, unpack
from baton.kv.objects import ObjectId
from baton.kv.wire.groups import groups_of
from services.kvstore.eviction.cut_tracker import ChainLink

MAX_GROUPS = 64
MAX_BLOCK = 16 * 1024 * 1024
"""Largest index of a block in its chain."""


def links_of(chain: pb.BlockChain, ids: Sequence[ObjectId]) -> list[ChainLink]:
    """Return the links of a reservation's objects, in their order.

    Raises:
        BatonError: INVALID_FIELD, the chain is malformed.
    """
    if not 0 < len(chain.groups) <= MAX_GROUPS:
        raise invalid_field("chain", f"must have 1 to {MAX_GROUPS} groups")
    if any(object_id.group >= len(chain.groups) for object_id in ids):
        raise invalid_field(
            "part", f"group must be below the number of groups, {len(chain.groups)}"
        )
    if chain.block_tokens <= 0:
        raise invalid_field("chain", "block_tokens must be above 0")
    try:
        groups = groups_of(chain.groups)
    except ValueError as error:
        raise invalid_field("chain", str(error)) from error
    if len(chain.blocks) != len(ids) or len(chain.previous) != KEY_BYTES * len(ids):
        raise invalid_field("chain", "must have a block and a previous key for each key")
    if any(not 0 <= block <= MAX_BLOCK for block in chain.blocks):
        raise invalid_field("chain", f"blocks must be 0 to {MAX_BLOCK}")
    rules = CutRules(groups, chain.block_tokens)
    previous = unpack(chain.previous)
    return [ChainLink(rules, block, key) for block, key in zip(chain.blocks, previous, strict=True)]
