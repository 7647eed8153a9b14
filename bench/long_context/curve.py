"""How the time of a prompt token grows with its position."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Segment:
    """Adjacent tokens of a prompt, and the time that they took."""

    first: int
    last: int
    """Position after the last one."""
    seconds: float

    @property
    def middle(self) -> float:
        """The mean position."""
        return (self.first + self.last) / 2

    @property
    def per_token(self) -> float:
        """Seconds per token."""
        return self.seconds / (self.last - self.first)


@dataclass(frozen=True)
class Curve:
    """Seconds of a token at a position: `constant + slope · position`."""

    constant: float
    slope: float
    unexplained: float
    """Sum over the segments of |measured - fitted|, as a share of all time."""

    def at(self, position: float) -> float:
        """Return the fitted seconds of a token."""
        return self.constant + self.slope * position


def segments(samples: Sequence[tuple[int, float]], count: int) -> list[Segment]:
    """Cut samples of (tokens computed so far, seconds so far) into about `count` equal segments."""
    least = max(1, (samples[-1][0] - samples[0][0]) // count)
    found = []
    begin = samples[0]
    for sample in samples[1:]:
        if sample[0] - begin[0] >= least:
            found.append(Segment(begin[0], sample[0], sample[1] - begin[1]))
            begin = sample
    return found


def fit(parts: Sequence[Segment]) -> Curve:
    """Fit by least squares, each segment weighted by its tokens.

    A token attends to all before it, so that its floating-point operations are a constant plus a
    multiple of its position. Time that follows neither is unexplained.
    """
    tokens = np.array([part.last - part.first for part in parts], dtype=float)
    middles = np.array([part.middle for part in parts])
    times = np.array([part.seconds for part in parts])
    weights = np.sqrt(tokens)
    terms = np.stack((weights, weights * middles), axis=1)
    (constant, slope), *_ = np.linalg.lstsq(terms, times / weights, rcond=None)
    left = np.abs(times - tokens * (constant + slope * middles)).sum()
    return Curve(float(constant), float(slope), float(left / times.sum()))
