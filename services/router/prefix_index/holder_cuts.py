"""What each holder has of a chain whose KV has groups, for explanations."""

from typing import NamedTuple

from baton.kv.layout import KvGroup
from services.router.prefix_index.cut_match import CutMatch, GroupRuns
from services.router.prefix_index.holders import TIERS


class GroupLack(NamedTuple):
    """What a holder lacks in one group to continue from `HolderCut.prefix_tokens`."""

    group: KvGroup
    needed_blocks: int
    missing_blocks: int


class HolderCut(NamedTuple):
    """The longest cut of one tier of one holder; of a disk, together with its store's memory."""

    holder: str
    tier: int
    cut_tokens: int
    prefix_tokens: int
    """End of the last block that it has in any group, or of the cut."""
    groups: tuple[GroupLack, ...]


def holder_cuts(match: CutMatch) -> list[HolderCut]:
    """Return the longest cuts, the longest first; empty if holders came or went since the match."""
    if match.version != match.holders.version:
        return []
    present = 0
    for runs in match.groups:
        for mask, _ in runs:
            present |= mask
    found = [
        _holder_cut(match, holder, tier, bit)
        for tier in TIERS
        for holder, bit in match.holders.bits[tier].items()
        if bit & present
    ]
    return sorted(found, key=lambda one: (-one.cut_tokens, one.holder, one.tier))


def _holder_cut(match: CutMatch, holder: str, tier: int, bit: int) -> HolderCut:
    rules, limit = match.rules, match.limit
    held = [_blocks_with(runs, bit) for runs in match.groups]

    def has(group: int, block: int) -> bool:
        return block in held[group]

    cut = rules.longest(has, limit)
    end = 1 + max(block for blocks in held for block in blocks)
    prefix = max(cut, rules.floor(min(limit, end * rules.block_tokens)))
    groups = tuple(
        GroupLack(group, len(needed), sum(block not in blocks for block in needed))
        for group, needed, blocks in zip(rules.groups, rules.needed(prefix), held, strict=True)
    )
    return HolderCut(holder, tier, cut, prefix, groups)


def _blocks_with(runs: GroupRuns, bit: int) -> set[int]:
    found: set[int] = set()
    at = 0
    for mask, blocks in runs:
        if mask & bit:
            found.update(range(at, at + blocks))
        at += blocks
    return found
