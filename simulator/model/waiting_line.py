"""Prompts that wait at a worker: for KV on its way, and for their turn."""

from dataclasses import dataclass
from heapq import heappop, heappush

from simulator.request import Request


@dataclass(slots=True)
class Job:
    """One prompt at the worker that computes it."""

    request: Request
    key: tuple[float, float]
    """The lowest goes first."""
    ready: float
    """When the KV that is brought for it is there."""
    predicted: float
    """Seconds of computing that were expected when it was placed."""
    brought: int
    """Leading blocks that it has once it is ready, in any case."""
    decode: int
    """The worker that runs its stream."""
    cached: int = 0
    """Leading blocks that were found when computing began."""
    work: float = 0.0
    """Seconds of computing, known when it begins."""


class SimulatedWaitingLine:
    """Jobs by their keys; one that waits for KV is passed by the others."""

    def __init__(self) -> None:
        self._pushed = 0
        self._ready: list[tuple[tuple[float, float], int, Job]] = []
        self._coming: list[tuple[float, int, Job]] = []

    def __len__(self) -> int:
        """Return the number of jobs that wait."""
        return len(self._ready) + len(self._coming)

    def push(self, job: Job, now: float) -> None:
        """Add a job."""
        self._pushed += 1
        if job.ready <= now:
            heappush(self._ready, (job.key, self._pushed, job))
        else:
            heappush(self._coming, (job.ready, self._pushed, job))

    def pop(self, now: float) -> Job | None:
        """Take the next job whose KV is there; None: there is none."""
        while self._coming and self._coming[0][0] <= now:
            _, number, job = heappop(self._coming)
            heappush(self._ready, (job.key, number, job))
        return heappop(self._ready)[2] if self._ready else None

    def next_ready(self) -> float | None:
        """Return when the next KV on its way arrives; None: none is."""
        return self._coming[0][0] if self._coming else None
