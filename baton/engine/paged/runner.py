"""Interface between the paged engine and its computation: where KV is stored, how a batch runs."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from baton.engine.lora.adapter import AdapterFiles
from baton.engine.paged.planning.plan import ScheduledChunk
from baton.engine.sampling.draw import NotSampled, Sampled
from baton.host.aligned_memory import aligned_memory
from baton.request.stream_events import TokenLogprob

SCRATCH_BYTES = 1024 * 1024
"""Size that stays in the core's cache while it is filled, verified and copied from."""
PINNED_SCRATCH_BYTES = 16 * 1024 * 1024
"""Size of memory that a GPU reads directly: one call's copies are awaited together."""


def scratch_size(block_bytes: int, room: int = SCRATCH_BYTES) -> int:
    """Return the size of scratch memory: the blocks that fit into `room`, at least one."""
    return max(1, room // block_bytes) * block_bytes


class GroupMemory(Protocol):
    """Memory of one group's pages."""

    def clear(self, pages: Sequence[int], kept_tokens: int = 0) -> None:
        """Zero pages; the first one keeps the given number of leading tokens."""

    def read_pages(self, pages: Sequence[int], out: Sequence[memoryview]) -> None:
        """Copy the bytes of each page to its place in `out`."""

    def write_pages(self, pages: Sequence[int], data: memoryview) -> None:
        """Copy bytes into pages, one page after the other."""

    def page_views(self, pages: Sequence[int]) -> Sequence[memoryview] | None:
        """Return the bytes of each page; None if this process cannot write them directly."""


class Runner(ABC):
    """Computes batches over paged KV.

    Owned by the engine's thread. Any thread may copy from and into the memory of pages that are not
    written to otherwise at the time.
    """

    def allocate_scratch(self, block_bytes: int) -> memoryview:
        """Return memory for `Engine.scratch`, a multiple of `block_bytes`."""
        return aligned_memory(scratch_size(block_bytes))

    @abstractmethod
    def run(self, batch: Sequence[ScheduledChunk]) -> list[tuple[Sampled, ...] | NotSampled]:
        """Compute a batch; sequences are only read, except the state of their grammars.

        KV of positions below the sequence's `num_computed_tokens` is in place: read, not written.
        Return, for each chunk, one token per choice if it samples, else nothing; or why it cannot.
        Also return nothing if its mask is late: the sequence keeps it as `mask`, and the last
        position is computed again.
        """

    def take_prompt_logprobs(self, sequence_id: int) -> tuple[TokenLogprob, ...]:  # noqa: ARG002
        """Return, once, the log probabilities of a sequence's prompt from the last batch: of the
        tokens from its `scored_tokens` on, up to the end of the chunk.
        """
        return ()

    @abstractmethod
    def memory_of(self, group: int) -> GroupMemory:
        """Return the memory of a group's pages; without groups, there is group 0."""

    @abstractmethod
    def forget(self, sequence_id: int) -> None:
        """Drop the runner's state of a sequence besides its pages, if any."""

    def load_adapter(self, files: AdapterFiles) -> Any:
        """Return an adapter's matrices; any thread may call it.

        Raises:
            AdapterError: they are damaged, or do not fit.
        """
        raise NotImplementedError

    def add_adapter(self, key: str, loaded: Any) -> None:
        """Use matrices for sequences that name the key."""
        raise NotImplementedError

    def remove_adapter(self, key: str) -> None:
        """Release an adapter's matrices, which no sequence uses."""
        raise NotImplementedError

    @abstractmethod
    def warm_up(self) -> None:
        """Run operations that are slow the first time."""

    @abstractmethod
    def close(self) -> None:
        """Release memory."""
