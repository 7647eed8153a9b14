"""A load that changes over hours: a day's curve with quiet times and bursts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.traces.trace import Trace

_STEPS_PER_SECOND = 1


class TimeSpan(NamedTuple):
    """A part of a curve."""

    begin: float
    """Seconds from the beginning."""
    end: float


class Burst(NamedTuple):
    """A part of a curve with a higher rate."""

    begin: float
    end: float
    factor: float
    """Of the rate that there would be otherwise."""


@dataclass(frozen=True, slots=True)
class LoadCurve:
    """The rate of requests over time: low at both ends, high in the middle."""

    seconds: float
    peak: float = 1.0
    """The highest rate of the day, as a multiple of the lowest."""
    quiet: tuple[TimeSpan, ...] = ()
    """Times without requests."""
    bursts: tuple[Burst, ...] = ()

    def rates(self, times: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the rate at each time, as a multiple of the lowest of the day."""
        rates: NDArray[np.float64] = 1 + (self.peak - 1) * np.sin(np.pi * times / self.seconds) ** 2
        for burst in self.bursts:
            rates[(times >= burst.begin) & (times < burst.end)] *= burst.factor
        for span in self.quiet:
            rates[(times >= span.begin) & (times < span.end)] = 0.0
        return rates


def follow_curve(trace: Trace, curve: LoadCurve, seed: int) -> Trace:
    """Give the requests of a trace, in their order, times that follow a curve.

    Arrivals are random: those of a Poisson process with the curve's rate.

    Args:
        trace: the requests.
        curve: its rates are scaled to the number of requests.
        seed: of the draws.

    Raises:
        ValueError: the curve has no time with requests.
    """
    edges = np.linspace(0.0, curve.seconds, max(2, int(curve.seconds * _STEPS_PER_SECOND) + 1))
    middles = (edges[:-1] + edges[1:]) / 2
    passed = np.concatenate(([0.0], np.cumsum(curve.rates(middles))))
    if not passed[-1] > 0:
        raise ValueError("the load curve has no time with requests")
    draws = np.sort(np.random.default_rng(seed).random(len(trace))) * passed[-1]
    return replace(trace, times=np.interp(draws, passed, edges))


def repeat(trace: Trace, requests: int) -> Trace:
    """Return a trace with as many requests, which repeat those of a trace with blocks of their own.

    Args:
        trace: what is repeated.
        requests: how many; times grow by the trace's length with each round.
    """
    times: list[NDArray[np.float64]] = []
    prompts: list[int] = []
    outputs: list[int] = []
    chains: list[tuple[int, ...]] = []
    tenants: list[str] = []
    rounds = -(-requests // len(trace))
    for number in range(rounds):
        left = requests - len(prompts)
        times.append(trace.times[:left] + number * trace.seconds)
        prompts += trace.prompt_tokens[:left]
        outputs += trace.output_tokens[:left]
        chains += _renumbered(trace.chains[:left], number * trace.blocks)
        tenants += trace.tenants[:left]
    return replace(
        trace,
        times=np.concatenate(times),
        prompt_tokens=prompts,
        output_tokens=outputs,
        chains=chains,
        tenants=tenants,
        blocks=trace.blocks * rounds,
    )


def _renumbered(chains: Sequence[tuple[int, ...]], offset: int) -> list[tuple[int, ...]]:
    return [tuple(block + offset for block in chain) for chain in chains]
