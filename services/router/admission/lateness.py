"""How much later first tokens come than predicted when their requests were placed."""

_KEEP = 1 - 1 / 256
"""Weight of earlier observations when a first token is added."""
_DOUBT = 16.0
"""Prior: predictions are trusted as if this many more first tokens had come as predicted."""
_DEVIATIONS = 1.5
"""In mean absolute deviations; 9 of 10 values of a normal distribution are below mean + 1.5."""
MAX_RATIO = 4.0
"""A higher ratio is attributed to the worker, not to predictions."""


_PROBES = 16
"""One of this many requests that would be late by the ratio alone is accepted."""


class Lateness:
    """Ratio of actual to predicted seconds covering most first tokens. Owned by one event loop.

    Older first tokens fade slowly. Long times weigh more than short ones, where a few milliseconds
    are a large ratio: the time that a request waits for consists of long ones.
    """

    def __init__(self) -> None:
        self._count = 0.0
        self._predicted = self._actual = self._deviation = 0.0
        """Weighted sums, in seconds."""
        self._factor = 1.0
        self._refused = 0

    @property
    def factor(self) -> float:
        """The factor for predictions; 1 to `MAX_RATIO`."""
        return self._factor

    def allows(self, predicted: float, left: float) -> bool:
        """Return whether a request may be placed now, given its predicted first token.

        Some that would be late by the ratio alone may, so that a ratio that is too high is
        corrected even when all requests are alike.

        Args:
            predicted: seconds to its first token.
            left: seconds until it is due.
        """
        if predicted * self._factor <= left:
            return True
        if predicted > left:
            return False
        self._refused += 1
        return self._refused % _PROBES == 0

    def observe(self, predicted: float, actual: float) -> None:
        """Record a first token.

        Args:
            predicted: seconds from its placement, above 0.
            actual: actual seconds from its placement.
        """
        actual = min(actual, MAX_RATIO * predicted)
        self._count = _KEEP * self._count + 1
        self._predicted = _KEEP * self._predicted + predicted
        self._actual = _KEEP * self._actual + actual
        ratio = self._actual / self._predicted
        self._deviation = _KEEP * self._deviation + abs(actual - ratio * predicted)
        excess = min(MAX_RATIO, ratio + _DEVIATIONS * self._deviation / self._predicted) - 1
        self._factor = 1 + max(0.0, excess) * self._count / (self._count + _DOUBT)
