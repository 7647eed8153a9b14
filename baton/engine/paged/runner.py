"""The interface between the paged engine and what computes: where KV lies, how a batch runs."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from baton.engine.paged.plan import ScheduledChunk
from baton.engine.sampling.draw import NotSampled, Sampled
from baton.request.stream_events import TokenLogprob

SCRATCH_BYTES = 1024 * 1024
"""Stays in the core's cache while it is filled, checked and copied on."""
PINNED_SCRATCH_BYTES = 16 * 1024 * 1024
"""Of memory that a GPU reads directly: one call's copies are waited for together."""


def scratch_size(block_bytes: int, room: int = SCRATCH_BYTES) -> int:
    """Return the size of scratch memory: the blocks that fit into `room`, at least one."""
    return max(1, room // block_bytes) * block_bytes


class Runner(ABC):
    """Computes batches over paged KV.

    Owned by the engine's thread. Any thread may call `read_pages` and `write_pages`, for pages that
    are not written to otherwise at the time.
    """

    def allocate_scratch(self, block_bytes: int) -> memoryview:
        """Return room for `Engine.scratch`, a multiple of `block_bytes`."""
        return memoryview(bytearray(scratch_size(block_bytes)))

    @abstractmethod
    def run(self, batch: Sequence[ScheduledChunk]) -> list[tuple[Sampled, ...] | NotSampled]:
        """Compute a batch; sequences are only read, but for the state of their grammars.

        KV of positions below the sequence's `num_computed_tokens` is in place: read, not written.
        Return, for each chunk, one token per choice if it samples, else nothing; or why it cannot.
        Nothing, too, where its mask is late: the sequence keeps it as `mask`, and the last position
        is computed again.
        """

    def take_prompt_logprobs(self, sequence_id: int) -> tuple[TokenLogprob, ...]:  # noqa: ARG002
        """Return, once, what the last batch told of a sequence's prompt: of the tokens from its
        `scored_tokens` on, as far as the chunk went."""
        return ()

    @abstractmethod
    def forget(self, sequence_id: int) -> None:
        """Drop what is remembered of a sequence besides its pages, if anything."""

    @abstractmethod
    def clear(self, pages: Sequence[int], kept_tokens: int = 0) -> None:
        """Zero pages; the first keeps that many leading tokens."""

    @abstractmethod
    def read_pages(self, pages: Sequence[int], out: Sequence[memoryview]) -> None:
        """Copy the bytes of each page to its place in `out`."""

    @abstractmethod
    def write_pages(self, pages: Sequence[int], data: memoryview) -> None:
        """Copy bytes in, for one page after the other."""

    @abstractmethod
    def warm_up(self) -> None:
        """Run what is slow the first time."""

    @abstractmethod
    def close(self) -> None:
        """Release memory."""
