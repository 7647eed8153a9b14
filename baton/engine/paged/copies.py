"""Copies of blocks on threads other than the engine's."""

import threading
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from baton.engine.base import BlockGoneError
from baton.engine.paged.sequence import NO_PAGE, LiveSequence, SequenceState


class PageMemory(Protocol):
    """Memory of pages. Any thread may call it, for pages that are not being written otherwise."""

    def read_pages(self, pages: Sequence[int], out: Sequence[memoryview]) -> None: ...
    def write_pages(self, pages: Sequence[int], data: memoryview) -> None: ...


Holds = Callable[[int, int, int, int], bool]
"""Tests whether a sequence's block is in that page: id, group, index, page."""


def _always(_sequence_id: int, _group: int, _index: int, _page: int) -> bool:
    return True


class BlockCopier:
    """Copies blocks out of and into sequences' pages, on any thread, while the engine runs.

    A copying thread registers before it looks up the sequence; the engine's thread hides the
    sequence's pages before it calls `wait`, which therefore waits for any copy that still saw the
    pages. A copy is of a few blocks, so waits are short.

    Where a window leaves pages behind, the engine's thread does not wait: it removes them from the
    sequence's table before another may take them, and a copy that saw them is not used.

    Args:
        sequences: open sequences by id; changed by the engine's thread.
        memory: memory of the pages, by group.
        block_bytes: bytes of a block, by group.
        holds: called by the copying thread, if the engine's thread is not alone in taking pages of
            open sequences. A page is taken before it is overwritten, so a copy from one that is
            still held is correct.
    """

    def __init__(
        self,
        sequences: Mapping[int, LiveSequence],
        memory: Sequence[PageMemory],
        block_bytes: Sequence[int],
        holds: Holds = _always,
    ) -> None:
        self._sequences = sequences
        self._memory = memory
        self._block_bytes = block_bytes
        self._holds = holds
        self._changed = threading.Condition()
        self._counts: dict[int, int] = {}
        """Number of copies in progress, by sequence."""

    def read(
        self, sequence_id: int, indexes: Sequence[int], out: Sequence[memoryview], group: int = 0
    ) -> None:
        """Copy blocks out, as of `Engine.read_blocks`."""
        with self._copying(sequence_id):
            sequence = self._sequences[sequence_id]
            table = _table(sequence, group)
            ready = sequence.reported + sequence.partial_reported
            there = min(len(table), sequence.registered + sequence.partial_reported)
            for index in indexes:
                if not 0 <= index < ready:
                    raise ValueError(f"block {index} of sequence {sequence_id} is not ready")
                if index >= there or table[index] == NO_PAGE:
                    raise BlockGoneError(f"block {index} of sequence {sequence_id} was given up")
            if len(out) != len(indexes):
                raise ValueError(f"{len(out)} views are no place for {len(indexes)} blocks")
            for view in out:
                self._check_size(view, 1, group)
            pages = [table[index] for index in indexes]
            self._memory[group].read_pages(pages, out)
            self._check_held(sequence_id, group, indexes, pages)
            if any(table[index] != page for index, page in zip(indexes, pages, strict=True)):
                raise BlockGoneError(f"sequence {sequence_id} gave up a block as it was copied")

    def write(
        self, sequence_id: int, indexes: Sequence[int], data: memoryview, group: int = 0
    ) -> None:
        """Copy blocks in, as of `Engine.write_blocks`."""
        with self.writing(sequence_id, indexes, group) as pages:
            self._check_size(data, len(indexes), group)
            self._memory[group].write_pages(pages, data)

    @contextmanager
    def writing(
        self, sequence_id: int, indexes: Sequence[int], group: int = 0
    ) -> Iterator[Sequence[int]]:
        """Yield the pages of blocks that may be written until the block exits.

        Raises:
            KeyError: and the other exceptions of `Engine.write_blocks`.
        """
        with self._copying(sequence_id):
            sequence = self._sequences[sequence_id]
            table = _table(sequence, group)
            if sequence.state is not SequenceState.ADMITTED:
                raise ValueError(f"sequence {sequence_id} is {sequence.state.name.lower()}")
            allowed: Container[int] = range(sequence.cached_blocks, len(table))
            if sequence.cut_ready_tokens is not None:
                allowed = sequence.missing[group] if sequence.missing else ()
            for index in indexes:
                if index not in allowed:
                    raise ValueError(f"block {index} of group {group} is not among {allowed}")
            pages = [table[index] for index in indexes]
            self._check_held(sequence_id, group, indexes, pages)
            yield pages

    def wait(self, sequence_id: int) -> None:
        """Return when no copy of the sequence is in progress."""
        with self._changed:
            self._changed.wait_for(lambda: sequence_id not in self._counts)

    @contextmanager
    def _copying(self, sequence_id: int) -> Iterator[None]:
        with self._changed:
            self._counts[sequence_id] = self._counts.get(sequence_id, 0) + 1
        try:
            yield
        finally:
            with self._changed:
                self._counts[sequence_id] -= 1
                if self._counts[sequence_id] == 0:
                    del self._counts[sequence_id]
                    self._changed.notify_all()

    def _check_held(
        self, sequence_id: int, group: int, indexes: Sequence[int], pages: Sequence[int]
    ) -> None:
        for index, page in zip(indexes, pages, strict=True):
            if not self._holds(sequence_id, group, index, page):
                raise BlockGoneError(f"sequence {sequence_id} does not hold block {index}")

    def _check_size(self, data: memoryview, blocks: int, group: int) -> None:
        size = self._block_bytes[group]
        if data.nbytes != blocks * size:
            raise ValueError(f"{blocks} blocks of {size} bytes do not have {data.nbytes}")


def _table(sequence: LiveSequence, group: int) -> list[int]:
    """Return a group's pages; empty if the sequence has none now.

    Raises:
        ValueError: there is no such group.
    """
    if not 0 <= group <= max(len(sequence.page_weights) - 1, 0):
        raise ValueError(f"there is no group {group}")
    tables = sequence.tables
    return tables[group] if group < len(tables) else []
