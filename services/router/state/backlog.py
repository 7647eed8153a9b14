"""What a worker has computed since it reported last, as far as it is not known.

A worker says how much it has to compute a few times a second, and nothing while a step of its
engine runs. Until it says more it is taken to compute at its rate, but for no more than a limit of
seconds without a report that something changed: one that stands still is not taken to be idle.
"""


class Backlog:
    """One worker's. Times are of one monotonic clock, in seconds. One loop owns it.

    Args:
        tokens: that it has to compute, of its first report.
        now: when that came.
        limit: seconds of computing that are taken off without a report that something changed.
    """

    __slots__ = ("_limit", "_tokens", "at", "computed")

    def __init__(self, tokens: int, now: float, limit: float) -> None:
        self._tokens = tokens
        self._limit = limit
        self.at = now
        """When `computed` was so much; since then it computes, until `until`."""
        self.computed = 0.0
        """Seconds of what it has that it is taken to have computed."""

    @property
    def until(self) -> float:
        """When it is not taken to compute any longer."""
        return self.at + max(0.0, self._limit - self.computed)

    def report(self, tokens: int, acknowledged: int, now: float) -> None:
        """Take in a report.

        Args:
            tokens: that it has to compute.
            acknowledged: of these, those that were on their way to it until this report.
            now: when it came.
        """
        if tokens == self._tokens + acknowledged:
            # A step runs that will say more at its end, or nothing is computed.
            self._compute(now)
        else:
            self.computed = 0.0
        self._tokens, self.at = tokens, now

    def add(self, total: float, now: float) -> None:
        """Note that more is sent to it.

        Args:
            total: seconds of all that it has to compute, as reported and sent before.
            now: when it is sent.
        """
        self._compute(now)
        self.computed, self.at = min(self.computed, total), now

    def _compute(self, now: float) -> None:
        self.computed += min(now, self.until) - self.at
