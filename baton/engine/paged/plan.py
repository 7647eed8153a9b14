"""What the scheduler plans for one step, and the limits that it keeps to."""

from dataclasses import dataclass, field

from baton.engine.paged.sequence import LiveSequence


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """What the scheduler keeps to."""

    block_tokens: int
    max_running: int
    """Sequences that hold pages and have not ended."""
    max_waiting: int
    """Sequences that may wait beside as many as `max_running`."""
    chunk_tokens: int
    """Tokens computed in one step; at least a block of prompt is, however many sequences decode."""
    decode_chunk_tokens: int
    """The same, of a step in which sequences decode: they all wait for it."""
    paused_share: float
    """Of all pages, those that paused sequences keep at most; 0 to 1."""

    @property
    def max_sequences(self) -> int:
        """Sequences that run, or wait to begin."""
        return self.max_running + self.max_waiting

    def blocks(self, tokens: int) -> int:
        """Return how many blocks hold so many tokens."""
        return -(-tokens // self.block_tokens)


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


@dataclass(slots=True)
class StepPlan:
    """One step."""

    chunks: list[ScheduledChunk] = field(default_factory=list)
    fresh: list[int] = field(default_factory=list)
    """Pages allocated for new tokens, with other sequences' bytes in them."""
    preempted: list[LiveSequence] = field(default_factory=list)
    """Sequences that gave their pages up since the last plan."""
