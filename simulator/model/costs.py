"""Costs of computing and moving KV at a worker, in seconds."""

from dataclasses import dataclass
from typing import Literal

Order = Literal["fifo", "shortest"]
Beside = Literal["sum", "longer"]


@dataclass(frozen=True, slots=True)
class CostModel:
    """Constants of one kind of worker. Rates are tokens per second; 0 is no limit."""

    prefill_rate: float = 8_000.0
    quadratic_tokens: float = 0.0
    """Context at which a token takes twice as long as the first; 0: all take the same time."""
    transfer_rate: float = 39_000.0
    """Rate of KV transfers from other workers, one transfer at a time."""
    local_rate: float = 0.0
    """Rate at which a worker loads KV from its own store."""
    step_seconds: float = 0.03
    """Duration of a decode step with one stream."""
    stream_seconds: float = 0.0
    """Additional duration of a step per further stream."""
    chunk_tokens: int = 0
    """Prompt tokens that a step computes together with the batch; 0: neither delays the other."""
    beside: Beside = "sum"
    """Duration of such a step. sum: the chunk plus the batch's step. longer: the longer of the two,
    plus the KV of each stream: weights are read once, while the chunk is computed."""

    def prefill_seconds(self, tokens: int, context: int, speed: float = 1.0) -> float:
        """Return the time to compute the last `tokens` of a prompt of `context` tokens.

        Args:
            tokens: tokens to compute, at least 1.
            context: tokens of the whole prompt.
            speed: speed of the worker, relative to `prefill_rate`.
        """
        seconds = tokens / (self.prefill_rate * speed)
        if self.quadratic_tokens:
            seconds *= 1 + (context - tokens / 2) / self.quadratic_tokens
        return seconds

    def transfer_seconds(self, tokens: int) -> float:
        """Return the time to transfer KV from another worker."""
        return tokens / self.transfer_rate if self.transfer_rate else 0.0

    def local_seconds(self, tokens: int) -> float:
        """Return the time to load KV from the worker's own store."""
        return tokens / self.local_rate if self.local_rate else 0.0

    def batch_step_seconds(self, streams: int) -> float:
        """Return the duration of a decode step with `streams` streams; 0 without streams."""
        return self.step_seconds + self.stream_seconds * (streams - 1) if streams else 0.0

    def mixed_step_seconds(self, chunk: float, streams: int) -> float:
        """Return the duration of a step that computes a chunk together with streams.

        Args:
            chunk: seconds to compute the chunk alone.
            streams: streams in the batch.
        """
        if self.beside == "longer" and streams:
            return max(chunk, self.step_seconds) + self.stream_seconds * streams
        return chunk + self.batch_step_seconds(streams)

    def learned_rate(self, streams: int, speed: float = 1.0) -> float:
        """Return the tokens per second that an engine reports: a step's time less the streams'.

        Args:
            streams: streams that run together with prompts.
            speed: speed of the worker, relative to `prefill_rate`.
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
    """The order in which waiting prompts at a worker are computed."""

    order: Order = "fifo"
    age: float = 0.05
    """For shortest first: seconds of work that one second of waiting offsets."""

    def key(self, work: float, arrival: float) -> float:
        """Return the sort key of a waiting prompt, which never changes while it waits.

        Shortest first sorts by work − age × waiting time, and all waiting times grow equally from
        now on.
        """
        return arrival if self.order == "fifo" else work + self.age * arrival
