"""What a pool needs, and why."""

from enum import StrEnum
from typing import NamedTuple


class SizingReason(StrEnum):
    """Why a pool needs its number of replicas. A label of a metric."""

    ARRIVALS = "arrivals"
    """Uncached prompt tokens that arrived lately."""
    BACKLOG = "backlog"
    """Prompts that wait for longer than half of the TTFT target."""
    KV = "kv"
    """KV pages in use."""
    BATCH = "batch"
    """Sequences, at the batch whose steps meet the target between tokens."""
    FLOOR = "floor"
    CEILING = "ceiling"
    IDLE = "idle"
    """None: the pool was without requests for `idle_seconds`."""
    WAKE = "wake"
    """A request came, and no replica is live."""
    HOLD_WINDOW = "hold_window"
    """Fewer would do now; within `hold_seconds` they would not have done."""
    HOLD_FIRST_TOKEN = "hold_first_token"
    """Fewer would do for what arrives, but first tokens would wait for too long."""
    HOLD_RATES = "hold_rates"
    """No replica has learned how fast it is."""
    HOLD_REPORTS = "hold_reports"
    """The reports of a replica are missing."""
    HOLD_ROUTERS = "hold_routers"
    """The demand at another router is not known."""

    @property
    def holds(self) -> bool:
        """Whether fewer replicas would do for what is known."""
        return self.value.startswith("hold_")


class SizingDecision(NamedTuple):
    """How many replicas a pool needs, those there included."""

    replicas: int
    reason: SizingReason


class Need(NamedTuple):
    """What a part of the demand needs, before bounds and history."""

    replicas: float
    reason: SizingReason
    known: bool = True
    """False: at least so many, since something is not known that the number depends on."""

    def scaled(self, share: float) -> "Need":
        """Return the need of a pool that takes a share of the demand; 0: it takes none of it."""
        return self._replace(replicas=self.replicas * share if share else 0.0)


def largest(needs: list[Need]) -> Need:
    """Return the need that binds; it is known if all of them are. At least one is required."""
    binding = max(needs, key=lambda one: one.replicas)
    return binding._replace(known=all(one.known for one in needs))
