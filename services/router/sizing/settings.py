"""Constants of sizing."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SizingSettings:
    """How replicas are counted, and when a pool may shrink. Times are in seconds."""

    min_replicas: int = 1
    """Fewest replicas of a pool that runs."""
    max_replicas: int = 1000
    utilization: float = 0.7
    """Share of the learned prefill rate that arriving prompts may use."""
    occupancy: float = 0.8
    """Share of KV pages, and of the batch that meets the target between tokens, to be used."""
    arrival_seconds: float = 30.0
    """The time over which arriving tokens are counted."""
    backlog_seconds: float = 60.0
    """The time in which a backlog is to be computed."""
    ttft_target: float = 2.0
    """Time to first token to meet. Half of it may be spent waiting."""
    hold_seconds: float = 600.0
    """A pool shrinks only if no need was higher for this long."""
    idle_seconds: float = 0.0
    """A pool without requests for this long needs no replica; 0: it always needs some."""

    def __post_init__(self) -> None:
        """Reject invalid values."""
        if not 1 <= self.min_replicas <= self.max_replicas:
            raise ValueError(
                f"min_replicas {self.min_replicas} is out of range: 1 to max_replicas "
                f"({self.max_replicas})"
            )
        for name in ("utilization", "occupancy"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(
                    f"{name} {getattr(self, name)} is out of range: above 0, at most 1"
                )
        for name in ("arrival_seconds", "backlog_seconds", "ttft_target", "hold_seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} {getattr(self, name)} is out of range: above 0")
        if not self.idle_seconds >= 0:
            raise ValueError(f"idle_seconds {self.idle_seconds} is out of range: 0 or more")


DEFAULT_SIZING = SizingSettings()
