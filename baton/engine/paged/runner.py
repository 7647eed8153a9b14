"""The interface between the paged engine and what computes: where KV lies, how a batch runs."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from baton.engine.paged.plan import ScheduledChunk
from baton.engine.sampling.draw import Sampled


class Runner(ABC):
    """Computes batches over paged KV.

    Owned by the engine's thread. Any thread may call `read_page` and `write_page`, for pages that
    are not written to otherwise at the time.
    """

    @abstractmethod
    def run(self, batch: Sequence[ScheduledChunk]) -> list[tuple[Sampled, ...]]:
        """Compute a batch; sequences are only read.

        KV of positions below the sequence's `num_computed_tokens` is in place: read, not written.
        Return, for each chunk, one token per choice if it samples, else nothing.
        """

    @abstractmethod
    def forget(self, sequence_id: int) -> None:
        """Drop what is remembered of a sequence besides its pages, if anything."""

    @abstractmethod
    def clear(self, pages: Sequence[int], kept_tokens: int = 0) -> None:
        """Zero pages; the first keeps that many leading tokens."""

    @abstractmethod
    def read_page(self, page: int, out: memoryview) -> None:
        """Copy a page's bytes out."""

    @abstractmethod
    def write_page(self, page: int, data: memoryview) -> None:
        """Copy a page's bytes in."""

    @abstractmethod
    def warm_up(self) -> None:
        """Run what is slow the first time."""

    @abstractmethod
    def close(self) -> None:
        """Release memory."""
