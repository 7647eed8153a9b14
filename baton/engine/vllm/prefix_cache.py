"""Data that vLLM's prefix cache lacks: the block that each continues, and since when it is idle."""

from collections.abc import Callable, Iterable, Sequence

from baton.engine.events import CachedBlock
from baton.engine.vllm.core import VllmCore


class PrefixCache:
    """Blocks of vLLM's prefix cache, by Baton's keys. Bounded by vLLM's pages.

    Args:
        core: the core with the cache.
        clock: returns monotonic seconds.
    """

    def __init__(self, core: VllmCore, clock: Callable[[], float]) -> None:
        self._core = core
        self._clock = clock
        self._previous: dict[bytes, bytes] = {}
        """Key of the previous block, by block, for those that were reported ready."""
        self._idle_since: dict[int, float] = {}
        """Time since which a page is idle, by page, for those that a sequence released."""
        self._evicted = False

    def registered(self, keys: Sequence[bytes], first: int, end: int) -> None:
        """Record that blocks `first` to `end` of a chain are in the cache."""
        for index in range(first, end):
            self._previous[keys[index]] = keys[index - 1] if index else b""

    def released(self, pages: Iterable[int]) -> None:
        """Record that a sequence released pages: they are idle from now on, if not held
        otherwise.
        """
        self._idle_since.update(dict.fromkeys(pages, self._clock()))

    @property
    def has_evicted(self) -> bool:
        """Whether an eviction has not been reported yet."""
        return self._evicted

    def take_evicted(self) -> dict[int, list[bytes]]:
        """Return the keys of the blocks that were evicted since the last call, by group."""
        self._evicted = False
        evicted: dict[int, list[bytes]] = {}
        for group, key in self._core.take_removed():
            if group or self._previous.pop(key, None) is not None:
                evicted.setdefault(group, []).append(key)
        return evicted

    def idle_blocks(self, seconds: float) -> list[CachedBlock]:
        """Return blocks that no sequence has held for that long, as of `Engine.idle_blocks`."""
        until = self._clock() - seconds
        return [
            CachedBlock(key, self._previous[key])
            for page, key, first in self._core.idle_pages()
            if first and key in self._previous and self._idle_since.get(page, 0.0) <= until
        ]

    def evict(self, keys: Iterable[bytes] | None, idle_seconds: float) -> int:
        """Evict idle blocks, as of `Engine.evict_blocks`; return how many."""
        until = self._clock() - idle_seconds
        wanted = None if keys is None else set(keys)
        idle = [
            (page, key, first)
            for page, key, first in self._core.idle_pages()
            if (wanted is None or key in wanted) and self._idle_since.get(page, 0.0) <= until
        ]
        self._core.evict(page for page, _, _ in idle)
        self._evicted = self._evicted or bool(idle)
        return len({key for _, key, first in idle if first})
