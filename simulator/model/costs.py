"""What computing and moving KV costs a worker, in seconds."""

from dataclasses import dataclass
from typing import Literal

Order = Literal["fifo", "shortest"]
Beside = Literal["sum", "longer"]


@dataclass(frozen=True, slots=True)
class CostModel:
    """Constants of one kind of worker. Rates are tokens per second; 0 is no limit."""

    prefill_rate: float = 8_000.0
    quadratic_tokens: float = 0.0
    """Context at which a token takes twice as long as the first; 0: all take the same."""
    transfer_rate: float = 39_000.0
    """At which KV comes from other workers, one transfer at a time."""
    local_rate: float = 0.0
    """At which a worker's own KV comes out of its store."""
    step_seconds: float = 0.03
    """A decode step of one stream."""
    stream_seconds: float = 0.0
    """That each further stream adds to a step."""
    chunk_tokens: int = 0
    """Prompt tokens that a step computes beside the batch; 0: neither delays the other."""
    beside: Beside = "sum"
    """What such a step takes. sum: the chunk and the batch's own step. longer: the longer of the
    two, and the KV of each stream: weights are read once, while the chunk is computed."""

    def prefill_seconds(self, tokens: int, context: int, speed: float = 1.0) -> float:
        """Return the time to compute the last `tokens` of a prompt of `context` tokens.

        Args:
            tokens: to be computed, at least 1.
            context: of the whole prompt.
            speed: of the worker, of what `prefill_rate` says.
        """
        seconds = tokens / (self.prefill_rate * speed)
        if self.quadratic_tokens:
            seconds *= 1 + (context - tokens / 2) / self.quadratic_tokens
        return seconds

    def transfer_seconds(self, tokens: int) -> float:
        """Return the time to bring KV from another worker."""
        return tokens / self.transfer_rate if self.transfer_rate else 0.0

    def local_seconds(self, tokens: int) -> float:
        """Return the time to bring KV out of the worker's own store."""
        return tokens / self.local_rate if self.local_rate else 0.0

    def batch_step_seconds(self, streams: int) -> float:
        """Return how long a decode step of so many streams takes; 0 without streams."""
        return self.step_seconds + self.stream_seconds * (streams - 1) if streams else 0.0

    def mixed_step_seconds(self, chunk: float, streams: int) -> float:
        """Return how long a step takes that computes a chunk beside streams.

        Args:
            chunk: seconds to compute the chunk alone.
            streams: in the batch.
        """
        if self.beside == "longer" and streams:
            return max(chunk, self.step_seconds) + self.stream_seconds * streams
        return chunk + self.batch_step_seconds(streams)

    def learned_rate(self, streams: int, speed: float = 1.0) -> float:
        """Return the tokens per second that an engine reports: a step's time less the streams'.

        Args:
            streams: that run beside prompts.
            speed: of the worker, of what `prefill_rate` says.
        """
        rate = self.prefill_rate * speed
        if not streams or not self.chunk_tokens:
            return rate
        mixed = self.mixed_step_seconds(self.chunk_tokens / rate, streams)
        return self.chunk_tokens / max(
            mixed - self.batch_step_seconds(streams), mixed / (1 + streams)
        )


@dataclass(frozen=True, slots=True)
class Ordering:
    """Which of the prompts that wait at a worker is computed next."""

    order: Order = "fifo"
    age: float = 0.05
    """For shortest first: seconds of work that a second of waiting makes up for."""

    def key(self, work: float, arrival: float) -> float:
        """Return what waiting prompts are sorted by: it never changes while they wait.

        Shortest first is by work − age × waited, and all wait equally long from now on.
        """
        return arrival if self.order == "fifo" else work + self.age * arrival
