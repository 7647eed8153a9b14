"""The fewest swaps with which no request waits for longer than a bound, known from the end."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple


class _ScheduleState(NamedTuple):
    """The model that has the room, and what waits for the others."""

    model: int
    oldest: tuple[float, ...]
    """Arrival of the oldest request for each model since its workers ended, which may be later
    than now; infinite: none will come."""


def fewest_swaps(
    arrivals: Sequence[Sequence[float]], longest: float, start_seconds: float, step: float = 1.0
) -> int:
    """Return a lower bound of the swaps of any schedule for room for one model.

    The schedule knows all arrivals. Nothing binds it but the waits: a model may leave at any
    moment, its requests take no time, and draining takes none. It begins with the first model.
    Times are multiples of `step`, and waits may be longer than the bound by one: each schedule in
    continuous time, moved to the next multiple, is among these, so that none has fewer swaps.

    Args:
        arrivals: of each model's requests, in order, in seconds.
        longest: most seconds that a request may wait for its model.
        start_seconds: until a model's workers serve; a multiple of `step`.
        step: in seconds.
    """
    models = range(len(arrivals))

    def first(model: int, now: float) -> float:
        at = bisect_left(arrivals[model], now)
        return arrivals[model][at] if at < len(arrivals[model]) else math.inf

    starts = round(start_seconds / step)
    last = max(times[-1] for times in arrivals if times)
    reached: list[dict[_ScheduleState, int]] = [
        {} for _ in range(int((last + longest) / step) + starts + 3)
    ]
    begin = _ScheduleState(0, tuple(first(model, 0.0) if model else math.inf for model in models))
    reached[0][begin] = 0
    fewest: int | None = None
    for number in range(len(reached) - starts):
        now = number * step
        for state, swaps in _best(reached[number]):
            due = min(state.oldest) + longest + step
            if due == math.inf:
                fewest = swaps if fewest is None else min(fewest, swaps)
            if due == math.inf or due < now + start_seconds:
                continue
            _reach(reached[number + 1], state, swaps)
            left = first(state.model, now)
            for model in models:
                if state.oldest[model] > now:
                    continue
                oldest = list(state.oldest)
                oldest[state.model], oldest[model] = left, math.inf
                if min(oldest) + longest + step >= now + start_seconds:
                    _reach(
                        reached[number + starts], _ScheduleState(model, tuple(oldest)), swaps + 1
                    )
        reached[number] = {}
    if fewest is None:
        raise ValueError(f"no schedule serves every request within {longest:g} s")
    return fewest


def _reach(states: dict[_ScheduleState, int], state: _ScheduleState, swaps: int) -> None:
    if swaps < states.get(state, swaps + 1):
        states[state] = swaps


def _best(states: dict[_ScheduleState, int]) -> Iterator[tuple[_ScheduleState, int]]:
    """Yield the states that no other one is better than: no more swaps, and nothing older waits."""
    kept: list[tuple[_ScheduleState, int]] = []
    order = sorted(states.items(), key=lambda one: (one[1], [-at for at in one[0].oldest]))
    for state, swaps in order:
        if not any(
            other.model == state.model and _later(other.oldest, state.oldest) for other, _ in kept
        ):
            kept.append((state, swaps))
            yield state, swaps


def _later(some: Iterable[float], others: Iterable[float]) -> bool:
    return all(one >= other for one, other in zip(some, others, strict=True))
