"""When batches complete: the rate at which lines end, and how tenants share it. Pure."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID


class BatchWork(NamedTuple):
    """What a batch that runs has done and has left, in lines."""

    tenant: str
    id: UUID
    left: int
    done: int
    failed: int = 0
    """Of what it has done."""
    since: float = 0.0
    """When its lines began to run, in seconds since the Unix epoch."""
    key: str = ""
    """The key that created it."""


class LineRate:
    """Lines of all batches that end per second, of the time in which there were any.

    Args:
        memory: seconds after which what was seen counts for 1/e: load changes, and lines differ.
    """

    def __init__(self, memory: float) -> None:
        self._memory = memory
        self._lines = self._seconds = 0.0
        self._done: dict[UUID, int] = {}
        self._at = 0.0

    def observe(self, now: float, batches: Sequence[BatchWork]) -> None:
        """Take what all batches that run have done by now, in seconds of any clock."""
        done = {batch.id: batch.done for batch in batches if batch.left}
        if self._done:
            seconds = now - self._at
            ended = sum(
                max(0, count - self._done[ident])
                for ident, count in done.items()
                if ident in self._done
            )
            kept = math.exp(-seconds / self._memory)
            self._lines = self._lines * kept + ended
            self._seconds = self._seconds * kept + seconds
        self._at, self._done = now, done

    @property
    def per_second(self) -> float | None:
        """Return the rate; None: no line has ended yet."""
        return self._lines / self._seconds if self._lines else None


def lines_until(
    batches: Sequence[BatchWork], own: BatchWork, weights: Mapping[str, int] = {}
) -> int:
    """Return how many lines of all batches end until the last one of a batch has.

    Tenants share places by weight: when a tenant has ended so many lines, each other tenant has
    ended as many for its weight, or all of its own.

    Args:
        batches: those that run; of a tenant, in the order in which they run.
        own: one of them, or one that comes after them.
        weights: of tenants; 1 if it is not given.
    """
    ahead, others = 0, Counter[str]()
    ours = True
    for batch in batches:
        if batch.tenant != own.tenant:
            others[batch.tenant] += batch.left
        elif ours:
            ours = batch.id != own.id
            ahead += batch.left if ours else 0
    ahead += own.left
    weight = weights.get(own.tenant, 1)
    return ahead + sum(
        min(left, ahead * weights.get(tenant, 1) // weight) for tenant, left in others.items()
    )
