"""What a step costs, by what is in it, as learned from the steps that were run."""

import math

import numpy as np

_KEEP = 0.99
"""Weight of the past compared with a new step."""
_FEWEST = 8
"""Steps after which there is an estimate."""
_RIDGE = 1e-6
"""Relative weight by which parts that did not vary stay near 0."""


class StepCosts:
    """Seconds of a step as a sum of a part per step, per decoding sequence and per prompt token, by
    least squares. Older steps fade. Owned by the engine, on its thread.
    """

    def __init__(self) -> None:
        self._products = np.zeros((3, 3))
        self._seconds = np.zeros(3)
        self._observed = 0
        self._estimate = (0.0, 0.0, 0.0)
        self._estimated_at = 0

    @property
    def known(self) -> bool:
        """Whether there is an estimate."""
        return self._observed >= _FEWEST

    def observe(self, prompt_tokens: int, decoding: int, seconds: float) -> None:
        """Count one step."""
        step = np.array((1.0, decoding, prompt_tokens / 64))
        self._products *= _KEEP
        self._products += np.outer(step, step)
        self._seconds *= _KEEP
        self._seconds += step * seconds
        self._observed += 1

    def seconds(self, prompt_tokens: int, decoding: int) -> float:
        """Return the duration of a step."""
        step, sequence, token = self._parts()
        return step + sequence * decoding + token * prompt_tokens

    def sequences_in(self, seconds: float) -> float:
        """Return how many more decoding sequences take that many seconds; infinite: any number."""
        return _fit(seconds, self._parts()[1])

    def tokens_in(self, seconds: float) -> float:
        """Return how many more prompt tokens take that many seconds; infinite: any number."""
        return _fit(seconds, self._parts()[2])

    def _parts(self) -> tuple[float, float, float]:
        if self._observed != self._estimated_at:
            self._estimated_at = self._observed
            scale = np.sqrt(np.maximum(np.diag(self._products), 1e-12))
            scaled = self._products / np.outer(scale, scale) + _RIDGE * np.eye(3)
            step, sequence, tokens = np.linalg.solve(scaled, self._seconds / scale) / scale
            self._estimate = max(0.0, step), max(0.0, sequence), max(0.0, tokens / 64)
        return self._estimate


def _fit(seconds: float, each: float) -> float:
    if seconds <= 0:
        return 0.0
    return seconds / each if each * 1e6 > seconds else math.inf
