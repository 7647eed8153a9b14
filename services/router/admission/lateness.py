"""How much later first tokens come than was predicted when their requests were placed."""

_KEEP = 1 - 1 / 256
"""Share of what was seen before that counts beside a new first token."""
_DOUBT = 16.0
"""Predictions are trusted as if so many more first tokens had come as predicted."""
_DEVIATIONS = 1.5
"""Mean absolute ones. A normal distribution has 9 of 10 below its mean and 1.5 of them."""
MAX_RATIO = 4.0
"""One that came later by more than this says something of its worker, not of predictions."""


_PROBES = 16
"""One of so many requests that would be late by the ratio alone is accepted."""


class Lateness:
    """A ratio of actual to predicted seconds that most first tokens keep. One loop owns it.

    It forgets slowly, first token by first token. Long times count more than short ones, in which
    a few milliseconds are much: what a request waits for is made of long ones.
    """

    def __init__(self) -> None:
        self._count = 0.0
        self._predicted = self._actual = self._deviation = 0.0
        """Sums of seconds."""
        self._factor = 1.0
        self._refused = 0

    @property
    def factor(self) -> float:
        """What a prediction is multiplied by; 1 to `MAX_RATIO`."""
        return self._factor

    def allows(self, predicted: float, left: float) -> bool:
        """Return whether a request that goes at once may go, by when its first token is predicted.

        Some may that would be late by the ratio alone, so that one which is too high is put right
        also where all requests are alike.

        Args:
            predicted: seconds to its first token.
            left: seconds until it is to be there.
        """
        if predicted * self._factor <= left:
            return True
        if predicted > left:
            return False
        self._refused += 1
        return self._refused % _PROBES == 0

    def observe(self, predicted: float, actual: float) -> None:
        """Take in a first token.

        Args:
            predicted: seconds from its placement, above 0.
            actual: the same, as they were.
        """
        actual = min(actual, MAX_RATIO * predicted)
        self._count = _KEEP * self._count + 1
        self._predicted = _KEEP * self._predicted + predicted
        self._actual = _KEEP * self._actual + actual
        ratio = self._actual / self._predicted
        self._deviation = _KEEP * self._deviation + abs(actual - ratio * predicted)
        excess = min(MAX_RATIO, ratio + _DEVIATIONS * self._deviation / self._predicted) - 1
        self._factor = 1 + max(0.0, excess) * self._count / (self._count + _DOUBT)
