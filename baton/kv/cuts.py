"""Which blocks a prefix needs to be continued, by group of layers, and which prefixes a set of
blocks allows. Pure.

A cut of n tokens is a prefix from which a sequence can be continued: token n and all that follow
are computed, and nothing below n. Block i holds tokens i * block_tokens to the next multiple. Of a
cut of n tokens, which reaches into b = ceil(n / block_tokens) blocks, are needed

    full     all b blocks
    window   from the block of token n - (span_tokens - 1) on
    chunk    from the block of the first token of n's chunk on; none if n begins a chunk
    state    the state at n, which is the object of block b - 1; n is a multiple of block_tokens

In every group these are consecutive blocks up to the last one, so that a cut is allowed if the last
block missing below it precedes those that it needs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from baton.kv.layout import GroupKind, KvGroup, Layout

Has = Callable[[int, int], bool]
"""Tests whether a group's object of a block is there: group, block."""


@dataclass(frozen=True, slots=True)
class CutRules:
    """What cuts need in one layout. Lengths are in tokens, blocks are indexes in the chain."""

    groups: tuple[KvGroup, ...]
    block_tokens: int

    @property
    def ends_on_blocks(self) -> bool:
        """Whether cuts end on blocks only: a state exists nowhere else."""
        return any(group.kind is GroupKind.STATE for group in self.groups)

    def is_full(self, group: int) -> bool:
        """Return whether a group is of full attention: of every cut it needs all blocks."""
        return self.groups[group].kind is GroupKind.FULL

    def blocks(self, tokens: int) -> int:
        """Return the number of blocks into which a number of tokens reaches."""
        return -(-tokens // self.block_tokens)

    def floor(self, tokens: int) -> int:
        """Return the longest possible cut of at most `tokens` tokens."""
        return tokens - tokens % self.block_tokens if self.ends_on_blocks else tokens

    def first_needed(self, group: int, tokens: int) -> int:
        """Return the first block that a cut needs of one group; `blocks(tokens)` if it needs none.

        For a state, `tokens` is rounded down to a block's end.
        """
        kind, span = self.groups[group].kind, self.groups[group].span_tokens
        if kind is GroupKind.FULL:
            return 0
        if kind is GroupKind.STATE:
            return max(0, tokens // self.block_tokens - 1)
        read = min(tokens, span - 1) if kind is GroupKind.WINDOW else tokens % span
        return (tokens - read) // self.block_tokens if read else self.blocks(tokens)

    def needed(self, tokens: int) -> tuple[range, ...]:
        """Return the blocks that a cut needs, by group.

        Raises:
            ValueError: a state is needed, and the cut does not end on a block.
        """
        if tokens != self.floor(tokens):
            raise ValueError(f"a state exists at ends of blocks only, not after {tokens} tokens")
        end = self.blocks(tokens)
        return tuple(range(self.first_needed(g, tokens), end) for g in range(len(self.groups)))

    def longest(self, has: Has, limit: int) -> int:
        """Return the longest cut that a set of objects allows, 0 if none.

        Args:
            has: which objects there are.
            limit: most tokens of the cut. One that does not end on a block is considered if it is
                `limit` itself, with the objects of a partial last block.
        """
        cut = self.floor(limit)
        bounded = []
        for group in range(len(self.groups)):
            if self.is_full(group):
                cut = min(cut, self.leading(group, has, cut) * self.block_tokens)
            else:
                bounded.append(group)
        lower: int | None = cut
        while lower is not None:
            cut = lower
            lower = self._below_missing(bounded, has, cut)
        return cut

    def leading(self, group: int, has: Has, limit: int) -> int:
        """Return how many blocks of a group are there without a gap, within `limit` tokens."""
        count = self.blocks(limit)
        return next((block for block in range(count) if not has(group, block)), count)

    def allowed(self, has: Has, limit: int) -> list[int]:
        """Return every cut that a set of objects allows, in ascending order, 0 included."""
        ends = list(range(0, limit + 1, self.block_tokens))
        if ends[-1] < self.floor(limit):
            ends.append(limit)
        last_missing = [-1] * len(self.groups)
        cuts = []
        for cut in ends:
            last = self.blocks(cut) - 1
            for group in range(len(self.groups)):
                if last >= 0 and not has(group, last):
                    last_missing[group] = last
            if all(
                missing < self.first_needed(group, cut)
                for group, missing in enumerate(last_missing)
            ):
                cuts.append(cut)
        return cuts

    def unneeded(self, has: Has, limit: int) -> list[tuple[int, int]]:
        """Return the objects that no allowed cut needs: group and block, in ascending order."""
        count = self.blocks(limit)
        cuts = self.allowed(has, limit)
        unneeded = []
        for group in range(len(self.groups)):
            ends = {self.first_needed(group, cut): self.blocks(cut) for cut in cuts}
            needed_until = 0
            for block in range(count):
                needed_until = max(needed_until, ends.get(block, 0))
                if block >= needed_until and has(group, block):
                    unneeded.append((group, block))
        return unneeded

    def _below_missing(self, groups: Sequence[int], has: Has, cut: int) -> int | None:
        """Return the longest cut that does not need some object that `cut` lacks; None: it lacks
        none.

        A missing block is needed by every cut between it and `cut`: spans only move forward.
        """
        for group in groups:
            first = self.first_needed(group, cut)
            for block in range(self.blocks(cut) - 1, first - 1, -1):
                if not has(group, block):
                    return block * self.block_tokens
        return None


def cut_rules(layout: Layout) -> CutRules:
    """Return the rules of a layout, which without groups has one of full attention."""
    groups = layout.groups or (KvGroup(GroupKind.FULL, 1),)
    return CutRules(groups, layout.block_tokens)
