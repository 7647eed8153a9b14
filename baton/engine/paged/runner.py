"""What differs between the embedded engines: where KV lies and what computing a batch means."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from baton.engine.events import TokenLogprob
from baton.engine.paged.sequence import LiveSequence


@dataclass(slots=True)
class ScheduledChunk:
    """Positions of one sequence to compute in one step. Not changed after it was planned."""

    sequence: LiveSequence
    start: int
    end: int
    """After the last position."""

    @property
    def samples(self) -> bool:
        """Whether the last known token is computed, so that the next is sampled."""
        return self.end == len(self.sequence.tokens)


@dataclass(frozen=True, slots=True)
class Sampled:
    """One sampled token."""

    token: int
    logprob: TokenLogprob | None = None


class Runner(ABC):
    """Computes batches over paged KV.

    One thread owns a runner; `read_page` and `write_page` may be called from any thread, for pages
    that nobody else writes at the time.
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
