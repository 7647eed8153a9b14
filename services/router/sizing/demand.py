"""What one router sees of the demand for each model: arrivals of a window, and predicted waits."""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

_FIRST_BIN, _GROWTH, _BINS = 0.01, 1.25, 52
"""Waits are counted in bins: up to 10 ms, then each bound 25 % above the one before, to 15 min."""
_BOUNDS = [_FIRST_BIN * _GROWTH**number for number in range(_BINS)]
_PERCENTILE = 0.9


class ModelDemand(NamedTuple):
    """The demand for one model, at one router or at all of them."""

    arrived_tokens: float = 0.0
    """Prompt tokens without cached KV of requests that arrived within `arrival_seconds`."""
    refused_tokens: float = 0.0
    """The same of requests that were rejected for lack of capacity; their clients may retry."""
    queued_tokens: float = 0.0
    """Prompt tokens without cached KV of requests that wait in routers."""
    queued_sequences: int = 0
    queued_kv_tokens: int = 0
    """Tokens that these sequences need KV pages for when they begin."""
    wait_seconds: float = 0.0
    """The p90, over requests placed within `arrival_seconds`, of the predicted time to first token
    without the computing of the prompt itself."""

    @property
    def any(self) -> bool:
        """Whether a request arrived lately, or waits."""
        return bool(self.arrived_tokens or self.refused_tokens or self.queued_sequences)

    @property
    def valid(self) -> bool:
        """Whether all numbers are finite and not negative."""
        return all(0 <= value < math.inf for value in self)

    def joined(self, other: "ModelDemand") -> "ModelDemand":
        """Return the demand at two routers."""
        return ModelDemand(
            self.arrived_tokens + other.arrived_tokens,
            self.refused_tokens + other.refused_tokens,
            self.queued_tokens + other.queued_tokens,
            self.queued_sequences + other.queued_sequences,
            self.queued_kv_tokens + other.queued_kv_tokens,
            max(self.wait_seconds, other.wait_seconds),
        )


NO_DEMAND = ModelDemand()


@dataclass(slots=True)
class _Second:
    """What happened within one second."""

    number: int
    arrived: float = 0.0
    refused: float = 0.0
    waits: list[int] = field(default_factory=list)
    """Number of placements by bin; empty: there were none."""


class DemandLog:
    """Arrivals and waits at one router, of the last seconds. Owned by one event loop.

    It keeps one entry per second and model, however many requests arrive, and forgets models
    without requests.

    Args:
        window: seconds to look back.
    """

    def __init__(self, window: float = 30.0) -> None:
        self._window = window
        self._models: dict[str, deque[_Second]] = {}

    def models(self, now: float) -> Iterator[str]:
        """Yield the models with a request within the window."""
        for model in list(self._models):
            if self._kept(model, now):
                yield model

    def arrived(self, model: str, tokens: float, at: float, now: float) -> None:
        """Count a request that was placed or waits.

        Args:
            model: the model that it asks for.
            tokens: prompt tokens to compute.
            at: when it arrived, at whichever router; before the window, it is not counted.
            now: a monotonic clock, in seconds.
        """
        if at > now - self._window:
            self._second(model, min(at, now)).arrived += max(1.0, tokens)

    def refused(self, model: str, tokens: float, now: float) -> None:
        """Count a request that was rejected because the workers have no capacity for it."""
        self._second(model, now).refused += max(1.0, tokens)

    def waited(self, model: str, seconds: float, now: float) -> None:
        """Count a placement.

        Args:
            model: the model.
            seconds: from arrival to the predicted first token, less the computing of its prompt.
            now: a monotonic clock, in seconds.
        """
        second = self._second(model, now)
        if not second.waits:
            second.waits = [0] * (_BINS + 1)
        second.waits[bisect_left(_BOUNDS, seconds)] += 1

    def demand(self, model: str, now: float) -> ModelDemand:
        """Return what the window contains; what waits in the queue is for the caller to add."""
        seconds = self._kept(model, now)
        if not seconds:
            return NO_DEMAND
        return ModelDemand(
            arrived_tokens=sum(one.arrived for one in seconds),
            refused_tokens=sum(one.refused for one in seconds),
            wait_seconds=_percentile([one.waits for one in seconds if one.waits]),
        )

    def _second(self, model: str, at: float) -> _Second:
        seconds = self._models.get(model)
        if seconds is None:
            seconds = self._models[model] = deque()
        number = math.floor(at)
        place = len(seconds)
        while place and seconds[place - 1].number > number:
            place -= 1
        if place and seconds[place - 1].number == number:
            return seconds[place - 1]
        made = _Second(number)
        seconds.insert(place, made)
        return made

    def _kept(self, model: str, now: float) -> deque[_Second] | None:
        """Return the entries of a model that are within the window, and drop the others."""
        seconds = self._models.get(model)
        if seconds is None:
            return None
        first = math.floor(now - self._window)
        while seconds and seconds[0].number <= first:
            seconds.popleft()
        if not seconds:
            del self._models[model]
            return None
        return seconds


def _percentile(counts: list[list[int]]) -> float:
    """Return an upper bound of the 90th percentile of waits, by their bins; 0 without any."""
    if not counts:
        return 0.0
    bins = [sum(column) for column in zip(*counts, strict=True)]
    left = _PERCENTILE * sum(bins)
    for bound, count in zip(_BOUNDS, bins, strict=False):
        left -= count
        if left <= 0:
            return bound
    return _BOUNDS[-1] * _GROWTH
