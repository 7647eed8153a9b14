"""Which idle blocks an engine with groups may do without. Pure."""

from collections.abc import Sequence, Set

from baton.engine.events import CachedBlock
from baton.kv.cuts import CutRules
from baton.kv.layout import GroupKind

_FAR_BLOCKS = 1 << 20
"""Stands for the index of a block whose chain does not begin among the idle ones."""


def found_in_store(
    idle: Sequence[CachedBlock], held: Sequence[Set[bytes]], rules: CutRules
) -> set[bytes]:
    """Return the keys of blocks that may leave the engine if all that continues them does.

    A store's cut is whole, not continued from the engine's: a chain may leave if the store has the
    cut at its end. Blocks before the idle ones count as held in groups of full attention; a window
    or a chunk that reaches there does not, as little as a chunk whose beginning is not known.

    Args:
        idle: idle blocks, each before the one that it continues.
        held: by group, the keys of those that the store holds.
        rules: of the layout.
    """
    full = [group for group in range(len(rules.groups)) if rules.is_full(group)]
    previous = {block.key: block.previous for block in idle}
    continued = set(previous.values())
    index: dict[bytes, int] = {b"": -1}
    whole: set[bytes] = set()
    """Blocks that the store has in groups of full attention, with the idle ones before them."""
    for block in reversed(idle):
        if block.previous in index:
            index[block.key] = index[block.previous] + 1
        if block.previous in previous and block.previous not in whole:
            continue
        if all(block.key in held[group] for group in full):
            whole.add(block.key)
    return {
        key
        for key in whole
        if key in continued or _has_cut(key, index.get(key), previous, held, rules)
    }


def _has_cut(
    end: bytes,
    index: int | None,
    previous: dict[bytes, bytes],
    held: Sequence[Set[bytes]],
    rules: CutRules,
) -> bool:
    """Return whether the store has what the cut behind a block needs of the bounded groups."""
    blocks = (_FAR_BLOCKS if index is None else index) + 1
    for group, needed in enumerate(rules.needed(blocks * rules.block_tokens)):
        if rules.is_full(group):
            continue
        if index is None and rules.groups[group].kind is GroupKind.CHUNK:
            return False
        key = end
        for _ in needed:
            if key not in previous or key not in held[group]:
                return False
            key = previous[key]
    return True
