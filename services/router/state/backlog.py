"""The estimated progress of a worker since its last report.

A worker reports a few times a second how much it has to compute, and not while a step of its engine
runs. Between reports it is assumed to compute at its rate, for at most a limit of seconds without a
report that something changed: a worker that hangs is not assumed to be idle.
"""


class Backlog:
    """The backlog of one worker. Owned by one event loop.

    Args:
        tokens: tokens that it has to compute, by its first report.
        now: when that report arrived, by a monotonic clock, in seconds.
        limit: most seconds of computing deducted without a report that something changed.
    """

    __slots__ = ("_limit", "_tokens", "at", "computed")

    def __init__(self, tokens: int, now: float, limit: float) -> None:
        self._tokens = tokens
        self._limit = limit
        self.at = now
        """When `computed` applied; since then the worker computes, until `until`."""
        self.computed = 0.0
        """Seconds of its backlog that it is assumed to have computed."""

    @property
    def until(self) -> float:
        """When it is no longer assumed to compute."""
        return self.at + max(0.0, self._limit - self.computed)

    def report(self, tokens: int, acknowledged: int, now: float) -> None:
        """Apply a report.

        Args:
            tokens: tokens that it has to compute.
            acknowledged: those of them that were in flight until this report.
            now: when it arrived.
        """
        if tokens == self._tokens + acknowledged:
            # A step runs that will report more at its end, or nothing is computed.
            self._compute(now)
        else:
            self.computed = 0.0
        self._tokens, self.at = tokens, now

    def add(self, total: float, now: float) -> None:
        """Record that more is sent to it.

        Args:
            total: seconds of its whole backlog, as reported and sent before.
            now: when it is sent.
        """
        self._compute(now)
        self.computed, self.at = min(self.computed, total), now

    def _compute(self, now: float) -> None:
        self.computed += min(now, self.until) - self.at
