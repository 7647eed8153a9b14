"""Decide whether and when to retry a failed call. Pure: time and randomness are arguments."""

from dataclasses import dataclass

from baton.client.errors import (
    ApiError,
    BatonClientError,
    CapacityError,
    ConnectionFailedError,
    UnavailableError,
)

_RESUME_WAIT_SECONDS = 1.0
"""Longest wait before a stream continues: its reader is waiting."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with jitter, added to the wait that a server requests."""

    retries: int = 2
    """Maximum attempts after the first, over the whole call."""
    first_seconds: float = 0.1
    """Longest first wait in seconds; each further one is twice as long."""
    longest_seconds: float = 5.0
    lost: bool = True
    """Whether a call is retried whose connection was lost: the first one may have run."""
    resume_seconds: float = 30.0
    """Seconds for which a started stream that can continue is retried, any number of times, unless
    `retries` is 0. Each received event restarts the time.
    """

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise ValueError("retries must not be negative")

    def wait(
        self, error: BatonClientError, failures: int, remaining: float, jitter: float
    ) -> float | None:
        """Return the seconds to wait before the next attempt; None: give up.

        Args:
            error: why the last attempt failed.
            failures: number of failed attempts, including the last.
            remaining: seconds until the call's deadline; a wait that reaches it is pointless.
            jitter: a random number from 0 to 1.
        """
        if failures > self.retries or not is_transient(error):
            return None
        if isinstance(error, ConnectionFailedError) and not self.lost:
            return None
        return self._backoff(error, failures, self.longest_seconds, remaining, jitter)

    def wait_to_resume(
        self,
        error: BatonClientError,
        failures: int,
        lost_seconds: float,
        remaining: float,
        jitter: float,
    ) -> float | None:
        """Return the seconds to wait before a stream continues; None: give up.

        Args:
            error: why the last attempt failed.
            failures: number of failed attempts since the last received event.
            lost_seconds: time since the first of them.
            remaining: as of `wait`.
            jitter: as of `wait`.
        """
        if not self.retries or lost_seconds >= self.resume_seconds:
            return None
        return self._backoff(error, failures, _RESUME_WAIT_SECONDS, remaining, jitter)

    def _backoff(
        self,
        error: BatonClientError,
        failures: int,
        longest: float,
        remaining: float,
        jitter: float,
    ) -> float | None:
        backoff = min(longest, self.first_seconds * 2.0 ** min(failures - 1, 16))
        asked = error.retry_after or 0.0 if isinstance(error, ApiError) else 0.0
        wait = asked + backoff * (0.5 + 0.5 * jitter)
        return wait if wait < remaining else None


class Attempts:
    """Counts the attempts of one call under its deadline."""

    def __init__(self, policy: RetryPolicy, deadline: float) -> None:
        """Start counting; `deadline` is in seconds on the clock of `now`."""
        self._policy = policy
        self._deadline = deadline
        self._failures = 0
        self._received = -1
        """Number of tokens received before the stream was last lost."""
        self._lost = 0
        """Number of failed attempts since then."""
        self._lost_at = 0.0

    @property
    def failures(self) -> int:
        """Return the number of failed attempts."""
        return self._failures

    def timeout(self, now: float) -> float:
        """Return the seconds that the next attempt may take."""
        return max(0.0, self._deadline - now)

    def failed(self, error: BatonClientError, now: float, jitter: float) -> float:
        """Count a failure and return the seconds to wait before the next attempt.

        Raises:
            BatonClientError: `error` itself, if no attempt follows.
        """
        self._failures += 1
        wait = self._policy.wait(error, self._failures, self.timeout(now), jitter)
        if wait is None:
            raise error
        return wait

    def lost(self, error: BatonClientError, received: int, now: float, jitter: float) -> float:
        """Count the failure of a stream that can continue; return and raise as `failed` does.

        Args:
            error: why it was lost or could not continue.
            received: number of tokens received.
            now: as of `timeout`.
            jitter: a random number from 0 to 1.
        """
        if received > self._received:
            self._received, self._lost, self._lost_at = received, 0, now
        self._failures += 1
        self._lost += 1
        seconds, remaining = now - self._lost_at, self.timeout(now)
        wait = self._policy.wait_to_resume(error, self._lost, seconds, remaining, jitter)
        if wait is None:
            raise error
        return wait


def is_transient(error: BatonClientError) -> bool:
    """Return whether the same request may soon succeed, regardless of whether a retry is safe."""
    if isinstance(error, CapacityError):
        return error.retry_after is not None
    return isinstance(error, UnavailableError | ConnectionFailedError)


def frontend_lost(error: BatonClientError) -> bool:
    """Return whether a stream was cut by its frontend's end: another frontend can continue it."""
    if isinstance(error, UnavailableError):
        return error.reason == "DRAINING"
    return isinstance(error, ConnectionFailedError)
