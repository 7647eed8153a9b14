"""Prompts that wait at a worker: for incoming KV, and for their turn."""

from dataclasses import dataclass
from heapq import heappop, heappush

from simulator.request import Request


@dataclass(slots=True)
class Job:
    """One prompt at the worker that computes it."""

    request: Request
    key: tuple[float, float]
    """The lowest key goes first."""
    ready: float
    """When the KV transferred for it arrives."""
    predicted: float
    """Seconds of computation predicted at placement."""
    brought: int
    """Leading blocks that are guaranteed once it is ready."""
    decode: int
    """The worker that runs its stream."""
    cached: int = 0
    """Leading blocks found in the cache when computing began."""
    work: float = 0.0
    """Seconds of computation, known when it begins."""


class SimulatedWaitingLine:
    """Jobs sorted by key; jobs that wait for KV are overtaken by others."""

    def __init__(self) -> None:
        self._pushed = 0
        self._ready: list[tuple[tuple[float, float], int, Job]] = []
        self._coming: list[tuple[float, int, Job]] = []

    def __len__(self) -> int:
        """Return the number of waiting jobs."""
        return len(self._ready) + len(self._coming)

    def push(self, job: Job, now: float) -> None:
        """Add a job."""
        self._pushed += 1
        if job.ready <= now:
            heappush(self._ready, (job.key, self._pushed, job))
        else:
            heappush(self._coming, (job.ready, self._pushed, job))

    def pop(self, now: float) -> Job | None:
        """Remove and return the next job whose KV has arrived; None: there is none."""
        while self._coming and self._coming[0][0] <= now:
            _, number, job = heappop(self._coming)
            heappush(self._ready, (job.key, number, job))
        return heappop(self._ready)[2] if self._ready else None

    def clear(self) -> list[Job]:
        """Remove and return all jobs, in the order in which they were added."""
        jobs = sorted((number, job) for _, number, job in [*self._ready, *self._coming])
        self._ready, self._coming = [], []
        return [job for _, job in jobs]

    def next_ready(self) -> float | None:
        """Return when the next incoming KV arrives; None: there is none."""
        return self._coming[0][0] if self._coming else None
