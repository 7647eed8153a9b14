"""The scheduler's plan for one step, and its limits."""

from dataclasses import dataclass, field

from baton.engine.paged.sequence import LiveSequence


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """Limits of the scheduler."""

    block_tokens: int
    max_running: int
    """Maximum sequences that hold pages and have not ended."""
    max_waiting: int
    """Maximum sequences that wait, in addition to `max_running`."""
    chunk_tokens: int
    """Tokens per step; at least one block of prompt is computed, however many sequences decode."""
    decode_chunk_tokens: int
    """The same for a step in which sequences of the prompt's class or a higher one decode: they all
    wait for it.
    """
    paused_share: float
    """Maximum share of all pages that paused sequences keep; 0 to 1."""

    @property
    def max_sequences(self) -> int:
        """Return the maximum number of running and waiting sequences."""
        return self.max_running + self.max_waiting

    def prompt_tokens(self, decoding: int, *, beside: bool) -> int:
        """Return the prompt tokens of a step.

        Args:
            decoding: sequences that decode in it.
            beside: whether some of them are of the prompt's class or a higher one, and so wait for
                it.
        """
        most = self.decode_chunk_tokens if beside else self.chunk_tokens
        return max(min(most, self.chunk_tokens) - decoding, self.block_tokens)

    def blocks(self, tokens: int) -> int:
        """Return the number of blocks that hold a number of tokens."""
        return -(-tokens // self.block_tokens)


@dataclass(slots=True)
class ScheduledChunk:
    """Positions of one sequence to compute in one step. Immutable once planned."""

    sequence: LiveSequence
    start: int
    end: int
    """Position after the last one."""

    @property
    def samples(self) -> bool:
        """Whether the last known token is computed, so that the next one is sampled."""
        return self.end == len(self.sequence.tokens)


@dataclass(slots=True)
class StepPlan:
    """Work of one step."""

    chunks: list[ScheduledChunk] = field(default_factory=list)
    fresh: dict[int, list[int]] = field(default_factory=dict)
    """Pages by group that were allocated for new tokens, which still contain other sequences'
    bytes.
    """
    preempted: list[LiveSequence] = field(default_factory=list)
    """Sequences that lost their pages since the last plan."""

    @property
    def decoding(self) -> list[ScheduledChunk]:
        """Return the chunks of one token."""
        return [chunk for chunk in self.chunks if chunk.end - chunk.start == 1]

    @property
    def prompt_tokens(self) -> int:
        """Return the tokens of the other chunks."""
        return sum(each.end - each.start for each in self.chunks if each.end - each.start > 1)
