"""Whether an upstream may be asked: a breaker per key. Pure: its callers tell it the time."""

from enum import Enum

OPEN_AFTER = 5
"""Failures in a row."""
PROBE_SECONDS = 1.0
"""Between two probes of an upstream that failed."""
MAX_CLIENT_SECONDS = 10.0
"""The longest wait that clients are asked for while it is open."""


class BreakerState(Enum):
    """As in Envoy and Hystrix."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    """A probe runs."""


class Breaker:
    """Opens after `OPEN_AFTER` failures in a row; then lets one probe through per second.

    Times are seconds of any clock that does not go back. Every attempt that `try_begin` permits
    ends with exactly one of `succeeded`, `failed` and `abandoned`.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._next_probe = 0.0
        self._probing = False
        self._blocked_until = 0.0
        self._opened = 0.0

    @property
    def state(self) -> BreakerState:
        """The state, apart from a wait that the upstream asked for."""
        if self._failures < OPEN_AFTER:
            return BreakerState.CLOSED
        return BreakerState.HALF_OPEN if self._probing else BreakerState.OPEN

    def wait_seconds(self, now: float) -> float:
        """Return the seconds until an attempt may begin; 0: now."""
        wait = self._blocked_until - now
        if self._failures >= OPEN_AFTER:
            wait = max(wait, self._next_probe - now, PROBE_SECONDS if self._probing else 0.0)
        return max(0.0, wait)

    def client_seconds(self, now: float) -> float:
        """Return the seconds for which a client is asked to wait: the longer it is open, the more.

        Clients of an upstream that is away for long would otherwise all ask once per second.
        """
        wait = self.wait_seconds(now)
        if self._failures < OPEN_AFTER:
            return wait
        return max(wait, min(MAX_CLIENT_SECONDS, now - self._opened))

    def try_begin(self, now: float) -> bool:
        """Begin an attempt if one may begin now; return whether."""
        if self.wait_seconds(now) > 0:
            return False
        if self._failures >= OPEN_AFTER:
            self._probing, self._next_probe = True, now + PROBE_SECONDS
        return True

    def answered(self) -> None:
        """The first output came: a probe closes the breaker with it. Of other attempts only the end
        counts, as an upstream may break off every answer."""
        if self._probing:
            self.succeeded()

    def succeeded(self) -> None:
        """An answer is whole: close."""
        self._failures = 0
        self._probing = False

    def failed(self, now: float) -> None:
        """The upstream failed."""
        self._failures += 1
        self._probing = False
        if self._failures == OPEN_AFTER:
            self._opened, self._next_probe = now, now + PROBE_SECONDS

    def abandoned(self) -> None:
        """An attempt ended before the upstream answered: its client left."""
        self._probing = False

    def block(self, now: float, seconds: float) -> None:
        """Begin no attempt for some time, as the upstream asked."""
        self._blocked_until = max(self._blocked_until, now + seconds)
