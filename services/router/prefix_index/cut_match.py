"""The longest cut of each holder of a chain whose KV has groups."""

from collections.abc import Sequence
from math import lcm
from typing import TypeAlias

from baton.kv.cuts import CutRules
from baton.kv.layout import GroupKind
from services.router.prefix_index.holders import DISK, HolderTable
from services.router.prefix_index.match import Match

GroupRuns: TypeAlias = Sequence[tuple[int, int]]
"""Runs of a group's blocks from the first on: the live bits of their holders, and how many. Blocks
behind the last run have no holder."""


class CutMatch(Match):
    """A match in which each holder has the leading blocks up to its longest cut.

    A disk's bit stands for all of its store's objects, in memory and on disk: reading from both is
    one cut.

    Args:
        holders: of the index.
        rules: of the layout.
        limit: most tokens of a cut.
        groups: the chain's objects, by group.
    """

    __slots__ = ("groups", "limit", "rules", "version")

    def __init__(
        self, holders: HolderTable, rules: CutRules, limit: int, groups: Sequence[GroupRuns]
    ) -> None:
        self.rules = rules
        self.limit = limit
        self.version = holders.version
        """Of the holders, when the match was made: later, bits may have other owners."""
        self.groups = groups
        if holders.bits[DISK]:
            whole = holders.with_disk
            self.groups = [[(whole(mask), blocks) for mask, blocks in runs] for runs in groups]
        runs: list[tuple[int, int]] = []
        have, reached = 0, 0
        for mask, cut in reversed(longest_cuts(rules, self.groups, limit)):
            blocks = rules.blocks(cut)
            runs.append((mask, blocks - reached))
            reached = blocks
        # A holder of a longer cut has the blocks of the shorter ones.
        for at in range(len(runs) - 1, -1, -1):
            have |= runs[at][0]
            runs[at] = (have, runs[at][1])
        super().__init__(holders, [run for run in runs if run[1]])


def longest_cuts(rules: CutRules, groups: Sequence[GroupRuns], limit: int) -> list[tuple[int, int]]:
    """Return the longest cut of each holder that has one above 0: `CutRules.longest` for all.

    Holders are bits, so that a step of the search serves all of them. A cut can be the longest only
    if the block behind it is missing, so that some run ends there, or if a chunk begins there.

    Args:
        rules: of the layout.
        groups: the objects, by group.
        limit: most tokens of a cut.

    Returns:
        Bits of holders and their cut in tokens, the longest first; no bit is in two of them.
    """
    searched = 0
    for runs in groups:
        for mask, _ in runs:
            searched |= mask
    found = []
    for cut in _candidates(rules, groups, limit):
        if not searched:
            break
        end = rules.blocks(cut)
        have = searched
        # Full attention comes first, and excludes the least.
        for group in range(len(groups) - 1, -1, -1):
            first = rules.first_needed(group, cut)
            if first < end:
                have &= _holders_of(groups[group], first, end)
                if not have:
                    break
        if have:
            found.append((have, cut))
            searched &= ~have
    return found


def _candidates(rules: CutRules, groups: Sequence[GroupRuns], limit: int) -> list[int]:
    """Return the cuts to look at, the longest first."""
    size, most = rules.block_tokens, rules.floor(limit)
    ends: set[int] = set()
    pivot: GroupRuns | None = None
    """A group that each cut needs the last block of: where nobody has that, there is none."""
    for group, runs in zip(rules.groups, groups, strict=True):
        block = 0
        for _, blocks in runs:
            block += blocks
            ends.add(block)
        if group.kind is GroupKind.CHUNK:
            step = lcm(group.span_tokens, size)
            ends.update(range(step // size, most // size + 1, step // size))
        elif group.span_tokens != 1:
            pivot = runs
    if pivot is not None:
        ends, all_ends, block = set(), ends, 0
        for mask, blocks in pivot:
            begin, block = block, block + blocks
            if mask and blocks == 1:
                ends.add(block)
            elif mask:
                ends.update([end for end in all_ends if begin < end <= block])
    cuts = {end * size for end in ends if end * size < most}
    return [most, *sorted(cuts, reverse=True)] if most else []


def _holders_of(runs: GroupRuns, first: int, end: int) -> int:
    """Return the bits of those that have all blocks from `first` to `end`."""
    have, at = -1, 0
    for mask, blocks in runs:
        at += blocks
        if at > first:
            have &= mask
            if at >= end:
                return have
    return 0
