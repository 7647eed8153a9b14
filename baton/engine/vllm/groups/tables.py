"""Block tables of vLLM's requests in several groups: cuts found, and pages kept for them.

Next to `core.py`, and for it, this uses private names of vLLM: `req_to_blocks` of
`scheduler.kv_cache_manager.coordinator.single_type_managers`, and of its `block_pool`
`get_cached_block`, `touch` and `free_blocks`. Two methods are replaced where there are groups:
`remove_skipped_blocks` of the coordinator and `allocate_slots` of the manager.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cache
from typing import Any

from baton.engine.paged.sequence import NO_PAGE
from baton.kv.cuts import CutRules

Place = tuple[int, int]
"""A group, in Baton's order, and a block."""


@dataclass(frozen=True, slots=True)
class FoundCut:
    """A cut from which a request can continue, once what is missing is written."""

    tokens: int
    cached_tokens: int
    """Length of the prefix cache's own cut."""
    blocks: tuple[list[Any], ...]
    """Leading blocks that are in place, per group in vLLM's order; null blocks where none is
    needed.
    """
    missing: tuple[tuple[int, ...], ...]
    """Blocks to write, per group; empty if there are none."""
    branch_tokens: int
    """End of the prefix that full attention has and no cut reaches: others branch off there. 0:
    there is none.
    """


class BlockTables:
    """The tables of all requests. Only the thread that steps vLLM changes them.

    Args:
        manager: `scheduler.kv_cache_manager`.
        order: vLLM's groups, in Baton's order.
        rules: of cuts.
    """

    def __init__(self, manager: Any, order: Sequence[int], rules: CutRules) -> None:
        coordinator = manager.coordinator
        self._managers = [coordinator.single_type_managers[group] for group in order]
        self._pool = manager.block_pool
        self._order = tuple(order)
        self._rules = rules
        self._wanted: dict[str, frozenset[Place]] = {}
        self._kept: dict[str, dict[Place, Any]] = {}
        """Blocks on which there is one reference more, by request."""
        self._gives_all = False
        """Whether what a cut at the last full block needs may leave."""
        self._remove_skipped = coordinator.remove_skipped_blocks
        self._allocate = manager.allocate_slots
        if len(order) > 1:
            coordinator.remove_skipped_blocks = self._leave_behind
            manager.allocate_slots = self._allocate_slots

    def find(self, keys: Sequence[bytes], limit: int, asked: int) -> FoundCut:
        """Return the longest cut of the prefix cache, or the one that is asked for if it is longer.

        Args:
            keys: of the request's full blocks.
            limit: most tokens of the prefix cache's cut.
            asked: tokens of a cut whose missing blocks are going to be written.
        """
        rules, size, pool = self._rules, self._rules.block_tokens, self._pool

        @cache
        def block_of(group: int, block: int) -> Any:
            if block >= len(keys):
                return None
            found = pool.get_cached_block(keys[block], [self._order[group]])
            return found[0] if found else None

        def has(group: int, block: int) -> bool:
            return block_of(group, block) is not None

        own = rules.longest(has, limit - limit % size)
        shared = rules.leading(0, has, limit - limit % size) * size
        cut = max(own, asked)
        blocks: list[list[Any]] = [[] for _ in self._order]
        missing = []
        for group, needed in enumerate(rules.needed(cut)):
            first = min(needed.start, cut // size)
            here = [pool.null_block] * first
            for block in range(first, cut // size):
                if (found := block_of(group, block)) is None:
                    break  # vLLM takes pages for all that follow
                here.append(found)
            blocks[self._order[group]] = here
            missing.append(tuple(range(max(len(here), needed.start), needed.stop)))
        branch = shared if shared > cut else 0
        lacks = tuple(missing) if any(missing) else ()
        return FoundCut(cut, own, tuple(blocks), lacks, branch)

    def tables(self, name: str) -> list[list[int]]:
        """Return a request's pages per group, NO_PAGE where it has none."""
        kept = self._kept.get(name, {})
        found = []
        for group, manager in enumerate(self._managers):
            table = [
                kept.get((group, index), block)
                for index, block in enumerate(manager.req_to_blocks.get(name, ()))
            ]
            found.append([NO_PAGE if block.is_null else block.block_id for block in table])
        return found

    def holds(self, name: str, group: int, index: int, page: int) -> bool:
        """Return whether a request's block is in that page; any thread may call it."""
        kept = self._kept.get(name, {}).get((group, index))
        if kept is not None and kept.block_id == page:
            return True
        blocks = self._managers[group].req_to_blocks.get(name, ())
        if index >= len(blocks):
            return False
        block = blocks[index]
        return block.block_id == page and not block.is_null

    def keep(self, name: str, places: Set[Place]) -> None:
        """Keep these blocks of a request, and no others, also once it needs them no longer."""
        kept = self._kept.get(name, {})
        self._release(kept, kept.keys() - places)
        self._wanted[name] = frozenset(places)
        self._hold(name)

    def let_go(self, name: str) -> None:
        """Keep nothing of a request that has lost its pages; later ones are kept as before."""
        kept = self._kept.pop(name, {})
        self._release(kept, list(kept))

    def forget(self, name: str) -> None:
        """Keep nothing of a request that is closed."""
        self._wanted.pop(name, None)
        self.let_go(name)

    def _hold(self, name: str) -> None:
        """Take a reference on each wanted block for which there is a page."""
        wanted = self._wanted.get(name)
        if not wanted:
            return
        kept = self._kept.setdefault(name, {})
        for place in wanted - kept.keys():
            group, index = place
            blocks = self._managers[group].req_to_blocks.get(name, ())
            if index < len(blocks) and not blocks[index].is_null:
                self._pool.touch([blocks[index]])
                kept[place] = blocks[index]

    def _release(self, kept: dict[Place, Any], places: Iterable[Place]) -> None:
        # First out of the table: copying threads look whether a block is still there.
        self._pool.free_blocks([kept.pop(place) for place in places])

    def _leave_behind(self, name: str, tokens: int, num_prompt_tokens: int | None = None) -> None:
        """Replace `remove_skipped_blocks`: the cut at the last full block stays."""
        if not self._gives_all:
            tokens -= tokens % self._rules.block_tokens
            self._hold(name)
        self._remove_skipped(name, tokens, num_prompt_tokens)

    def _allocate_slots(self, request: Any, *arguments: Any, **named: Any) -> Any:
        """Replace `allocate_slots`: no running request is preempted for what is kept."""
        found = self._allocate(request, *arguments, **named)
        if found is None and request.status.name == "RUNNING":
            for name in list(self._kept):
                self.let_go(name)
            self._gives_all = True
            try:
                found = self._allocate(request, *arguments, **named)
            finally:
                self._gives_all = False
        return found
