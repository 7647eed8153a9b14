"""The replicas of a pool, as their last reports show them."""

import math
from collections.abc import Sequence
from enum import Enum, auto
from statistics import median
from typing import NamedTuple

TRUSTED_SAMPLES = 2
"""Fewest measurements of a rate that is believed: the first one includes warming up."""


_SLOWEST = 1e-3
"""Prompt tokens per second: what is slower computes nothing."""


class ReplicaState(Enum):
    """Whether a replica takes requests."""

    STARTING = auto()
    """Registered, without a report yet."""
    LIVE = auto()
    SILENT = auto()
    """Live, as far as is known: its reports are missing."""
    DRAINING = auto()
    """It takes no new requests; what it has moves to others."""


class Replica(NamedTuple):
    """One worker. Numbers are 0 where it has not reported them."""

    state: ReplicaState = ReplicaState.LIVE
    prefill_rate: float = 0.0
    """Prompt tokens per second that it computes, next to its streams; as learned."""
    samples: int = 0
    """Number of measurements behind the rate."""
    pending_tokens: int = 0
    """Prompt tokens that it has to compute."""
    running: int = 0
    """Sequences in its batch, and in flight to it."""
    waiting: int = 0
    step_seconds: float = 0.0
    """Seconds of a step of its batch, without prompts; as learned."""
    max_running: int = 0
    used_pages: int = 0
    """KV pages that work holds, or is counted for."""
    total_pages: int = 0
    block_tokens: int = 0
    """Tokens of a page."""
    itl_target: float = math.inf
    """Seconds between tokens that its streams are to keep."""
    has_room: bool = True
    """Whether one more sequence fits."""

    @property
    def sequences(self) -> int:
        return self.running + self.waiting

    @property
    def busy(self) -> bool:
        """Whether it has work."""
        return bool(self.sequences or self.pending_tokens)


class ReplicaPool:
    """The replicas of one role and model at one moment.

    Args:
        replicas: all of them.
    """

    def __init__(self, replicas: Sequence[Replica] = ()) -> None:
        self.replicas = replicas
        counts = [one.state for one in replicas]
        self.live = counts.count(ReplicaState.LIVE) + counts.count(ReplicaState.SILENT)
        """Replicas that take requests; those whose reports are missing count."""
        self.starting = counts.count(ReplicaState.STARTING)
        self.complete = ReplicaState.SILENT not in counts
        """Whether no reports are missing."""

    @property
    def there(self) -> int:
        """Replicas that take requests, or soon will."""
        return self.live + self.starting

    @property
    def busy(self) -> bool:
        """Whether any replica has work."""
        return any(one.busy for one in self.replicas)

    @property
    def full(self) -> bool:
        """Whether replicas take requests, and none has room for one more sequence."""
        live = self.reporting
        return bool(live) and not any(one.has_room for one in live)

    @property
    def reporting(self) -> list[Replica]:
        """Live replicas whose reports are current."""
        return [one for one in self.replicas if one.state is ReplicaState.LIVE]

    def prefill_rate(self) -> float | None:
        """Return the median rate of live replicas that have learned it; None: none has."""
        rates = [
            one.prefill_rate
            for one in self.reporting
            if one.samples >= TRUSTED_SAMPLES and _SLOWEST <= one.prefill_rate < math.inf
        ]
        return median(rates) if rates else None

    def total_pages(self) -> float | None:
        """Return the median number of KV pages of a live replica; None: not known."""
        pages = [one.total_pages for one in self.reporting if one.total_pages > 0]
        return median(pages) if pages else None

    def max_running(self) -> float:
        """Return the median of the most sequences that run; infinite: not known."""
        most = [one.max_running for one in self.reporting if one.max_running > 0]
        return median(most) if most else math.inf

    def block_tokens(self) -> float | None:
        """Return the tokens of a page; None: not known."""
        sizes = [one.block_tokens for one in self.replicas if one.block_tokens > 0]
        return median(sizes) if sizes else None

    def itl_target(self) -> float:
        """Return the strictest target between tokens; infinite: there is none."""
        return min((one.itl_target for one in self.reporting), default=math.inf)
